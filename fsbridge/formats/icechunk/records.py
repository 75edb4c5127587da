"""What Icechunk's metadata files say: refs and commits, the nodes of a snapshot, where the chunks of an array are.

Field numbers are those of the schemas `repo.fbs`, `snapshot.fbs` and `manifest.fbs` of the specification, versions 1 and 2.
Not here: files and their envelopes (`files.py`), which of them to read (`repository.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fsbridge.codecs import zstd
from fsbridge.errors import CorruptData, FsbridgeError, NotFound
from fsbridge.formats.icechunk import flexbuffers
from fsbridge.formats.icechunk.files import ID_BYTES, Payload, spell
from fsbridge.formats.icechunk.flatbuffers import Columns, Table
from fsbridge.model import JSON, Index
from fsbridge.store import ROOT, Key

NODE_ID_BYTES = 8
ARRAY = 1
"""Number of `ArrayNodeData` in the union of a node's data; a group's is 2."""

REFERENCE_BYTES = 16
"""What a chunk takes in a manifest at least, besides its coordinates, which no other chunk has: three offsets, a length."""

LOCATION_BYTES = 65536
"""Of the URL of a virtual chunk, at most."""

MAX_DEPTH = 1000

INLINE, NATIVE, VIRTUAL = range(3)


@dataclass(frozen=True, slots=True)
class Commit:
    """A snapshot as history tells of it. Identifiers are spelled as file names are."""

    id: str
    parent: str | None
    written_ns: int
    message: str
    metadata: Mapping[str, JSON]


@dataclass(frozen=True, slots=True)
class History:
    """All refs, by name, with the identifier of their snapshot, and all commits by identifier."""

    branches: Mapping[str, str]
    tags: Mapping[str, str]
    commits: Mapping[str, Commit]


def parse_history(payload: Payload) -> History:
    """The table `Repo`, which there is from version 2 on; CorruptData."""
    repo = Table.root(payload.data)
    rows = list(repo.tables(4))
    ids = [_id(row, 0) for row in rows]
    commits = {}
    for number, row in enumerate(rows):
        offset = row.i32(1)
        parent = ids[_below(offset, len(ids))] if offset >= 0 else None
        commits[ids[number]] = Commit(ids[number], parent, row.u64(2) * 1000, row.text(3) or "", _metadata(row, 4, 2))
    branches = {ref.text(0) or "": ids[_below(ref.u32(1), len(ids))] for ref in repo.tables(2)}
    tags = {ref.text(0) or "": ids[_below(ref.u32(1), len(ids))] for ref in repo.tables(1)}
    return History(branches, tags, commits)


class Node(NamedTuple):
    """A group or an array. `document`: its `zarr.json`; `data`: an array's table, None of a group."""

    id: bytes
    document: bytes
    data: Table | None


class Manifests(NamedTuple):
    """Where the chunks of an array are told of: identifiers, and per manifest and dimension the coordinates [from, to)."""

    ids: list[str]
    extents: npt.NDArray[np.uint32]  # (manifests, rank, 2)

    def of(self, prefix: Index) -> list[str]:
        """Those that may tell of chunks whose coordinates begin with `prefix`."""
        near = self.extents[:, : len(prefix)]
        asked = np.array(prefix, np.int64)
        holds = ((near[:, :, 0] <= asked) & (asked < near[:, :, 1])).all(axis=1)
        return [self.ids[number] for number in np.flatnonzero(holds)]


