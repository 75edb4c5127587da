"""The layout `zarr3` over the machinery of all layouts: `zarr.json`, and the chunks below `c`.

`zarr.json` describes a group, or an array with uncompressed chunks. Facts are those of the Zarr v3 core specification;
spellings beyond it are the ones that zarr-python 3.1 and later open. Not here: chunk files (`chunks.py`).
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence

from fsbridge.asking import before_waiting, from_now
from fsbridge.errors import FsbridgeError, NotFound
from fsbridge.layouts.chunks import ChunkSpace
from fsbridge.layouts.consolidated import Descendants
from fsbridge.layouts.directories import ArrayDirectory, GroupDirectory, PathDirectory
from fsbridge.layouts.json_text import encode, spell_fill
from fsbridge.meaning.conventions.ome_versions import in_zarr3, ome_names
from fsbridge.meaning.conventions.xarray import zarr3_attributes
from fsbridge.metadata import JSON, ArrayMetadata, DataType, Format
from fsbridge.model import Array, Group
from fsbridge.tree import AnyNode, Entry

DOCUMENT = "zarr.json"


def group_document(attributes: Mapping[str, JSON]) -> bytes:
    """Return `zarr.json` of a group."""
    return encode({"zarr_format": 3, "node_type": "group", "attributes": dict(attributes)})


def array_document(metadata: ArrayMetadata, names: Sequence[str] | None = None) -> bytes:
    """Return `zarr.json` of an array that shows decoded chunks. `names`: for its dimensions, if its metadata have none."""
    document: dict[str, JSON] = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(metadata.shape),
        "data_type": metadata.dtype.name,
        "chunk_grid": chunk_grid(metadata),
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": spell_fill(metadata),
        "codecs": codecs(metadata),
        "attributes": zarr3_attributes(metadata),
    }
    labels = names if metadata.dimension_names is None else metadata.dimension_names
    if labels is not None:
        document["dimension_names"] = list(labels)
    return encode(document)


def chunk_grid(metadata: ArrayMetadata) -> JSON:
    """Return the `chunk_grid` member: `regular`, or `rectilinear` as zarr-python 3.4 spells it."""
    edges = [list(edge) if isinstance(edge, tuple) else edge for edge in metadata.grid.edges]
    if metadata.grid.regular:
        return {"name": "regular", "configuration": {"chunk_shape": edges}}
    return {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": edges}}


def codecs(metadata: ArrayMetadata) -> list[JSON]:
    """Return the shortest codec list by which readers turn decoded bytes into elements."""
    listed: list[JSON] = []
    if metadata.order is not None and list(metadata.order) != sorted(metadata.order):
        listed.append({"name": "transpose", "configuration": {"order": list(metadata.order)}})
    return [*listed, _serializer(metadata.dtype)]


def _serializer(dtype: DataType) -> JSON:
    if dtype.element is not None:  # the mask has one byte for each element
        parts = {"mask_codecs": [{"name": "bytes"}], "data_codecs": [_serializer(dtype.element)]}
        name = dtype.name["name"] if isinstance(dtype.name, dict) else "optional"  # zarrs has two names, each for both
        return {"name": name, "configuration": parts}
    # A struct's fields are always shown in this order. Readers before zarr-python 3.4 take it for granted, 3.4 warns.
    is_struct = isinstance(dtype.name, dict) and dtype.name.get("name") == "structured"
    endian = "little" if is_struct else dtype.endian
    if dtype.serializer == "bytes" and endian is not None:
        return {"name": "bytes", "configuration": {"endian": endian}}
    return {"name": dtype.serializer}


_DOCUMENT = DOCUMENT.encode()

CONSOLIDATED = "consolidated_metadata"

MAX_MEMBERS = 500
"""Most members in `consolidated_metadata`: about 0.2 s of a local store, or the time of 16 requests of a remote one."""

DIRECTORY = b"c"
"""Name of the directory of all chunk files; the 0-D array's only chunk is a file of that name."""


