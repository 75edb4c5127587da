"""HDF5 datasets as model arrays: their metadata, and their chunks by table, by address, or through the child.

- chunked: the file's own chunks, stored ones only; bytes by `pread`, decoded by our codecs; what only HDF5 can decode,
  by the child, a chunk at a time.
- contiguous: a regular grid of slabs along the slowest axes, read straight by address.
- compact, virtual, external, and elements with pointers: the same grid, read through the child.

Not here: groups (`source.py`), descriptors and processes (`file.py`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from fsbridge.codecs import CodecChain
from fsbridge.errors import CorruptData, NotFound, Stale, TooLarge, Unsupported
from fsbridge.formats.hdf5.answers import MAX_FILTERS, Dataset, dataset
from fsbridge.formats.hdf5.file import HDF5File
from fsbridge.formats.hdf5.metadata import array_metadata
from fsbridge.formats.hdf5.pipeline import FilterPipeline
from fsbridge.formats.hdf5.tables import ChunkTable, Place, TableCache
from fsbridge.formats.hdf5.types import Shown, shown
from fsbridge.formats.hdf5.versions import FileVersion
from fsbridge.model import MAX_EXTENT, ChunkGrid, ChunkInfo, Index
from fsbridge.owner import Owner, Owners, searchable
from fsbridge.store import Stat
from fsbridge.store.local import stat_of

TABLE_BUDGET = 256 << 20
"""Bytes of chunk tables in memory, for all files together: ten million chunks."""
TABLE_DEADLINE = 300.0
"""Seconds to read a chunk table: ten million chunks on a slow disk. Callers wait for their own deadline only."""
TABLE_ROW = 32
"""Bytes of one chunk in the child's answer."""

_tables = TableCache(TABLE_BUDGET)

Column = np.ndarray[Any, np.dtype[np.uint64]]


class Version(NamedTuple):
    """One version of a dataset: the file's version, its path, and the versions of other files that hold its data."""

    file: Hashable
    path: tuple[str, ...]
    sources: tuple[Hashable, ...]


class HDF5Array:
    """One version of a dataset."""

    kind: ClassVar[Literal["array"]] = "array"

    def __init__(self, file: HDF5File, path: tuple[str, ...], found: Dataset, stat: Stat) -> None:
        self.file = file
        self.path = path
        self.stat = stat
        self.dataset = found
        self._version = Version(stat.version, path, _versions(found.sources))
        kind = shown(found.dtype, found.form)
        self.metadata = array_metadata(found, kind)
        self.chunks: TableChunks | SlabChunks = (
            TableChunks(self, kind) if found.layout == "chunked" and not found.null else SlabChunks(self, kind)
        )

    @property
    def version(self) -> Version:
        return self._version

    @property
    def mtime_ns(self) -> int:
        return self.stat.mtime_ns

    def owners(self) -> Owners:
        """The file's."""
        return Owners(searchable(self.stat.owner), self.stat.owner)

    def current(self) -> bool:
        """Whether the file, and every other file that holds the data, is unchanged."""
        try:
            self.opened()
        except (Stale, NotFound):
            return False
        return True

    def opened(self) -> FileVersion:
        """The file of this version; Stale if it changed."""
        opened = self.file.version(self._version.file)
        if self.dataset.sources and _versions(self.dataset.sources) != self._version.sources:
            self.file.forget_child()
            raise Stale(f"{self.place}: a file that holds its data changed")
        self.stat = opened.stat  # which may have settled
        return opened

    @property
    def place(self) -> str:
        """File and path for messages."""
        return f"{self.file.path}:/{'/'.join(self.path)}"


_live: WeakValueDictionary[tuple[HDF5File, tuple[str, ...]], HDF5Array] = WeakValueDictionary()


def open_array(file: HDF5File, path: tuple[str, ...], answer: Mapping[str, Any], stat: Stat) -> HDF5Array:
    """The dataset that the child has described; the same object while somebody holds it and the file does not change."""
    found = _live.get((file, path))
    if found is None or found.version.file != stat.version or answer.get("sources"):
        found = HDF5Array(file, path, dataset(answer), stat)
        _live[file, path] = found
    return found


