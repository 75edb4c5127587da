"""The chunks of a dataset that the file does not cut: a regular grid of slabs along the slowest axes.

Contiguous data are read straight by address; compact, virtual and external ones, and elements with pointers, through the
child. Not here: how large a slab is (`metadata.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from fsbridge.errors import NotFound
from fsbridge.formats.hdf5.chunks import DatasetChunks
from fsbridge.metadata import Index
from fsbridge.model import ChunkInfo


@dataclass(frozen=True)
class SlabChunks(DatasetChunks):
    """The chunks of a dataset that the file does not cut; all of the grid is stored, or nothing."""

    @cached_property
    def _stored(self) -> bool:
        found = self.array.dataset
        if found.null or math.prod(found.shape) == 0:
            return False
        return found.layout != "contiguous" or (found.offset is not None and bool(found.storage))

    def find(self, index: Index) -> ChunkInfo:
        self.find_prefix(index)
        if len(index) != len(self.grid.shape):
            raise NotFound("no chunk index")
        return self.info(self._inside(index) * self.array.dataset.dtype["size"], None)

    def find_prefix(self, prefix: Index) -> int:
        self.array.opened()
        if not self._stored or not self.grid.contains(prefix):
            raise NotFound("no chunk is stored there")
        return self.array.mtime_ns

    def scan(self, prefix: Index) -> Iterator[Sequence[tuple[int, int]]]:
        self.array.opened()
        counts = self.grid.counts
        if not self._stored or not self.grid.contains(prefix) or len(prefix) >= len(counts):
            return
        mtime = self.array.mtime_ns
        for first in range(0, counts[len(prefix)], 4096):
            yield [(i, mtime) for i in range(first, min(first + 4096, counts[len(prefix)]))]

    def stored_at(self, index: Index) -> tuple[int, int] | None:
        if not (self._stored and self._by_address and self.grid.contains(index)):
            return None
        return self._address(index), self._inside(index) * self._itemsize

    def count(self) -> int:
        return math.prod(self.grid.counts) if self._stored else 0

    def read_into(self, index: Index, info: ChunkInfo, out: memoryview) -> None:
        opened = self.file_of(info)
        if not self._by_address:
            self.child_into(index, out)
            return
        inside = self._inside(index) * self._itemsize
        if self.shown.normaliser is None:
            opened.read_into(self._address(index), out[:inside])
        else:
            self.normalise(opened.read(self._address(index), inside), out[:inside])
        if inside < len(out):
            out[inside:] = self._padding * ((len(out) - inside) // len(self._padding))

    def read_range(self, index: Index, info: ChunkInfo, start: int, stop: int) -> bytes | None:
        if not self._by_address:
            return None
        opened = self.file_of(info)
        size = self.grid.elements(index) * self.array.metadata.dtype.itemsize
        inside = self._inside(index) * self._itemsize
        start, stop = min(start, size), min(stop, size)
        item = self._itemsize if self.shown.normaliser is not None else 1
        first, last = start // item * item, min(inside, -(-stop // item) * item)
        data: bytes | bytearray | memoryview = b""
        if first < last:
            data = opened.read(self._address(index) + first, last - first)
            if self.shown.normaliser is not None:
                swapped = bytearray(len(data))
                self.normalise(data, memoryview(swapped))
                data = swapped
        found = bytes(data[start - first : stop - first])
        missing = stop - start - len(found)
        if missing:
            pad = self._padding
            shift = (max(start, inside) - inside) % len(pad)
            found += (pad * (missing // len(pad) + 2))[shift : shift + missing]
        return found

    @property
    def _by_address(self) -> bool:
        return self.array.dataset.layout == "contiguous" and self.array.dataset.form == "raw"

    @property
    def _itemsize(self) -> int:
        return int(self.array.dataset.dtype["size"])

    @cached_property
    def _padding(self) -> bytes:
        """Elements beyond the array, as the fill value shows them."""
        fill = self.array.metadata.fill
        return fill if isinstance(fill, bytes) else bytes(self.array.metadata.dtype.itemsize)

    def _inside(self, index: Index) -> int:
        """Number of elements of a chunk that lie in the array; they come first, as only one axis is cut unevenly."""
        edges = self.grid.chunk_shape(index)[: self.rank]
        shape = self.array.dataset.shape
        return math.prod(min(edge, extent - i * edge) for i, edge, extent in zip(index, edges, shape, strict=False))

    def _address(self, index: Index) -> int:
        """File address of a chunk's first element."""
        shape = self.array.dataset.shape
        edges = self.grid.chunk_shape(index)[: self.rank]
        element = 0
        for i, edge, extent in zip(index, edges, shape, strict=False):
            element = element * extent + i * edge
        assert self.array.dataset.offset is not None
        return self.array.dataset.offset + element * self._itemsize
