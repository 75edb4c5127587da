"""Icechunk's files and their envelopes, and parsers of metadata about history and hierarchy: refs, commits, nodes.

Facts: the Icechunk specification, "Metadata file header" and "Object ids" (https://icechunk.io/en/latest/spec). Field
numbers are those of its schemas `repo.fbs` and `snapshot.fbs`, versions 1 and 2. Not here: where chunks are
(`manifests.py`), which files to read (`repository.py`).
"""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fsbridge.codecs import Overflow, streams
from fsbridge.config import MIB
from fsbridge.errors import CorruptData, FsbridgeError, NotFound, TooLarge, Unsupported
from fsbridge.formats.icechunk import flatbuffers
from fsbridge.formats.icechunk.flatbuffers import Table
from fsbridge.metadata import JSON, Index
from fsbridge.store import ROOT, Key, Stored
from fsbridge.threads.forking import cached_property

MAGIC = b"ICE\xf0\x9f\xa7\x8aCHUNK"
HEADER_BYTES = 39
"""Magic (12), the writer's name (24), version of the specification, type of file, compression."""

KINDS: dict[str, int] = {"snapshot": 1, "manifest": 2, "repository": 6}
Kind = Literal["snapshot", "manifest", "repository"]

ID_BYTES = 12
"""Bytes of the identifier of a snapshot, a manifest or a chunk. That of a node has 8."""

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_DIGITS = {letter: value for value, letter in enumerate(_ALPHABET)}