class Snapshot:
    """A state of the whole hierarchy: `nodes` by path, and the names of what lies in every directory."""

    def __init__(self, payload: Payload, id: str) -> None:
        """`payload`: the table `Snapshot`, which must be that of `id`; CorruptData."""
        table = Table.root(payload.data)
        if _id(table, 0) != id:
            raise CorruptData(f"snapshot {id} says that it is {_id(table, 0)}")
        parent = table.struct(1, ID_BYTES)
        written_ns = table.u64(3) * 1000
        metadata = _metadata(table, 5, payload.version)
        self.commit = Commit(id, spell(parent) if parent else None, written_ns, table.text(4) or "", metadata)
        self.nodes: dict[Key, Node] = {}
        self.members: dict[Key, list[str]] = {ROOT: []}
        self.nbytes = len(payload.data)
        self._manifests: dict[Key, Manifests] = {}
        for node in table.tables(2):
            self._add(node)

    def _add(self, node: Table) -> None:
        path, id, document = node.text(1), node.struct(0, NODE_ID_BYTES), node.blob(2)
        if path is None or id is None or document is None or not path.startswith("/"):
            raise CorruptData(f"a node without path, identifier or metadata ({path!r})")
        if path.count("/") > MAX_DEPTH:
            raise CorruptData(f"a node at a path of more than {MAX_DEPTH} components")
        try:
            key = Key.parse(path[1:])
        except NotFound:
            raise CorruptData(f"a node at the impossible path {path!r}") from None
        if key in self.nodes:
            raise CorruptData(f"two nodes at {path}")
        self.nodes[key] = Node(id, document, node.table(4) if node.u8(3) == ARRAY else None)
        missing = []
        while key not in self.members:
            missing.append(key)
            key = key.parent
        for key in reversed(missing):
            self.members[key] = []
            self.members[key.parent].append(key.name)

    def manifests(self, key: Key) -> Manifests:
        """Of the array at `key`."""
        found = self._manifests.get(key)
        if found is None:
            data = self.nodes[key].data
            assert data is not None
            found = self._manifests[key] = _parse_manifests(data)
        return found


def _parse_manifests(array: Table) -> Manifests:
    ids, extents = [], []
    for reference in array.tables(2):
        ids.append(_id(reference, 0))
        start, rank = reference.span(1, 8) or (0, 0)
        extents.append(np.frombuffer(reference.data, "<u4", 2 * rank, start).reshape(rank, 2))
        if len(extents[-1]) != len(extents[0]):
            raise CorruptData("manifests of one array that differ in rank")
    return Manifests(ids, np.array(extents, np.uint32).reshape(len(ids), len(extents[0]) if extents else 0, 2))


class Reference(NamedTuple):
    """Where a virtual chunk lies: a URL, and of its object an ETag or the time of its last change (s), where known."""

    location: str
    etag: str | None
    modified: int


@dataclass(frozen=True, slots=True)
class ChunkTable:
    """The chunks of one array in one manifest, in order of their coordinates.

    `keys`: coordinates as bytes that sort alike; `references`: where each stands in `data`, the manifest, which is kept
    when it holds chunks' bytes, or says where virtual chunks lie; `dictionary`: of compressed locations.
    """

    coordinates: npt.NDArray[np.uint32]  # (chunks, rank)
    keys: npt.NDArray[np.bytes_]
    kinds: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.uint64]
    ids: npt.NDArray[np.uint8]  # (chunks, 12)
    references: npt.NDArray[np.int64]
    data: bytes | None
    dictionary: bytes

    @property
    def nbytes(self) -> int:
        """Memory that it takes."""
        columns = (self.coordinates, self.keys, self.kinds, self.starts, self.lengths, self.ids, self.references)
        return sum(column.nbytes for column in columns) + (0 if self.data is None else len(self.data))

    def virtual(self, row: int) -> Reference:
        """Where a virtual chunk lies; CorruptData."""
        assert self.data is not None
        table = Table(self.data, int(self.references[row]))
        location, compressed = table.text(5), table.blob(8)
        if location is None and compressed is not None:
            try:
                location = zstd.with_dictionary(compressed, self.dictionary, LOCATION_BYTES).decode()
            except UnicodeDecodeError:
                raise CorruptData("the location of a virtual chunk is no UTF-8") from None
        return Reference(location or "", table.text(6), table.u32(7))

    def find(self, index: Index) -> int | None:
        """The row of a chunk."""
        low, high = self.range(index)
        return low if low < high else None

    def range(self, prefix: Index) -> tuple[int, int]:
        """The rows [low, high) of the chunks whose coordinates begin with `prefix`."""
        rank = self.coordinates.shape[1]
        begin = np.array(prefix, ">u4").tobytes()
        rest = 4 * (rank - len(prefix))
        if not rank:
            return 0, len(self.keys)
        low = np.searchsorted(self.keys, np.bytes_(begin + bytes(rest)), "left")
        high = np.searchsorted(self.keys, np.bytes_(begin + b"\xff" * rest), "right")
        return int(low), int(high)


