"""Icechunk's manifests, which tell where chunks are: in the manifest itself, in a chunk object or in an outside object.

A manifest is kept as it was decoded, with the sorted coordinates of each array's chunks and the position of each chunk's
row. A row is read when its chunk is asked for. So a manifest takes little more than its own bytes, and a damaged row
affects only its chunk. Field numbers are those of the schema `manifest.fbs`, versions 1 and 2.

Virtual chunks are bytes in objects beside the repository, in directories and below URLs that the user allows (P4). A
reference may name the version of its object, by an ETag or the time of its last change. Then bytes of another version are
an error, as in icechunk. What a repository says about servers and credentials is not used. Not here: which manifest has
which chunks (`records.py`).
"""

from __future__ import annotations

import threading
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fsbridge.codecs import streams
from fsbridge.config import Config
from fsbridge.errors import AccessDenied, CorruptData, NotFound, SetupError, Unsupported
from fsbridge.formats.icechunk.flatbuffers import Table
from fsbridge.formats.icechunk.records import ID_BYTES, NODE_ID_BYTES, Payload, spell, table_id
from fsbridge.metadata import Index
from fsbridge.store import Key, Stat, Store
from fsbridge.store.local import LocalStore
from fsbridge.store.remote.answers import is_version
from fsbridge.store.remote.urls import Location, is_url, parse_url

MAX_BYTES = 1 << 62
"""Highest first byte of a chunk in an object, and greatest length of a chunk."""


class Inline(NamedTuple):
    """A chunk stored in the manifest itself."""

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
    """A chunk in an outside object: its URL and its version, which is an ETag or the time of its last change (s)."""

    location: str
    start: int
    length: int
    etag: str | None
    modified: int


Chunk: TypeAlias = Inline | Native | Virtual


@dataclass(frozen=True, slots=True)
class ManifestTable:
    """The chunks of one array in one manifest, in the order of their coordinates.

    `keys`: coordinates as bytes that sort alike; `rows`: where each chunk's row is in `data`, the manifest named `id`;
    `dictionary`: for compressed locations.
    """

    id: str
    data: memoryview
    rank: int
    keys: npt.NDArray[np.bytes_]
    rows: npt.NDArray[np.uint32]
    dictionary: bytes

    def find(self, index: Index) -> int | None:
        """Return the number of a chunk, or None."""
        low, high = self.range(index)
        return low if low < high else None

    def range(self, prefix: Index) -> tuple[int, int]:
        """Return the numbers [low, high) of the chunks with coordinates that begin with `prefix`."""
        if not self.rank:
            return 0, len(self.keys)
        begin = np.array(prefix, ">u4").tobytes()
        rest = 4 * (self.rank - len(prefix))
        low = np.searchsorted(self.keys, np.bytes_(begin + bytes(rest)), "left")
        high = np.searchsorted(self.keys, np.bytes_(begin + b"\xff" * rest), "right")
        return int(low), int(high)

    def coordinates(self, low: int, high: int, axis: int) -> npt.NDArray[np.uint32]:
        """Return the different coordinates along `axis` of the chunks [low, high), sorted."""
        coordinates = self.keys[low:high].view(">u4")[axis :: self.rank]
        return np.unique(coordinates).astype(np.uint32)

    def chunk(self, number: int) -> Chunk:
        """Return where a chunk is. Raises CorruptData."""
        row = Table(self.data, int(self.rows[number]))
        inline, native, location = row.span(1), row.struct(4, ID_BYTES), self._location(row)
        if (inline is not None) + (native is not None) + (location is not None) != 1:
            raise CorruptData(f"manifest {self.id}: a chunk has no place, or two")
        if inline is not None:
            return Inline(bytes(self.data[inline[0] : inline[0] + inline[1]]))
        start, length = row.u64(2), row.u64(3)
        if max(start, length) > MAX_BYTES:
            raise CorruptData(f"manifest {self.id}: a chunk has an impossible size")
        if native is not None:
            return Native(spell(native), start, length)
        return Virtual(location or "", start, length, row.text(6), row.u32(7))

    def _location(self, row: Table) -> str | None:
        location, compressed = row.text(5), row.blob(8)
        if location is None and compressed is not None:
            try:
                # The URL of a virtual chunk has at most 65,536 bytes.
                return streams.with_dictionary(compressed, self.dictionary, 65536).decode()
            except UnicodeDecodeError:
                raise CorruptData(f"manifest {self.id}: the location of a virtual chunk is not UTF-8") from None
        return location


