"""Cache of listed mtimes, so that `find` followed by `du` lists the store only once.

A listing is used again while it is young enough for the question (`asking`), its directory has the same version, and no
look-up of a member has found another mtime. So a listing never shows an older mtime than an earlier look-up did. Not here:
which chunks there are (`chunkfiles.py`).
"""

from __future__ import annotations

import math
import threading
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

from fsbridge.asking import context, oldest, used
from fsbridge.config import MIB
from fsbridge.lru import register
from fsbridge.model import Pairs
from fsbridge.store import compact

BATCH_ENTRIES = 4096
"""Entries of a listing that are sorted and yielded together: enough to be efficient, few enough to stream."""

LISTED_BYTES = 32 * MIB
"""Memory of all listings, finished and running. A directory of more than a million chunks is not remembered."""

MOST_LISTINGS = 2048
"""Most listings that are remembered. Most listings are so short that reading them again costs no more."""

LISTING_BYTES = 768
"""Memory of a remembered listing in addition to its numbers, roughly."""


@dataclass(slots=True)
class _MemberTimes:
    """One listing. `parts`: batches of sorted coordinates and mtimes (ns); `asked`: a time before the first was read."""

    version: Hashable
    asked: float
    parts: list[tuple[array[int], Sequence[int]]]
    nbytes: int = LISTING_BYTES

    def batches(self) -> Iterator[Pairs]:
        for coordinates, mtimes in self.parts:
            yield list(zip(coordinates, mtimes, strict=True))

    def says(self, coordinate: int, mtime_ns: int) -> bool:
        """True if the member is listed with this mtime. Found by bisection, because batches are sorted."""
        for coordinates, mtimes in self.parts:
            if coordinates[0] <= coordinate <= coordinates[-1]:
                position = bisect_left(coordinates, coordinate)
                if coordinates[position] == coordinate and mtimes[position] == mtime_ns:
                    return True
        return False


class ListedTimes:
    """The remembered listings of one store. The least recently used ones are dropped first."""

    def __init__(self, budget: int = LISTED_BYTES) -> None:
        self._budget = budget
        self._lock = threading.Lock()
        self._known: OrderedDict[Hashable, _MemberTimes] = OrderedDict()
        self._under_way: dict[Hashable, _MemberTimes] = {}
        self.nbytes = 0
        """Memory of finished and running listings, in bytes."""
        register(self)

    def clear(self) -> None:
        """Forget all finished listings."""
        with self._lock:
            for directory in list(self._known):
                self._drop(directory)

    def through(self, directory: Hashable, version: Hashable, scan: Callable[[], Iterator[Pairs]]) -> Iterator[Pairs]:
        """Yield the listing of `directory`: the remembered one of this `version`, else the one from `scan`, to remember."""
        if context.listed == math.inf:
            yield from scan()
            return
        with self._lock:
            known = self._known.get(directory)
            if known is not None:
                self._known.move_to_end(directory)
        if known is not None and known.version == version and known.asked >= context.listed:
            for batch in known.batches():
                used(known.asked)  # at each step, because the reader may take long
                yield batch
            return
        this = self._begin(directory, _MemberTimes(version, oldest(), []))
        ended = False
        try:
            for batch in scan():
                yield batch
                if batch and self._under_way.get(directory) is this:
                    self._more(directory, this, batch)
            ended = True
        finally:
            self._end(directory, this, ended)

    def seen(self, directory: Hashable, coordinate: int, mtime_ns: int) -> None:
        """Drop listings of `directory` that may contradict this mtime, which a look-up of a member has just found."""
        if directory in self._under_way:  # it is not known whether this listing has the new mtime
            with self._lock:
                self._give_up(directory)
        known = self._known.get(directory)
        if known is not None and not known.says(coordinate, mtime_ns):
            with self._lock:
                self._drop(directory)

    def _begin(self, directory: Hashable, this: _MemberTimes) -> _MemberTimes:
        with self._lock:
            self._give_up(directory)  # of two parallel listings of a directory the later one is remembered
            self._drop(directory)
            self._under_way[directory] = this
            self.nbytes += this.nbytes
            if self.nbytes > self._budget:
                self._trim()
        return this

    def _more(self, directory: Hashable, this: _MemberTimes, batch: Pairs) -> None:
        """Add a batch to a running listing, or give the listing up if memory does not suffice."""
        part = array("q", [coordinate for coordinate, _ in batch]), compact([mtime_ns for _, mtime_ns in batch])
        nbytes = 16 * len(batch)
        with self._lock:
            if self._under_way.get(directory) is not this:
                return
            this.parts.append(part)
            this.nbytes += nbytes
            self.nbytes += nbytes
            if this.nbytes > self._budget // 2:
                self._give_up(directory)
            if self.nbytes > self._budget:
                self._trim()
            if self.nbytes > self._budget:
                self._give_up(directory)

    def _end(self, directory: Hashable, this: _MemberTimes, complete: bool) -> None:
        with self._lock:
            if self._under_way.get(directory) is not this:
                return
            if not complete:
                self._give_up(directory)
                return
            self._known[directory] = self._under_way.pop(directory)
            self._trim()

    def _trim(self) -> None:
        while self._known and (self.nbytes > self._budget or len(self._known) > MOST_LISTINGS):
            self._drop(next(iter(self._known)))

    def _give_up(self, directory: Hashable) -> None:
        listing = self._under_way.pop(directory, None)
        if listing is not None:
            self.nbytes -= listing.nbytes
            listing.parts.clear()

    def _drop(self, directory: Hashable) -> None:
        listing = self._known.pop(directory, None)
        if listing is not None:
            self.nbytes -= listing.nbytes
