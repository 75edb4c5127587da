"""The chunks of a dataset.

Chunked datasets have the stored chunks of the file's own chunk table, decoded by our codecs. All other datasets are cut
into slabs. What only HDF5 can decode is read through the child, one chunk at a time. Not here: where chunks are
(`tables.py`).
"""

from __future__ import annotations

import contextlib
import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fsbridge.codecs import CodecChain
from fsbridge.codecs.objects import vlen_utf8
from fsbridge.errors import CorruptData, FsbridgeError, NotFound, Stale, TooLarge, Unsupported
from fsbridge.formats.hdf5 import answers
from fsbridge.formats.hdf5.answers import MAX_FILTERS
from fsbridge.formats.hdf5.dataset import DatasetVersion
from fsbridge.formats.hdf5.filters import FilterPipeline
from fsbridge.formats.hdf5.tables import ChunkAddress, ChunkTable, TableCache
from fsbridge.formats.hdf5.types import ShownType
from fsbridge.formats.hdf5.versions import DataVersion
from fsbridge.metadata import MAX_EXTENT, ChunkGrid, Index
from fsbridge.model import ChunkInfo, Chunks
from fsbridge.threads.forking import cached_property

Column = np.ndarray[Any, np.dtype[np.uint64]]


@dataclass(frozen=True)
class DatasetChunks(Chunks):
    """Base of the chunks of all layouts: reading through the child, decoded sizes."""

    array: DatasetVersion
    shown: ShownType

    @property
    def rank(self) -> int:
        """Number of dimensions of the dataset itself. The dimensions of an array type come after them."""
        return len(self.array.dataset.shape)

    @property
    def grid(self) -> ChunkGrid:
        return self.array.metadata.grid

    @property
    def limit(self) -> int:
        return self.array.file.config.max_chunk

    def info(self, stored: int, location: Any) -> ChunkInfo:
        stat = self.array.stat
        return ChunkInfo(self.array.version, stored, stat.mtime_ns, location, stat.settled)

    def check_file(self, info: ChunkInfo) -> DataVersion:
        """Return the file that `info` belongs to. Raises Stale if the file was replaced."""
        self.array.note_read()
        if info.version != self.array.version:
            raise Stale(f"{self.array.place}: changed")
        return self.array.open_version()

    def read_through_child(self, index: Index, size: int | None, limit: int) -> bytearray:
        """Return a chunk's elements as HDF5 reads them.

        `size` bytes, or for None variable length of at most `limit` bytes.
        """
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
            raise TooLarge(f"a chunk has {size} bytes, the limit is {limit}")
        _, attachments, _ = self.array.file.ask(
            question, version=self.array.version.file, limit=limit if size is None else size
        )
        if self.array.dataset.sources:
            self.array.open_version()  # raises Stale if the other files changed
        if len(attachments) != 1 or (size is not None and len(attachments[0]) != size):
            raise CorruptData(f"{self.array.place}: HDF5 read a number of bytes that is not that of the chunk")
        return attachments[0]

    def read_through_child_into(self, index: Index, out: memoryview) -> None:
        """Read a chunk as `read_through_child` does, normalised, into `out`."""
        self.normalise(self.read_through_child(index, len(out), self.limit), out)

    def normalise(self, data: bytes | bytearray | memoryview, out: memoryview) -> None:
        """Apply `ShownType.normaliser`, the last decoding step, to `data`, and put the result into `out`."""
        steps = () if self.shown.normaliser is None else (self.shown.normaliser,)
        CodecChain(steps).decode_into(data, out, self.limit)

    def fetch(self, index: Index) -> None:
        """Prefetch the stored bytes of a chunk, see `model.Array.fetch`. Waits for a chunk table."""
        with contextlib.suppress(FsbridgeError, OSError):  # the same error will be met when the chunk is read
            place = self.find_stored(index)
            if place is not None:
                self.array.open_version().fetch(*place)

    @abstractmethod
    def find_stored(self, index: Index) -> tuple[int, int] | None:
        """Return address and size of a chunk's stored bytes, or None if the child reads it. Raises NotFound."""

    def read_all(self, index: Index, info: ChunkInfo, limit: int) -> bytearray:
        """Return a chunk of elements of variable length. Raises CorruptData for a text that is not UTF-8."""
        self.check_file(info)
        encoded = self.read_through_child(index, None, limit)
        if self.shown.dtype.serializer == "vlen-utf8":
            try:
                vlen_utf8(self.grid.elements(index)).decode(encoded, None, limit, None)
            except CorruptData as error:
                raise error.at(f"{self.array.place}: chunk {list(index)}") from None
        return encoded

    def size(self, index: Index, info: ChunkInfo) -> int:
        """Return the decoded size of a chunk of elements of variable length, which has to be read for it."""
        return len(self.read_all(index, info, self.limit))


