"""What a cache notes about chunks in use: decodings in progress, prefetched chunks, and turns of the largest ones.

If more large chunks are read at once than there is room for, each request would evict the chunk of another reader and decode
its own again: a chunk of 100 MB for every MiB. So a large chunk that is being read keeps its place for a while: its turn.

Not here: what decoded chunks there are, and the memory that they take (`cache.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Hashable
from dataclasses import dataclass, field

from fsbridge.deadlines import Deadline, Stopwatch
from fsbridge.errors import FsbridgeError, OutOfBudget

AHEAD_PART = 4
"""Prefetched chunks take at most this part (a quarter) of the budget."""


@dataclass(slots=True)
class Decoding:
    """One decoding, in progress while `under_way` is held.

    `unasked`: it was begun before a reader asked; if it fails, a reader that waits for it decodes the chunk itself.
    `placed`: it has its memory, so it needs no other thread to finish.
    """

    unasked: bool = False
    placed: bool = False
    under_way: threading.Lock = field(default_factory=threading.Lock)
    view: memoryview | None = None
    error: FsbridgeError | None = None

    def __post_init__(self) -> None:
        self.under_way.acquire()

    def wait(self, deadline: Deadline) -> bool:
        """Wait for its end; False if it has no memory at `deadline`, and so may never end."""
        if not self.under_way.acquire(timeout=deadline.left):
            if not self.placed:
                return False
            self.under_way.acquire()  # it ends; the caller's deadline is the kernel side's
        self.under_way.release()
        return True

    def result(self) -> memoryview | None:
        """Return the decoded chunk, or raise the chunk's error; None if the caller is to decode it itself."""
        if self.error is None or self.unasked or isinstance(self.error, OutOfBudget):
            return self.view
        raise self.error


class Unasked:
    """The prefetched chunks of one cache, decoded or being decoded; the cache's lock protects them."""

    def __init__(self, budget: int) -> None:
        self._most = budget // AHEAD_PART
        self._sizes: dict[Hashable, int] = {}
        self.nbytes = 0
        """Bytes of the buffers of all prefetched chunks."""

    def permits(self, size: int) -> bool:
        """True if another chunk with a buffer of `size` bytes may be prefetched."""
        return self.nbytes + size <= self._most

    def add(self, key: Hashable, size: int) -> None:
        """Note that a chunk is going to be decoded."""
        self._sizes[key] = size
        self.nbytes += size

    def asked(self, key: Hashable) -> None:
        """Note that a reader has asked for a chunk, or that it was evicted."""
        self.nbytes -= self._sizes.pop(key, 0)

    def keep(self, keys: Collection[Hashable]) -> None:
        """Forget all but these, because the others are gone."""
        for key in self._sizes.keys() - keys:
            self.asked(key)


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
        self._read: dict[Hashable, tuple[Stopwatch, Stopwatch]] = {}  # since the first read, and since the last one

    def concern(self, size: int) -> bool:
        """True if a chunk of `size` bytes is large enough to need a turn."""
        return size * LARGE_PART > self._budget

    def read(self, key: Hashable, size: int) -> None:
        """Note that a chunk of `size` bytes is read."""
        if self.concern(size):
            now = Stopwatch()
            self._read[key] = self._read.get(key, (now, now))[0], now

    def keeps(self, key: Hashable) -> bool:
        """True if the chunk has its turn, so that it must not be evicted yet."""
        if (read := self._read.get(key)) is None:
            return False
        first, last = read
        return first.seconds < TURN_SECONDS and last.seconds < BETWEEN_SECONDS

    def over(self, key: Hashable) -> None:
        """End the turn of a chunk that is no longer in the cache."""
        self._read.pop(key, None)
