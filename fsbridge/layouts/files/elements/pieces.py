"""Finds the chunks that a file needs, and cuts large ones into slabs: parts that a codec can decode separately.

A plane then needs only the slabs that it touches, and a band of planes takes little memory. A slab is a range of positions
along the slowest dimension of a chunk in memory, so that its elements are contiguous.

Measured: with slabs, reading one plane of 1024 x 1024 from chunks of 8 MiB in Blosc-LZ4 takes 0.4 times as long, and 0.3
times the processor time (row `files XY large chunks` of `scripts/bench`).

Not here: how slabs and chunks get into memory (`supply.py`), decoding itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, cast

from fsbridge.config import MIB
from fsbridge.decoded import ArrayVersion, DecodedChunk
from fsbridge.errors import NotFound
from fsbridge.layouts.files.arrays.selection import Selection
from fsbridge.metadata import ArrayMetadata, ChunkGrid, Index
from fsbridge.model import Chunks

REMEMBERED_CHUNKS = 65536
"""Most chunks that an open file remembers, so that they are not looked up again at each read."""

Known: TypeAlias = dict[Index, DecodedChunk | None]
"""Chunks of one version of an array that have been looked up; None: the chunk is not stored."""


class FoundChunks:
    """The chunks that readers of one open file have found. Thread-safe."""

    def __init__(self, version: ArrayVersion, known: Known | None = None) -> None:
        """`known`: chunks that other readers of this version have found."""
        self.version = version
        self.known: Known = {} if known is None else known

    def find_all(self, wanted: Sequence[Index]) -> dict[Index, DecodedChunk | None]:
        """Return the wanted chunks of this version; None for one that is not stored. Stale if the array has changed."""
        chunks: dict[Index, DecodedChunk | None] = {}
        for index in wanted:
            if (before := self.known.get(index, self)) is not self:  # `self`: an unknown chunk
                chunks[index] = cast("DecodedChunk | None", before)
        missing = [index for index in dict.fromkeys(wanted) if index not in chunks]
        if missing:
            opened = dict(zip(missing, self.version.open_all(missing), strict=True))
            chunks.update(opened)
            if len(self.known) + len(opened) > REMEMBERED_CHUNKS:
                self.known.clear()
            self.known.update(opened)
        return chunks


def find_stored(chunks: Chunks, rank: int, most: int, prefix: Index = ()) -> Iterator[Index]:
    """Yield the indices of stored chunks that begin with `prefix`, at most `most` of them."""
    if len(prefix) == rank:
        yield prefix
        return
    count = 0
    try:
        for batch in chunks.scan(prefix):
            for coordinate, _ in batch:
                for index in find_stored(chunks, rank, most - count, (*prefix, coordinate)):
                    yield index
                    count += 1
                if count >= most:
                    return
    except NotFound:
        return


@dataclass(frozen=True, slots=True)
class SlabLimits:
    """Limits that decide whether, and how, large chunks are cut into slabs."""

    slab_bytes: int = MIB // 2
    """Least bytes of a slab for a reader of few slabs."""
    long_slab_bytes: int = 2 * MIB
    """Least bytes of a slab for a reader of many slabs: each must be worth its calls."""
    file_bytes: int = 16 * MIB
    """Least bytes of a file for which large chunks are decoded in slabs, because it does not need a whole chunk at once."""


SLAB_LIMITS = SlabLimits()

LEAST_SLABS = 4
"""Least slabs of a chunk. A chunk with fewer is decoded whole."""

_MOST_SLABS = 1024
"""Most slabs of a chunk."""

_FEW = 4
"""A reader of at most this part (a quarter) of a chunk's slowest extent counts as a reader of few slabs."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Names the decoded bytes [start, start + size) of a chunk, without holding them: the whole chunk, or one slab of it.

    `index`: the piece's place in the grid of pieces.
    """

    index: Index
    chunk: DecodedChunk
    start: int
    size: int

    @property
    def is_slab(self) -> bool:
        """True if the piece is only a part of its chunk."""
        return self.size != self.chunk.size


@dataclass(frozen=True, slots=True)
class Slabs:
    """How every chunk is cut: along `dimension`, into `count` slabs of equal size."""

    dimension: int = 0
    count: int = 1

    def grid(self, grid: ChunkGrid) -> ChunkGrid:
        """Return the grid of slabs."""
        if self.count == 1:
            return grid
        edges = list(grid.edges)
        edges[self.dimension] = cast(int, edges[self.dimension]) // self.count
        return ChunkGrid(grid.shape, tuple(edges))

    def chunk(self, index: Index) -> Index:
        """Return the index of the chunk that contains the piece at `index`."""
        return self._move(index, index[self.dimension] // self.count) if self.count > 1 else index

    def piece(self, index: Index, chunk: DecodedChunk) -> Piece:
        """Return the piece at `index`, which is a part of `chunk`."""
        if self.count == 1:
            return Piece(index, chunk, 0, chunk.size)
        size = chunk.size // self.count
        return Piece(index, chunk, index[self.dimension] % self.count * size, size)

    def whole(self, chunk: DecodedChunk) -> Piece:
        """Return a whole chunk as one piece. If chunks are cut into slabs, its index differs from all slabs' indices."""
        return Piece((*chunk.index, -1) if self.count > 1 else chunk.index, chunk, 0, chunk.size)

    def cut(self, chunk: DecodedChunk) -> Iterator[Piece]:
        """Yield all slabs of a chunk."""
        for number in range(self.count):
            at = chunk.index[self.dimension] * self.count + number if self.count > 1 else 0
            yield self.piece(self._move(chunk.index, at) if self.count > 1 else chunk.index, chunk)

    def _move(self, index: Index, coordinate: int) -> Index:
        return (*index[: self.dimension], coordinate, *index[self.dimension + 1 :])


def choose_slabs(
    metadata: ArrayMetadata, selection: Selection, order: Sequence[int], limits: SlabLimits = SLAB_LIMITS
) -> Slabs:
    """Choose how to cut chunks for a file of the region `selection`. `order`: memory order of chunks, slowest first."""
    grid, itemsize = metadata.grid, metadata.dtype.itemsize
    dimension = next((i for i in order if grid.edges[i] != 1), None)
    if dimension is None or not grid.regular or not itemsize or metadata.varlength:
        return Slabs()
    extent = cast(int, grid.edges[dimension])
    pick = selection.picks[dimension]
    few = pick.length * abs(pick.step) * _FEW <= extent
    if not few and selection.size * itemsize < limits.file_bytes:
        return Slabs()
    size = grid.elements((0,) * len(grid.shape)) * itemsize
    most = min(size // (limits.slab_bytes if few else limits.long_slab_bytes), _MOST_SLABS)
    return Slabs(dimension, next((n for n in range(most, LEAST_SLABS - 1, -1) if extent % n == 0), 1))


def cut_grid(metadata: ArrayMetadata, slabs: Slabs) -> ArrayMetadata:
    """Return the array's metadata with the grid of slabs in place of chunks."""
    return metadata if slabs.count == 1 else replace(metadata, grid=slabs.grid(metadata.grid))
