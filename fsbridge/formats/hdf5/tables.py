"""Chunk tables: where each stored chunk of a dataset is. Sorted numpy columns, 12 to 28 bytes per chunk. No I/O here."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from fsbridge import asking
from fsbridge.asking import Locks
from fsbridge.errors import CorruptData, NotFound
from fsbridge.formats.shared import SharedPart
from fsbridge.lru import LRU
from fsbridge.metadata import Index

BATCH_ROWS = 4096
"""Coordinates per batch of a scan."""


class ChunkAddress(NamedTuple):
    """Where a chunk's stored bytes are, and which filters it skipped (bit i: filter i of the pipeline)."""

    address: int
    size: int
    mask: int


class ChunkTable:
    """The stored chunks of one version of a dataset."""

    def __init__(
        self, counts: tuple[int, ...], columns: Sequence[np.ndarray[Any, np.dtype[np.uint64]]], outside: int = 0
    ) -> None:
        """`columns` in any order of rows: grid position (row-major number over `counts`), address, stored size, mask.

        `outside`: number of stored chunks that are in no row, because they lie outside of the dataset.
        """
        self.outside = outside
        position, address, size, mask = columns
        cells = _product(counts)
        if len(position) and int(position.max()) >= cells:
            raise CorruptData("the chunk table has a chunk outside the grid")
        order = np.argsort(position, kind="stable")
        self._positions = position[order]
        if np.any(self._positions[1:] == self._positions[:-1]):
            raise CorruptData("the chunk table has two chunks at one place of the grid")
        self._addresses = address[order]
        self._sizes = _narrow(size[order])
        self._masks = _narrow(mask[order]) if mask.any() else None
        self._counts = counts
        self._strides = tuple(_product(counts[axis + 1 :]) for axis in range(len(counts)))

    def __len__(self) -> int:
        return len(self._positions)

    @property
    def nbytes(self) -> int:
        """Memory of the columns in bytes."""
        masks = 0 if self._masks is None else self._masks.nbytes
        return int(self._positions.nbytes + self._addresses.nbytes + self._sizes.nbytes + masks)

    def find(self, index: Index) -> ChunkAddress:
        """Return the stored chunk at `index`. Raises NotFound."""
        position = self._position(index)
        row = int(np.searchsorted(self._positions, np.uint64(position)))
        if row == len(self._positions) or int(self._positions[row]) != position:
            raise NotFound("the chunk is not stored")
        mask = 0 if self._masks is None else int(self._masks[row])
        return ChunkAddress(int(self._addresses[row]), int(self._sizes[row]), mask)

    def any_below(self, prefix: Index) -> bool:
        """Tell whether any chunk with an index beginning with `prefix` is stored."""
        first, last = self._rows(prefix)
        return first < last

    def scan(self, prefix: Index) -> Iterator[list[int]]:
        """Yield the next coordinates below `prefix` that lead to stored chunks, ascending, in batches."""
        if len(prefix) >= len(self._counts):
            return
        row, end = self._rows(prefix)
        start = self._position(prefix)
        stride = self._strides[len(prefix)]
        batch: list[int] = []
        while row < end:
            if stride == 1:
                rows = self._positions[row : min(row + BATCH_ROWS, end)]
                yield (rows - np.uint64(start)).tolist()
                row += len(rows)
                continue
            coordinate = (int(self._positions[row]) - start) // stride
            batch.append(coordinate)
            if len(batch) == BATCH_ROWS:
                yield batch
                batch = []
            beyond = np.uint64(start + (coordinate + 1) * stride)
            row += int(np.searchsorted(self._positions[row:end], beyond))
        if batch:
            yield batch

    def _rows(self, prefix: Index) -> tuple[int, int]:
        start = self._position(prefix)
        span = self._strides[len(prefix) - 1] if prefix else _product(self._counts)
        first, last = np.searchsorted(self._positions, np.array([start, start + span], np.uint64))
        return int(first), int(last)

    def _position(self, prefix: Index) -> int:
        """Return the row-major number of the first grid cell below `prefix`. Raises NotFound outside the grid."""
        if len(prefix) > len(self._counts) or any(not 0 <= i < n for i, n in zip(prefix, self._counts, strict=False)):
            raise NotFound(f"chunk {list(prefix)} is outside the grid")
        return sum(i * stride for i, stride in zip(prefix, self._strides, strict=False))


TABLES_BYTES = 256 << 20
"""Bytes of chunk tables in memory, for all files of a mount: ten million chunks."""


class TableCache(SharedPart):
    """Tables by key within a budget of bytes, least recently used first. Single flight: one load per table. Thread-safe."""

    def __init__(self, budget: int = TABLES_BYTES) -> None:
        self._tables: LRU[Hashable, ChunkTable] = LRU(budget)
        self._loading: Locks[Hashable] = Locks()

    def get(self, key: Hashable, load: Callable[[], ChunkTable]) -> ChunkTable:
        """Return the table of `key`, loaded by one caller while others with the same key wait."""
        table = self._tables.get(key)
        if table is not None:
            return table
        asking.before_waiting()
        with self._loading.of(key):
            table = self._tables.get(key)
            if table is None:
                table = load()
                self._tables.put(key, table, table.nbytes)
            return table


def _product(counts: Sequence[int]) -> int:
    product = 1
    for count in counts:
        product *= count
    return product


def _narrow(column: np.ndarray[Any, np.dtype[Any]]) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the same numbers in 32 bits if they fit."""
    return column.astype(np.uint32) if not len(column) or int(column.max()) < 1 << 32 else column