class Zarr3:
    """Shows a source as an uncompressed Zarr v3 hierarchy (`directories.Layout`)."""

    name = "zarr3"
    documents = frozenset((_DOCUMENT,))
    of_groups = of_arrays = (_DOCUMENT,)

    def selective(self, format: Format) -> bool:
        return False

    def refusal(self, metadata: ArrayMetadata) -> str | None:
        return None

    def file_names(self, name: str, metadata: ArrayMetadata) -> None:
        return None

    def group_file_names(self, name: str, group: Group) -> None:
        return None

    def describe(self, group: Group) -> JSON:
        return [dict(group.attributes()), not group.native().keys().isdisjoint((".zattrs", ".zgroup"))]

    def group_documents(self, described: JSON, names: Sequence[str]) -> Mapping[bytes, bytes]:
        attributes, from_zarr2 = described
        return {_DOCUMENT: group_document(in_zarr3(attributes, names) if from_zarr2 else attributes)}

    def array_documents(self, metadata: ArrayMetadata, root: bool, around: JSON = None) -> Mapping[bytes, bytes]:
        return {_DOCUMENT: array_document(metadata, around)}

    def group(self, path: PathDirectory, group: Group) -> GroupDirectory:
        return Zarr3Group(path, group)

    def array(self, path: PathDirectory, array: Array) -> ArrayDirectory:
        return Zarr3Array(path, array)


class Zarr3Group(GroupDirectory):
    """A group's directory. Its document has `consolidated_metadata` if the source has them there.

    They are made anew each time that the document is looked up or opened, so they are as new as everything else. That takes
    0.4 ms for each member of a local store. For a remote store it takes a request for each member, 32 at a time, unless a
    listing vouches for the source's copy. One member that hangs keeps the document waiting, so there are bounds. Above them,
    and if a member cannot be described, there are no such metadata, and readers look for the members by themselves.
    """

    def documents(self) -> Mapping[bytes, bytes]:
        own = self.own_documents()
        if not own or not self._has_copies():
            return own
        before_waiting()
        inline = self._consolidate()
        return own if inline is None else {_DOCUMENT: encode({**json.loads(own[_DOCUMENT]), CONSOLIDATED: inline})}

    def measure_documents(self) -> Mapping[bytes, bytes]:
        return {} if self._has_copies() else self.own_documents()

    def _has_copies(self) -> bool:
        """True if the source has consolidated metadata here, and they do not have too many members."""
        return 0 < self.group.copies() <= MAX_MEMBERS

    def _consolidate(self) -> JSON:
        """Return zarr-python 3's `consolidated_metadata`. If they cannot be complete, return None and log why."""
        descendants = Descendants(MAX_MEMBERS + 1, CONSOLIDATED)
        try:
            with from_now():
                made = {prefix[:-1]: documents for prefix, documents in descendants.documents(self.path) if documents}
        except (FsbridgeError, OSError) as error:
            member = self.path.member
            member.context.note_left_out(self.path.layout.name, (*member.names, DOCUMENT, CONSOLIDATED), str(error))
            return None
        members = {name: json.loads(documents[_DOCUMENT]) for name, documents in sorted(made.items()) if name}
        return {"kind": "inline", "must_understand": False, "metadata": members}


class Zarr3Space(ChunkSpace):
    """Shows decoded chunks as they are, in the directory `c`."""

    __slots__ = ()

    def name(self, position: int) -> str:
        return "/".join((DIRECTORY.decode(), *map(str, self.prefix(position))))


class Zarr3Array(ArrayDirectory):
    """An array's directory: the document, and the directory `c` if any chunk is stored."""

    def __init__(self, path: PathDirectory, array: Array) -> None:
        super().__init__(path, array)
        self.space: ChunkSpace = Zarr3Space(path.identity(array), path.member.share_chunks(array))

    def find_surroundings(self) -> Hashable:
        metadata, member = self.array.metadata, self.path.member
        if metadata.dimension_names is not None or ".zarray" not in metadata.native:
            return None
        return ome_names(metadata, member.attributes_above(), member.names)

    def chunk(self, name: bytes) -> AnyNode:
        if name != DIRECTORY:
            raise NotFound(f"the array's directory has no member {name!r}")
        return self.space.find_node(())

    def chunk_entries(self) -> Iterator[Sequence[Entry]]:
        try:
            node = self.space.find_node(())
            yield [Entry(DIRECTORY, node.attrs(), 0 if node.slot else lambda: node, node.version)]
        except NotFound:
            return
