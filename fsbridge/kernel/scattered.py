"""Decline the kernel's read-around where a program picks rows of planes through `mmap`.

At each page fault the kernel requests more than that page: as much around it as its read-ahead is long. In a file that is
put together from chunks, that can be hundreds of chunks for one row. No program notices that a read-ahead request fails: the
kernel then requests only the page that is needed. A program that calls `read` is recognised because it then asks for the
first declined page; nothing is declined to it again. Not here: reading ahead (`readahead/`), replies.

Measured in pairs: `np.load(mmap_mode="r")[:, 512]` of 256 planes in chunks of 8 MiB takes 0.5 times as long with it, and 0.6
times the processor time (row `files XZ large chunks` of `scripts/bench`).
"""

from __future__ import annotations

from collections import deque

LEAST_BYTES = 64 * 1024
"""Least bytes of a request that may be read-around. Rows up to this length also arrive as requests of single pages."""

FAR_REQUESTS = 2
"""Number of requests, each farther from the last than it is long, after which a program seems to pick rows."""

REMEMBERED = 8
"""Number of declined requests that are remembered, because their pages may still be asked for."""


class Scattered:
    """The sequence of requests for one open file, and which of them to decline."""

    __slots__ = ("_declined", "_far", "_last", "_never", "_next", "_run")

    def __init__(self) -> None:
        self._declined: deque[tuple[int, int]] = deque(maxlen=REMEMBERED)  # where declined requests begin and end
        self._far = 0  # requests far from the one before, one after the other
        self._last: int | None = None  # where the last long request begins
        self._next = -1  # where the last short request ended
        self._run = 0  # bytes of short requests, each behind the one before
        self._never = False

    def declines(self, start: int, stop: int) -> bool:
        """True if the request is to fail because it is read-around, and only one page of it is needed."""
        size = stop - start
        if self._never:
            return False
        if size < LEAST_BYTES:
            if any(start == begin for begin, _ in self._declined):
                self._never = True
            self._run = self._run + size if start == self._next else size
            self._next = stop
            if self._run > LEAST_BYTES:  # from front to back again
                self._far = 0
            return False
        if any(begin <= start and stop <= end for begin, end in self._declined):
            return False  # the part of it that a program waits for: with large folios in the kernel it may be long
        if self._last is None or abs(start - self._last) > size:
            self._far += 1
        elif self._far <= FAR_REQUESTS:
            self._far = 0
        self._last = start
        if self._far <= FAR_REQUESTS:
            return False
        self._declined.append((start, stop))
        return True
