"""What the event loop asks an HDF5 file itself: answered from memory, or left to a worker. Files that cannot be opened."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import h5py
import numpy as np
import pytest
from asked import at_once
from hdf5_children import noting
from hdf5_model import opened
from waiting import until

from fsbridge.config import Config
from fsbridge.decoded.cache import ChunkCache
from fsbridge.errors import CorruptData
from fsbridge.formats.hdf5.file import HDF5File
from fsbridge.formats.hdf5.source import open_hdf5
from fsbridge.formats.hdf5.versions import LocalDataFile
from fsbridge.layouts import root_directory
from fsbridge.store.local import descriptors

VALUES = np.arange(64, dtype="<u2")


def write(path: Path, values: np.ndarray[Any, Any] = VALUES) -> None:
    """A file with one array of four chunks, in forms that we decode, that the child decodes, and uncut."""
    with h5py.File(path, "w") as file:
        file.create_dataset("chunked", data=values, chunks=(16,), compression="gzip", shuffle=True)
        file.create_dataset("lzf", data=values, chunks=(16,), compression="lzf", shuffle=True)
        file["whole"] = values


@pytest.fixture
def asked() -> list[str]:
    """What the child is asked."""
    return []


@pytest.fixture
def root(tmp_path: Path, asked: list[str]) -> Iterator[Any]:
    """The tree of such a file, `x.h5`."""
    path = tmp_path / "x.h5"
    write(path)
    os.utime(path, ns=(10**18, 10**18))  # so that a further change differs from the first write
    with opened(path, noting(asked)) as source:
        yield root_directory(source, source.file.config, ChunkCache(1 << 20))


def find_chunks(root: Any, name: bytes = b"chunked") -> Any:
    """The directory of an array's chunk files."""
    return root.lookup(name).lookup(b"c")


def wait_for_answer(ask: Callable[[], Any]) -> Any:
    """Return an answer that needs no waiting. The kernel may be unsure for a moment when another mount is made."""
    return until(lambda: [answer for answer in [ask()] if answer is not None])[0]


def test_a_chunk_is_opened_without_waiting_after_a_worker_has_looked(root: Any) -> None:
    directory = find_chunks(root)
    file = directory.lookup(b"1")

    def peek() -> memoryview | None:
        """What needs no worker, after one has read the chunk. Memory that other programs want is taken from what is kept."""
        assert file.open().read(0, 32) == VALUES[16:32].tobytes()
        handle = at_once(file.open)
        return None if handle is None else cast(memoryview | None, handle.peek(0, 32))

    assert bytes(wait_for_answer(peek)) == VALUES[16:32].tobytes()
    for name in (b"2", b"3"):
        node = wait_for_answer(partial(at_once, partial(directory.lookup, name)))
        assert (node.slot, node.attrs()) == (directory.lookup(name).slot, directory.lookup(name).attrs())


def test_what_is_not_known_is_left_to_a_worker(root: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    file = find_chunks(root).lookup(b"1")
    with monkeypatch.context() as patched:
        patched.setattr(descriptors, "openat2", lambda *given: (-1, errno.EAGAIN))
        assert at_once(file.open) is None
    wait_for_answer(lambda: at_once(file.open))


def test_what_the_child_must_decode_is_left_to_the_read(root: Any, asked: list[str]) -> None:
    chunk = find_chunks(root, b"lzf").lookup(b"1")
    asked.clear()
    at_once(chunk.open)
    assert not asked, "the event loop asked the child"
    assert chunk.open().read(0, 32) == VALUES[16:32].tobytes()
    assert "read" in asked


@pytest.mark.parametrize("how", ["replaced", "rewritten", "removed"])
def test_p9_a_changed_file_is_left_to_a_worker(root: Any, tmp_path: Path, how: str) -> None:
    file = find_chunks(root).lookup(b"1")
    wait_for_answer(lambda: at_once(file.open))
    if how == "removed":
        (tmp_path / "x.h5").unlink()
    else:
        write(tmp_path / "new.h5", VALUES + 1)
        if how == "replaced":
            (tmp_path / "new.h5").rename(tmp_path / "x.h5")
        else:
            shutil.copyfile(tmp_path / "new.h5", tmp_path / "x.h5")
    assert at_once(file.open) is None


def test_a_network_file_system_is_left_to_a_worker(tmp_path: Path) -> None:
    write(tmp_path / "y.h5")
    config = Config(str(tmp_path / "y.h5"), "/mnt")
    source = open_hdf5(LocalDataFile(config.source, is_local=lambda fd: False), config)
    file = find_chunks(root_directory(source, config, ChunkCache(config.cache_size))).lookup(b"1")
    assert at_once(file.open) is None
    assert file.open().read(0, 32) == VALUES[16:32].tobytes()
    source.close()


def walk_frames(error: BaseException) -> Iterator[Any]:
    """The frames of an error's traceback."""
    traceback = error.__traceback__
    while traceback is not None:
        yield traceback.tb_frame
        traceback = traceback.tb_next


def test_p11_a_file_that_cannot_be_opened_is_refused_again_without_growth(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    write(path)
    data = bytearray(path.read_bytes())
    data[96:200] = b"\xff" * 104  # the header of the root group
    path.write_bytes(data)
    file = HDF5File(LocalDataFile(os.fspath(path)), Config(os.fspath(path), "/nowhere"))
    try:
        refusals: list[CorruptData] = []
        for _ in range(3):
            with pytest.raises(CorruptData, match="cannot open the file") as refused:
                file.ask({"op": "attributes", "path": []})
            refusals.append(refused.value)
        assert len({len(list(walk_frames(refusal))) for refusal in refusals[1:]}) == 1
        assert file._failure is not None
        assert file._failure[1].__traceback__ is None
    finally:
        file.close()