@dataclass(frozen=True)
class _Chunks:
    """What chunks of all layouts share: reading through the child, and the sizes of what is read."""

    array: HDF5Array
    shown: Shown

    @property
    def rank(self) -> int:
        """Dimensions of the dataset itself; those of an array type come after."""
        return len(self.array.dataset.shape)

    def prefix_owner(self, prefix: Index) -> Owner | None:
        """Whose the file is."""
        return searchable(self.array.stat.owner)

    @property
    def grid(self) -> ChunkGrid:
        return self.array.metadata.grid

    @property
    def limit(self) -> int:
        return self.array.file.config.max_chunk

    def info(self, stored: int, place: Any) -> ChunkInfo:
        stat = self.array.stat
        return ChunkInfo(self.array.version, stored, stat.mtime_ns, place, stat.settled, stat.owner)

    def opened(self, info: ChunkInfo) -> FileVersion:
        """The file that `info` speaks of; Stale if it is another by now."""
        if info.version != self.array.version:
            raise Stale(f"{self.array.place}: changed")
        return self.array.opened()

    def through_child(self, index: Index, size: int | None) -> bytearray:
        """A chunk's elements as HDF5 reads them, `size` bytes (None: variable length)."""
        shape = self.grid.chunk_shape(index)[: self.rank]
        start = [i * edge for i, edge in zip(index, shape, strict=False)]
        fill = self.array.dataset.fill
        question = {
            "op": "read",
            "path": list(self.array.path),
            "start": start,
            "shape": list(shape),
            "fill": "" if fill is None else fill.hex(),
        }
        if self.array.dataset.unreadable is not None:
            raise Unsupported(f"{self.array.place}: {self.array.dataset.unreadable}")
        if size is not None and size > self.limit:
            raise TooLarge(f"chunk of {size} bytes, the limit is {self.limit}")
        _, attachments, _ = self.array.file.ask(
            question, version=self.array.version.file, limit=self.limit if size is None else size
        )
        if len(attachments) != 1 or (size is not None and len(attachments[0]) != size):
            raise CorruptData(f"{self.array.place}: HDF5 read another number of bytes than the chunk has")
        return attachments[0]

    def child_into(self, index: Index, out: memoryview) -> None:
        """As `through_child`, normalised, into `out`."""
        self.normalise(self.through_child(index, len(out)), out)

    def normalise(self, data: bytearray, out: memoryview) -> None:
        """Apply the last decoding step."""
        steps = () if self.shown.normaliser is None else (self.shown.normaliser,)
        CodecChain(steps).decode_into(data, out, self.limit)

    def read_all(self, index: Index, info: ChunkInfo) -> bytes:
        """A chunk of elements of variable length."""
        self.opened(info)
        return bytes(self.through_child(index, None))

    def size(self, index: Index, info: ChunkInfo) -> int:
        """Decoded size of a chunk of elements of variable length; it has to be read."""
        return len(self.read_all(index, info))


