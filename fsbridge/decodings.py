"""Decodings in progress, which other threads may wait for, and prefetched chunks.

Not here: what decoded chunks there are, and the memory that they take (`cache.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Hashable
from dataclasses import dataclass, field

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

    def wait(self, deadline: float) -> bool:
        """Wait for its end; False if it has no memory at `deadline` (monotonic seconds), and so may never end."""
        if not self.under_way.acquire(timeout=max(0.0, deadline - time.monotonic())):
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
