"""Sharded chunks: the inner chunks of `sharding_indexed` as the chunks of the array, each read by its own byte range.

A shard is one stored object: an index of (offset, length) pairs at its start or end, and encoded inner chunks in any order
between. Shards nest, and codecs around a shard make it a stream that has to be decoded whole before it can be addressed.
Not here: the index itself (`shard_index.py`), the reading of a `codecs` list (`codecs.py`), keys and listings of the
shard files (`keyed/chunkfiles.py`).
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Hashable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from fsbridge.codecs import Buffer, CodecChain
from fsbridge.errors import CorruptData, FsbridgeError, NotFound, Stale, TooLarge
from fsbridge.formats.keyed.placedchunks import ChunkFiles
from fsbridge.formats.keyed.store import KeyedStore
from fsbridge.formats.zarr3.inner_chunks import HeldShard, InnerGrid, Members, OpenInnerChunk, merged
from fsbridge.formats.zarr3.shard_index import ENTRY_BYTES, ShardCache, ShardIndex, ShardLevel, Span, divide, shard_positions
from fsbridge.metadata import ArrayMetadata, ChunkGrid, Index
from fsbridge.model import Batch, ChunkInfo, OpenChunk
from fsbridge.owner import Owner
from fsbridge.store import BATCH_NAMES, WHOLE, Key, Range

READ_ATTEMPTS = 3
"""A shard replaced between the look at its version and the read of its index is looked at again, this often in all."""


class ShardedChunks:
    """The inner chunks of a sharded array: `model.Chunks`.

    `metadata` has the grid of inner chunks, `shards` is that of the stored objects; `levels` are the nested codecs,
    outermost first; `chain` decodes one inner chunk; `version` is that of the metadata, for the cache. An index that fails
    its checksum makes all chunks of its shard CorruptData, an entry that points out of the shard its own chunk alone.
    """

    def __init__(
        self,
        keyed: KeyedStore,
        files: ChunkFiles,
        metadata: ArrayMetadata,
        shards: ChunkGrid,
        levels: Sequence[ShardLevel],
        chain: CodecChain,
        version: Hashable,
        cache: ShardCache,
    ) -> None:
        self._keyed = keyed
        self._files = files
        self._metadata = metadata
        self._counts = metadata.grid.counts
        self._shards = shards
        self._levels = tuple(levels)
        self._inner = levels[-1].cell
        # Inner chunks per entry of each level's index, and per shard or, where shards differ, the first chunk of each shard.
        self._per_cell = [divide(level.cell, self._inner) for level in levels]
        positions = [shard_positions(edge, cell) for edge, cell in zip(shards.edges, self._inner, strict=True)]
        self._grid = InnerGrid(metadata.grid.counts, positions)
        self.at_once = not any(level.outer.steps for level in levels)
        self.touched_ns, self.commit = files.touched_ns, files.commit
        self._chain = chain
        self._version = version
        self._cache = cache
        self._limit = keyed.config.max_chunk

    # model.Chunks

    def find(self, index: Index) -> ChunkInfo:
        """The inner chunk at `index`; NotFound when its shard or its index entry is absent."""
        span, offset, length = self._locate(index)
        location = None if span.data is not None else (span.start + offset, length)
        return ChunkInfo(span.info.version, length, span.info.mtime_ns, location, span.info.settled, span.info.owner)

    def hold(self, index: Index, beside: OpenChunk | None = None) -> OpenInnerChunk | None:
        """The inner chunk at `index`, its shard held open as that of `beside`; None where that must be decoded whole."""
        if not self.at_once or not self._grid.holds(index):
            return None
        shard, local = self._grid.split(index)
        held = beside.held if isinstance(beside, OpenInnerChunk) and beside.held.span.shard == shard else None
        if held is None:
            if (opened := self._files.opened(shard)) is None:
                return None
            held = HeldShard(shard, *opened)
        held.use()
        try:
            span, offset, length = self._descend(held.span, shard, local)
            return OpenInnerChunk(self, index, held, (span.start + offset, length))
        finally:
            held.close()

    def find_prefix(self, prefix: Index) -> int:
        """mtime of the shards that hold inner chunks below `prefix`; reads indexes only until one has such a chunk."""
        if not self._grid.inside(prefix):
            raise NotFound(f"chunk {list(prefix)}: not in the grid")
        above, _ = self._grid.split(prefix)
        if self._keyed.store.prefixes:
            return self._files.find_prefix(above if len(above) < len(self._counts) else ())
        corner = (*above, *(0,) * (len(self._counts) - len(above)))  # mostly it is there, and nothing need be listed
        for shard in itertools.chain((corner,), self._shards_below(above)):
            if self._present(shard, prefix).any():
                return self._files.find_prefix(above)
        raise NotFound(f"chunk {list(prefix)}: nothing stored")

    def prefix_owner(self, prefix: Index) -> Owner | None:
        """Of the directory of the shards that hold inner chunks below `prefix`."""
        return self._files.prefix_owner(self._grid.split(prefix)[0])

    def scan(self, prefix: Index) -> Iterator[Sequence[tuple[int, int]]]:
        """Streams shard by shard; of each row of shards only as many indexes are read as it takes to find all its rows."""
        if not self._grid.inside(prefix) or len(prefix) == len(self._counts):
            return
        above, _ = self._grid.split(prefix)
        for batch in self._files.scan(above):
            if not batch:
                yield []
            for some in merged(self._members(batch, above, prefix)):
                yield Batch(some, batch.asked, batch.owner)

    def _members(self, shards: Iterable[tuple[int, int]], above: Index, prefix: Index) -> Iterator[Members]:
        for shard, mtime in shards:
            rows: npt.NDArray[np.bool_] | None = None
            for below in self._shards_below((*above, shard)):
                present = self._present(below, prefix)
                rows = present if rows is None else rows | present
                if rows.all():
                    break
            if rows is not None:
                found, first = np.flatnonzero(rows), self._grid.first(len(prefix), shard)
                for start in range(0, len(found), BATCH_NAMES):
                    yield [(first + row, mtime) for row in found[start : start + BATCH_NAMES].tolist()]

    def read_into(self, index: Index, info: ChunkInfo, out: memoryview) -> None:
        """One range read of the shard, decoded into `out`."""
        self.decode_into(index, self._stored(index, info, len(out)), out)

    def decode_into(self, index: Index, data: Buffer, out: memoryview) -> None:
        """Decode the encoded bytes of an inner chunk."""
        try:
            self._chain.decode_into(data, out, self._keyed.limit(self._chain))
        except FsbridgeError as error:
            raise error.at(self._describe(index)) from None

    def read_all(self, index: Index, info: ChunkInfo, limit: int) -> Buffer:
        """One range read of the shard, decoded to whatever size it has."""
        data = self._stored(index, info, limit)
        try:
            return self._chain.decode(data, self._metadata.chunk_bytes(index), limit)
        except FsbridgeError as error:
            raise error.at(self._describe(index)) from None

    def read_range(self, index: Index, info: ChunkInfo, start: int, stop: int) -> bytes | None:
        """Inner chunks that can be decoded in part (`CodecChain.in_parts`) are read in part."""
        size = self._metadata.chunk_bytes(index)
        if info.location is None:
            return None
        try:
            encoded = self._keyed.encoded(self._chain, self._key(index), info, info.location, size)
            return None if encoded is None else encoded.decode_range(start, stop)
        except CorruptData as error:
            raise error.at(f"inner chunk {list(index)}") from None

    def size(self, index: Index, info: ChunkInfo) -> int:
        """Decodes the chunk when its elements are of variable length."""
        size = self._metadata.chunk_bytes(index)
        return size if size is not None else len(self.read_all(index, info, self._limit))

    def fetch(self, index: Index) -> None:
        """Have the stored bytes of an inner chunk sent, with those of its neighbours in the shard; waits for an index."""
        with contextlib.suppress(FsbridgeError, OSError):  # who comes for the chunk meets it
            span, offset, length = self._locate(index)
            if span.data is None:
                shape = self._levels[-2].cell if len(self._levels) > 1 else self._shards.chunk_shape(span.shard)
                first, run = self._index(span, len(self._levels) - 1, shape).run(offset, length)
                key, wanted = self._files.key(span.shard), (span.start + offset, length)
                self._keyed.store.fetch(key, wanted, (span.start + first, run))

    def count(self) -> int:
        """Reads the index of every shard; the first damage that is found is raised."""
        return sum(self._count(shard) for shard in self._shards_below(()))

    # positions

    def _key(self, index: Index) -> Key:
        return self._files.key(self._grid.split(index)[0])

    def _describe(self, index: Index) -> str:
        return f"{self._keyed.store.describe(self._key(index))}, inner chunk {list(index)}"

    def _shards_below(self, prefix: Index) -> Iterator[Index]:
        if len(prefix) == len(self._shards.shape):
            yield prefix
            return
        for batch in self._files.scan(prefix):
            for coordinate, _ in batch:
                yield from self._shards_below((*prefix, coordinate))

    # shards

    def _span(self, shard: Index) -> Span:
        """The stored shard as it is now; decoded when codecs surround it."""
        info = self._files.find(shard, self._read_first(shard))
        return self._open(Span(shard, info, 0, info.stored, None), 0)

    def _read_first(self, shard: Index) -> Range:
        """The bytes of a shard that are read before any other: its index. Only a store far away wants to know."""
        far, level = self._keyed.store.far, self._levels[0]
        return level.read_first(divide(self._shards.chunk_shape(shard), level.cell)) if far else WHOLE

    def _open(self, span: Span, level: int) -> Span:
        """`span` with the codecs around a shard of this level undone."""
        outer = self._levels[level].outer
        if not outer.steps:
            return span
        key = (self._version, span.shard, span.info.version, span.start, level, "data")
        data = self._cache.get(key)
        if not isinstance(data, bytes):
            if span.length > self._keyed.stored_limit(self._limit):
                raise TooLarge(f"{self._name(span)}: a shard of {span.length} bytes that must be decoded whole")
            try:
                data = bytes(outer.decode(self._read(span, 0, span.length), None, self._limit))
            except CorruptData as error:
                raise error.at(self._name(span)) from None
            self._cache.put(key, data, len(data))
        return Span(span.shard, span.info, span.start, len(data), data)

    def _name(self, span: Span) -> str:
        return self._keyed.store.describe(self._files.key(span.shard))

    def _read(self, span: Span, offset: int, length: int) -> bytes:
        """Bytes of a shard whose bounds are checked; Stale when it is no longer the one that was looked at."""
        if span.data is not None:
            return span.data[offset : offset + length]
        return self._keyed.read_range(self._files.key(span.shard), span.info, span.start + offset, length)

    def _index(self, span: Span, level: int, shape: tuple[int, ...]) -> ShardIndex:
        """The index of a shard of `shape`, from the cache or one range read; damage is remembered as well."""
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
            raise TooLarge(f"{self._name(span)}: shard index of {size} bytes, {limit}")
        try:
            if size > span.length:
                raise CorruptData(f"it takes {size} bytes, the shard has {span.length}")
            data = self._read(span, span.length - size if spec.at_end else 0, size)
            entries = spec.decode_index(data, counts, self._cache.budget)
        except CorruptData as error:
            message = f"{self._name(span)}: damaged shard index: {error}"
            self._cache.put(key, message, len(message))
            raise CorruptData(message) from None
        found = ShardIndex(entries, *((0, span.length - size) if spec.at_end else (size, span.length)))
        self._cache.put(key, found, found.nbytes)
        return found

    def _entry(self, span: Span, index: ShardIndex, cell: tuple[int, ...]) -> tuple[int, int]:
        """Offset and length of an entry; NotFound if it is empty."""
        try:
            found = index.find(cell)
        except CorruptData as error:
            raise error.at(f"{self._name(span)}, entry {list(cell)}") from None
        if found is None:
            raise NotFound(f"{self._name(span)}: inner chunk not stored")
        return found

    def _locate(self, index: Index) -> tuple[Span, int, int]:
        """Innermost shard, offset and length of the chunk at `index`."""
        if not self._grid.holds(index):
            raise NotFound(f"chunk {list(index)}: not in the grid")
        shard, local = self._grid.split(index)
        for attempt in range(READ_ATTEMPTS):
            try:
                return self._descend(self._span(shard), shard, local)
            except Stale:
                if attempt == READ_ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    def _descend(self, span: Span, shard: Index, local: Index) -> tuple[Span, int, int]:
        shape = self._shards.chunk_shape(shard)
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
            span, shape = self._nested(span, offset, length, level + 1), spec.cell
        return span, offset, length

    def _nested(self, span: Span, offset: int, length: int, level: int) -> Span:
        data = None if span.data is None else span.data[offset : offset + length]
        return self._open(Span(span.shard, span.info, span.start + offset, length, data), level)

    def _present(self, shard: Index, prefix: Index) -> npt.NDArray[np.bool_]:
        """Which next coordinates below `prefix` have inner chunks in one shard, counted from the shard's first one.

        In a shard that cannot be read every chunk is listed, so that opening it tells the reason (P3). TooLarge for more
        chunks than an index may have: nobody could list them, and none could be opened.
        """
        axis, (_, local) = len(prefix), self._grid.split(prefix)
        shape, room = self._shards.chunk_shape(shard), self._grid.room(shard)
        rows = shape[axis] // self._inner[axis]
        if rows > self._cache.budget // ENTRY_BYTES:
            raise TooLarge(f"shards of {rows} chunks along dimension {axis}; see --cache-size")
        try:
            found = self._stored_rows(self._span(shard), 0, shape, local, room)
        except TooLarge:
            raise
        except NotFound:  # removed since it was listed
            found = np.zeros(rows, np.bool_)
        except (FsbridgeError, OSError):
            found = np.ones(rows, np.bool_)
        return found[: room[axis]]

    def _stored_rows(
        self, span: Span, level: int, shape: tuple[int, ...], local: Index, room: tuple[int, ...]
    ) -> npt.NDArray[np.bool_]:
        """`_present` for one (nested) shard; `room` cuts off what lies outside the array."""
        spec, axis, per_cell = self._levels[level], len(local), self._per_cell[level]
        index = self._index(span, level, shape)
        stored = index.stored(tuple(-(-n // per) for n, per in zip(room, per_cell, strict=True)))
        below = stored[tuple(position // per for position, per in zip(local, per_cell, strict=False))]
        rows = np.zeros(shape[axis] // self._inner[axis], np.bool_)
        if level == len(self._levels) - 1:
            found = below.any(axis=tuple(range(1, below.ndim)))
            rows[: len(found)] = found
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
                nested = self._nested(span, *self._entry(span, index, cell), level + 1)
                row |= self._stored_rows(nested, level + 1, spec.cell, rest, inner_room)
            except CorruptData:
                row[:] = True
        return rows

    def _count(self, shard: Index) -> int:
        try:
            return self._count_stored(self._span(shard), 0, self._shards.chunk_shape(shard), self._grid.room(shard))
        except NotFound:
            return 0

    def _count_stored(self, span: Span, level: int, shape: tuple[int, ...], room: tuple[int, ...]) -> int:
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
            nested = self._nested(span, *self._entry(span, index, cell), level + 1)
            total += self._count_stored(nested, level + 1, spec.cell, inner_room)
        return total

    def check_size(self, index: Index, info: ChunkInfo, decoded: int) -> None:
        """TooLarge for more stored bytes than `decoded` ones may have."""
        limit = self._keyed.stored_limit(decoded)
        if info.stored > limit:
            raise TooLarge(f"{self._describe(index)}: {info.stored} stored bytes, the limit is {limit}")

    def _stored(self, index: Index, info: ChunkInfo, decoded: int) -> bytes:
        """The encoded bytes of the chunk that `info` describes."""
        self.check_size(index, info, decoded)
        if info.location is not None:
            return self._keyed.read_range(self._key(index), info, *info.location)
        try:
            span, offset, length = self._locate(index)
        except NotFound as error:
            raise Stale(str(error)) from None
        if span.info.version != info.version:
            raise Stale(f"{self._describe(index)}: the shard was replaced")
        return self._read(span, offset, length)