def spell(identifier: bytes) -> str:
    """Return an identifier as in file names: Crockford's base 32, most significant bits first, zero bits at the end."""
    bits = 8 * len(identifier)
    length = -(-bits // 5)
    number = int.from_bytes(identifier) << (5 * length - bits)
    return "".join(_ALPHABET[number >> 5 * position & 31] for position in reversed(range(length)))


def parse_id(text: str, size: int = ID_BYTES) -> bytes:
    """Return the identifier that `text` spells in its canonical form. Raises NotFound for any other text."""
    length = -(-8 * size // 5)
    if len(text) == length and all(letter in _DIGITS for letter in text):
        number = 0
        for letter in text:
            number = number << 5 | _DIGITS[letter]
        identifier = (number >> 5 * length - 8 * size).to_bytes(size)
        if spell(identifier) == text:
            return identifier
    raise NotFound(f"{text!r} is not an identifier")


_PLAIN = " !$&'()+,:;=@"
"""Characters that stand for themselves in the name of a ref's file, besides letters, digits and `-._`."""


def ref_file(name: str) -> str:
    """Return the file name of a ref in version 1 if icechunk stores through `object_store`: everywhere but on S3."""
    return urllib.parse.quote(name, _PLAIN, errors="surrogateescape").replace("~", "%7E")


def ref_name(file: str) -> str:
    """Return the ref with this file name: decoded if `ref_file` made the name, else the file name itself."""
    name = urllib.parse.unquote(file, errors="surrogateescape")
    return name if "/" not in name and ref_file(name) == file else file


class Payload(NamedTuple):
    """The FlatBuffer in a metadata file, and the version of the specification that it follows."""

    data: memoryview
    version: int


def unwrap(data: Stored, kind: Kind, limit: int) -> Payload:
    """Return the contents of a metadata file, at most `limit` bytes.

    Raises CorruptData unless it is a file of that kind, Unsupported for a later version, TooLarge.
    """
    if len(data) < HEADER_BYTES or data[: len(MAGIC)] != MAGIC:
        raise CorruptData("is not a metadata file of Icechunk")
    version, file_kind, compression = data[HEADER_BYTES - 3 : HEADER_BYTES]
    if version not in (1, 2):
        raise Unsupported(f"is written by version {version} of Icechunk's specification; fsbridge knows 1 and 2")
    if file_kind != KINDS[kind]:
        raise CorruptData(f"is a file of type {file_kind}, not a {kind}")
    payload = memoryview(data)[HEADER_BYTES:]
    if compression == 0:
        return Payload(payload, version)
    if compression != 1:
        raise Unsupported(f"has compression {compression}, which is unknown; fsbridge knows none and zstd")
    try:
        return Payload(memoryview(streams.Zstd().decode(payload, None, limit, None)).toreadonly(), version)
    except Overflow:
        raise TooLarge(f"the {kind} has more than {limit} bytes; a larger --cache-size permits more") from None


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
    """All commits by identifier, and for the name of each ref the identifier of its snapshot.

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
        """Return the URL prefixes of virtual chunks, by the names that stand for them in locations. Raises CorruptData."""
        stored = self._repo.blob(9)
        config = flatbuffers.loads(stored) if stored else None
        named = config.get("virtual_chunk_containers") if isinstance(config, dict) else None
        prefixes = {}
        for container in named.values() if isinstance(named, dict) else ():
            if isinstance(container, dict):
                prefixes[str(container.get("name"))] = str(container.get("url_prefix"))
        return prefixes

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {table_id(row, 0): number for number, row in enumerate(self._rows)}

    def _id(self, number: int) -> str:
        if number >= len(self._rows):
            raise CorruptData(f"a reference leads to snapshot {number} of {len(self._rows)}")
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
            raise CorruptData(f"a node has no path ({path!r})")
        if path.count("/") > MAX_DEPTH:
            raise CorruptData(f"a node has a path of more than {MAX_DEPTH} components")
        try:
            key = Key.parse(path[1:])
        except NotFound:
            raise CorruptData(f"a node has the impossible path {path!r}") from None
        if key in self._nodes:
            raise CorruptData(f"two nodes have the path {path}")
        self._nodes[key] = node
        missing = []
        while key not in self.members:
            self._room -= len(key) + PATH_BYTES
            if self._room < 0:
                raise CorruptData("the paths of directories take much more than the snapshot itself")
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
        manifests = self._manifests.get(key)
        if manifests is None:
            node = self.node(key)
            assert node is not None
            assert node.data is not None
            manifests = self._manifests[key] = _parse_manifests(node.data)
        return manifests


def _parse_manifests(array: Table) -> Manifests:
    ids, extents = [], []
    for reference in array.vector(2):
        ids.append(table_id(reference, 0))
        start, rank = reference.span(1, 8) or (0, 0)
        extents.append(np.frombuffer(reference.data, "<u4", 2 * rank, start).reshape(rank, 2))
        if len(extents[-1]) != len(extents[0]):
            raise CorruptData("the manifests of one array differ in rank")
    return Manifests(ids, np.array(extents, np.uint32).reshape(len(ids), len(extents[0]) if extents else 0, 2))


def table_id(table: Table, field: int) -> str:
    """Return the identifier in a field. Raises CorruptData if there is none."""
    identifier = table.struct(field, ID_BYTES)
    if identifier is None:
        raise CorruptData("a reference has no identifier")
    return spell(identifier)


def _metadata(table: Table, field: int, version: int) -> dict[str, JSON]:
    """Return a commit's own attributes: MessagePack in version 1, FlexBuffers in version 2.

    In place of a damaged one there is a text that says what is wrong.
    """
    attributes: dict[str, JSON] = {}
    for item in table.vector(field):
        name, value = item.text(0), item.blob(1)
        if name is None or value is None:
            raise CorruptData("a commit has metadata without name or value")
        try:
            attributes[name] = flatbuffers.loads(value) if version > 1 else _unpack(value)
        except FsbridgeError as error:
            attributes[name] = f"unreadable: {error}"
    return attributes


def _unpack(value: bytes) -> JSON:
    import msgpack

    try:
        unpacked = msgpack.unpackb(value, strict_map_key=True, max_array_len=10_000, max_map_len=10_000)
        json.dumps(unpacked, allow_nan=False)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise CorruptData(f"not a JSON value in MessagePack ({type(error).__name__})") from None
    return unpacked
