"""One version of one file, read by byte range. The file is on a local disk, or an object of a store.

Not here: what the file holds (`zip/`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Protocol

from fsbridge.errors import CorruptData, Stale
from fsbridge.store import Key, Stat, Store
from fsbridge.store.local.descriptors import OpenPath
from fsbridge.store.local.files import OPEN
from fsbridge.store.local.status import stat_of

WINDOW_BYTES = 64 * 1024
"""Least bytes of a request: enough for a member's header, its name and often all of its data."""


class Blob(Protocol):
    """One version of a file."""

    stat: Stat

    def pread(self, start: int, length: int) -> bytes:
        """Return exactly `length` bytes; CorruptData beyond the end, Stale if the store reports another version."""

    def check(self) -> None:
        """Raise Stale if the file has been replaced; does nothing if `pread` checks that itself."""


class BlobFile(Protocol):
    """A file that may be replaced."""

    name: str

    def look(self) -> Stat:
        """Return the present stat of the file."""

    def open(self) -> Blob:
        """Open the present version."""


class LocalBlob:
    """A file that is open by a descriptor, which is closed with the last reference to this object."""

    def __init__(self, path: str, open_path: OpenPath = os.open) -> None:
        self._fd = -1
        self._path = path
        self._fd = open_path(path, OPEN)
        self.stat = stat_of(os.fstat(self._fd))

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def pread(self, start: int, length: int) -> bytes:
        parts = []
        while length:
            try:
                data = os.pread(self._fd, length, start)
            except OSError as error:  # such as EIO from a failing disk
                error.filename = self._path
                raise
            if not data:
                raise CorruptData("the archive is shorter than its directory says")
            parts.append(data)
            start += len(data)
            length -= len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def check(self) -> None:
        if stat_of(os.fstat(self._fd)).version != self.stat.version:
            raise Stale("the archive was changed while it was read")


class LocalFile:
    """A file by its path. `check` raises AccessDenied if the mount's users may not read it. `open_path` opens it."""

    def __init__(self, path: str, check: Callable[[str], None] | None = None, open_path: OpenPath = os.open) -> None:
        self.name = os.path.abspath(path)
        self._check = check
        self._open_path = open_path

    def look(self) -> Stat:
        if self._check is not None:
            self._check(self.name)
        return stat_of(os.stat(self.name))

    def open(self) -> LocalBlob:
        if self._check is not None:
            self._check(self.name)
        return LocalBlob(self.name, self._open_path)


class _Window(threading.local):
    """The bytes that a thread read last, and the position of the first one."""

    first = 0
    data = b""


class ObjectBlob:
    """An object of a store. Each answer carries its version. Each thread keeps a window of the bytes that it read last."""

    def __init__(self, read: Callable[[int, int], tuple[bytes, Stat]], stat: Stat) -> None:
        self.stat = stat
        self._read = read
        self._window = _Window()

    def pread(self, start: int, length: int) -> bytes:
        first, data = self._window.first, self._window.data
        if not (first <= start and start + length <= first + len(data)):
            if start < 0 or start + length > self.stat.size:
                raise CorruptData("the archive is shorter than its directory says")
            wanted = min(max(length, WINDOW_BYTES), self.stat.size - start)
            data, now = self._read(start, wanted)
            if now.version != self.stat.version:
                raise Stale("the archive was replaced while it was read")
            first = start
            if wanted <= WINDOW_BYTES:
                self._window.first, self._window.data = first, data
        return data[start - first : start - first + length]

    def check(self) -> None:
        """Do nothing: each answer was checked."""


class ObjectFile:
    """The object at `key` of a store."""

    def __init__(self, store: Store, key: Key) -> None:
        self._store = store
        self._key = key
        self.name = store.describe(key)

    def look(self) -> Stat:
        return self._store.stat(self._key, (0, WINDOW_BYTES))

    def open(self) -> ObjectBlob:
        return ObjectBlob(lambda start, length: self._store.read_range(self._key, start, length), self.look())
