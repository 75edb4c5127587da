"""Where Icechunk's manifests say that chunks are: inside the manifest, in a chunk object, or in somebody else's object.

A manifest is kept as it was decoded, with, for each of its arrays, the sorted coordinates of its chunks and the position of
each one's row; what a row says is read when its chunk is asked for. So a manifest takes little more than its own bytes, and
a damaged row is that chunk's alone. Field numbers are those of the schema `manifest.fbs`, versions 1 and 2. Not here: which
manifest tells of which chunks (`records.py`), what virtual chunks lie in (`virtual.py`).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fsbridge.codecs import zstd
from fsbridge.errors import CorruptData
from fsbridge.formats.icechunk.files import ID_BYTES, Payload, spell
from fsbridge.formats.icechunk.flatbuffers import Table
from fsbridge.formats.icechunk.records import NODE_ID_BYTES, table_id
from fsbridge.metadata import Index

ROW_BYTES = 16
"""What a chunk takes in a manifest at least, besides its coordinates, which no other chunk has: three offsets, a length."""

LOCATION_BYTES = 65536
"""Of the URL of a virtual chunk, at most."""

MAX_BYTES = 1 << 62
"""No chunk begins behind this byte of an object, or is longer."""


class Inline(NamedTuple):
    """A chunk whose bytes stand in the manifest."""

    content: bytes

    @property
    def length(self) -> int:
        return len(self.content)


class Native(NamedTuple):
    """A chunk in a chunk object of the repository, or a part of one."""

    id: str
    start: int
    length: int


class Virtual(NamedTuple):
    """A chunk in an object outside: its URL, and of which version it is, an ETag or the time of its last change (s)."""

    location: str
    start: int
    length: int
    etag: str | None
    modified: int


Chunk: TypeAlias = Inline | Native | Virtual


@dataclass(frozen=True, slots=True)
class ChunkTable:
    """The chunks of one array in one manifest, in order of their coordinates.

    `keys`: coordinates as bytes that sort alike; `rows`: where each chunk's row stands in `data`, the manifest, whose name
    is `id`; `dictionary`: of compressed locations.
    """

    id: str
    data: memoryview
    rank: int
    keys: npt.NDArray[np.bytes_]
    rows: npt.NDArray[np.uint32]
    dictionary: bytes

    def find(self, index: Index) -> int | None:
        """The number of a chunk."""
        low, high = self.range(index)
        return low if low < high else None

    def range(self, prefix: Index) -> tuple[int, int]:
        """The numbers [low, high) of the chunks whose coordinates begin with `prefix`."""
        if not self.rank:
            return 0, len(self.keys)
        begin = np.array(prefix, ">u4").tobytes()
        rest = 4 * (self.rank - len(prefix))
        low = np.searchsorted(self.keys, np.bytes_(begin + bytes(rest)), "left")
        high = np.searchsorted(self.keys, np.bytes_(begin + b"\xff" * rest), "right")
        return int(low), int(high)

    def coordinates(self, low: int, high: int, axis: int) -> npt.NDArray[np.uint32]:
        """The different coordinates along `axis` of the chunks [low, high), sorted."""
        found = self.keys[low:high].view(">u4")[axis :: self.rank]
        return np.unique(found).astype(np.uint32)

    def chunk(self, number: int) -> Chunk:
        """Where a chunk is; CorruptData."""
        row = Table(self.data, int(self.rows[number]))
        inline, native, location = row.span(1), row.struct(4, ID_BYTES), self._location(row)
        if (inline is not None) + (native is not None) + (location is not None) != 1:
            raise CorruptData(f"manifest {self.id}: a chunk that is in no place, or in two")
        if inline is not None:
            return Inline(bytes(self.data[inline[0] : inline[0] + inline[1]]))
        start, length = row.u64(2), row.u64(3)
        if max(start, length) > MAX_BYTES:
            raise CorruptData(f"manifest {self.id}: a chunk of an impossible size")
        if native is not None:
            return Native(spell(native), start, length)
        return Virtual(location or "", start, length, row.text(6), row.u32(7))

    def _location(self, row: Table) -> str | None:
        location, compressed = row.text(5), row.blob(8)
        if location is None and compressed is not None:
            try:
                return zstd.with_dictionary(compressed, self.dictionary, LOCATION_BYTES).decode()
            except UnicodeDecodeError:
                raise CorruptData(f"manifest {self.id}: the location of a virtual chunk is no UTF-8") from None
        return location


class Manifest:
    """The manifest `id`, and the tables of those of its arrays that were asked for; all take `nbytes`. Thread-safe."""

    def __init__(self, payload: Payload, id: str) -> None:
        """CorruptData unless it is the manifest of that name."""
        self._data = payload.data
        self._id = id
        self._root = Table.root(payload.data)
        self._dictionary = self._root.blob(2) or b""
        self._lock = threading.Lock()
        self.nbytes = len(payload.data)
        self._tables: dict[tuple[bytes, int], ChunkTable] = {}
        if table_id(self._root, 0) != id:
            raise CorruptData(f"manifest {id} says that it is {table_id(self._root, 0)}")

    def table(self, node: bytes, rank: int) -> ChunkTable:
        """The chunks of the array `node` of that rank; CorruptData for anything that is not well-formed."""
        with self._lock:
            found = self._tables.get((node, rank))
            if found is None:
                found = self._tables[node, rank] = self._parse(node, rank)
                self.nbytes += found.keys.nbytes + found.rows.nbytes
            return found

    def _parse(self, node: bytes, rank: int) -> ChunkTable:
        array = next((array for array in self._root.vector(1) if array.struct(0, NODE_ID_BYTES) == node), None)
        if array is None:
            raise CorruptData(f"manifest {self._id} tells nothing of an array whose chunks it should hold")
        _, count = array.span(1, 4) or (0, 0)
        if count * (ROW_BYTES + 4 * rank) > len(self._data):  # else few bytes could stand for a table of gigabytes
            raise CorruptData(f"manifest {self._id}: {count} chunks in {len(self._data)} bytes")
        rows = np.empty(count, np.uint32)
        coordinates = np.empty((count, rank), ">u4")
        done = 0
        for block in array.columns(1):
            end = done + len(block.positions)
            rows[done:end] = block.positions
            coordinates[done:end] = block.vectors(0, rank)
            done = end
        keys = coordinates.view(f"S{4 * rank}").reshape(count) if rank else np.zeros(count, "S1")
        if not (keys[1:] > keys[:-1]).all():
            order = np.argsort(keys, kind="stable")
            keys, rows = keys[order], rows[order]
            if (keys[1:] == keys[:-1]).any():
                raise CorruptData(f"manifest {self._id} tells of one chunk twice")
        return ChunkTable(self._id, self._data, rank, keys, rows, self._dictionary)
