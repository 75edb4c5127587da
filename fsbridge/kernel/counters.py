"""Counters: what the kernel has asked of one mount, what was answered, and the last errors with their reasons.

The event loop counts; another thread may look at any time, so each look takes one copy. Not here: what the cache holds
(`../cache.py`), how long jobs take (`jobs.py`), the reports made from them (`mount/control.py`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

KEPT_ERRORS = 100
"""Number of latest errors that are kept with their reasons: enough to see a pattern, few enough to read."""

REASON_CHARACTERS = 1000
"""Number of characters of a reason that are kept."""


class Failure(NamedTuple):
    """How often and when the kernel got an error with one path and reason."""

    path: str
    errno: int
    reason: str
    times: int
    last: float
    """Seconds since 1970."""


class Counters:
    """What has been counted since the mount began."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        """Requests by handler."""
        self.bytes_read = 0
        """Bytes in answers to reads. Bytes pushed into the kernel's pages without a request are not included."""
        self.errors: Counter[int] = Counter()
        """Errors by errno, without the ordinary answers (`boundary.py`)."""
        self._failures: dict[tuple[str, str], Failure] = {}  # the latest one is the last

    def failed(self, path: str, errno: int, reason: str) -> None:
        """Count an error, and keep its reason."""
        self.errors[errno] += 1
        key = (path, reason[:REASON_CHARACTERS])
        before = self._failures.pop(key, None)
        self._failures[key] = Failure(path, errno, key[1], before.times + 1 if before else 1, time.time())
        if len(self._failures) > KEPT_ERRORS:
            del self._failures[next(iter(self._failures))]

    def failures(self) -> list[Failure]:
        """The last errors, the latest one last. For any thread."""
        return list(self._failures.values())


class Accesses:
    """Report opened files, and reads that were not answered from memory, to `tell` if it is set. For the event loop.

    `tell` gets what was done, the inode, offset and size, and the seconds it took. It must not block.
    """

    def __init__(self) -> None:
        self.tell: Callable[[str, int, int, int, float], object] | None = None

    def opened(self, inode: int, size: int, begun: float) -> None:
        """Report that a file of `size` bytes was opened; `begun`: when its request began to wait (time.monotonic)."""
        if self.tell is not None:
            self.tell("open", inode, 0, size, time.monotonic() - begun)

    def loaded(self, inode: int, offset: int, size: int, begun: float) -> None:
        """Report that `size` bytes were read for a request that had waited since `begun`."""
        if self.tell is not None:
            self.tell("read", inode, offset, size, time.monotonic() - begun)
