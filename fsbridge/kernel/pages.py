"""The version in the kernel's page cache, for each file whose inode stands for several, so that no reader sees two mixed.

Not here: the replies that fill the pages (`filesystem.py`). The event loop's thread owns everything here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import NamedTuple

REMEMBERED_VERSIONS = 65536
"""Number of closed files with a remembered page-cache version: about 10 MiB; a forgotten one costs one re-read of its file.
"""


class _Pages:
    """What the kernel's pages of one inode hold. `emptied`: the kernel has carried out the open that emptied them."""

    __slots__ = ("emptied", "handles", "version")

    def __init__(self, version: Hashable) -> None:
        self.version = version
        self.emptied = False
        self.handles = 0


class Caching(NamedTuple):
    """How a new open may use the kernel's page cache."""

    keep: bool
    direct: bool


class PageVersions:
    """Which version the pages of each inode hold.

    An open of the version that the pages hold keeps them. An open of another version empties them. If a file is still open
    in the old version, its later pages would join the new ones, so the new open bypasses the page cache instead.
    """

    def __init__(self, remembered: int = REMEMBERED_VERSIONS) -> None:
        self._remembered = remembered
        self._open: dict[int, _Pages] = {}
        self._closed: OrderedDict[int, _Pages] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open) + len(self._closed)

    def opened(self, inode: int, version: Hashable) -> Caching:
        """Count a new open, and return how it may use the page cache."""
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
        """True if the file was open before: the kernel may have its pages."""
        return inode in self._open or inode in self._closed

    def outdated(self, inode: int, version: Hashable) -> bool:
        """True if the file is open in a version other than `version`."""
        pages = self._open.get(inode)
        return pages is not None and pages.version != version

    def used(self, inode: int, version: Hashable) -> None:
        """Note a read or close of `version`, which shows that the kernel has carried out the open of it."""
        pages = self._open.get(inode)
        if pages is not None and pages.version == version:
            pages.emptied = True

    def closed(self, inode: int, version: Hashable) -> None:
        """Count one close."""
        self.used(inode, version)
        pages = self._open.get(inode)
        if pages is None:
            return
        pages.handles -= 1
        if not pages.handles:
            del self._open[inode]
            self._closed[inode] = pages
            if len(self._closed) > self._remembered:
                self._closed.popitem(last=False)

    def forget(self, inode: int) -> None:
        """Forget the version of a closed file: the kernel has dropped its inode and pages, or a reference to the inode."""
        self._closed.pop(inode, None)