class Manifest:
    """The manifest `id`, and the tables of those arrays that were asked for. All take `nbytes`. Thread-safe."""

    def __init__(self, payload: Payload, id: str) -> None:
        """Keep the manifest in `payload`; CorruptData unless it names itself `id`."""
        self._data = payload.data
        self._id = id
        self._root = Table.root(payload.data)
        self._dictionary = self._root.blob(2) or b""
        self._lock = threading.Lock()
        self.nbytes = len(payload.data)
        self._tables: dict[tuple[bytes, int], ManifestTable] = {}
        if table_id(self._root, 0) != id:
            raise CorruptData(f"manifest {id} says that it is {table_id(self._root, 0)}")

    def table(self, node: bytes, rank: int) -> ManifestTable:
        """Return the chunks of the array `node` of that rank. Raises CorruptData for anything malformed."""
        with self._lock:
            table = self._tables.get((node, rank))
            if table is None:
                table = self._tables[node, rank] = self._parse(node, rank)
                self.nbytes += table.keys.nbytes + table.rows.nbytes
            return table

    def _parse(self, node: bytes, rank: int) -> ManifestTable:
        array = next((array for array in self._root.vector(1) if array.struct(0, NODE_ID_BYTES) == node), None)
        if array is None:
            raise CorruptData(f"manifest {self._id} lacks an array whose chunks it should hold")
        _, count = array.span(1, 4) or (0, 0)
        # A chunk takes at least three offsets and a length in a manifest, and its coordinates, which no other chunk has.
        if count * (16 + 4 * rank) > len(self._data):  # otherwise a few bytes could make a table of gigabytes
            raise CorruptData(f"manifest {self._id} cannot hold {count} chunks in {len(self._data)} bytes")
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
                raise CorruptData(f"manifest {self._id} has one chunk twice")
        return ManifestTable(self._id, self._data, rank, keys, rows, self._dictionary)


FILE, CONTAINER = "file://", "vcc://"


_Place: TypeAlias = tuple[str, Callable[[], Store], Key]
"""The name of a store, what opens it, and the key of an object in it."""


