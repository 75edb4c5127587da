"""What listings have found, remembered for further listings: `find` and then `du` ask the store once.

A listing is remembered for a part of the time that the kernel may show it anyway (`config.listed_again`), while its
directory's version stays the same, and until a look at one of its members finds another mtime: so none shows an older
mtime than a look-up before it. Not here: which chunks there are (`chunkfiles.py`).
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from fsbridge.config import MIB, listed_again
from fsbridge.model import Batch

BATCH = 4096
"""Entries of a listing that are sorted and handed on together: large enough to amortise, small enough to stream."""

LISTED_BYTES = 32 * MIB
"""Memory of all remembered listings together: two million chunks. A directory that needs more is not remembered."""

SLOT_BYTES = 768
"""What a remembered listing costs apart from its numbers, roughly."""


@dataclass(frozen=True, slots=True)
class _Listing:
    """`rows`: coordinate and mtime in ns of each member."""

    version: Hashable
    asked: float
    expires: float
    rows: npt.NDArray[np.int64]

    @property
    def nbytes(self) -> int:
        return int(self.rows.nbytes) + SLOT_BYTES

    def batches(self) -> Iterator[Batch]:
        for first in range(0, len(self.rows), BATCH):
            coordinates, mtimes = self.rows[first : first + BATCH].T.tolist()
            yield Batch(zip(coordinates, mtimes, strict=True), self.asked)


class ListedTimes:
    """The listings of one store; the least recently used go first. `ttl`: seconds, infinite for an immutable store."""

    def __init__(self, ttl: float = 0.0, budget: int = LISTED_BYTES) -> None:
        self._ttl = ttl
        self._budget = budget
        self._lock = threading.Lock()
        self._known: OrderedDict[Hashable, _Listing] = OrderedDict()
        self._under_way: dict[Hashable, object] = {}
        self.nbytes = 0
        """Memory of what is remembered, in bytes."""

    def through(
        self, place: Hashable, version: Hashable, extent: int, scan: Callable[[], Iterator[Batch]]
    ) -> Iterator[Batch]:
        """The listing of `place`, which has `version` now: the remembered one, else `scan`'s, which is then remembered.

        `extent`: how many members there may be, which decides for how long they may be shown.
        """
        now = time.monotonic()
        with self._lock:
            known = self._known.get(place)
            if known is not None:
                self._known.move_to_end(place)
        if known is not None and known.version == version and now < known.expires:
            yield from known.batches()
            return
        keep = listed_again(self._ttl, extent)
        this = self._under_way[place] = object()
        parts: list[npt.NDArray[np.int64]] | None = [] if keep else None
        room = (self._budget - SLOT_BYTES) // 16
        try:
            for batch in scan():
                yield batch
                room -= len(batch)
                if parts is not None:
                    parts.append(np.fromiter(chain.from_iterable(batch), np.int64, 2 * len(batch)))
                    parts = parts if room >= 0 else None
        finally:
            undisturbed = self._under_way.get(place) is this
            if undisturbed:
                del self._under_way[place]
        if undisturbed and parts:
            self._keep(place, _Listing(version, now, now + keep, np.concatenate(parts).reshape(-1, 2)))

    def seen(self, place: Hashable, coordinate: int, mtime_ns: int) -> None:
        """A look at one member of `place` has found this mtime."""
        self._under_way.pop(place, None)  # whether that listing has seen it too is not known yet
        known = self._known.get(place)
        if known is not None and mtime_ns not in known.rows[known.rows[:, 0] == coordinate, 1]:
            with self._lock:
                self._drop(place)

    def _keep(self, place: Hashable, listing: _Listing) -> None:
        with self._lock:
            self._drop(place)
            self._known[place] = listing
            self.nbytes += listing.nbytes
            while self.nbytes > self._budget:
                self._drop(next(iter(self._known)))

    def _drop(self, place: Hashable) -> None:
        known = self._known.pop(place, None)
        if known is not None:
            self.nbytes -= known.nbytes
