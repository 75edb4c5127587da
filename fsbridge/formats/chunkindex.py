"""Indexes of flat chunk directories: which chunks one array has, compactly, shared by all readers and renewed when stale.

Not here: names and their parsing (`chunkfiles.py`).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fsbridge.config import MIB
from fsbridge.errors import NotADirectory, NotFound, TimedOut
from fsbridge.store import Key, Stamp, Store

INDEX_BYTES = 96 * MIB
"""Memory of all flat indexes together (12 million chunks); one index above it is kept as long as it is the only one."""

PATIENCE = 10.0
"""Default of `ChunkIndexes`, in seconds: without an end, all worker threads could wait for one index."""

SLOT_BYTES = 1024
"""What an index costs apart from its arrays, roughly."""


@dataclass(frozen=True, slots=True)
class ChunkIndex:
    """The stored chunks of one flat array: sorted linear grid numbers (C order).

    No times: a chunk that is rewritten in place does not change its directory, which is all that an index is renewed by.
    """

    numbers: npt.NDArray[np.uint64]

    @property
    def nbytes(self) -> int:
        """Memory of the numbers in bytes."""
        return int(self.numbers.nbytes)


class _Slot:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.made: tuple[Stamp, ChunkIndex] | None = None


class ChunkIndexes:
    """The flat indexes of one store: one reader makes an index while the others wait; the least recently used go first.

    `immutable`: an index is never made again. `patience`: seconds that a reader waits for another one to make an index.
    """

    def __init__(
        self, store: Store, immutable: bool = False, budget: int = INDEX_BYTES, patience: float = PATIENCE
    ) -> None:
        self._store = store
        self._immutable = immutable
        self._budget = budget
        self._patience = patience
        self._lock = threading.Lock()
        self._slots: OrderedDict[tuple[Key, Hashable], _Slot] = OrderedDict()

    def get(self, directory: Key, variant: Hashable, read: Callable[[], ChunkIndex]) -> ChunkIndex:
        """The index of `directory` as it is now; `variant` tells apart different grids and spellings at the same key."""
        with self._lock:
            slot = self._slots.setdefault((directory, variant), _Slot())
            self._slots.move_to_end((directory, variant))
        if not slot.lock.acquire(timeout=self._patience):
            raise TimedOut(f"{self._store.describe(directory)}: the chunks are still being listed for the first time")
        try:
            made = slot.made
            if made is not None and self._immutable:
                return made[1]
            try:
                # Before the pass: what changes during it changes the stamp that the next reader sees.
                stamp = self._store.stat(directory).stamp
            except (NotFound, NotADirectory):
                slot.made = None
                return ChunkIndex(np.empty(0, np.uint64))
            if made is not None and made[0] == stamp:
                return made[1]
            index = read()
            slot.made = stamp, index
        finally:
            slot.lock.release()
        self._trim()
        return index

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
