"""The stored shards of an array: which inner chunks are in them, and where.

A shard is one stored object: an index of (offset, length) pairs at its start or end, and encoded inner chunks in any
order between. Shards nest. Codecs around a shard make it a stream that must be decoded whole before it can be addressed.
Not here: inner chunks as chunks of the array (`sharding.py`), the index itself (`shard_index.py`), keys and listings of
the shard files (`keyed/chunkfiles.py`).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from fsbridge.errors import CorruptData, FsbridgeError, NotFound, TooLarge
from fsbridge.formats.keyed.chunkkeys import ChunkFiles
from fsbridge.formats.keyed.store import KeyedStore
from fsbridge.formats.zarr3.shard_index import ENTRY_BYTES, ShardCache, ShardIndex, ShardLevel, Span, divide
from fsbridge.metadata import ChunkGrid, Index
from fsbridge.model import ChunkInfo
from fsbridge.store import WHOLE, OpenedObject, Range


class Shards:
    """The stored shards of one version of an array.

    `grid` is the grid of the stored objects; `levels` are the nested codecs, outermost first; `version` is that of the
    metadata, for the cache. An index that fails its checksum makes all chunks of its shard CorruptData; an entry that
    points out of the shard makes only its own chunk so.
    """

    def __init__(
        self,
        keyed: KeyedStore,
        files: ChunkFiles,
        grid: ChunkGrid,
        levels: Sequence[ShardLevel],
        version: Hashable,
        cache: ShardCache,
    ) -> None:
        self.keyed = keyed
        self.files = files
        self.grid = grid
        self._levels = tuple(levels)
        self.inner = levels[-1].cell
        """The shape of an inner chunk."""
        self._per_cell = [divide(level.cell, self.inner) for level in levels]  # inner chunks per entry of each level's index
        self._version = version
        self._cache = cache
        self._limit = keyed.config.max_chunk

    @property
    def plain(self) -> bool:
        """True if the stored objects hold inner chunks without codecs around them."""
        return not any(level.outer.steps for level in self._levels)

    def shards_below(self, prefix: Index) -> Iterator[Index]:
        """Yield the stored shards with positions that begin with `prefix`."""
        if len(prefix) == len(self.grid.shape):
            yield prefix
            return
        for batch in self.files.scan(prefix):
            for coordinate, _ in batch:
                yield from self.shards_below((*prefix, coordinate))

    def span(self, shard: Index) -> Span:
        """Return the stored shard as it is now, decoded if codecs surround it."""
        info = self.files.find(shard, self._read_first(shard))
        return self._open(Span(shard, info, 0, info.stored, None), 0)

    def _read_first(self, shard: Index) -> Range:
        """Return the bytes of a shard that are read first: its index. Only a remote store needs to know."""
        remote, level = self.keyed.store.remote, self._levels[0]
        return level.read_first(divide(self.grid.chunk_shape(shard), level.cell)) if remote else WHOLE

    def _open(self, span: Span, level: int) -> Span:
        """Return `span` with the codecs around a shard of this level undone."""
        outer = self._levels[level].outer
        if not outer.steps:
            return span
        key = (self._version, span.shard, span.info.version, span.start, level, "data")
        data = self._cache.get(key)
        if not isinstance(data, bytes):
            if span.length > self.keyed.stored_limit(self._limit):
                raise TooLarge(f"{self._name(span)}: the shard has {span.length} bytes, too many to be decoded whole")
            try:
                data = bytes(outer.decode(self.read(span, 0, span.length), None, self._limit))
            except (CorruptData, TooLarge) as error:  # either is reported when one of its chunks is opened, and hides none
                raise CorruptData(f"{self._name(span)}: {error}") from None
            self._cache.put(key, data, len(data))
        return Span(span.shard, span.info, span.start, len(data), data)

    def _name(self, span: Span) -> str:
        return self.keyed.store.describe(self.files.key(span.shard))

    def read(self, span: Span, offset: int, length: int) -> bytes:
        """Return bytes of a shard within checked bounds. Raises Stale if the shard was replaced."""
        if span.data is not None:
            return span.data[offset : offset + length]
        return self.keyed.read_range(self.files.key(span.shard), span.info, span.start + offset, length)

    def _index(self, span: Span, level: int, shape: tuple[int, ...]) -> ShardIndex:
        """Return the index of a shard of `shape`, from the cache or one range read. Damage is cached, too."""
        key = (self._version, span.shard, span.info.version, span.start, level, "index")
        known = self._cache.get(key)
        if isinstance(known, ShardIndex):
            return known
        if isinstance(known, str):
            raise CorruptData(known)
        spec = self._levels[level]
        counts = divide(shape, spec.cell)
        size = ENTRY_BYTES * math.prod(counts) + spec.index_extra
        if size > self._cache.budget:
            limit = f"the limit is {self._cache.budget}, see --cache-size"
            raise TooLarge(f"{self._name(span)}: the shard index has {size} bytes, {limit}")
        try:
            if size > span.length:
                raise CorruptData(f"it takes {size} bytes, the shard has {span.length}")
            data = self.read(span, span.length - size if spec.at_end else 0, size)
            entries = spec.decode_index(data, counts, self._cache.budget)
        except CorruptData as error:
            message = f"{self._name(span)}: damaged shard index: {error}"
            self._cache.put(key, message, len(message))
            raise CorruptData(message) from None
        index = ShardIndex(entries, *((0, span.length - size) if spec.at_end else (size, span.length)))
        self._cache.put(key, index, index.nbytes)
        return index

    def _entry(self, span: Span, index: ShardIndex, cell: tuple[int, ...]) -> tuple[int, int]:
        """Return offset and length of an entry. Raises NotFound if it is empty."""
        try:
            entry = index.find(cell)
        except CorruptData as error:
            raise error.at(f"{self._name(span)}, entry {list(cell)}") from None
        if entry is None:
            raise NotFound(f"{self._name(span)}: the inner chunk is not stored")
        return entry

    def descend(self, span: Span, local: Index) -> tuple[Span, int, int]:
        """Return innermost shard, offset and length of the inner chunk at position `local` of a shard. Raises NotFound."""
        shape = self.grid.chunk_shape(span.shard)
        last = len(self._levels) - 1
        for level, (spec, per_cell) in enumerate(zip(self._levels, self._per_cell, strict=True)):
            index = self._index(span, level, shape)
            cell = local
            if level < last:
                cell = divide(local, per_cell)
                local = tuple(position % n for position, n in zip(local, per_cell, strict=True))
            offset, length = self._entry(span, index, cell)
            if level == last:
                break
            span, shape = self._open_nested(span, offset, length, level + 1), spec.cell
        return span, offset, length

    def _open_nested(self, span: Span, offset: int, length: int, level: int) -> Span:
        data = None if span.data is None else span.data[offset : offset + length]
        return self._open(Span(span.shard, span.info, span.start + offset, length, data), level)

    def run(self, span: Span, offset: int, length: int) -> tuple[int, int]:
        """Return offset and length of the inner chunks that are worth prefetching together with the one at `offset`."""
        shape = self._levels[-2].cell if len(self._levels) > 1 else self.grid.chunk_shape(span.shard)
        return self._index(span, len(self._levels) - 1, shape).run(offset, length)

    def rows(self, shard: Index, local: Index, room: tuple[int, ...]) -> npt.NDArray[np.bool_]:
        """Return which next coordinates below the position `local` have inner chunks, counted from the shard's first one.

        `room`: inner chunks up to the end of the array, for each dimension. In a shard that cannot be read every chunk is
        listed, so that opening it reports the reason (P3). Raises TooLarge for more chunks than an index may have: they
        could neither be listed nor opened.
        """
        shape, axis = self.grid.chunk_shape(shard), len(local)
        rows = shape[axis] // self.inner[axis]
        if rows > self._cache.budget // ENTRY_BYTES:
            raise TooLarge(f"shards of {rows} chunks along dimension {axis} are too large; see --cache-size")
        try:
            flags = self._rows(self.span(shard), 0, shape, local, room)
        except TooLarge:
            raise
        except NotFound:  # removed since it was listed
            flags = np.zeros(rows, np.bool_)
        except (FsbridgeError, OSError):
            flags = np.ones(rows, np.bool_)
        return flags[: room[axis]]

    def _rows(
        self, span: Span, level: int, shape: tuple[int, ...], local: Index, room: tuple[int, ...]
    ) -> npt.NDArray[np.bool_]:
        """Return `rows` for one (nested) shard. `room` cuts off what lies outside the array."""
        spec, axis, per_cell = self._levels[level], len(local), self._per_cell[level]
        index = self._index(span, level, shape)
        stored = index.stored(tuple(-(-n // per) for n, per in zip(room, per_cell, strict=True)))
        below = stored[tuple(position // per for position, per in zip(local, per_cell, strict=False))]
        rows = np.zeros(shape[axis] // self.inner[axis], np.bool_)
        if level == len(self._levels) - 1:
            stored_rows = below.any(axis=tuple(range(1, below.ndim)))
            rows[: len(stored_rows)] = stored_rows
            return rows
        rest = tuple(position % per for position, per in zip(local, per_cell, strict=False))
        head = tuple(position // per for position, per in zip(local, per_cell, strict=False))
        for flat in np.flatnonzero(below):
            tail = tuple(int(i) for i in np.unravel_index(flat, below.shape))
            row = rows[tail[0] * per_cell[axis] : (tail[0] + 1) * per_cell[axis]]
            if row.all():
                continue
            cell = (*head, *tail)
            inner_room = tuple(n - c * per for n, c, per in zip(room, cell, per_cell, strict=True))
            try:
                nested = self._open_nested(span, *self._entry(span, index, cell), level + 1)
                row |= self._rows(nested, level + 1, spec.cell, rest, inner_room)
            except CorruptData:
                row[:] = True
        return rows

    def count(self, shard: Index, room: tuple[int, ...]) -> int:
        """Return the number of stored inner chunks in a shard. Raises the first damage of an index."""
        try:
            return self._count(self.span(shard), 0, self.grid.chunk_shape(shard), room)
        except NotFound:
            return 0

    def _count(self, span: Span, level: int, shape: tuple[int, ...], room: tuple[int, ...]) -> int:
        spec, per_cell = self._levels[level], self._per_cell[level]
        index = self._index(span, level, shape)
        stored = index.stored(tuple(-(-n // per) for n, per in zip(room, per_cell, strict=True)))
        damaged = index.damaged()
        if damaged is not None:
            self._entry(span, index, damaged)
        if level == len(self._levels) - 1:
            return int(np.count_nonzero(stored))
        total = 0
        for flat in np.flatnonzero(stored):
            cell = tuple(int(i) for i in np.unravel_index(flat, stored.shape))
            inner_room = tuple(n - c * per for n, c, per in zip(room, cell, per_cell, strict=True))
            nested = self._open_nested(span, *self._entry(span, index, cell), level + 1)
            total += self._count(nested, level + 1, spec.cell, inner_room)
        return total


class HeldShard:
    """A shard that one thread holds open for several of its inner chunks. It is closed with the last of them."""

    __slots__ = ("_object", "_users", "read_range", "span")

    def __init__(self, shard: Index, info: ChunkInfo, opened_object: OpenedObject) -> None:
        self.span = Span(shard, info, 0, info.stored, None)
        self.read_range = opened_object.read_range
        self._object = opened_object
        self._users = 0

    def use(self) -> None:
        """Count one more user."""
        self._users += 1

    def close(self) -> None:
        """Count one user less. The last one closes the shard."""
        self._users -= 1
        if not self._users:
            self._object.close()
