"""Preloading the kernel's page cache: chunks that were decoded ahead are stored there before a program reads them.

A chunk that was decoded ahead goes to the kernel in one call from the thread that decoded it; its reader then finds most
of it in memory, without a request and two wake-ups per MiB. A kernel that does not take it costs nothing: the reader asks
for the bytes, as ever. Not here: whether it may be done now (`pages.py`), which chunks are decoded ahead (`readahead.py`).

The kernel locks the pages that it stores, so nobody whom a request waits for may store any, and nobody may be reading
them: both processes would hang. Therefore an open waits until its file's preload is over, and already while the file is made
for one. Of a long file that is being read, what lies far before its reader goes the same way; a request that comes for it
all the same is answered from memory.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Hashable
from typing import cast

import pyfuse3
import trio

from fsbridge.errors import TimedOut
from fsbridge.kernel.handles import OpenFile
from fsbridge.kernel.inodes import InodeTable
from fsbridge.kernel.jobs import Jobs
from fsbridge.kernel.pages import Caching, PageVersions
from fsbridge.tree import PAGE_BYTES, Space, Unsettled

LEAST_BYTES = 128 * 1024
"""Bytes of a chunk from which on it is preloaded."""

END_BYTES, END_EVERY = 4096, 4
"""Of every fourth chunk so many bytes at the end are not preloaded: the request for them tells that chunks are read."""

SMALL_BYTES, SMALL_END_EVERY = 512 * 1024, 8
"""Of chunks of at most so many bytes, every eighth: twice as many or more of them are read ahead (`readahead.near`)."""

NEAR_BYTES = 2 << 20
"""Bytes before a reader which the kernel may be asking for already: its read-ahead is 1 MiB long."""


class AtOpen:
    """Puts all bytes of a file into the page cache while it is being opened, which spares the request for them.

    A `tree.Deliver` for one open, on the event loop. It does not block: it takes nothing unless the pages are known to be
    empty, and then nobody has them locked. `taken`: the open has been counted. Without `pages`, nothing is ever taken.
    """

    __slots__ = ("_inode", "_pages", "taken")

    def __init__(self, pages: PageVersions | None, inode: int) -> None:
        self._pages = pages
        self._inode = inode
        self.taken = False

    def __call__(self, version: Hashable, offset: int, data: memoryview) -> int:
        if self._pages is None or offset or isinstance(version, Unsettled):
            return 0
        inode = self._inode
        self.taken = self._pages.fill(inode, version, lambda: pyfuse3.notify_store(inode, 0, cast(bytes, data)))
        return len(data) if self.taken else 0


class Preloads:
    """The preloads of one mount.

    `coming`, `deliver` and `deliver_open` are for the read-ahead's threads, `at_open` and `opened` for the event loop's.
    """

    def __init__(self, pages: PageVersions, inodes: InodeTable, jobs: Jobs) -> None:
        self._pages = pages
        self._inodes = inodes
        self._jobs = jobs
        self._awaited: dict[int, trio.Event] = {}

    def coming(self, space: Space, position: int, make: Callable[[], bool]) -> bool:
        """`make`, which makes the bytes of a file ready. An open waits, so that they are neither made nor sent once more."""
        base = self._inodes.known_base(space)
        inode = None if base is None else base + position
        if inode is None or not self._pages.comes(inode):
            return make()
        try:
            return make()
        finally:
            if self._pages.came(inode):
                self._jobs.on_loop(lambda: self._arrived(inode))

    def deliver(self, space: Space, position: int, version: Hashable, offset: int, data: memoryview) -> int:
        """Put the bytes of a file from `offset` on into the page cache, if nobody is about to use it; how many are there.

        `data` reaches to the file's end. Blocks.
        """
        base = self._inodes.known_base(space)
        if base is None or len(data) < LEAST_BYTES or offset % PAGE_BYTES:
            return 0
        permission = self._pages.preload(base + position, version)
        if permission is None:
            return 0
        complete, known = False, True
        try:
            if permission.empty:
                pyfuse3.invalidate_inode(permission.inode)
            every = SMALL_END_EVERY if offset + len(data) <= SMALL_BYTES else END_EVERY
            stored = data if position % every else data[: (len(data) - END_BYTES) // PAGE_BYTES * PAGE_BYTES]
            pyfuse3.notify_store(permission.inode, offset, cast(bytes, stored))  # any buffer will do
            complete = True
            return len(stored)
        except OSError as error:
            known = error.errno != errno.ENOENT  # else nobody has looked the file up yet
            return 0
        finally:
            if self._pages.preloaded(permission, complete, known):
                self._jobs.on_loop(lambda: self._arrived(permission.inode))

    def deliver_open(self, file: OpenFile, offset: int, data: memoryview) -> int:
        """Put whole pages of an open file from `offset` on into the page cache, if its reader is still far from there.

        Returns how many bytes are there. The file's inode must have one version. Blocks, also until requests for these pages
        are answered: `data` must be where those find it.
        """
        first, stop = -(-offset // PAGE_BYTES) * PAGE_BYTES, (offset + len(data)) // PAGE_BYTES * PAGE_BYTES
        if not file.preloads or offset < file.followed + NEAR_BYTES or stop - first < LEAST_BYTES:
            return 0
        with self._pages.storing() as allowed:
            if not allowed:
                return 0
            try:
                pyfuse3.notify_store(file.inode, first, cast(bytes, data[first - offset : stop - offset]))
            except OSError:  # nobody knows the inode any more
                return 0
        file.delivered = max(file.delivered, stop)
        return stop - first

    def at_open(self, inode: int, versioned: bool) -> AtOpen:
        """Takes the bytes of a file that is being opened; see `AtOpen`."""
        return AtOpen(None if versioned else self._pages, inode)

    async def opened(self, inode: int, version: Hashable, patience: float) -> Caching:
        """How a new open may use the page cache, known once what is on its way there has arrived.

        Raises TimedOut after `patience` seconds.
        """
        caching = self._pages.opened(inode, version)
        deadline = trio.current_time() + patience if caching is None else 0.0
        while caching is None:
            arrival = self._awaited.setdefault(inode, trio.Event())
            with trio.CancelScope(deadline=deadline):
                await arrival.wait()
            if not arrival.is_set():
                raise TimedOut("the chunk was being read ahead, and was not ready within the deadline")
            caching = self._pages.opened(inode, version)
        return caching

    def _arrived(self, inode: int) -> None:
        arrival = self._awaited.pop(inode, None)
        if arrival is not None:
            arrival.set()
