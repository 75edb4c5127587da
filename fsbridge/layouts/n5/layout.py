"""The layout `n5` over the machinery of all layouts: `attributes.json`, and directories of blocks beside it.

Not here: the document's contents (`documents.py`), blocks (`blocks.py`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence

from fsbridge.errors import NotFound
from fsbridge.layouts.chunks import ChunkDirectory
from fsbridge.layouts.directories import ArrayDirectory, GroupDirectory, PathDirectory
from fsbridge.layouts.flat import SCALAR, scalar_entries
from fsbridge.layouts.n5.blocks import BlockSpace
from fsbridge.layouts.n5.documents import DOCUMENT, array_document, group_document, native, refusal
from fsbridge.layouts.n5.listing import BlockListings
from fsbridge.layouts.n5.spacing import spacing
from fsbridge.metadata import JSON, ArrayMetadata, Format
from fsbridge.model import Array, Group
from fsbridge.tree import AnyNode, Entry


class N5:
    """The mount is an uncompressed N5 container (`directories.Layout`)."""

    name = "n5"
    documents = frozenset((DOCUMENT,))

    def __init__(self) -> None:
        self.listings = BlockListings()

    def selective(self, format: Format) -> bool:
        return True

    def refusal(self, metadata: ArrayMetadata) -> str | None:
        return refusal(metadata)

    def file_names(self, name: str, metadata: ArrayMetadata) -> None:
        return None

    def describe(self, group: Group) -> JSON:
        return [dict(group.attributes()), native(group.native())]

    def group_documents(self, described: JSON, names: Sequence[str]) -> Mapping[bytes, bytes]:
        attributes, own = described
        return {DOCUMENT: group_document(attributes, own, not names)}

    def array_documents(self, metadata: ArrayMetadata, root: bool, around: JSON = None) -> Mapping[bytes, bytes]:
        return {DOCUMENT: array_document(metadata, root, around)}

    def group(self, path: PathDirectory, group: Group) -> GroupDirectory:
        return GroupDirectory(path, group)

    def array(self, path: PathDirectory, array: Array) -> ArrayDirectory:
        return N5Array(path, array, self.listings)


class N5Array(ArrayDirectory):
    """An array's directory: besides the document a directory for each coordinate of N5's first dimension."""

    def __init__(self, path: PathDirectory, array: Array, listings: BlockListings) -> None:
        super().__init__(path, array)
        self.space: BlockSpace = BlockSpace(path.identity(array), path.member.decoded(array), listings)

    def around(self) -> Hashable:
        return spacing(self.path.member, self.array.metadata)

    @property
    def extent(self) -> int:
        return self.space.extent(()) if self.space.rank else 1

    def chunk(self, name: bytes) -> AnyNode:
        if self.space.rank:
            return ChunkDirectory(self.space, ()).lookup(name)
        if name != SCALAR:
            raise NotFound(f"{name!r} is no block of an array of rank 0")
        return self.space.stored(())

    def chunk_entries(self) -> Iterator[Sequence[Entry]]:
        return ChunkDirectory(self.space, ()).entries() if self.space.rank else scalar_entries(self.space)
