"""Sharded chunks: the inner chunks of `sharding_indexed` as the array's chunks, each read by its own byte range.

Not here: shards, and where inner chunks are in them (`shards.py`), the reading of a `codecs` list (`codecs.py`).
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
from array import array
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fsbridge.asking import before_waiting
from fsbridge.codecs import Buffer, CodecChain
from fsbridge.errors import CorruptData, FsbridgeError, NotFound, Stale, TooLarge
from fsbridge.formats.zarr3.shard_index import Span, shard_positions
from fsbridge.formats.zarr3.shards import HeldShard, Shards
from fsbridge.metadata import ArrayMetadata, Index
from fsbridge.model import ChunkInfo, Chunks, OpenChunk
from fsbridge.store import BATCH_NAMES, Key
from fsbridge.threads.deadlines import Stopwatch


class InnerGrid:
    """The grid of inner chunks, `counts` of them along each dimension, within the grid of shards.

    `positions`: for each dimension the inner chunks per shard or, if shards differ, the first inner chunk of each.
    """

    def __init__(self, counts: tuple[int, ...], positions: Sequence[int | array[int]]) -> None:
        self._counts = counts
        self._positions = positions

    def holds(self, index: Index) -> bool:
        """True if `index` is the position of an inner chunk."""
        return len(index) == len(self._counts) and self.inside(index)

    def inside(self, prefix: Index) -> bool:
        """True if `prefix` is the position of an inner chunk, or the beginning of one."""
        inside = len(prefix) <= len(self._counts)
        for position, count in zip(prefix, self._counts, strict=False):  # a generator takes twice as long
            inside &= 0 <= position < count
        return inside

    def split(self, prefix: Index) -> tuple[Index, Index]:
        """Return the shard of a position (or of its beginning) in the grid, and the position within the shard."""
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
        """Return the position along `axis` of the first inner chunk of the shards with the coordinate `shard`."""
        per = self._positions[axis]
        return per * shard if isinstance(per, int) else per[shard]

    def room(self, shard: Index) -> tuple[int, ...]:
        """Return the number of inner chunks from the shard's first one to the end of the array, for each dimension."""
        return tuple(n - self.first(axis, i) for axis, (n, i) in enumerate(zip(self._counts, shard, strict=True)))


READ_ATTEMPTS = 3
"""Attempts to read a shard's index while the shard is replaced between the look-up and the read."""

MERGED_SECONDS = 0.02
"""Listings found within this time are handed on together. It is longer than reading the indexes of some shards takes."""

Members: TypeAlias = list[tuple[int, int]]
"""Part of a listing: coordinates and the mtime (ns) of their shards, sorted."""


