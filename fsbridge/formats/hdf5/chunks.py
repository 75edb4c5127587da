"""The chunks of a dataset that the file cuts: stored ones only, by the file's own chunk table, decoded by our codecs.

What only HDF5 can decode is read through the child, a chunk at a time. Not here: datasets that the file does not cut
(`slabs.py`), where chunks lie (`tables.py`).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fsbridge.codecs import CodecChain
from fsbridge.errors import CorruptData, FsbridgeError, NotFound, Stale, TooLarge, Unsupported
from fsbridge.formats.hdf5 import answers
from fsbridge.formats.hdf5.answers import MAX_FILTERS
from fsbridge.formats.hdf5.dataset import DatasetVersion
from fsbridge.formats.hdf5.pipeline import FilterPipeline
from fsbridge.formats.hdf5.tables import ChunkAddress, ChunkTable, TableCache
from fsbridge.formats.hdf5.types import Shown
from fsbridge.formats.hdf5.versions import DataVersion
from fsbridge.metadata import MAX_EXTENT, ChunkGrid, Index
from fsbridge.model import ChunkInfo
from fsbridge.owner import Owner, searchable

TABLES_BYTES = 256 << 20
"""Bytes of chunk tables in memory, for all files together: ten million chunks."""
TABLE_SECONDS = 300.0
"""Seconds to read a chunk table: ten million chunks on a slow disk. Callers wait for their own deadline only."""
TABLE_ROW_BYTES = 32
"""Bytes of one chunk in the child's answer."""

_tables = TableCache(TABLES_BYTES)

Column = np.ndarray[Any, np.dtype[np.uint64]]


@dataclass(frozen=True)
class DatasetChunks:
    """What chunks of all layouts share: reading through the child, and the sizes of what is read."""

    array: DatasetVersion
    shown: Shown

    @property
    def rank(self) -> int:
        """Dimensions of the dataset itself; those of an array type come after."""
        return len(self.array.dataset.shape)

    def prefix_owner(self, prefix: Index) -> Owner | None:
        """Whose the file is."""
        return searchable(self.array.owner)

    @property
    def grid(self) -> ChunkGrid:
        return self.array.metadata.grid

    @property
    def limit(self) -> int:
        return self.array.file.config.max_chunk

    def info(self, stored: int, location: Any) -> ChunkInfo:
        stat = self.array.stat
        return ChunkInfo(self.array.version, stored, stat.mtime_ns, location, stat.settled, self.array.owner)

    def file_of(self, info: ChunkInfo) -> DataVersion:
        """The file that `info` speaks of, to read of it; Stale if it is another by now."""
        self.array.came()
        if info.version != self.array.version:
            raise Stale(f"{self.array.place}: changed")
        return self.array.opened()

    def through_child(self, index: Index, size: int | None, limit: int) -> bytearray:
        """A chunk's elements as HDF5 reads them, `size` bytes (None: variable length, at most `limit`)."""
        shape = self.grid.chunk_shape(index)[: self.rank]
        start = [i * edge for i, edge in zip(index, shape, strict=False)]
        fill = self.array.dataset.fill
        question = {
            "op": "read",
            "path": list(self.array.path),
            "start": start,
            "shape": list(shape),
            "fill": "" if fill is None else fill.hex(),
            "limit": limit,
        }
        if self.array.dataset.unreadable is not None:
            raise Unsupported(f"{self.array.place}: {self.array.dataset.unreadable}")
        if size is not None and size > limit:
            raise TooLarge(f"chunk of {size} bytes, the limit is {limit}")
        _, attachments, _ = self.array.file.ask(
            question, version=self.array.version.file, limit=limit if size is None else size
        )
        if self.array.dataset.sources:
            self.array.opened()  # the other files are the same still
        if len(attachments) != 1 or (size is not None and len(attachments[0]) != size):
            raise CorruptData(f"{self.array.place}: HDF5 read another number of bytes than the chunk has")
        return attachments[0]

    def child_into(self, index: Index, out: memoryview) -> None:
        """As `through_child`, normalised, into `out`."""
        self.normalise(self.through_child(index, len(out), self.limit), out)

    def normalise(self, data: bytes | bytearray | memoryview, out: memoryview) -> None:
        """Apply the last decoding step."""
        steps = () if self.shown.normaliser is None else (self.shown.normaliser,)
        CodecChain(steps).decode_into(data, out, self.limit)

    def fetch(self, index: Index) -> None:
        """Have the stored bytes of a chunk sent, see `model.Array.fetch`; waits for a chunk table."""
        with contextlib.suppress(FsbridgeError, OSError):  # who comes for the chunk meets it
            place = self.stored_at(index)
            if place is not None:
                self.array.opened().fetch(*place)

    def stored_at(self, index: Index) -> tuple[int, int] | None:
        """Address and size of a chunk's stored bytes; None where the child reads it. NotFound."""
        raise NotImplementedError

    def read_all(self, index: Index, info: ChunkInfo, limit: int) -> bytearray:
        """A chunk of elements of variable length."""
        self.file_of(info)
        return self.through_child(index, None, limit)

    def size(self, index: Index, info: ChunkInfo) -> int:
        """Decoded size of a chunk of elements of variable length; it has to be read."""
        return len(self.read_all(index, info, self.limit))


