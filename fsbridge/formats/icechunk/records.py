"""Parsers of Icechunk's metadata about history and hierarchy: refs, commits, the nodes of a snapshot.

Field numbers are those of the schemas `repo.fbs` and `snapshot.fbs` of the specification, versions 1 and 2. Not here:
where chunks are (`manifests.py`), files and their envelopes (`files.py`), which files to read (`repository.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fsbridge.config import MIB
from fsbridge.errors import CorruptData, FsbridgeError, NotFound
from fsbridge.formats.icechunk import flatbuffers
from fsbridge.formats.icechunk.files import ID_BYTES, Payload, spell
from fsbridge.formats.icechunk.flatbuffers import Table
from fsbridge.metadata import JSON, Index
from fsbridge.store import ROOT, Key

NODE_ID_BYTES = 8

ARRAY = 1
"""Number of `ArrayNodeData` in the union of a node's data. A group has 2."""

MAX_DEPTH = 1000

PATHS_FACTOR, PATHS_LEAST, PATH_BYTES = 2, MIB, 64
"""Limits the memory for the paths of all directories: PATHS_FACTOR times the bytes of their snapshot, plus PATHS_LEAST.

A path takes PATH_BYTES beside its characters. A node takes more than that beside its path, so only directories that are
not nodes can be too many.
"""


@dataclass(frozen=True, slots=True)
class Commit:
    """A snapshot in the history. Identifiers are spelled as in file names."""

    id: str
    parent: str | None
    written_ns: int
    message: str
    metadata: Mapping[str, JSON]


class History(Mapping[str, Commit]):
    """All commits by identifier, and all refs by name with the identifier of their snapshot.

    A commit is made when it is asked for.
    """

    def __init__(self, payload: Payload) -> None:
        """Read `payload`, the table `Repo` (from version 2). Raises CorruptData, TooLarge."""
        repo = self._repo = Table.root(payload.data)
        self._rows = repo.vector(4)
        self.branches = {ref.text(0) or "": self._id(ref.u32(1)) for ref in repo.vector(2)}
        self.tags = {ref.text(0) or "": self._id(ref.u32(1)) for ref in repo.vector(1)}

    @cached_property
    def containers(self) -> Mapping[str, str]:
        """URL prefixes by the names that may stand for them in locations of virtual chunks. Raises CorruptData."""
        stored = self._repo.blob(9)
        config = flatbuffers.loads(stored) if stored else None
        named = config.get("virtual_chunk_containers") if isinstance(config, dict) else None
        found = {}
        for container in named.values() if isinstance(named, dict) else ():
            if isinstance(container, dict):
                found[str(container.get("name"))] = str(container.get("url_prefix"))
        return found

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {table_id(row, 0): number for number, row in enumerate(self._rows)}

    def _id(self, number: int) -> str:
        if number >= len(self._rows):
            raise CorruptData(f"a reference to snapshot {number} of {len(self._rows)}")
        return table_id(self._rows[number], 0)

    def __getitem__(self, id: str) -> Commit:
        row = self._rows[self._numbers[id]]
        offset = row.i32(1)
        parent = self._id(offset) if offset >= 0 else None
        return Commit(id, parent, row.u64(2) * 1000, row.text(3) or "", _metadata(row, 4, 2))

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


class SnapshotNode(NamedTuple):
    """A group or an array. `document` is its `zarr.json`, `data` an array's table (None for a group)."""

    id: bytes
    document: bytes
    data: Table | None


class Manifests(NamedTuple):
    """The manifests of an array: identifiers, and for each manifest and dimension the coordinates [from, to)."""

    ids: list[str]
    extents: npt.NDArray[np.uint32]  # (manifests, rank, 2)

    def of(self, prefix: Index) -> list[str]:
        """Return the manifests that may have chunks with coordinates that begin with `prefix`."""
        near = self.extents[:, : len(prefix)]
        asked = np.array(prefix, np.int64)
        holds = ((near[:, :, 0] <= asked) & (asked < near[:, :, 1])).all(axis=1)
        return [self.ids[number] for number in np.flatnonzero(holds)]