@dataclass(frozen=True)
class TableChunks(DatasetChunks):
    """The chunks of a chunked dataset."""

    @cached_property
    def _pipeline(self) -> FilterPipeline:
        return FilterPipeline(self.array.dataset.filters, self.shown.normaliser)

    def table(self) -> ChunkTable:
        """Return the chunk table of this version. It is read when first needed."""
        self.array.open_version()
        tables = self.array.file.shared.of(TableCache)
        return tables.get((self.array.file.path, self.array.version, self.array.lasts), self._load)

    def strays(self) -> Iterator[str]:
        """See `model.Chunks.strays`."""
        if outside := self.table().outside:
            yield f"{self.array.place}: {outside} stored chunks outside its shape"

    def _load(self) -> ChunkTable:
        counts = self.grid.counts
        cells = math.prod(counts)
        if cells > MAX_EXTENT:
            raise TooLarge(f"{self.array.place}: a grid of {cells} chunks is too large")
        outside, columns = self._read_small() or self._ask()
        if outside:
            path = "/".join(self.array.path)
            self.array.file.remark(f"{path}: {outside} stored chunks outside its shape are not shown")
        try:
            return ChunkTable(counts, columns, outside)
        except CorruptData as error:
            raise error.at(self.array.place) from None

    def _read_small(self) -> tuple[int, list[Column]] | None:
        """Return the table that came with the description, if any."""
        table = self.array.dataset.table
        if table is None:
            return None
        return table.outside, list(np.frombuffer(table.columns, "<u8").reshape(4, table.rows))

    def _ask(self) -> tuple[int, list[Column]]:
        """Ask the child for the table."""
        question = {"op": "table", "path": list(self.array.path)}
        # 32 bytes for each chunk: four columns.
        limit = 32 * min(math.prod(self.grid.counts), self.array.stat.size)
        # 300 s: ten million chunks on a slow disk. Callers wait only until their own deadline.
        answer, attachments, _ = self.array.file.ask(question, version=self.array.version.file, limit=limit, seconds=300.0)
        rows = answer.get("chunks")
        if len(attachments) != 4 or type(rows) is not int or any(len(part) != 8 * rows for part in attachments):
            raise CorruptData(f"{self.array.place}: the HDF5 process sent no chunk table")
        return answers.parse_integer(answer.get("outside"), 2**63), [np.frombuffer(part, "<u8") for part in attachments]

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

    def find_stored(self, index: Index) -> tuple[int, int] | None:
        address = self.table().find(index)
        if self.array.dataset.form != "raw" or self._pipeline.chain(self._find_mask(index, address)) is None:
            return None
        return address.address, address.size

    def count(self) -> int:
        return len(self.table())

    def read_into(self, index: Index, info: ChunkInfo, out: memoryview) -> None:
        file = self.check_file(info)
        address: ChunkAddress = info.location
        try:
            if self.array.dataset.form != "raw":
                self.read_through_child_into(index, out)
                return
            chain = self._pipeline.chain(self._find_mask(index, address))
            if chain is None:
                self.read_through_child_into(index, out)
            elif not chain.steps:
                self._check_size(address, len(out))
                file.read_into(address.address, out)
            else:
                limits = self.array.file.config.limits
                if address.size > limits.encoded_factor * len(out) + (1 << 20):
                    raise CorruptData(f"a stored chunk of {address.size} bytes is too large for {len(out)} decoded ones")
                most = self.array.file.config.max_direct if chain.direct else self.limit
                chain.decode_into(file.read(address.address, address.size), out, most)
        except (CorruptData, Unsupported) as error:
            raise error.at(f"{self.array.place} chunk {list(index)}") from None

    def read_range(self, index: Index, info: ChunkInfo, start: int, stop: int) -> bytes | None:
        if self.array.dataset.form != "raw" or self._pipeline.chain(self._find_mask(index, info.location)) != CodecChain():
            return None
        size = self.grid.elements(index) * self.array.metadata.dtype.itemsize
        self._check_size(info.location, size)
        stop = min(stop, size)
        return bytes(self.check_file(info).read(info.location.address + start, max(0, stop - start)))

    def _check_size(self, address: ChunkAddress, size: int) -> None:
        if address.size != size:
            raise CorruptData(f"an unfiltered chunk has {address.size} bytes where {size} were expected")

    def _find_mask(self, index: Index, address: ChunkAddress) -> int:
        """Return the filters that this chunk skipped as bits. An unfiltered edge chunk skipped all of them."""
        if not self.array.dataset.unfiltered_edges:
            return address.mask
        shape = self.array.dataset.shape
        edges = self.grid.chunk_shape(index)[: self.rank]
        overhangs = any((i + 1) * edge > extent for i, edge, extent in zip(index, edges, shape, strict=False))
        return (1 << MAX_FILTERS) - 1 if overhangs else address.mask


