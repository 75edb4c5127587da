"""P2, P8: when the daemon breaks off a conversation with an HDF5 child at any point, no answer is taken for another."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import pytest
from hdf5_model import array, opened

from fsbridge import children as protocol
from fsbridge.children.client import ChildProcess
from fsbridge.errors import FsbridgeError
from fsbridge.formats.hdf5 import filters
from fsbridge.formats.hdf5.arrays import HDF5Array


def write_texts(path: Path) -> Path:
    """Chunks that only HDF5 can read, of different lengths."""
    with h5py.File(path, "w") as file:
        made = file.create_dataset("x", (4,), h5py.string_dtype(), chunks=(1,))
        made[:] = [f"text {i}" for i in range(4)]
    return path


def read_text(found: HDF5Array, index: int) -> bytes:
    return bytes(found.chunks.read_all((index,), found.chunks.find((index,)), 1000))


class Shortage:
    """Makes the `at`th call from now on run out of memory."""

    def __init__(self, at: int) -> None:
        self.left = at

    def at(self, call: Callable[..., Any], after: bool) -> Callable[..., Any]:
        def short(*given: Any, **named: Any) -> Any:
            self.left -= 1
            if self.left == 0 and not after:
                raise MemoryError
            result = call(*given, **named)
            if self.left == 0:
                raise MemoryError
            return result

        return short


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", ["send", "receive", "_exactly"])
def test_p2_an_answer_lost_to_a_shortage_of_memory_goes_to_no_other_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, after: bool
) -> None:
    """It was given to the next question: another chunk's bytes."""
    with opened(write_texts(tmp_path / "x.h5")) as source:
        found = array(source, "x")
        right = [read_text(found, i) for i in range(4)]
        assert len({*right}) == 4
        for at in range(1, 4):
            with monkeypatch.context() as patch:
                patch.setattr(protocol, step, Shortage(at).at(getattr(protocol, step), after))
                with pytest.raises(MemoryError):
                    _ = [read_text(found, 0) for _ in range(4)]
            assert [read_text(found, i) for i in (1, 2, 3, 0)] == [*right[1:], right[0]]


def test_p8_a_child_lost_to_a_shortage_of_memory_goes_to_no_other_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next child had its process number and descriptor, and so on: each seemed to have ended at once."""
    program = filters.make_program(())
    ChildProcess(program, [], 1 << 31).close()  # the process that starts children is running
    with monkeypatch.context() as patch:
        patch.setattr(socket, "recv_fds", Shortage(1).at(socket.recv_fds, False))
        with pytest.raises(MemoryError):
            ChildProcess(program, [], 1 << 31)
    child = ChildProcess(program, [], 1 << 31)
    try:
        assert child.alive
        with pytest.raises(FsbridgeError, match="cannot open the file"):
            child.ask({"op": "open", "path": "/nothing", "allowed": [], "device": 0, "inode": 0}, 0, 30.0)
        assert child.alive
    finally:
        child.close()