@dataclass(frozen=True)
class TableChunks(_Chunks):
    """The chunks of a chunked dataset."""

    @cached_property
    def _pipeline(self) -> FilterPipeline:
        return FilterPipeline(self.array.dataset.filters, self.shown.normaliser)

    def table(self) -> ChunkTable:
        """The chunk table of this version, read when first needed."""
        self.array.opened()
        return _tables.get((self.array.file.path, self.array.version), self._load)

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
        limit = TABLE_ROW * min(math.prod(self.grid.counts), self.array.stat.size)
        answer, attachments, _ = self.array.file.ask(
            question, version=self.array.version.file, limit=limit, seconds=TABLE_DEADLINE
        )
        rows = answer.get("chunks")
        if len(attachments) != 4 or type(rows) is not int or any(len(part) != 8 * rows for part in attachments):
            raise CorruptData(f"{self.array.place}: the HDF5 process sent no chunk table")
        return int(answer.get("outside", 0)), [np.frombuffer(part, "<u8") for part in attachments]

    def find(self, index: Index) -> ChunkInfo:
        place = self.table().find(index)
        return self.info(place.size, place)

    def find_prefix(self, prefix: Index) -> int:
        if not self.table().any_below(prefix):
            raise NotFound("no chunk is stored there")
        return self.array.mtime_ns

    def scan(self, prefix: Index) -> Iterator[Sequence[tuple[int, int]]]:
        mtime = self.array.mtime_ns
        for batch in self.table().scan(prefix):
            yield [(coordinate, mtime) for coordinate in batch]

    def count(self) -> int:
        return len(self.table())

    def read_into(self, index: Index, info: ChunkInfo, out: memoryview) -> None:
        opened = self.opened(info)
        place: Place = info.place
        try:
            if self.array.dataset.form != "raw":
                self.child_into(index, out)
                return
            chain = self._pipeline.chain(self._mask(index, place))
            if chain is None:
                self.child_into(index, out)
            elif not chain.steps:
                self._check_size(place, len(out))
                opened.read_into(place.address, out)
            else:
                limits = self.array.file.config.limits
                if place.size > limits.encoded_factor * len(out) + (1 << 20):
                    raise CorruptData(f"stored chunk of {place.size} bytes for {len(out)} decoded ones")
                chain.decode_into(opened.read(place.address, place.size), out, self.limit)
        except (CorruptData, Unsupported) as error:
            raise error.at(f"{self.array.place} chunk {list(index)}") from None

    def read_range(self, index: Index, info: ChunkInfo, start: int, stop: int) -> bytes | None:
        if self.array.dataset.form != "raw" or self._pipeline.chain(self._mask(index, info.place)) != CodecChain():
            return None
        size = self.grid.elements(index) * self.array.metadata.dtype.itemsize
        self._check_size(info.place, size)
        stop = min(stop, size)
        return bytes(self.opened(info).read(info.place.address + start, max(0, stop - start)))

    def _check_size(self, place: Place, size: int) -> None:
        if place.size != size:
            raise CorruptData(f"unfiltered chunk of {place.size} bytes where {size} were expected")

    def _mask(self, index: Index, place: Place) -> int:
        """The filters that this chunk skipped, one bit each: all, for an edge chunk of a dataset that leaves those raw."""
        if not self.array.dataset.unfiltered_edges:
            return place.mask
        shape = self.array.dataset.shape
        edges = self.grid.chunk_shape(index)[: self.rank]
        overhangs = any((i + 1) * edge > extent for i, edge, extent in zip(index, edges, shape, strict=False))
        return (1 << MAX_FILTERS) - 1 if overhangs else place.mask


@dataclass(frozen=True)
class SlabChunks(_Chunks):
    """The chunks of a dataset that the file does not cut; all of the grid is stored, or nothing."""

    @cached_property
    def _stored(self) -> bool:
        found = self.array.dataset
        if found.null or math.prod(found.shape) == 0:
            return False
        return found.layout != "contiguous" or (found.offset is not None and found.storage > 0)

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

    def count(self) -> int:
        return math.prod(self.grid.counts) if self._stored else 0

    def read_into(self, index: Index, info: ChunkInfo, out: memoryview) -> None:
        opened = self.opened(info)
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
        opened = self.opened(info)
        size = self.grid.elements(index) * self.array.metadata.dtype.itemsize
        inside = self._inside(index) * self._itemsize
        start, stop = min(start, size), min(stop, size)
        item = self._itemsize if self.shown.normaliser is not None else 1
        first, last = start // item * item, min(inside, -(-stop // item) * item)
        data = bytearray()
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


def _versions(paths: Sequence[str]) -> tuple[Hashable, ...]:
    """Versions of other files; None for one that is not there (HDF5 then reads the fill value)."""
    found: list[Hashable] = []
    for path in paths:
        try:
            found.append(stat_of(os.stat(path)).version)
        except OSError:
            found.append(None)
    return tuple(found)