@dataclass(frozen=True)
class SlabChunks(DatasetChunks):
    """The chunks of a dataset that the file does not cut. Either the whole grid is stored or nothing."""

    @cached_property
    def _is_stored(self) -> bool:
        dataset = self.array.dataset
        if dataset.null or math.prod(dataset.shape) == 0:
            return False
        return dataset.layout != "contiguous" or (dataset.offset is not None and bool(dataset.storage))

    def find(self, index: Index) -> ChunkInfo:
        self.find_prefix(index)
        if len(index) != len(self.grid.shape):
            raise NotFound("an index needs one number for each dimension")
        return self.info(self._count_inside(index) * self.array.dataset.dtype["size"], None)

    def find_prefix(self, prefix: Index) -> int:
        self.array.open_version()
        if not self._is_stored or not self.grid.contains(prefix):
            raise NotFound("no chunk is stored there")
        return self.array.mtime_ns

    def scan(self, prefix: Index) -> Iterator[Sequence[tuple[int, int]]]:
        self.array.open_version()
        counts = self.grid.counts
        if not self._is_stored or not self.grid.contains(prefix) or len(prefix) >= len(counts):
            return
        mtime = self.array.mtime_ns
        for first in range(0, counts[len(prefix)], 4096):
            yield [(i, mtime) for i in range(first, min(first + 4096, counts[len(prefix)]))]

    def find_stored(self, index: Index) -> tuple[int, int] | None:
        if not (self._is_stored and self._by_address and self.grid.contains(index)):
            return None
        return self._find_address(index), self._count_inside(index) * self._itemsize

    def count(self) -> int:
        return math.prod(self.grid.counts) if self._is_stored else 0

    def read_into(self, index: Index, info: ChunkInfo, out: memoryview) -> None:
        file = self.check_file(info)
        if not self._by_address:
            self.read_through_child_into(index, out)
            return
        inside = self._count_inside(index) * self._itemsize
        if self.shown.normaliser is None:
            file.read_into(self._find_address(index), out[:inside])
        else:
            self.normalise(file.read(self._find_address(index), inside), out[:inside])
        if inside < len(out):
            out[inside:] = self._padding * ((len(out) - inside) // len(self._padding))

    def read_range(self, index: Index, info: ChunkInfo, start: int, stop: int) -> bytes | None:
        if not self._by_address:
            return None
        file = self.check_file(info)
        size = self.grid.elements(index) * self.array.metadata.dtype.itemsize
        inside = self._count_inside(index) * self._itemsize
        start, stop = min(start, size), min(stop, size)
        item = self._itemsize if self.shown.normaliser is not None else 1
        first, last = start // item * item, min(inside, -(-stop // item) * item)
        data: bytes | bytearray | memoryview = b""
        if first < last:
            data = file.read(self._find_address(index) + first, last - first)
            if self.shown.normaliser is not None:
                swapped = bytearray(len(data))
                self.normalise(data, memoryview(swapped))
                data = swapped
        part = bytes(data[start - first : stop - first])
        missing = stop - start - len(part)
        if missing:
            pad = self._padding
            shift = (max(start, inside) - inside) % len(pad)
            part += (pad * (missing // len(pad) + 2))[shift : shift + missing]
        return part

    @property
    def _by_address(self) -> bool:
        return self.array.dataset.layout == "contiguous" and self.array.dataset.form == "raw"

    @property
    def _itemsize(self) -> int:
        return int(self.array.dataset.dtype["size"])

    @cached_property
    def _padding(self) -> bytes:
        """Return the bytes of elements beyond the array: the fill value."""
        fill = self.array.metadata.fill
        return fill if isinstance(fill, bytes) else bytes(self.array.metadata.dtype.itemsize)

    def _count_inside(self, index: Index) -> int:
        """Return how many elements of a chunk lie in the array. They come first, because only one axis is cut unevenly."""
        edges = self.grid.chunk_shape(index)[: self.rank]
        shape = self.array.dataset.shape
        return math.prod(min(edge, extent - i * edge) for i, edge, extent in zip(index, edges, shape, strict=False))

    def _find_address(self, index: Index) -> int:
        """Return the file address of a chunk's first element."""
        shape = self.array.dataset.shape
        edges = self.grid.chunk_shape(index)[: self.rank]
        element = 0
        for i, edge, extent in zip(index, edges, shape, strict=False):
            element = element * extent + i * edge
        assert self.array.dataset.offset is not None
        return self.array.dataset.offset + element * self._itemsize
