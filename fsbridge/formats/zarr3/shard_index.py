"""The index of a shard: its layout, its check, and the cache that keeps it. Not here: the questions to it (`shards.py`).

Source of the format: the Zarr v3 core specification, "Sharding codec", version 1.0.
"""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fsbridge.codecs import CodecChain
from fsbridge.errors import CorruptData
from fsbridge.lru import LRU
from fsbridge.metadata import Index
from fsbridge.model import ChunkInfo
from fsbridge.store import WHOLE, Range

EMPTY = 2**64 - 1
"""Offset and length of an inner chunk that is not stored."""

ENTRY_BYTES = 16
"""Bytes of an index entry: offset and length, 64 bits each."""


RUN_CELLS, LEAST_RUN_BYTES, MOST_RUN_BYTES = 16, 1 << 20, 4 << 20
"""One request prefetches the bytes of about this many inner chunks, but at least and at most this many bytes."""

Entries = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class ShardLevel:
    """One `sharding_indexed` codec, in the dimension order of the array.

    `cell`: shape of what one index entry addresses (an inner chunk or a nested shard). `axes`: array axis of each axis of
    the index, which transposes before the codec permute. `index_order`: transposes among the index codecs, over those
    axes and the last one of length 2. `index_chain` decodes an index to exactly 16 bytes an entry; `index_extra` is the
    number of its checksum bytes. `outer`: the bytes-to-bytes codecs around the shard.
    """

    cell: tuple[int, ...]
    axes: tuple[int, ...]
    index_order: tuple[int, ...]
    index_chain: CodecChain
    index_extra: int
    index_big_endian: bool
    at_end: bool
    outer: CodecChain

    def read_first(self, counts: tuple[int, ...]) -> Range:
        """Return the bytes of a remote shard that are read first: its index of `counts` entries, and some more."""
        if self.outer.steps:
            return WHOLE
        # At least 128 KiB come with an index, all of a small shard, because they take a fraction of the time of another
        # request.
        size = max(ENTRY_BYTES * math.prod(counts) + self.index_extra, (128 * 1024))
        return (-size, size) if self.at_end else (0, size)

    def decode_index(self, data: bytes, counts: tuple[int, ...], limit: int) -> Entries:
        """Decode entries of shape `(*counts, 2)` in the array's dimension order.

        Raises CorruptData for bad checksum or length.
        """
        raw = self.index_chain.decode(data, ENTRY_BYTES * math.prod(counts), limit)
        stored = (*(counts[axis] for axis in self.axes), 2)
        entries = np.frombuffer(raw, ">u8" if self.index_big_endian else "<u8")
        entries = entries.reshape([stored[axis] for axis in self.index_order]).transpose(np.argsort(self.index_order))
        inverse = [self.axes.index(axis) for axis in range(len(counts))]
        return np.ascontiguousarray(entries.transpose([*inverse, len(counts)]), dtype=np.uint64)


class Span(NamedTuple):
    """A shard's bytes: `length` bytes from `start` of the stored object `info`, or, after decoding, `data`."""

    shard: Index
    info: ChunkInfo
    start: int
    length: int
    data: bytes | None


@dataclass(frozen=True, slots=True, eq=False)
class ShardIndex:
    """The index of one (nested) shard, in the dimension order of the array. Inner chunks lie in bytes [first, last).

    Each entry is checked when it is asked for: one that points out of the shard does not affect the others (P8).
    """

    entries: Entries
    first: int
    last: int
    _stored: npt.NDArray[np.bool_] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_stored", (self.entries != EMPTY).any(axis=-1))

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return int(self.entries.nbytes + self._stored.nbytes)

    def stored(self, counts: tuple[int, ...]) -> npt.NDArray[np.bool_]:
        """Return which cells are not empty, of the first `counts` cells of each dimension.

        A cell with an impossible entry counts as not empty (P3).
        """
        return self._stored[tuple(map(slice, counts))]

    def damaged(self) -> tuple[int, ...] | None:
        """Return the first cell with an entry that points out of the shard, or None."""
        offsets, lengths = self.entries[..., 0], self.entries[..., 1]
        last = np.uint64(self.last)
        # compared in two steps, because offset + length may overflow 64 bits
        outside = (offsets < np.uint64(self.first)) | (offsets > last) | (lengths > last - np.minimum(offsets, last))
        cells = np.argwhere(outside & ((offsets != EMPTY) | (lengths != EMPTY)))
        return tuple(cells[0].tolist()) if len(cells) else None

    def find(self, cell: tuple[int, ...]) -> tuple[int, int] | None:
        """Return offset and length of a cell, None if it is empty.

        Raises CorruptData if its entry points out of the shard.
        """
        offset, length = self.entries[cell].tolist()
        if offset == length == EMPTY:
            return None
        if not self.first <= offset <= offset + length <= self.last:
            raise CorruptData(
                f"this is a damaged entry of the shard index: offset {offset}, {length} bytes "
                f"where {self.first}..{self.last} are the shard's chunks"
            )
        return offset, length

    def run(self, offset: int, length: int) -> tuple[int, int]:
        """Return offset and length of the run of cells that is fetched to read the cell at `offset` of `length` bytes.

        Each cell is in one run, in whatever order cells are read. If its neighbours are too far apart, the cell is a run
        alone.
        """
        starts, lengths = self.entries[..., 0], self.entries[..., 1]
        right = starts <= np.uint64(self.last)
        right &= lengths <= np.uint64(self.last) - np.where(right, starts, np.uint64(0))
        mean = int(lengths[right].mean()) if right.any() else 0
        size = np.uint64(min(MOST_RUN_BYTES, max(LEAST_RUN_BYTES, RUN_CELLS * mean)))
        near = right & (starts // size == np.uint64(offset) // size)
        first, end = int(starts[near].min()), int((starts[near] + lengths[near]).max())
        dense = 2 * int(lengths[near].sum()) >= end - first
        return (first, end - first) if dense else (offset, length)


ShardCache: TypeAlias = LRU[Hashable, "ShardIndex | bytes | str"]
"""Cache by version: shard indexes, whole decoded shards if codecs surround them, errors of damaged indexes."""


def divide(lengths: tuple[int, ...], cell: tuple[int, ...]) -> tuple[int, ...]:
    """Return the number of inner chunks of shape `cell` along each axis of `lengths`."""
    return tuple(length // n for length, n in zip(lengths, cell, strict=True))


def shard_positions(edge: int | tuple[int, ...], cell: int) -> int | array[int]:
    """Return the number of inner chunks per shard of one dimension.

    If shards differ, the grid position of each shard's first one.
    """
    if isinstance(edge, int):
        return edge // cell
    return array("q", itertools.accumulate((length // cell for length in edge[:-1]), initial=0))
