"""What the kernel's page cache holds of files whose inode stands for several versions, so that no reader sees two mixed.

Two ways lead into the pages: the replies to reads, and chunks that were decoded ahead of their reader and are put there
before he comes (`notify_store`), which spares a request and its wake-ups per MiB. Not here: the calls to the kernel
(`filesystem.py`), which chunks are decoded ahead (`readahead.py`). Thread-safe.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

REMEMBERED_VERSIONS = 65536
"""Closed files whose page-cache version is remembered: about 10 MiB; a forgotten one costs one re-read of its file."""

LOST_BLOCKS, _BLOCK_INODES = 32768, 512
"""Blocks of inode numbers of which it is remembered that a version was forgotten: about 5 MiB, sixteen million chunks."""


class _Pages:
    """What the kernel's pages of one inode hold. `emptied`: the open that emptied them has been carried out."""

    __slots__ = ("emptied", "handles", "version")

    def __init__(self, version: Hashable, emptied: bool = False) -> None:
        self.version = version
        self.emptied = emptied
        self.handles = 0


class _Inodes:
    """A set of inode numbers, compact where they lie together, as those of one array's chunks do; too many are all."""

    def __init__(self) -> None:
        self._blocks: dict[int, int] = {}
        self._all = False

    def __contains__(self, inode: int) -> bool:
        return self._all or bool(self._blocks and self._blocks.get(inode // _BLOCK_INODES, 0) >> inode % _BLOCK_INODES & 1)

    def add(self, inode: int) -> None:
        if self._all:
            return
        block = inode // _BLOCK_INODES
        self._blocks[block] = self._blocks.get(block, 0) | 1 << inode % _BLOCK_INODES
        if len(self._blocks) > LOST_BLOCKS:
            self._all = True
            self._blocks.clear()


class Caching(NamedTuple):
    """How a new open may use the kernel's page cache."""

    keep: bool
    direct: bool


class Preload(NamedTuple):
    """Permission to put a version into the pages of an inode. `empty`: they may hold another one, so they are emptied."""

    inode: int
    version: Hashable
    empty: bool


class PageVersions:
    """Which version the pages of each inode hold.

    An open of the version that the pages hold keeps them. Another version empties them, unless a file is still open on
    the old version: its later pages would join the new ones, so then the new open bypasses the cache. Pages are preloaded
    only while nobody has the file open, and nobody opens it meanwhile.
    """

    def __init__(self, remembered: int = REMEMBERED_VERSIONS) -> None:
        self._remembered = remembered
        self._lock = threading.Lock()
        self._over = threading.Condition(self._lock)  # for who waits for the end of all
        self._open: dict[int, _Pages] = {}
        self._closed: OrderedDict[int, _Pages] = OrderedDict()
        self._preloads: dict[int, bool] = {}  # in progress; whether somebody wants to open the file meanwhile
        self._coming: dict[int, bool] = {}  # files that are made ready; whether somebody wants to open one meanwhile
        self._dropped: set[int] = set()  # inodes in `_preloads` that the kernel has forgotten since
        self._lost = _Inodes()  # of which a version was forgotten while the kernel may still have pages of it
        self._storing = 0  # threads that put bytes of open files into the pages
        self._ended = False

    def __len__(self) -> int:
        return len(self._open) + len(self._closed) + len(self._preloads) + len(self._coming) + self._storing

    def opened(self, inode: int, version: Hashable) -> Caching | None:
        """Decide for a new open and count it; None while the pages are being preloaded, or are about to: ask again then."""
        with self._lock:
            for making in (self._coming, self._preloads):
                if inode in making:
                    making[inode] = True
                    return None
            pages = self._open.get(inode) or self._closed.pop(inode, None)
            if pages is None or (pages.version != version and not pages.handles):
                pages = _Pages(version)
            self._open[inode] = pages
            pages.handles += 1
            if pages.version != version:
                return Caching(keep=False, direct=True)
            # Until the emptying open is known to have been carried out, a second one must empty again:
            # the kernel may carry them out in either order.
            return Caching(keep=pages.emptied, direct=False)

    def seen(self, inode: int) -> bool:
        """Whether somebody has had the file open, or it was preloaded, since the kernel knows it: it may have its pages."""
        return inode in self._open or inode in self._closed

    def fill(self, inode: int, version: Hashable, store: Callable[[], object]) -> bool:
        """Count an open whose file's bytes `store` puts into the pages first; False: it was not done, so `opened` decides.

        Only while the pages are known to be empty: nobody has them locked then, so `store` waits for nobody. It may raise
        OSError. For the event loop.
        """
        with self._lock:
            if self._ended or inode in self._open or inode in self._closed or inode in self._preloads or inode in self._lost:
                return False
            try:
                store()
            except OSError:  # perhaps some of it is there
                self._lost.add(inode)
                return False
            pages = self._open[inode] = _Pages(version, emptied=True)
            pages.handles = 1
            return True

    def outdated(self, inode: int, version: Hashable) -> bool:
        """Whether somebody has the file open in a version other than this."""
        pages = self._open.get(inode)
        return pages is not None and pages.version != version

    def used(self, inode: int, version: Hashable) -> None:
        """A read or close of `version` has come in, so the kernel has carried out that open."""
        pages = self._open.get(inode)
        if pages is not None and pages.version == version:
            pages.emptied = True

    def closed(self, inode: int, version: Hashable) -> None:
        """Count one close."""
        with self._lock:
            self.used(inode, version)
            pages = self._open.get(inode)
            if pages is None:
                return
            pages.handles -= 1
            if not pages.handles:
                del self._open[inode]
                self._remember(inode, pages)

    def forget(self, inode: int) -> None:
        """The kernel has dropped the inode and with it its pages, or one of several references to it."""
        with self._lock:
            if self._closed.pop(inode, None) is not None:
                self._lost.add(inode)
            if inode in self._preloads:
                self._dropped.add(inode)

    def comes(self, inode: int) -> bool:
        """Have whoever opens the file wait until `came`: its bytes are being made. False where somebody has it open."""
        with self._lock:
            if self._ended or inode in self._open or inode in self._coming:
                return False
            self._coming[inode] = False
            return True

    def came(self, inode: int) -> bool:
        """What `comes` said is over, preloaded or not; whether somebody waits to open the file."""
        with self._lock:
            return self._coming.pop(inode)

    def preload(self, inode: int, version: Hashable) -> Preload | None:
        """Permission to put the bytes of `version` into the pages of `inode`, to be ended by `preloaded`; None: refused."""
        with self._lock:
            pages = self._closed.get(inode)
            if self._ended or inode in self._open or inode in self._preloads:
                return None
            if pages is not None and pages.version != version:
                return None  # rare; the open that is about to come empties them
            self._preloads[inode] = False
            return Preload(inode, version, empty=pages is None and inode in self._lost)

    def preloaded(self, permission: Preload, complete: bool, known: bool = True) -> bool:
        """End a preload; whether somebody waits to open the file.

        `complete`: the kernel has taken everything; `known`: it knows the inode at all, else it has no pages either.
        """
        with self._lock:
            awaited = self._preloads.pop(permission.inode)
            if permission.inode in self._dropped:
                self._dropped.discard(permission.inode)
                self._lost.add(permission.inode)
            elif known:  # of an incomplete one nobody can say what the pages hold: the next open must empty them
                self._remember(permission.inode, _Pages(permission.version if complete else object(), emptied=True))
            if self._ended:
                self._over.notify_all()
            return awaited

    @contextmanager
    def storing(self) -> Iterator[bool]:
        """While bytes of an open file, whose inode has one version, are put into its pages; False: they must not be."""
        with self._lock:
            allowed = not self._ended
            self._storing += allowed
        try:
            yield allowed
        finally:
            with self._lock:
                self._storing -= allowed
                self._over.notify_all()

    def end(self, seconds: float) -> bool:
        """Give no more permission, and wait until the last preload is over; False when one is not within `seconds`."""
        with self._lock:
            self._ended = True
            return self._over.wait_for(lambda: not self._preloads and not self._storing, seconds)

    def _remember(self, inode: int, pages: _Pages) -> None:
        self._closed[inode] = pages
        self._closed.move_to_end(inode)
        if len(self._closed) > self._remembered:
            self._lost.add(self._closed.popitem(last=False)[0])
