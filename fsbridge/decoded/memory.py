"""The private parts of the cache of decoded chunks: reused buffers, decodings in progress, prefetched chunks, turns.

If more large chunks are read at once than there is room for, each request would evict the chunk of another reader and decode
its own again: a chunk of 100 MB for every MiB. So a large chunk that is being read keeps its place for a while: its turn.

Not here: which chunks are cached, which buffers are in use, and how many there may be (`cache.py`).
"""

from __future__ import annotations

import contextlib
import mmap
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fsbridge.errors import FsbridgeError, OutOfBudget
from fsbridge.threads.deadlines import Deadline, Stopwatch

POOLED_BYTES = 64 * 1024
"""Buffers below this many bytes come from malloc, which reuses them well by itself."""

BLOCK_BYTES = 4 * 1024 * 1024
"""Bytes of a block of memory, from which several smaller buffers are cut."""

SLOW_SECONDS = 0.75e-3
"""Seconds of processor time for the first touch of a huge page. If it takes longer, small pages are cheaper."""

SMALL_BLOCKS = 8
"""Number of blocks made of small pages before huge pages are tried again."""

_PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Gauges:
    """What the cache holds now, in bytes and counts; all but `pooled` return to 0 when nothing is cached or read."""

    cached: int
    chunks: int
    reserved: int
    pooled: int
    loading: int


class CacheCounts(NamedTuple):
    """What a cache has done since it was made: how many chunks it had, how many it had not, and the bytes decoded."""

    hits: int
    misses: int
    decoded: int


class Slot(NamedTuple):
    """The memory of one buffer: its own, or a part of a block that holds several."""

    block: mmap.mmap
    start: int
    size: int

    def drop(self) -> None:
        """Give the memory of this buffer, which has no views, back to the system, even if the rest of the block is used."""
        with contextlib.suppress(OSError):  # if the system forbids it, the memory is freed with the whole block
            self.block.madvise(mmap.MADV_DONTNEED, self.start, self.size)


class Lent(weakref.ref[NDArray[np.uint8]]):
    """A buffer that may have views. `slot`: where it lies, if it is pooled."""

    __slots__ = ("capacity", "slot")

    capacity: int
    slot: Slot | None


