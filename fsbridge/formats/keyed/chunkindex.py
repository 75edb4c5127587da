"""Indexes of flat chunk directories: which chunks one array has, compactly, shared by all readers and renewed when stale.

Not here: names and their parsing (`chunkfiles.py`).
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fsbridge.config import MIB
from fsbridge.errors import NotADirectory, NotFound, TimedOut
from fsbridge.store import Key, Stat, Store

INDEX_BYTES = 96 * MIB
"""Memory of all flat indexes together (12 million chunks); one index above it is kept as long as it is the only one."""

PATIENCE = 10.0
"""Default of `ChunkIndexes`, in seconds: what a disk needs at most to go on with a listing."""

Numbers: TypeAlias = npt.NDArray[np.uint64]
"""Linear grid numbers (C order)."""

Read: TypeAlias = Callable[[], Iterator[Numbers]]
"""Begins a pass over a directory: the chunks' numbers as the store gives them, each once; empty where it gave none."""

ASKED = 0.1
"""Seconds between two looks at what a pass under way has found."""

SLOT_BYTES = 1024
"""What an index costs apart from its arrays, roughly."""


@dataclass(frozen=True, slots=True)
class ChunkIndex:
    """The stored chunks of one flat array: sorted linear grid numbers.

    No times: a chunk that is rewritten in place does not change its directory, which is all that an index is renewed by.
    """

    numbers: Numbers
    serial: object = field(default_factory=object)
    """Of this index alone."""

    @property
    def nbytes(self) -> int:
        """Memory of the numbers in bytes."""
        return int(self.numbers.nbytes)


class Pass:
    """One pass over a directory that makes its index: about to begin, under way, or over."""

    def __init__(self, slot: _Slot, place: str, patience: float, read: Read) -> None:
        self.slot = slot
        self.place = place
        self.patience = patience
        self.read = read
        self.begun = False
        self.asked = 0.0
        self.directory: Stat | None = None
        """The directory before the pass."""
        self.found: list[Numbers] = []
        """What the store has given so far."""
        self.index: ChunkIndex | None = None
        self.error: Exception | None = None
        self.over = threading.Event()

    def wait(self, seconds: float) -> ChunkIndex | None:
        """The index; None if it is not ready in time. TimedOut when the store has stopped answering."""
        if not self.over.wait(seconds):
            if time.monotonic() - self.slot.moved > self.patience:
                raise TimedOut(f"{self.place}: the store has stopped listing its chunks")
            return None
        if self.error is not None:
            raise self.error
        return self.index

    def arriving(self) -> Iterator[Numbers | None]:
        """The numbers while the store gives them, in its order; None when there are no new ones for ASKED seconds."""
        told = 0
        while True:
            over = self.over.is_set()
            while told < len(self.found):
                yield self.found[told]
                told += 1
            if over:
                self.wait(0.0)  # a pass that failed has not found everything
                return
            if self.wait(ASKED) is None and told == len(self.found):
                yield None


class _Slot:
    """By the monotonic clock, `asked`: when `made` began; `moved`: when the pass under way last got anything."""

    def __init__(self) -> None:
        self.made: tuple[Stat, ChunkIndex] | None = None
        self.asked = 0.0
        self.running: Pass | None = None
        self.following: Pass | None = None
        self.moved = 0.0

    def progress(self) -> None:
        self.moved = time.monotonic()


class ChunkIndexes:
    """The flat indexes of one store, each made by one thread for all its readers; the least recently used go first.

    `immutable`: an index is never made again. `patience`: seconds without anything from the store until readers give up.
    `ttl`: seconds for which an index does where the store cannot tell whether its directory has changed.
    """

    def __init__(
        self,
        store: Store,
        immutable: bool = False,
        budget: int = INDEX_BYTES,
        patience: float = PATIENCE,
        ttl: float = 1.0,
    ) -> None:
        self._store = store
        self._immutable = immutable
        self._budget = budget
        self._patience = patience
        self._ttl = ttl
        self._lock = threading.Lock()
        self._slots: OrderedDict[tuple[Key, Hashable], _Slot] = OrderedDict()

    def join(self, directory: Key, variant: Hashable, read: Read) -> Pass:
        """The pass that gives the index of `directory` as it is now, begun if need be.

        `variant` tells apart different grids and spellings at the same key. A pass that began before the directory's last
        change does not do: then it is the one that follows.
        """
        with self._lock:
            slot = self._slots.setdefault((directory, variant), _Slot())
            self._slots.move_to_end((directory, variant))
            if slot.made is not None and self._immutable:
                return self._over(slot, slot.made[1])
        try:
            now = self._store.stat(directory)
        except (NotFound, NotADirectory):
            slot.made = None
            return self._over(slot, ChunkIndex(np.empty(0, np.uint64)))
        with self._lock:
            if slot.made is not None and self._still(slot.made[0], now, slot.asked):
                return self._over(slot, slot.made[1])
            running = slot.running
            if running is not None and (
                not running.begun or (running.directory is not None and self._still(running.directory, now, running.asked))
            ):
                return running
            wanted = slot.following
            if wanted is None:
                wanted = slot.following = Pass(slot, self._store.describe(directory), self._patience, read)
            if slot.running is None:
                slot.progress()
                slot.running, slot.following = wanted, None
                threading.Thread(target=self._work, args=(directory, slot), name="fsbridge-index", daemon=True).start()
            return wanted

    def _still(self, then: Stat, now: Stat, asked: float) -> bool:
        """Whether what was listed at the time `asked`, when the directory was as `then`, does for `now`."""
        if then.version is None:
            return time.monotonic() - asked < self._ttl
        return then.version == now.version and then.settled

    def _over(self, slot: _Slot, index: ChunkIndex) -> Pass:
        done = Pass(slot, "", self._patience, lambda: iter(()))
        done.index = index
        done.over.set()
        return done

    def _work(self, directory: Key, slot: _Slot) -> None:
        while (now := slot.running) is not None:
            with self._lock:
                now.begun = True
            try:
                # Before the pass: what changes during it changes the version that the next reader sees.
                now.asked = time.monotonic()
                now.directory = self._store.stat(directory)
                for numbers in now.read():
                    now.found.append(numbers)
                    slot.progress()
                numbers = np.concatenate([np.empty(0, np.uint64), *now.found])
                numbers.sort()  # in place: of ten million chunks each copy takes 80 MB
                now.index = ChunkIndex(numbers)
            except Exception as error:  # not judged here: it travels to those who wait
                now.error = error
            with self._lock:
                if now.index is not None and now.directory is not None:
                    slot.made, slot.asked = (now.directory, now.index), now.asked
                slot.running, slot.following = slot.following, None
                slot.progress()
            now.over.set()
        self._trim()

    def peek(self, directory: Key, variant: Hashable) -> ChunkIndex | None:
        """The index that was made last, which may be out of date."""
        with self._lock:
            slot = self._slots.get((directory, variant))
        made = slot.made if slot is not None else None
        return made[1] if made is not None else None

    def _trim(self) -> None:
        with self._lock:
            total = 0
            for age, (place, slot) in enumerate(reversed(list(self._slots.items()))):
                made = slot.made
                total += SLOT_BYTES + (made[1].nbytes if made is not None else 0)
                if total > self._budget and age:
                    del self._slots[place]


def search(index: ChunkIndex, number: int) -> int:
    """Position of the first stored number that is not below `number`."""
    if number >= 2**64:
        return len(index.numbers)
    return int(np.searchsorted(index.numbers, np.uint64(number)))
