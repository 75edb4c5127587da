"""`<store>.h5` of an HDF5 file: the file's own bytes. Not here: virtual HDF5 files (`nodes.py`)."""

from __future__ import annotations

import time
from collections.abc import Hashable

from fsbridge.asking import before_waiting
from fsbridge.config import MIB
from fsbridge.errors import Stale
from fsbridge.model import WholeFile
from fsbridge.tree import Attrs, Buffer, File, Handle

WINDOW_BYTES = 4 * MIB
"""Bytes that are prefetched at a time from a remote store. The kernel reads ahead in a local file itself."""

_LOOKS, _PAUSE_SECONDS = 24, 0.25
"""Looks at a file that is being written, and the pause between two of them: 6 s in all, as a slow write(2) takes."""


class OwnFile(File):
    """One version of a stored HDF5 file."""

    def __init__(self, stored: WholeFile) -> None:
        self.stored = stored
        self.version = ("h5", stored.version)

    def attrs(self) -> Attrs:
        return Attrs("file", self.stored.size, self.stored.mtime_ns)

    def open(self) -> OwnHandle:
        """Open the file. Just after a change, wait until any further change would show; Stale if it changes meanwhile."""
        for _ in range(_LOOKS):
            if self.stored.settled():
                return OwnHandle(self.stored, self.version)
            before_waiting()
            time.sleep(_PAUSE_SECONDS)
        raise Stale("the HDF5 file is being written")


class OwnHandle(Handle):
    """An open file. Each read checks that the stored file is still the same."""

    __slots__ = ("_stored", "size", "version", "window")

    window: int

    def __init__(self, stored: WholeFile, version: Hashable) -> None:
        self._stored = stored
        self.size = stored.size
        self.version = version
        self.window = WINDOW_BYTES if stored.is_remote else 0

    def read(self, offset: int, size: int) -> Buffer:
        """Return bytes of the file; Stale if it has changed."""
        return self._stored.read(offset, min(size, self.size - offset)) if offset < self.size else b""

    def prefetch(self, start: int, stop: int) -> None:
        """Request bytes of a remote file."""
        self._stored.fetch(start, stop - start)
