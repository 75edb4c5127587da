"""What listings have found, remembered for further listings: `find` and then `du` ask the store once.

A listing is used again while it is young enough for the question (`asking`), while its directory's version stays the same,
and until a look at one of its members finds another mtime: so none shows an older mtime than a look-up before it. Not here:
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
from fsbridge.droppable import register
from fsbridge.model import Pairs
from fsbridge.store import compact

BATCH_ENTRIES = 4096
"""Entries of a listing that are sorted and handed on together: large enough to amortise, small enough to stream."""

LISTED_BYTES = 32 * MIB
"""Memory of all listings together, remembered and under way. A directory of more than a million chunks is not remembered."""

MOST_LISTINGS = 2048
"""Listings that are remembered: most are of few members, and cost as much to remember as to read again."""

LISTING_BYTES = 768
"""What a remembered listing costs apart from its numbers, roughly."""


@dataclass(slots=True)
class _MemberTimes:
    """`parts`: coordinates, sorted, and mtimes in ns of the members, batch by batch; `asked`: before the first of them."""

    version: Hashable
    asked: float
    parts: list[tuple[array[int], Sequence[int]]]
    nbytes: int = LISTING_BYTES

    def batches(self) -> Iterator[Pairs]:
        for coordinates, mtimes in self.parts:
            yield list(zip(coordinates, mtimes, strict=True))

    def says(self, coordinate: int, mtime_ns: int) -> bool:
        """True if the member is listed with this mtime. Batches are sorted, so few of a million members are looked at."""
        for coordinates, mtimes in self.parts:
            if coordinates[0] <= coordinate <= coordinates[-1]:
                position = bisect_left(coordinates, coordinate)
                if coordinates[position] == coordinate and mtimes[position] == mtime_ns:
                    return True
        return False


class ListedTimes:
    """The listings of one store; the least recently used go first."""

    def __init__(self, budget: int = LISTED_BYTES) -> None:
        self._budget = budget
        self._lock = threading.Lock()
        self._known: OrderedDict[Hashable, _MemberTimes] = OrderedDict()
        self._under_way: dict[Hashable, _MemberTimes] = {}
        self.nbytes = 0
        """Memory of what is remembered and of what is about to be, in bytes."""
        register(self)

    def clear(self) -> None:
        """Forget all but the listings under way."""
        with self._lock:
            for directory in list(self._known):
                self._drop(directory)

    def through(self, directory: Hashable, version: Hashable, scan: Callable[[], Iterator[Pairs]]) -> Iterator[Pairs]:
        """The listing of `directory`, which has `version`: the remembered one, else `scan`'s, which is then remembered."""
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
        """A look at one member of `directory` has found this mtime."""
        if directory in self._under_way:  # whether that listing has seen it too is not known yet
            with self._lock:
                self._give_up(directory)
        known = self._known.get(directory)
        if known is not None and not known.says(coordinate, mtime_ns):
            with self._lock:
                self._drop(directory)

    def _begin(self, directory: Hashable, this: _MemberTimes) -> _MemberTimes:
        with self._lock:
            self._give_up(directory)  # of two listings of one directory at a time, the later one is remembered
            self._drop(directory)
            self._under_way[directory] = this
            self.nbytes += this.nbytes
            if self.nbytes > self._budget:
                self._trim()
        return this

    def _more(self, directory: Hashable, this: _MemberTimes, batch: Pairs) -> None:
        """Remember a batch of the listing under way if there is, or can be made, room for it."""
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
