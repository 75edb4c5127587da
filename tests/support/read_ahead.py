"""Readers and workers for tests of read-ahead, and what it asked of them. Not here: what the tests demand of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fsbridge.kernel.handles import OpenFile
from fsbridge.kernel.readahead.files import (
    THREADS,
    Readers,
)
from fsbridge.threads.workers import Workers
from fsbridge.tree import Directory, Handle


def fail(error: Exception) -> None:
    raise AssertionError from error


class Now(Workers):
    """Does the work at once, on the caller's thread."""

    def __init__(self) -> None:
        super().__init__("test", THREADS, fail)

    def submit(self, job: Callable[[], object], dropped: Callable[[], object] = lambda: None, asked: bool = False) -> None:
        job()


class Later(Workers):
    """Does the work when it is told to, the last first."""

    def __init__(self) -> None:
        super().__init__("test", THREADS, fail)
        self.jobs: list[Callable[[], object]] = []

    def submit(self, job: Callable[[], object], dropped: Callable[[], object] = lambda: None, asked: bool = False) -> None:
        self.jobs.append(job)

    def work(self) -> None:
        while self.jobs:
            self.jobs.pop()()


class Following:
    """Opens and reads files as the kernel side does, with `readers` looking on."""

    def __init__(self, root: Directory, threads: Workers | None = None) -> None:
        self.root = root
        self.readers = Readers(threads or Now())

    def open(self, *names: bytes) -> Handle:
        node: Any = self.root
        for name in names:
            node = node.lookup(name)
        handle: Handle = node.open()
        self.file = OpenFile(0, handle, node)
        self.readers.note_open(self.file.slot, self.file.size)
        return handle

    def read(self, *names: bytes) -> bytes:
        handle = self.open(*names)
        data = handle.peek(0, handle.size)
        data = bytes(handle.read(0, handle.size) if data is None else data)
        self.readers.note_read(self.file, 0, handle.size)
        handle.close()
        return data


def open_file(directory: Directory, *names: bytes) -> Handle:
    return Following(directory).open(*names)
