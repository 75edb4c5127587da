"""Where inner chunks lie in the grid of shards. Not here: shards (`shards.py`), inner chunks themselves (`sharding.py`)."""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Sequence

from fsbridge.metadata import Index


class InnerGrid:
    """The grid of inner chunks, `counts` of them, in the grid of shards.

    `positions`, for each dimension: inner chunks per shard or, where shards differ, the first one of each.
    """

    def __init__(self, counts: tuple[int, ...], positions: Sequence[int | array[int]]) -> None:
        self._counts = counts
        self._positions = positions

    def holds(self, index: Index) -> bool:
        """Whether it is the position of a chunk."""
        return len(index) == len(self._counts) and self.inside(index)

    def inside(self, prefix: Index) -> bool:
        """Whether it is such a position, or the beginning of one."""
        inside = len(prefix) <= len(self._counts)
        for position, count in zip(prefix, self._counts, strict=False):  # for each look: a generator takes twice as long
            inside &= 0 <= position < count
        return inside

    def split(self, prefix: Index) -> tuple[Index, Index]:
        """Shard, and position within it, of a position (or its beginning) that lies in the grid."""
        shard, local = [], []
        for position, per in zip(prefix, self._positions, strict=False):
            if isinstance(per, int):
                coordinate, inside = divmod(position, per)
            else:
                coordinate = bisect.bisect_right(per, position) - 1
                inside = position - per[coordinate]
            shard.append(coordinate)
            local.append(inside)
        return tuple(shard), tuple(local)

    def first(self, axis: int, shard: int) -> int:
        """Grid position of the first inner chunk of a shard coordinate."""
        per = self._positions[axis]
        return per * shard if isinstance(per, int) else per[shard]

    def room(self, shard: Index) -> tuple[int, ...]:
        """Inner chunks from the shard's first one to the end of the array, per dimension."""
        return tuple(n - self.first(axis, i) for axis, (n, i) in enumerate(zip(self._counts, shard, strict=True)))