class ShardedChunks(Chunks):
    """The inner chunks of a sharded array: `model.Chunks`.

    `metadata` has the grid of inner chunks; `chain` decodes one of them.
    """

    def __init__(self, shards: Shards, metadata: ArrayMetadata, chain: CodecChain) -> None:
        self._shards = shards
        self._keyed = shards.keyed
        self.files = shards.files
        self._metadata = metadata
        self._counts = metadata.grid.counts
        # Inner chunks per shard or, if shards differ, the first inner chunk of each.
        positions = [shard_positions(edge, cell) for edge, cell in zip(shards.grid.edges, shards.inner, strict=True)]
        self._grid = InnerGrid(metadata.grid.counts, positions)
        self._plain = shards.plain
        self._chain = chain
        self._limit = shards.keyed.config.max_chunk

    # model.Chunks

    def mtime_ns(self) -> int:
        return self.files.mtime_ns()

    def removed_ns(self, indices: Collection[Index]) -> int:
        changed, missing = 0, []
        for shard in {self._grid.split(index)[0] for index in indices if self._grid.holds(index)}:
            try:
                changed = max(changed, self.files.find(shard).changed_ns)
            except NotFound:
                missing.append(shard)
        return max(changed, self.files.removed_ns(missing))

    def commit(self) -> Hashable:
        return self.files.commit()

    def find(self, index: Index) -> ChunkInfo:
        """Return the stored inner chunk at `index`. Raises NotFound if it is not stored.

        Its location in the shard is None if codecs surround the shard, because it is then decoded whole.
        """
        if not self._plain:
            before_waiting()  # indexes or shards are decoded
        return _info(*self._locate(index))

    def find_all(self, indices: Sequence[Index]) -> dict[Index, ChunkInfo | None]:
        """Return what `find` does for each, with one look at each shard."""
        before_waiting()
        spans: dict[Index, Span] = {}
        infos: dict[Index, ChunkInfo | None] = {}
        for index in indices:
            shard, local = self._grid.split(index)
            try:
                if shard not in spans:
                    spans[shard] = self._shards.span(shard)
                infos[index] = _info(*self._shards.descend(spans[shard], local))
            except NotFound:
                infos[index] = None
            except Stale:  # replaced while its index was read
                continue
        return infos

    def open(self, index: Index, neighbour: OpenChunk | None = None) -> OpenChunk:
        """Return the inner chunk at `index` with its shard held open, unless codecs surround the shards.

        If `neighbour` is in the same shard, the open shard of `neighbour` is used.
        """
        if not self._plain or not self._grid.holds(index):
            return super().open(index)
        shard, local = self._grid.split(index)
        held = None if neighbour is None else neighbour.held
        if not isinstance(held, HeldShard) or held.span.shard != shard:
            if (opened := self.files.hold_open(shard)) is None:
                return super().open(index)
            held = HeldShard(shard, *opened)
        held.use()
        try:
            span, offset, length = self._shards.descend(held.span, local)
        except BaseException:
            held.close()
            raise
        info = held.span.info._replace(stored=length, location=(span.start + offset, length))
        return OpenChunk(info, partial(self._read_held, index, info, held), held)

    def _read_held(self, index: Index, info: ChunkInfo, held: HeldShard, out: memoryview) -> None:
        self._check_size(index, info, len(out))
        self._decode_into(index, held.read_range(*info.location), out)

    def find_prefix(self, prefix: Index) -> int:
        """Return the mtime of the shards with inner chunks below `prefix`. Reads indexes only until one has such a chunk."""
        before_waiting()
        if not self._grid.inside(prefix):
            raise NotFound(f"chunk {list(prefix)}: it is not in the grid")
        above, _ = self._grid.split(prefix)
        if self._keyed.store.has_no_directories:
            return self.files.find_prefix(above if len(above) < len(self._counts) else ())
        corner = (*above, *(0,) * (len(self._counts) - len(above)))  # this shard usually exists, and then nothing is listed
        for shard in itertools.chain((corner,), self._shards.shards_below(above)):
            if self._find_present(shard, prefix).any():
                return self.files.find_prefix(above)
        raise NotFound(f"chunk {list(prefix)}: nothing is stored")

    def strays(self) -> Iterator[str]:
        return self.files.strays()

    def other_names(self) -> Iterator[Sequence[str]]:
        return self.files.other_names()

    def scan(self, prefix: Index) -> Iterator[Sequence[tuple[int, int]]]:
        """Yield coordinates shard by shard.

        In each row of shards, indexes are read only until all rows of chunks in it are known to have stored chunks.
        """
        if not self._grid.inside(prefix) or len(prefix) == len(self._counts):
            return
        above, _ = self._grid.split(prefix)
        for batch in self.files.scan(above):
            if not batch:
                yield []
            yield from merge(self._members(batch, above, prefix))

    def _members(self, shards: Iterable[tuple[int, int]], above: Index, prefix: Index) -> Iterator[Members]:
        for shard, mtime in shards:
            rows: npt.NDArray[np.bool_] | None = None
            for below in self._shards.shards_below((*above, shard)):
                present = self._find_present(below, prefix)
                rows = present if rows is None else rows | present
                if rows.all():
                    break
            if rows is not None:
                stored_rows, first = np.flatnonzero(rows), self._grid.first(len(prefix), shard)
                for start in range(0, len(stored_rows), BATCH_NAMES):
                    yield [(first + row, mtime) for row in stored_rows[start : start + BATCH_NAMES].tolist()]

    def read_into(self, index: Index, info: ChunkInfo, out: memoryview) -> None:
        """Read one range of the shard, decoded into `out`."""
        self._decode_into(index, self._read_stored(index, info, len(out)), out)

    def _decode_into(self, index: Index, data: Buffer, out: memoryview) -> None:
        """Decode the encoded bytes of an inner chunk."""
        try:
            self._chain.decode_into(data, out, self._keyed.limit(self._chain))
        except FsbridgeError as error:
            raise error.at(self._describe(index)) from None

    def read_all(self, index: Index, info: ChunkInfo, limit: int) -> Buffer:
        """Read one range of the shard, decoded to whatever size it has."""
        data = self._read_stored(index, info, limit)
        try:
            return self._chain.decode(data, self._metadata.chunk_bytes(index), limit)
        except FsbridgeError as error:
            raise error.at(self._describe(index)) from None

    def read_range(self, index: Index, info: ChunkInfo, start: int, stop: int) -> bytes | None:
        """Return bytes of an inner chunk if it can be decoded in part (`CodecChain.in_parts`), else None."""
        size = self._metadata.chunk_bytes(index)
        if info.location is None:
            return None
        try:
            encoded = self._keyed.encoded(self._chain, self._key(index), info, info.location, size)
            return None if encoded is None else encoded.decode_range(start, stop)
        except CorruptData as error:
            raise error.at(f"inner chunk {list(index)}") from None

    def size(self, index: Index, info: ChunkInfo) -> int:
        """Return the decoded size. Chunks with elements of variable length are decoded for it."""
        size = self._metadata.chunk_bytes(index)
        return size if size is not None else len(self.read_all(index, info, self._limit))

    def fetch(self, index: Index) -> None:
        """Prefetch the stored bytes of an inner chunk and of its neighbours in the shard.

        Waits until the shard's index is read.
        """
        with contextlib.suppress(FsbridgeError, OSError):  # the same error will be met when the chunk is read
            span, offset, length = self._locate(index)
            if span.data is None:
                first, run = self._shards.run(span, offset, length)
                key, wanted = self.files.key(span.shard), (span.start + offset, length)
                self._keyed.store.fetch(key, wanted, (span.start + first, run))

    def count(self) -> int:
        """Return the number of inner chunks, from the indexes of all shards. Raises the first damage that is found."""
        return sum(self._shards.count(shard, self._grid.room(shard)) for shard in self._shards.shards_below(()))

    # positions

    def _key(self, index: Index) -> Key:
        return self.files.key(self._grid.split(index)[0])

    def _describe(self, index: Index) -> str:
        return f"{self._keyed.store.describe(self._key(index))}, inner chunk {list(index)}"

    def _locate(self, index: Index) -> tuple[Span, int, int]:
        """Return innermost shard, offset and length of the chunk at `index`."""
        if not self._grid.holds(index):
            raise NotFound(f"chunk {list(index)}: it is not in the grid")
        shard, local = self._grid.split(index)
        for attempt in range(READ_ATTEMPTS):
            try:
                return self._shards.descend(self._shards.span(shard), local)
            except Stale:
                if attempt == READ_ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    def _find_present(self, shard: Index, prefix: Index) -> npt.NDArray[np.bool_]:
        """Return which next coordinates below `prefix` have inner chunks in one shard, see `Shards.rows`."""
        return self._shards.rows(shard, self._grid.split(prefix)[1], self._grid.room(shard))

    def _check_size(self, index: Index, info: ChunkInfo, decoded: int) -> None:
        """Raise TooLarge for more stored bytes than `decoded` ones may have."""
        limit = self._keyed.stored_limit(decoded)
        if info.stored > limit:
            raise TooLarge(f"{self._describe(index)}: it has {info.stored} stored bytes, the limit is {limit}")

    def _read_stored(self, index: Index, info: ChunkInfo, decoded: int) -> bytes:
        """Return the encoded bytes of the chunk that `info` describes."""
        self._check_size(index, info, decoded)
        if info.location is not None:
            return self._keyed.read_range(self._key(index), info, *info.location)
        try:
            span, offset, length = self._locate(index)
        except NotFound as error:
            raise Stale(str(error)) from None
        if span.info.version != info.version:
            raise Stale(f"{self._describe(index)}: the shard was replaced")
        return self._shards.read(span, offset, length)


def _info(span: Span, offset: int, length: int) -> ChunkInfo:
    """Return the inner chunk that takes `length` bytes from `offset` on in a shard."""
    location, info = None if span.data is not None else (span.start + offset, length), span.info
    return ChunkInfo(info.version, length, info.mtime_ns, location, info.settled, info.changed_ns)


def merge(parts: Iterator[Members], seconds: float = MERGED_SECONDS) -> Iterator[Members]:
    """Join the parts of a listing, found shard by shard, to few pieces, because each costs the kernel a request.

    A part is handed on at the latest when the next one comes and `seconds` have passed.
    """
    some: Members = []
    since = Stopwatch()
    for more in parts:
        some += more
        if len(some) >= BATCH_NAMES or since.seconds > seconds:
            yield some[:BATCH_NAMES]
            some = some[BATCH_NAMES:]
            since.restart()
    if some:
        yield some
