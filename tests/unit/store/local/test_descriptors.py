"""What the system's calls say of files that may not be in memory. Not here: the questions of a store (`test_asking.py`)."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fsbridge.asking import WouldWait
from fsbridge.errors import NotFound
from fsbridge.store.local.descriptors import LOOK, open_cached, read_cached


@contextmanager
def open_file(path: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    fd = os.open(path, flags)
    try:
        yield fd
    finally:
        os.close(fd)


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOSYS, errno.EXDEV, errno.ELOOP, errno.EACCES])
def test_refusals_of_openat2_are_left_to_a_worker(tmp_path: Path, number: int) -> None:
    def fail(*given: object) -> int:
        ctypes.set_errno(number)
        return -1

    (tmp_path / "chunk").write_bytes(b"chunk")
    with open_file(tmp_path, LOOK) as folder:
        with pytest.raises(WouldWait):
            open_cached(folder, "chunk", LOOK, fail)
        number = errno.ENOENT
        with pytest.raises(NotFound):
            open_cached(folder, "chunk", LOOK, fail)


def test_bytes_that_are_not_in_memory_are_left_to_a_worker(tmp_path: Path) -> None:
    (tmp_path / "chunk").write_bytes(b"chunk")
    with open_file(tmp_path / "chunk") as fd:
        assert read_cached(fd, 0, 5) == b"chunk"
        with pytest.raises(WouldWait):
            read_cached(fd, 2, 5)  # the kernel gives fewer
    with open_file(Path("/proc/self/stat")) as fd:
        assert os.pread(fd, 1, 0)
        with pytest.raises(WouldWait):
            read_cached(fd, 0, 1)  # a file system that cannot tell what is in memory
