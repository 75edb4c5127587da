"""The kernel's pages of open files: which version they hold, and which requests for them are declined.

If an inode stands for several versions of a file, no reader may see two mixed. So each open keeps the pages, empties them or
bypasses them.

At each page fault in a file that is mapped by `mmap` the kernel requests more than that page: as much around it as its
read-ahead is long. In a file that is put together from chunks, that can be hundreds of chunks for one row. No program
notices that such a request fails: the kernel then requests only the page that is needed. A program that calls `read` is
recognised because it then asks for the first declined page; nothing is declined to it again. Measured in pairs:
`np.load(mmap_mode="r")[:, 512]` of 256 planes in chunks of 8 MiB takes 0.5 times as long with it, and 0.6 times the
processor time (row `files XZ large chunks` of `scripts/bench`).

Not here: the replies that fill the pages (`filesystem.py`), reading ahead (`readahead/`). The event loop's thread owns
everything here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import NamedTuple

from fsbridge.lru import Recent
from fsbridge.threads.deadlines import Deadline

REMEMBERED_VERSIONS = 65536
"""Number of closed files with a remembered page-cache version: about 10 MiB; a forgotten one costs one re-read of its file.
"""

LEAST_BYTES = 64 * 1024
"""Bytes of the smallest request that is declined. Rows up to this length also arrive as requests of single pages."""

JUMPS = 2
"""Number of requests, each farther from the last than it is long, after which a program seems to pick rows."""

REMEMBERED = 8
"""Number of declined requests that are remembered, because their pages may still be asked for."""


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
        self._open: dict[int, _Pages] = {}
        self._closed = Recent[int, _Pages](remembered)

    def __len__(self) -> int:
        return len(self._open) + len(self._closed)

    def count_open(self, inode: int, version: Hashable) -> Caching:
        """Count a new open, and return how it may use the page cache."""
        pages = self._open.get(inode) or self._closed.pop(inode)
        if pages is None or (pages.version != version and not pages.handles):
            pages = _Pages(version)
        self._open[inode] = pages
        pages.handles += 1
        if pages.version != version:
            return Caching(keep=False, direct=True)
        # Until the emptying open is known to have been carried out, a second one must empty again:
        # the kernel may carry them out in either order.
        return Caching(keep=pages.emptied, direct=False)

    def was_open(self, inode: int) -> bool:
        """True if the file was open before: the kernel may have its pages."""
        return inode in self._open or inode in self._closed

    def is_outdated(self, inode: int, version: Hashable) -> bool:
        """True if the file is open in a version other than `version`."""
        pages = self._open.get(inode)
        return pages is not None and pages.version != version

    def note_used(self, inode: int, version: Hashable) -> None:
        """Note a read or close of `version`, which shows that the kernel has carried out the open of it."""
        pages = self._open.get(inode)
        if pages is not None and pages.version == version:
            pages.emptied = True

    def count_close(self, inode: int, version: Hashable) -> None:
        """Count one close."""
        self.note_used(inode, version)
        pages = self._open.get(inode)
        if pages is None:
            return
        pages.handles -= 1
        if not pages.handles:
            del self._open[inode]
            self._closed.put(inode, pages)

    def forget(self, inode: int) -> None:
        """Forget the version of a closed file: the kernel has dropped its inode and pages, or a reference to the inode."""
        self._closed.pop(inode)


STALE_FILES, STALE_SECONDS = 256, 5.0
"""Most files of which it is known that opening them was Stale, and for how many seconds it is."""


class StaleOpens:
    """The files that could not be opened just now because their version had changed: by inode, or by directory and name.

    The kernel looks up such a name and opens the file again, but only once. If the file has changed again by then, this
    open takes the present version and bypasses the page cache. Measured with a chunk that is rewritten every 10 ms on a
    busy machine: 13 and 23 opens failed before, 0, 0 and 1 with this class. Not at the first try: such a file cannot be
    mapped with MAP_SHARED.
    """

    def __init__(self) -> None:
        self._until = Recent[int | tuple[int, bytes], Deadline](STALE_FILES)

    def note(self, key: int | tuple[int, bytes], until: Deadline | None = None) -> None:
        """Note that an open was Stale; `until`: when to forget the note, by default after `STALE_SECONDS`."""
        self._until.put(key, until or Deadline(STALE_SECONDS))

    def note_look_up(self, inode: int, parent: int, name: bytes, number: int | None) -> None:
        """If an open of a name was Stale, note the same of `inode`, which a new look-up of that name has given.

        `number`: the inode that the name usually has; None if it has none.
        """
        until = self.until((parent, name)) or (None if number is None else self.until(number))
        if until is not None:
            self.note((parent, name), until)
            self.note(inode, until)

    def until(self, key: int | tuple[int, bytes]) -> Deadline | None:
        """Return until when an open counts as a second try; None if it does not."""
        until = self._until.peek(key)
        return None if until is None or until.passed else until


class Scattered:
    """The sequence of requests for one open file, and which of them to decline."""

    __slots__ = ("_declined", "_jumps", "_last", "_never", "_next", "_run")

    def __init__(self) -> None:
        self._declined: deque[tuple[int, int]] = deque(maxlen=REMEMBERED)  # where declined requests begin and end
        self._jumps = 0  # requests far from the one before, one after the other
        self._last: int | None = None  # where the last long request begins
        self._next = -1  # where the last short request ended
        self._run = 0  # bytes of short requests, each behind the one before
        self._never = False

    def declines(self, start: int, stop: int) -> bool:
        """True if the request is to fail, because a program seems to need only one page of it."""
        size = stop - start
        if self._never:
            return False
        if size < LEAST_BYTES:
            if any(start == begin for begin, _ in self._declined):
                self._never = True
            self._run = self._run + size if start == self._next else size
            self._next = stop
            if self._run > LEAST_BYTES:  # from front to back again
                self._jumps = 0
            return False
        if any(begin <= start and stop <= end for begin, end in self._declined):
            return False  # the part of it that a program waits for: with large folios in the kernel it may be long
        if self._last is None or abs(start - self._last) > size:
            self._jumps += 1
        elif self._jumps <= JUMPS:
            self._jumps = 0
        self._last = start
        if self._jumps <= JUMPS:
            return False
        self._declined.append((start, stop))
        return True
