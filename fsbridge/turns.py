"""Turns: which of a cache's largest chunks are being read now, and so keep their place for a while.

If more of them are read at once than there is room for, each request would evict the chunk of another reader and decode its
own again: a chunk of 100 MB for every MiB. Not here: what else is evicted (`cache.py`).
"""

from __future__ import annotations

import time
from collections.abc import Hashable

LARGE_PART = 4
"""Chunks larger than this part (a quarter) of the budget take turns: of others there is room for several."""

TURN_SECONDS = 1.0
"""Seconds for which a chunk keeps its place: enough to read it to its end."""

BETWEEN_SECONDS = 0.05
"""Seconds without a request after which a chunk loses its place, because its reader seems to pause."""

POLITE_SECONDS = 5.0
"""Longest wait for a turn, in seconds: the waiting request has a deadline of its own."""


class Turns:
    """The turns of one cache of `budget` bytes; its lock protects them."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._read: dict[Hashable, tuple[float, float]] = {}  # when it was first read, and when it was read last

    def concern(self, size: int) -> bool:
        """True if a chunk of `size` bytes is large enough to need a turn."""
        return size * LARGE_PART > self._budget

    def read(self, key: Hashable, size: int) -> None:
        """Note that a chunk of `size` bytes is read."""
        if self.concern(size):
            now = time.monotonic()
            self._read[key] = self._read.get(key, (now, now))[0], now

    def keeps(self, key: Hashable, now: float) -> bool:
        """True if the chunk has its turn, so that it must not be evicted yet."""
        first, last = self._read.get(key, (0.0, 0.0))
        return now - first < TURN_SECONDS and now - last < BETWEEN_SECONDS

    def over(self, key: Hashable) -> None:
        """End the turn of a chunk that is no longer in the cache."""
        self._read.pop(key, None)