def capacity_of(size: int) -> int:
    """Return how many bytes a buffer of `size` bytes really takes."""
    return size if size < POOLED_BYTES else -(-size // _PAGE_BYTES) * _PAGE_BYTES


def map_memory(size: int) -> mmap.mmap:
    """Return untouched memory of `size` bytes."""
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


class Fresh:
    """Untouched memory for one cache, in blocks that `map_block` makes; the cache's lock protects it.

    The first touch of huge pages costs a sixth of that of small ones, as a rule. In a virtual machine it may cost four times
    as much, because the host takes back free memory in pieces of that size after a second. So the first touch of each block
    in huge pages is timed.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.thread_time,
        map_block: Callable[[int], mmap.mmap] = map_memory,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        self._clock = clock
        self._map_block = map_block
        self._block_bytes = block_bytes
        self._small = 0  # blocks that get small pages before huge ones are tried again

    def slots(self, capacity: int, most: int) -> list[Slot]:
        """Return the buffers of `capacity` bytes that a new block has room for; at most `most`, but one at least."""
        count = max(1, min(self._block_bytes // capacity, most))
        block = self._map_block(capacity * count)
        with contextlib.suppress(OSError):  # a kernel without them
            if self._small:
                self._small -= 1
                block.madvise(mmap.MADV_NOHUGEPAGE)
            else:
                block.madvise(mmap.MADV_HUGEPAGE)
                begun = self._clock()
                block[0] = 0
                if self._clock() - begun > SLOW_SECONDS:
                    self._small = SMALL_BLOCKS
        return [Slot(block, capacity * number, capacity) for number in range(count)]


class Spare:
    """The unused buffers of a cache, by size; the cache's lock protects them. `nbytes`: their total size."""

    def __init__(self, fresh: Fresh) -> None:
        self.nbytes = 0
        self._fresh = fresh
        self._free: dict[int, deque[Slot]] = {}  # by size; the one to be filled next is the last
        self._untouched: dict[int, int] = {}  # how many of them, from the first on, were never filled

    def take(self, capacity: int, most: int) -> Slot:
        """Return a buffer of that size. If there is none, map a block for it, with room for at most `most` further ones."""
        free = self._free.setdefault(capacity, deque())
        if not free:  # the siblings of a fresh one count as free buffers from the beginning
            free += self._fresh.slots(capacity, 1 + most)
            self._untouched[capacity] = len(free)
            self.nbytes += len(free) * capacity
        slot = free.pop()
        self.nbytes -= capacity
        self._untouched[capacity] = min(self._untouched.get(capacity, 0), len(free))
        return slot

    def give(self, slot: Slot) -> None:
        """Take a buffer back. It is filled next."""
        self._free.setdefault(slot.size, deque()).append(slot)
        self.nbytes += slot.size

    def count(self, capacity: int) -> int:
        """Return the number of unused buffers of that size."""
        return len(self._free.get(capacity, ()))

    def has_filled(self, capacity: int) -> bool:
        """True if an unused buffer of that size has been filled before."""
        return self.count(capacity) > self._untouched.get(capacity, 0)

    def other_size(self, capacity: int) -> int | None:
        """Return a size other than `capacity` of which there are unused buffers, or None."""
        return next((size for size, free in self._free.items() if free and size != capacity), None)

    def drop(self, capacity: int) -> None:
        """Give back the memory of the buffer of that size that was used longest ago."""
        self._free[capacity].popleft().drop()
        self._untouched[capacity] = max(0, self._untouched.get(capacity, 0) - 1)
        self.nbytes -= capacity

    def clear(self) -> None:
        """Give back the memory of all unused buffers."""
        for capacity, free in self._free.items():
            while free:
                self.drop(capacity)


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
        """Wait until the decoding has ended. False if it still has no memory at `deadline`, because it may never end."""
        if not self.under_way.acquire(timeout=deadline.left):
            if not self.placed:
                return False
            self.under_way.acquire()  # it will end, and the request that waits has its own deadline
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

    def note_asked(self, key: Hashable) -> None:
        """Note that a reader has asked for a chunk, or that the chunk was evicted."""
        self.nbytes -= self._sizes.pop(key, 0)

    def keep(self, keys: Collection[Hashable]) -> None:
        """Forget all but these, because the others are gone."""
        for key in self._sizes.keys() - keys:
            self.note_asked(key)


LARGE_PART = 4
"""Chunks larger than this part (a quarter) of the budget take turns: of others there is room for several."""


@dataclass(frozen=True, slots=True)
class TurnSeconds:
    """How long turns last, in seconds."""

    whole: float = 1.0
    """A chunk keeps its place so long: enough to read it to its end."""
    between: float = 0.05
    """After so long without a request a chunk loses its place, because its reader seems to pause."""
    polite: float = 5.0
    """The longest wait for a turn: the waiting request has a deadline of its own."""


class Turns:
    """Which large chunks have a turn now, in one cache of `budget` bytes; the cache's lock protects this object."""

    def __init__(self, budget: int, seconds: TurnSeconds) -> None:
        self._budget = budget
        self.seconds = seconds
        self._read: dict[Hashable, tuple[Stopwatch, Stopwatch]] = {}  # since the first read, and since the last one

    def concern(self, size: int) -> bool:
        """True if a chunk of `size` bytes is large enough to need a turn."""
        return size * LARGE_PART > self._budget

    def note_read(self, key: Hashable, size: int) -> None:
        """Note that a chunk of `size` bytes is read."""
        if self.concern(size):
            now = Stopwatch()
            self._read[key] = self._read.get(key, (now, now))[0], now

    def keeps(self, key: Hashable) -> bool:
        """True if the chunk has its turn, so that it must not be evicted yet."""
        if (read := self._read.get(key)) is None:
            return False
        first, last = read
        return first.seconds < self.seconds.whole and last.seconds < self.seconds.between

    def end(self, key: Hashable) -> None:
        """End the turn of a chunk that is no longer in the cache."""
        self._read.pop(key, None)

    def clear(self) -> None:
        """End all turns."""
        self._read.clear()