class VirtualObjects:
    """The objects below what `config.allow_external` names. Thread-safe."""

    def __init__(self, config: Config, containers: Callable[[], Mapping[str, str]]) -> None:
        """`containers` returns URL prefixes, by the names that stand for them in locations."""
        self._config = config
        self._containers = containers
        self._locations = [parse_url(url) for url in config.external_urls]
        self._lock = threading.Lock()
        self._stores: dict[str, Store] = {}

    def close(self) -> None:
        """Close the directories and the connections to servers."""
        with self._lock:
            while self._stores:
                self._stores.popitem()[1].close()

    def stat(self, chunk: Virtual) -> Stat:
        """Return the object as it is now. Raises CorruptData if it is missing, or not the version that was referred to."""
        try:
            store, key = self._find(chunk.location)
            return _check(chunk, store, store.stat(key, (chunk.start, chunk.length)))
        except NotFound as error:
            raise CorruptData(f"{error}, where a virtual chunk should be") from None

    def read(self, chunk: Virtual, first: int, length: int) -> tuple[bytes, Stat]:
        """Return `length` bytes of the chunk from its byte `first`, and the object's stat.

        Raises what `stat` does, and CorruptData if the object is too short.
        """
        try:
            store, key = self._find(chunk.location)
            data, stat = store.read_range(key, chunk.start + first, length)
        except NotFound as error:
            raise CorruptData(f"{error}, where a virtual chunk should be") from None
        return data, _check(chunk, store, stat)

    def fetch(self, chunk: Virtual, first: int, length: int) -> None:
        """Prefetch these bytes of the chunk.

        Does not block, so nothing is prefetched from a web server that was never asked.
        """
        name, make, key = self._place(chunk.location)
        if name in self._stores or (is_url(name) and not name.startswith("http")):
            self._open_once(name, make).fetch(key, (chunk.start + first, length))

    def _find(self, location: str) -> tuple[Store, Key]:
        name, make, key = self._place(location)
        return self._open_once(name, make), key

    def _place(self, location: str) -> _Place:
        if location.startswith(CONTAINER):
            name, _, path = location[len(CONTAINER) :].partition("/")
            url = self._containers().get(name)
            if url is None:
                raise CorruptData(f"a virtual chunk is in the container {name!r}, which the repository lacks")
            location = f"{url.rstrip('/')}/{path}"
        return self._file(location) if location.lower().startswith(FILE) else self._object(location)

    def _file(self, location: str) -> _Place:
        path = urllib.parse.unquote("/" + location[len(FILE) :].partition("/")[2])
        for folder in self._config.external_folders:
            inside = path.removeprefix(folder.rstrip("/") + "/")
            if inside != path:
                return folder, partial(LocalStore, folder, everybody=self._config.for_everybody), Key.parse(inside)
        raise _make_refusal(path, path.rpartition("/")[0])

    def _object(self, location: str) -> _Place:
        try:
            place = parse_url(location)
        except SetupError as error:
            raise Unsupported(f"the object of a virtual chunk cannot be reached: {error}") from None
        for allowed in self._locations:
            inside = _inside(allowed, place)
            if inside is not None:
                return allowed.text, partial(self._reach, allowed), Key.parse(inside)
        raise _make_refusal(place.text, place.parent.text)

    def _open_once(self, name: str, make: Callable[[], Store]) -> Store:
        with self._lock:
            known = self._stores.get(name)
        if known is not None:
            return known
        made = make()
        with self._lock:
            store = self._stores.setdefault(name, made)
        if store is not made:
            made.close()
        return store

    def _reach(self, location: Location) -> Store:
        """Return the store at `location`. The options of endpoint and region are only for the repository's kind of store."""
        source = parse_url(self._config.source) if self._config.is_remote else location
        remote = self._config.remote
        remote = remote if source.kind == location.kind else replace(remote, endpoint="", region="")
        from fsbridge.store.remote.store import object_store

        try:
            store = object_store(location, replace(self._config, remote=remote))
            if location.kind == "http":  # a server that has a page for every name also has it for missing chunks
                store.begin()
        except SetupError as error:
            raise Unsupported(str(error)) from None
        return store


def _make_refusal(place: str, folder: str) -> AccessDenied:
    return AccessDenied(f"a virtual chunk lies in {place}; to read it, mount with --allow-external {folder}")


def _check(chunk: Virtual, store: Store, stat: Stat) -> Stat:
    if chunk.etag is not None:
        if not store.has_no_directories:
            raise Unsupported(f"a virtual chunk in {chunk.location} has an ETag as its version, which a file does not have")
        if not is_version(stat, chunk.etag):
            raise CorruptData(f"{chunk.location} is not the version that the repository refers to")
    if chunk.modified and stat.mtime_ns // 10**9 > chunk.modified:
        raise CorruptData(f"{chunk.location} was changed after the repository had referred to a chunk in it")
    return stat


def _inside(allowed: Location, place: Location) -> str | None:
    """Return the key of `place` in the store at `allowed`, or None if it is not below it."""
    if (allowed.kind, allowed.root) != (place.kind, place.root) or place.account not in ("", allowed.account):
        return None
    above = f"{allowed.path}/" if allowed.path else ""
    if not place.path.startswith(above) or place.path == above:
        return None
    return urllib.parse.unquote(place.path[len(above) :])  # icechunk takes all locations for URLs