@dataclass(frozen=True)
class TableChunks(DatasetChunks):
    """The chunks of a chunked dataset."""

    @cached_property
    def _pipeline(self) -> FilterPipeline:
        return FilterPipeline(self.array.dataset.filters, self.shown.normaliser)

    def table(self) -> ChunkTable:
        """The chunk table of this version, read when first needed."""
        self.array.opened()
        return _tables.get((self.array.file.path, self.array.version, self.array.lasts), self._load)

    def _load(self) -> ChunkTable:
        counts = self.grid.counts
        cells = math.prod(counts)
        if cells > MAX_EXTENT:
            raise TooLarge(f"{self.array.place}: grid of {cells} chunks")
        outside, columns = self._small() or self._ask()
        if outside:
            path = "/".join(self.array.path)
            self.array.file.remark(f"{path}: {outside} stored chunks outside its shape are not shown")
        try:
            return ChunkTable(counts, columns)
        except CorruptData as error:
            raise error.at(self.array.place) from None

    def _small(self) -> tuple[int, list[Column]] | None:
        """The table that came with the description."""
        table = self.array.dataset.table
        if table is None:
            return None
        return table.outside, list(np.frombuffer(table.columns, "<u8").reshape(4, table.rows))

    def _ask(self) -> tuple[int, list[Column]]:
        """The table from the child."""
        question = {"op": "table", "path": list(self.array.path)}
        limit = TABLE_ROW_BYTES * min(math.prod(self.grid.counts), self.array.stat.size)
        answer, attachments, _ = self.array.file.ask(
            question, version=self.array.version.file, limit=limit, seconds=TABLE_SECONDS
        )
        rows = answer.get("chunks")
        if len(attachments) != 4 or type(rows) is not int or any(len(part) != 8 * rows for part in attachments):
            raise CorruptData(f"{self.array.place}: the HDF5 process sent no chunk table")
        return answers.integer(answer.get("outside"), 2**63), [np.frombuffer(part, "<u8") for part in attachments]

    def find(self, index: Index) -> ChunkInfo:
        address = self.table().find(index)
        return self.info(address.size, address)

    def find_prefix(self, prefix: Index) -> int:
        if not self.table().any_below(prefix):
            raise NotFound("no chunk is stored there")
        return self.array.mtime_ns

    def scan(self, prefix: Index) -> Iterator[Sequence[tuple[int, int]]]:
        mtime = self.array.mtime_ns
        for batch in self.table().scan(prefix):
            yield [(coordinate, mtime) for coordinate in batch]

    def stored_at(self, index: Index) -> tuple[int, int] | None:
        address = self.table().find(index)
        if self.array.dataset.form != "raw" or self._pipeline.chain(self._mask(index, address)) is None:
            return None
        return address.address, address.size

    def count(self) -> int:
        return len(self.table())

    def read_into(self, index: Index, info: ChunkInfo, out: memoryview) -> None:
        opened = self.file_of(info)
        address: ChunkAddress = info.location
        try:
            if self.array.dataset.form != "raw":
                self.child_into(index, out)
                return
            chain = self._pipeline.chain(self._mask(index, address))
            if chain is None:
                self.child_into(index, out)
            elif not chain.steps:
                self._check_size(address, len(out))
                opened.read_into(address.address, out)
            else:
                limits = self.array.file.config.limits
                if address.size > limits.encoded_factor * len(out) + (1 << 20):
                    raise CorruptData(f"stored chunk of {address.size} bytes for {len(out)} decoded ones")
                most = self.array.file.config.max_direct if chain.direct else self.limit
                chain.decode_into(opened.read(address.address, address.size), out, most)
        except (CorruptData, Unsupported) as error:
            raise error.at(f"{self.array.place} chunk {list(index)}") from None

    def read_range(self, index: Index, info: ChunkInfo, start: int, stop: int) -> bytes | None:
        if self.array.dataset.form != "raw" or self._pipeline.chain(self._mask(index, info.location)) != CodecChain():
            return None
        size = self.grid.elements(index) * self.array.metadata.dtype.itemsize
        self._check_size(info.location, size)
        stop = min(stop, size)
        return bytes(self.file_of(info).read(info.location.address + start, max(0, stop - start)))

    def _check_size(self, address: ChunkAddress, size: int) -> None:
        if address.size != size:
            raise CorruptData(f"unfiltered chunk of {address.size} bytes where {size} were expected")

    def _mask(self, index: Index, address: ChunkAddress) -> int:
        """The filters that this chunk skipped, one bit each: all, for an edge chunk of a dataset that leaves those raw."""
        if not self.array.dataset.unfiltered_edges:
            return address.mask
        shape = self.array.dataset.shape
        edges = self.grid.chunk_shape(index)[: self.rank]
        overhangs = any((i + 1) * edge > extent for i, edge, extent in zip(index, edges, shape, strict=False))
        return (1 << MAX_FILTERS) - 1 if overhangs else address.mask