class Snapshot:
    """A state of the whole hierarchy: its nodes by path, and the names in every directory.

    The snapshot is kept as it was decoded. A node is made from it when it is asked for.
    """

    def __init__(self, payload: Payload, id: str) -> None:
        """Read `payload`, the table `Snapshot` of `id`. Raises CorruptData."""
        table = Table.root(payload.data)
        if table_id(table, 0) != id:
            raise CorruptData(f"snapshot {id} says that it is {table_id(table, 0)}")
        parent = table.struct(1, ID_BYTES)
        written_ns = table.u64(3) * 1000
        metadata = _metadata(table, 5, payload.version)
        self.commit = Commit(id, spell(parent) if parent else None, written_ns, table.text(4) or "", metadata)
        self.members: dict[Key, list[str]] = {ROOT: []}
        self._nodes: dict[Key, Table] = {}
        self._manifests: dict[Key, Manifests] = {}
        nodes = table.vector(2)
        self._room = PATHS_FACTOR * len(payload.data) + PATHS_LEAST
        for node in nodes:
            self._add(node)
        # A node takes 500 bytes of memory besides its bytes in the snapshot.
        self.nbytes = len(payload.data) + 500 * len(nodes)

    def _add(self, node: Table) -> None:
        path = node.text(1)
        if path is None or not path.startswith("/"):
            raise CorruptData(f"a node without path ({path!r})")
        if path.count("/") > MAX_DEPTH:
            raise CorruptData(f"a node at a path of more than {MAX_DEPTH} components")
        try:
            key = Key.parse(path[1:])
        except NotFound:
            raise CorruptData(f"a node at the impossible path {path!r}") from None
        if key in self._nodes:
            raise CorruptData(f"two nodes at {path}")
        self._nodes[key] = node
        missing = []
        while key not in self.members:
            self._room -= len(key) + PATH_BYTES
            if self._room < 0:
                raise CorruptData("paths that take more than all that is said of their nodes")
            missing.append(key)
            key = key.parent
        for key in reversed(missing):
            self.members[key] = []
            self.members[key.parent].append(key.name)

    def node(self, key: Key) -> SnapshotNode | None:
        """Return the group or array at `key`, or None. Raises CorruptData."""
        node = self._nodes.get(key)
        if node is None:
            return None
        id, document = node.struct(0, NODE_ID_BYTES), node.blob(2)
        if id is None or document is None:
            raise CorruptData(f"the node /{key} has no identifier or no metadata")
        return SnapshotNode(id, document, node.table(4) if node.u8(3) == ARRAY else None)

    def __iter__(self) -> Iterator[Key]:
        """Yield the paths of all nodes."""
        return iter(self._nodes)

    def manifests(self, key: Key) -> Manifests:
        """Return the manifests of the array at `key`."""
        found = self._manifests.get(key)
        if found is None:
            node = self.node(key)
            assert node is not None
            assert node.data is not None
            found = self._manifests[key] = _parse_manifests(node.data)
        return found


def _parse_manifests(array: Table) -> Manifests:
    ids, extents = [], []
    for reference in array.vector(2):
        ids.append(table_id(reference, 0))
        start, rank = reference.span(1, 8) or (0, 0)
        extents.append(np.frombuffer(reference.data, "<u4", 2 * rank, start).reshape(rank, 2))
        if len(extents[-1]) != len(extents[0]):
            raise CorruptData("manifests of one array that differ in rank")
    return Manifests(ids, np.array(extents, np.uint32).reshape(len(ids), len(extents[0]) if extents else 0, 2))


def table_id(table: Table, field: int) -> str:
    """Return the identifier in a field. Raises CorruptData if there is none."""
    found = table.struct(field, ID_BYTES)
    if found is None:
        raise CorruptData("a reference without an identifier")
    return spell(found)


def _metadata(table: Table, field: int, version: int) -> dict[str, JSON]:
    """Return a commit's own attributes.

    MessagePack in version 1, FlexBuffers in version 2. A damaged one becomes its error.
    """
    found: dict[str, JSON] = {}
    for item in table.vector(field):
        name, value = item.text(0), item.blob(1)
        if name is None or value is None:
            raise CorruptData("metadata of a commit without name or value")
        try:
            found[name] = flatbuffers.loads(value) if version > 1 else _unpacked(value)
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
