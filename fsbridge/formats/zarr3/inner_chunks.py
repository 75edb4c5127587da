"""Inner chunks of shards: where they lie in the grid of shards, and one whose shard is held open.

Not here: shards and their indexes (`sharding.py`, `shard_index.py`).
"""

from __future__ import annotations

import bisect
import time
from array import array
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from fsbridge.formats.zarr3.shard_index import Span
from fsbridge.metadata import Index
from fsbridge.model import ChunkInfo
from fsbridge.store import BATCH_NAMES, OpenedObject

if TYPE_CHECKING:
    from fsbridge.formats.zarr3.sharding import ShardedChunks

MERGED_SECONDS = 0.02
"""What is found within this time is handed on together: longer than the indexes of some shards take on a disk."""

Members: TypeAlias = list[tuple[int, int]]
"""Of a listing: a coordinate and the mtime (ns) of the shard, sorted."""


def merged(found: Iterator[Members]) -> Iterator[Members]:
    """The members of a listing, found shard by shard, in as few pieces as may be: each costs the kernel a request."""
    some: Members = []
    since = time.monotonic()
    for more in found:
        some += more
        if len(some) >= BATCH_NAMES or time.monotonic() - since > MERGED_SECONDS:
            yield some[:BATCH_NAMES]
            some, since = some[BATCH_NAMES:], time.monotonic()
    if some:
        yield some


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


class HeldShard:
    """A shard held open by one thread for several of its inner chunks, each of which uses it until it is closed."""

    __slots__ = ("_object", "_users", "read_range", "span")

    def __init__(self, shard: Index, info: ChunkInfo, found: OpenedObject) -> None:
        self.span = Span(shard, info, 0, info.stored, None)
        self.read_range = found.read_range
        self._object = found
        self._users = 0

    def use(self) -> None:
        """For one more."""
        self._users += 1

    def close(self) -> None:
        """For one less; the last one closes it."""
        self._users -= 1
        if not self._users:
            self._object.close()


class OpenInnerChunk:
    """An inner chunk whose shard is held open (`model.OpenChunk`); `location`: where in the shard it is."""

    __slots__ = ("_chunks", "_index", "close", "held", "info")

    def __init__(self, chunks: ShardedChunks, index: Index, held: HeldShard, location: tuple[int, int]) -> None:
        info = held.span.info
        self._chunks = chunks
        self._index = index
        self.held = held
        self.info = ChunkInfo(info.version, location[1], info.mtime_ns, location, info.settled, info.owner)
        self.close = held.close
        held.use()

    def read_into(self, out: memoryview) -> None:
        self._chunks.check_size(self._index, self.info, len(out))
        self._chunks.decode_into(self._index, self.held.read_range(*self.info.location), out)
