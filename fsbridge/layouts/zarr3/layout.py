"""The layout `zarr3` over the machinery of all layouts: `zarr.json`, and the chunks below `c`.

Not here: the document's contents (`documents.py`), chunk files (`layouts/chunks.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fsbridge.errors import NotFound
from fsbridge.layouts.chunks import ChunkSpace
from fsbridge.layouts.directories import ArrayDirectory, GroupDirectory, PathDirectory
from fsbridge.layouts.ome import in_zarr3
from fsbridge.layouts.zarr3.documents import DOCUMENT, array_document, group_document
from fsbridge.metadata import JSON, ArrayMetadata, Format
from fsbridge.model import Array, Group
from fsbridge.tree import AnyNode, Entry

_DOCUMENT = DOCUMENT.encode()

DIRECTORY = b"c"
"""Name of the directory of all chunk files; the 0-D array's only chunk is a file of that name."""


class Zarr3:
    """The mount is an uncompressed Zarr v3 hierarchy (`directories.Layout`)."""

    name = "zarr3"
    documents = frozenset((_DOCUMENT,))

    def selective(self, format: Format) -> bool:
        return False

    def refusal(self, metadata: ArrayMetadata) -> str | None:
        return None

    def file_names(self, name: str, metadata: ArrayMetadata) -> None:
        return None

    def describe(self, group: Group) -> JSON:
        return [dict(group.attributes()), not group.native().keys().isdisjoint((".zattrs", ".zgroup"))]

    def group_documents(self, described: JSON, names: Sequence[str]) -> Mapping[bytes, bytes]:
        attributes, from_zarr2 = described
        return {_DOCUMENT: group_document(in_zarr3(attributes, names) if from_zarr2 else attributes)}

    def array_documents(self, metadata: ArrayMetadata, root: bool, around: JSON = None) -> Mapping[bytes, bytes]:
        return {_DOCUMENT: array_document(metadata)}

    def group(self, path: PathDirectory, group: Group) -> GroupDirectory:
        return GroupDirectory(path, group)

    def array(self, path: PathDirectory, array: Array) -> ArrayDirectory:
        return Zarr3Array(path, array)


class Zarr3Space(ChunkSpace):
    """Decoded chunks as they are, in the directory `c`."""

    __slots__ = ()

    def name(self, position: int) -> str:
        return "/".join((DIRECTORY.decode(), *map(str, self.prefix(position))))


class Zarr3Array(ArrayDirectory):
    """An array's directory: the document, and the directory `c` if any chunk is stored."""

    def __init__(self, path: PathDirectory, array: Array) -> None:
        super().__init__(path, array)
        self.space: ChunkSpace = Zarr3Space(path.identity(array), path.member.decoded(array))

    def chunk(self, name: bytes) -> AnyNode:
        if name != DIRECTORY:
            raise NotFound(f"{name!r} is not in an array")
        return self.space.stored(())

    def chunk_entries(self) -> Iterator[Sequence[Entry]]:
        try:
            node = self.space.stored(())
            yield [Entry(DIRECTORY, node.attrs(), 0 if node.slot else lambda: node, node.version)]
        except NotFound:
            return
