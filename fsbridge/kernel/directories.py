"""What directories contain, as far as it was read lately: opening and listing one again costs no hand-over to a worker.

It is remembered for as long as a listing may be old (P9). Not here: how it is kept (`directory_cache.py`), what is read
before anybody asks (`readahead/directories.py`), positions in a listing (`handles.py`).
"""

from __future__ import annotations

import time

from fsbridge.kernel.directory_cache import DirectoryCache
from fsbridge.kernel.handles import Reading
from fsbridge.kernel.inodes import ROOT, InodeTable
from fsbridge.kernel.records import Parked, Record
from fsbridge.tree import AnyNode, Attrs


class Directories:
    """The directories of one mount that were read lately. For the event loop's thread."""

    def __init__(self, inodes: InodeTable, ttl: float) -> None:
        """`ttl`: seconds, infinite for an immutable store."""
        self._inodes = inodes
        self._ttl = ttl
        self._directories = DirectoryCache(ttl)

    def __len__(self) -> int:
        return len(self._directories)

    @property
    def nbytes(self) -> int:
        """Memory that they take, roughly."""
        return self._directories.nbytes

    def is_known(self, inode: int) -> bool:
        """Whether it is known what the directory contains."""
        return self._directories.fresh(inode) or self.known(inode) is not None

    def known(self, inode: int) -> Reading | None:
        """What the directory contains, if that was read lately enough to be shown."""
        reading = self._directories.get(inode) or self._below(inode)
        return None if reading is None or self._directories.expired(reading) else reading

    def _below(self, inode: int) -> Reading | None:
        """What was read together with the directory above."""
        place = self._inodes.place(inode)
        if place is None:
            return None
        if place.name is None:
            above = self._directories.get(place.parent)
            return None if above is None else above.below.get(place.position)
        reading = self._directories.pop_named(place.parent, place.name)
        if reading is not None:
            self._directories.put(inode, reading)
        return reading

    def looked_up(self, parent: int, name: bytes) -> tuple[int, Attrs, float] | None:
        """The inode and the attributes of a directory that was read lately, and for how many seconds they stay valid."""
        inode = self._inodes.named(parent, name)
        reading = None if inode is None else self.known(inode)
        if inode is None or reading is None or reading.attrs is None:
            return None
        left = self._ttl - (time.monotonic() - reading.asked)
        return (inode, reading.attrs, left) if left > 0 else None

    def find(self, inode: int) -> Record | Parked | AnyNode:
        """The node behind an inode, see `InodeTable.find`. One that is not open is opened as a remembered listing has told.

        However old that is: the node itself knows which version of its content it stands for.
        """
        found = self._inodes.find(inode)
        if isinstance(found, Parked) or (isinstance(found, Record) and not found.is_open):
            self.recall(inode, found.name if isinstance(found, Record) else None)
            found = self._inodes.find(inode)
        return found

    def recall(self, inode: int, name: bytes | None) -> None:
        """Open a node, by its name where it has one, as a remembered listing of the directory above it tells."""
        reading = self._directories.get(self._inodes.parent(inode))
        if reading is not None:
            self._inodes.recall(inode, None if name is None else reading.member(name), reading.shown.space)

    def remember(self, inode: int, reading: Reading) -> None:
        """Keep what a directory contains, unless the kernel has forgotten it meanwhile."""
        if self._inodes.knows(inode):
            self._directories.put(inode, reading)

    def doubt(self, inode: int | None) -> None:
        """Forget what was read of a directory and of those above it: something there is not what it was."""
        while inode is not None and self._inodes.knows(inode):
            self._directories.drop(inode)
            inode = None if inode == ROOT else self._inodes.parent(inode)

    def expire(self) -> None:
        """Forget what is too old to be shown."""
        self._directories.expire()

    def forget(self, inode: int) -> None:
        """The kernel has dropped the inode."""
        self._directories.drop(inode)

    def clear(self) -> None:
        """Remember nothing."""
        self._directories.clear()