def parse_manifest(payload: Payload, id: str, node: bytes, rank: int) -> ChunkTable:
    """The chunks of the array `node` of that rank in the manifest `id`; CorruptData for anything that is not well-formed."""
    data = payload.data
    manifest = Table.root(data)
    if _id(manifest, 0) != id:
        raise CorruptData(f"manifest {id} says that it is {_id(manifest, 0)}")
    array = next((array for array in manifest.tables(1) if array.struct(0, NODE_ID_BYTES) == node), None)
    if array is None:
        raise CorruptData(f"manifest {id} tells nothing of an array whose chunks it should hold")
    _, count = array.span(1, 4) or (0, 0)
    if count * (REFERENCE_BYTES + 4 * rank) > len(data):  # else few bytes could stand for a table of gigabytes
        raise CorruptData(f"manifest {id}: {count} chunks in {len(data)} bytes")
    references = array.columns(1)
    coordinates = references.vectors(0, rank)
    keys = _keys(coordinates)
    order = np.argsort(keys, kind="stable")
    if (order[1:] < order[:-1]).any():
        coordinates, keys = coordinates[order], keys[order]
        references = Columns(references.data, references.positions[order])
    if (keys[1:] == keys[:-1]).any() or (not rank and len(keys) > 1):
        raise CorruptData(f"manifest {id} tells of one chunk twice")
    return _table(references, coordinates, keys, data, id, manifest.blob(2) or b"")


def _table(
    references: Columns,
    coordinates: npt.NDArray[np.uint32],
    keys: npt.NDArray[np.bytes_],
    data: bytes,
    id: str,
    dictionary: bytes,
) -> ChunkTable:
    starts, lengths = references.numbers(2), references.numbers(3)
    inline, sizes = references.spans(1)
    native = references.at(4) > 0
    virtual = (references.at(5) > 0) | (references.at(8) > 0)
    if ((inline > 0).astype(np.uint8) + native + virtual != 1).any():
        raise CorruptData(f"manifest {id}: a chunk that is in no place, or in two")
    if ((inline > 0) & (inline + sizes > len(data))).any():
        raise CorruptData(f"manifest {id}: a chunk beyond its end")
    if max(starts.max(initial=0), lengths.max(initial=0)) > 1 << 62:
        raise CorruptData(f"manifest {id}: a chunk of an impossible size")
    kinds = np.where(inline > 0, INLINE, np.where(native, NATIVE, VIRTUAL)).astype(np.uint8)
    starts = np.where(inline > 0, inline.astype(np.uint64), starts)
    lengths = np.where(inline > 0, sizes.astype(np.uint64), lengths)
    ids, kept = references.structs(4, ID_BYTES), data if (kinds != NATIVE).any() else None
    return ChunkTable(coordinates, keys, kinds, starts, lengths, ids, references.positions, kept, dictionary)


def _keys(coordinates: npt.NDArray[np.uint32]) -> npt.NDArray[np.bytes_]:
    count, rank = coordinates.shape
    if not rank:
        return np.zeros(count, "S1")
    return np.ascontiguousarray(coordinates.astype(">u4")).view(f"S{4 * rank}").reshape(count)


def _id(table: Table, field: int) -> str:
    found = table.struct(field, ID_BYTES)
    if found is None:
        raise CorruptData("a reference without an identifier")
    return spell(found)


def _below(number: int, count: int) -> int:
    if number >= count:
        raise CorruptData(f"a reference to snapshot {number} of {count}")
    return number


def _metadata(table: Table, field: int, version: int) -> dict[str, JSON]:
    """A commit's own attributes: MessagePack in version 1, FlexBuffers in version 2. A damaged one says so itself."""
    found: dict[str, JSON] = {}
    for item in table.tables(field):
        name, value = item.text(0), item.blob(1)
        if name is None or value is None:
            raise CorruptData("metadata of a commit without name or value")
        try:
            found[name] = flexbuffers.loads(value) if version > 1 else _unpacked(value)
        except FsbridgeError as error:
            found[name] = f"unreadable: {error}"
    return found


def _unpacked(value: bytes) -> JSON:
    import msgpack

    try:
        found = msgpack.unpackb(value, strict_map_key=True, max_array_len=10_000, max_map_len=10_000)
        json.dumps(found, allow_nan=False)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise CorruptData(f"no JSON value in MessagePack ({type(error).__name__})") from None
    return found
