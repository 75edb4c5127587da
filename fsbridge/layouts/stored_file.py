"""Stored files shown as they are: an HDF5 file as `<store>.h5`, and files of a store that belong to no array or group.

Not here: where a file is stored (the formats), virtual HDF5 files (`files/h5/nodes.py`).
"""

from __future__ import annotations

import time
from collections.abc import Hashable

from fsbridge.asking import before_waiting
from fsbridge.config import MIB
from fsbridge.errors import Stale
from fsbridge.model import StoredFile
from fsbridge.tree import Attrs, Buffer, File, Handle

WINDOW_BYTES = 4 * MIB
"""Bytes that are prefetched at a time from a remote store. The kernel reads ahead in a local file itself."""


class StoredFileNode(File):
    """One version of a stored file."""

    def __init__(self, stored: StoredFile, pause_seconds: float = 0.25) -> None:
        """`pause_seconds`: the pause between two of the 24 looks at a file that is being written.

        The default makes 6 s in all, because a slow write(2) takes that long.
        """
        self.stored = stored
        self._pause_seconds = pause_seconds
        self.version: Hashable = ("stored", stored.version)

    def attrs(self) -> Attrs:
        return Attrs("file", self.stored.size, self.stored.mtime_ns)

    def open(self) -> StoredFileHandle:
        """Open the file; Stale if it changes meanwhile.

        Just after a change, wait until a further change would be noticed.
        """
        for _ in range(24):
            if self.stored.settled():
                return StoredFileHandle(self.stored, self.version)
            before_waiting()
            time.sleep(self._pause_seconds)
        raise Stale("the stored file is being written")


class StoredFileHandle(Handle):
    """An open file. Each read checks that the stored file is still the same."""

    __slots__ = ("_stored", "size", "version", "window")

    window: int

    def __init__(self, stored: StoredFile, version: Hashable) -> None:
        self._stored = stored
        self.size = stored.size
        self.version = version
        self.window = WINDOW_BYTES if stored.is_remote else 0

    def read(self, offset: int, size: int) -> Buffer:
        """Return bytes of the file; Stale if it has changed."""
        return self._stored.read(offset, min(size, self.size - offset)) if offset < self.size else b""

    def prefetch(self, start: int, stop: int) -> None:
        """Request bytes [start, stop) of a remote file."""
        self._stored.fetch(start, stop - start)
