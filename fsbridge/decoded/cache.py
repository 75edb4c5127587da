"""ChunkCache: decoded chunks in memory under one byte budget, each decoded once however many readers wait.

Not here: what a chunk is or how it is decoded; its memory, and how one is waited for (`memory.py`); the kernel's page cache,
the big cache behind this small one.

Memory is handed out as read-only memoryviews. Large buffers are reused, because the first touch of fresh memory can cost
more than decoding into it. A buffer goes back to the pool when the last view of it has died, so a reply that is still being
written can never see another chunk's bytes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from fsbridge.config import LARGEST_CHUNK, MIB
from fsbridge.decoded.memory import (
    POOLED_BYTES,
    CacheCounts,
    Decoding,
    Fresh,
    Gauges,
    Lent,
    Slot,
    Spare,
    Turns,
    TurnSeconds,
    Unasked,
    capacity_of,
)
from fsbridge.errors import FsbridgeError, OutOfBudget, TooLarge
from fsbridge.threads.deadlines import Deadline

_BESIDE_BYTES, _UNCOUNTED = 2048, 16384
"""Most bytes of overhead (key, views) of a cached chunk, and the number of chunks for which it is not counted.
If chunks hold a single number, nearly all is overhead: uncounted, a million of them took two gigabytes (P6)."""

_HOLDING_SECONDS = 0.05
"""Seconds for which a thread that fills a buffer waits for more room. The thread that has it may wait for that buffer."""

_POLL_SECONDS = 0.01
"""Seconds between two looks for memory: views die inside the interpreter, which notifies no one."""

_SCARCE = "the system has less memory than the %d MiB of --cache-size: decoded chunks take %d MiB at most from now on"

log = logging.getLogger(__name__)


class _Here(threading.local):
    filling = False  # whether the calling thread fills a buffer


class ChunkCache:
    """Decoded chunks by key, at most `budget` bytes of them including those being decoded. Thread-safe."""

    def __init__(
        self,
        budget: int,
        patience: float = 30.0,
        fresh: Fresh | None = None,
        turn_seconds: TurnSeconds | None = None,
    ) -> None:
        """`patience`: seconds to wait for room before OutOfBudget. `fresh`: where the memory of large buffers comes from."""
        self.budget = self._room = budget  # room: how much of it the system seems to have
        self._patience = patience
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, memoryview] = OrderedDict()  # least recently used first
        self._consumed: OrderedDict[Hashable, int] = OrderedDict()  # read to their end, by the size of their buffer
        self._loads: dict[Hashable, Decoding] = {}
        self._turns = Turns(budget, turn_seconds or TurnSeconds())
        self._unasked = Unasked(budget)
        self._used = 0  # bytes of buffers handed out (cached, viewed or being filled) and reservations
        self._spare = Spare(fresh or Fresh())
        self._lent: dict[int, Lent] = {}  # by identity
        self._returned: deque[Lent] = deque()  # those that have died
        self._died = self._returned.append  # anywhere in the interpreter, so it may not lock; made once, not for each
        self._here = _Here()
        self._hits = self._misses = self._decoded = 0

    def peek(self, key: Hashable) -> memoryview | None:
        """Return the chunk if it is decoded, else None. Never waits for a decoding."""
        with self._lock:
            view = self._entries.get(key)
            return None if view is None else self._note_hit(key, view)

    def get(
        self, key: Hashable, size: int, load: Callable[[memoryview], None], encoded: int = 0, patient: bool = True
    ) -> memoryview:
        """Return the chunk. If it is not cached, `load` decodes it into a buffer of `size` bytes, which may hold old data.

        `encoded`: bytes that `load` needs besides, reserved while it runs. Raises what `load` raises (also in each thread
        that waits for the same chunk), TooLarge for what the budget can never hold, and OutOfBudget if no room becomes free.
        OutOfBudget comes at once unless `patient`, and soon if a `load` itself asks for a chunk, because it has a buffer.
        """
        deadline = self._deadline() if patient else Deadline(0.0)
        return self._single_flight(key, deadline, lambda running: self._load_sized(running, deadline, size, load, encoded))

    def get_all(self, key: Hashable, load: Callable[[], bytes | bytearray | memoryview], needed: int = 0) -> memoryview:
        """Return a chunk as `get` does, if only decoding tells its size.

        `needed`: most bytes that `load` takes, with its result. They are reserved until the size is known, but never more
        than the whole budget.
        """
        deadline = self._deadline()
        return self._single_flight(key, deadline, lambda _running: self._load_unsized(deadline, load, needed))

    def prefetch(self, key: Hashable, size: int, load: Callable[[memoryview], None], encoded: int = 0) -> memoryview | None:
        """Prefetch a chunk and return it, if there is room without waiting; None if it was not decoded.

        Raises what `load` raises; a reader that waits for the chunk then loads it itself.
        """
        capacity = capacity_of(size)
        running = Decoding(unasked=True, placed=True)
        try:
            with self._lock:
                self._reclaim()
                if key in self._entries or key in self._loads or not self._unasked.permits(capacity):
                    return None
                self._loads[key] = running
                self._unasked.add(key, capacity)
                if not self._take(capacity + encoded, capacity):
                    return None
            view = self._fill(size, capacity, load, encoded)
            with self._lock:
                self._entries[key] = running.view = view
            return view
        finally:
            self._finish(key, running)

    def holds(self, key: Hashable) -> bool:
        """True if the chunk is decoded or being decoded."""
        with self._lock:
            return key in self._entries or key in self._loads

    def note_consumed(self, key: Hashable) -> None:
        """Note that a chunk was read to its end, so it is evicted first when room is needed. Never blocks."""
        with self._lock:
            if (view := self._entries.get(key)) is not None:
                self._consumed[key] = capacity_of(len(view))

    def discard(self, key: Hashable) -> None:
        """Forget one chunk that is no longer needed. Its buffer will be the next to be used again."""
        with self._lock:
            self._evict(key)

    def gauges(self) -> Gauges:
        """Return how much the cache holds now, for tests and statistics."""
        with self._lock:
            self._reclaim()
            cached = sum(len(view) for view in self._entries.values())
            return Gauges(cached, len(self._entries), self._used, self._spare.nbytes, len(self._loads))

    def counts(self) -> CacheCounts:
        """Return what has been counted since the cache was made."""
        return CacheCounts(self._hits, self._misses, self._decoded)

    def count_apart(self, size: int) -> None:
        """Count bytes that were decoded but not cached, for the statistics."""
        with self._lock:
            self._decoded += size

    def clear(self) -> None:
        """Forget every cached chunk and free the pool."""
        with self._lock:
            self._entries.clear()
            self._consumed.clear()
            self._unasked.keep(self._loads.keys())
            self._turns.clear()
            self._reclaim()
            self._spare.clear()

    def _deadline(self) -> Deadline:
        return Deadline(_HOLDING_SECONDS if self._here.filling else self._patience)

    def _single_flight(self, key: Hashable, deadline: Deadline, load: Callable[[Decoding], memoryview]) -> memoryview:
        while True:
            with self._lock:
                view = self._entries.get(key)
                if view is not None:
                    self._consumed.pop(key, None)
                    return self._note_hit(key, view)
                self._misses += 1
                other = self._loads.get(key)
                if other is None or not other.under_way.locked():
                    running = self._loads[key] = Decoding()
                    self._unasked.note_asked(key)
                    break
            if not other.wait(deadline):
                raise self._full()
            if (view := other.result()) is not None:
                with self._lock:
                    self._unasked.note_asked(key)
                return view
        try:
            running.view = load(running)
            with self._lock:
                self._entries[key] = running.view
            return running.view
        except FsbridgeError as error:
            # A copy: the original's traceback would tie its buffer into a reference cycle.
            running.error = error.anew()
            raise
        finally:
            self._finish(key, running)

    def _finish(self, key: Hashable, running: Decoding) -> None:
        """Finish a decoding.

        Its lock is released first, so waiting threads go on even if there is no memory for the rest.
        """
        running.under_way.release()
        with self._lock:
            if self._loads.get(key) is running:
                del self._loads[key]
                if running.view is None:
                    self._unasked.note_asked(key)
            if running.view is not None:
                self._decoded += len(running.view)

    def _note_hit(self, key: Hashable, view: memoryview) -> memoryview:
        """Note that a cached chunk was read (the lock is held)."""
        self._entries.move_to_end(key)
        self._hits += 1
        self._unasked.note_asked(key)
        self._turns.note_read(key, len(view))
        return view

    def _load_sized(
        self, running: Decoding, deadline: Deadline, size: int, load: Callable[[memoryview], None], encoded: int
    ) -> memoryview:
        capacity = capacity_of(size)
        self._reserve(capacity + encoded, capacity, deadline)
        running.placed = True
        return self._fill(size, capacity, load, encoded)

    def _fill(self, size: int, capacity: int, load: Callable[[memoryview], None], encoded: int) -> memoryview:
        """Return a buffer filled by `load`. The caller has reserved `capacity + encoded` bytes for it."""
        try:
            outer = self._here.filling
            buffer = self._buffer(size, capacity)
        except BaseException:
            self._release(capacity + encoded)
            raise
        try:
            self._here.filling = True
            load(buffer.data)
        finally:
            self._here.filling = outer
            self._release(encoded)
        return buffer.data.toreadonly()

    def _load_unsized(
        self, deadline: Deadline, load: Callable[[], bytes | bytearray | memoryview], needed: int
    ) -> memoryview:
        reserved = min(needed, self.budget)
        self._reserve(reserved, 0, deadline)
        try:
            data = np.frombuffer(load(), np.uint8)
            if data.nbytes > reserved:
                self._reserve(data.nbytes - reserved, 0, self._deadline())
                reserved = data.nbytes
            self._lend(data, data.nbytes, None)
        except BaseException:
            self._release(reserved)
            raise
        self._release(reserved - data.nbytes)
        return data.data.toreadonly()

    def _buffer(self, size: int, capacity: int) -> NDArray[np.uint8]:
        """Return a buffer for `size` bytes, which comes back by itself (`_lend`)."""
        slot = self._slot(capacity) if capacity >= POOLED_BYTES else None
        array = np.zeros(size, np.uint8) if slot is None else np.frombuffer(slot.block, np.uint8, size, slot.start)
        self._lend(array, capacity, slot)
        return array

    def _slot(self, capacity: int) -> Slot:
        """Return memory for a buffer. If the system has less memory than the budget (batch jobs), chunks are evicted."""
        with self._lock:
            while True:
                try:
                    return self._spare.take(capacity, max(0, self.budget - self._used - self._spare.nbytes) // capacity)
                except OSError:
                    if not self._entries and not self._spare.nbytes:
                        raise
                # From now on a quarter less, because decoders need memory, too, and some end the process if there is none.
                before, self._room = self._room, max(self.budget // 8, (self._used + self._spare.nbytes) * 3 // 4)
                for key in list(islice(self._entries, 1 + len(self._entries) // 4)):
                    self._evict(key)
                self._spare.clear()
                if self._room < before:
                    log.warning(_SCARCE, self.budget // MIB, self._room // MIB)

    def _lend(self, array: NDArray[np.uint8], capacity: int, slot: Slot | None) -> None:
        """Arrange that a buffer is given back, by way of `_returned`, when its last view dies."""
        lent = Lent(array, self._died)
        lent.capacity, lent.slot = capacity, slot
        self._lent[id(lent)] = lent

    def permits(self, size: int, besides: int) -> bool:
        """True if the budget can hold a chunk of `size` bytes and the `besides` bytes that decoding it takes."""
        return capacity_of(size) + besides <= self.budget

    def refusal(self, size: int, limit: int, needed: int) -> TooLarge:
        """Return the error for a chunk of `size` bytes above `limit`; it names the cache size that would do, if one would.

        `needed`: bytes that decoding it takes; twice its size is enough for whatever is decoded in more than one step.
        """
        most = limit if limit < self.budget else LARGEST_CHUNK
        if size > most:
            return TooLarge(f"a chunk has {size} bytes; the limit is {most}, however large the cache is")
        enough = -(-max(2 * size, needed) // MIB)
        permits = f"--cache-size {enough}M permits it"
        return TooLarge(f"a chunk of {size} bytes is too large for a cache of {self.budget}: {permits}")

    def _reserve(self, amount: int, capacity: int, deadline: Deadline) -> None:
        """Wait for room and count `amount` bytes as used, among them a buffer of `capacity` bytes."""
        if amount > self.budget:
            permits = f"--cache-size {-(-amount // MIB)}M permits it"
            raise TooLarge(f"{amount} bytes are needed for one chunk, the cache has {self.budget}: {permits}")
        polite = self._turns.concern(amount) and not deadline.passed and not self._here.filling
        hurry = Deadline(self._turns.seconds.polite if polite else 0.0)
        while True:
            with self._lock:
                self._reclaim()
                if self._take(amount, capacity, polite and not hurry.passed):
                    return
            if deadline.passed:
                raise self._full()
            time.sleep(_POLL_SECONDS)

    def _full(self) -> OutOfBudget:
        return OutOfBudget(f"there was no room for one more chunk within {self._patience:g} s; see --cache-size")

    def _take(self, amount: int, capacity: int, polite: bool = False) -> bool:
        """Count `amount` bytes as used if room can be made for them now (the lock is held), see `_make_room`."""
        if not self._make_room(amount, capacity, polite):
            return False
        self._used += amount
        return True

    def _make_room(self, amount: int, capacity: int, polite: bool) -> bool:
        """Evict until `amount` bytes fit, and return True if they do (the caller holds the lock).

        `polite`: a chunk whose turn is not over (`Turns.keeps`) stays.

        What goes, in this order, one at a time:

        | what | why then |
        | --- | --- |
        | a chunk read to its end, of the wanted size, if no used buffer is free | its memory is hot: fill it next |
        | free buffers of another size | they are not needed |
        | chunks read to their end | the kernel's page cache has them |
        | the least recently used chunks | they may be read again |
        | free buffers of the wanted size, all but one | only now is the budget that short |
        """
        spare = self._spare
        if capacity >= POOLED_BYTES and not spare.has_filled(capacity):
            for key, size in self._consumed.items():
                if size == capacity:
                    self._evict(key)
                    break
        while True:  # counted each time: a chunk that goes may leave a buffer of the wanted size, which is hot
            reusable = capacity if capacity >= POOLED_BYTES and spare.count(capacity) else 0
            needed = self._used + self._beside + amount + spare.nbytes - reusable
            if needed <= self._room:
                return True
            if (other := spare.other_size(reusable)) is not None:
                spare.drop(other)
            elif self._consumed:
                self._evict(next(iter(self._consumed)))
            elif self._entries and not (polite and self._turns.keeps(next(iter(self._entries)))):
                self._evict(next(iter(self._entries)))
            elif reusable and spare.count(reusable) > 1:
                spare.drop(reusable)
            else:
                return needed <= self.budget

    @property
    def _beside(self) -> int:
        """The bytes that many small chunks take besides their data (the caller holds the lock)."""
        return _BESIDE_BYTES * max(0, len(self._entries) - _UNCOUNTED)

    def _evict(self, key: Hashable) -> None:
        self._consumed.pop(key, None)
        self._unasked.note_asked(key)
        self._entries.pop(key, None)
        self._turns.end(key)
        self._reclaim()

    def _release(self, amount: int) -> None:
        with self._lock:
            self._used -= amount

    def _reclaim(self) -> None:
        """Take back the buffers that have no view left (the lock is held)."""
        while self._returned:
            lent = self._returned.popleft()
            del self._lent[id(lent)]
            self._used -= lent.capacity
            if lent.slot is not None:
                self._spare.give(lent.slot)
