"""The layout `zarr2` over the machinery of all layouts: three documents, and chunk files beside them.

Not here: the documents' contents (`documents.py`, `consolidated.py`), chunk files (`layouts/chunks.py`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import partial

from fsbridge.decoded import DecodedChunks
from fsbridge.errors import NotFound
from fsbridge.layouts.chunks import ChunkDirectory, ChunkSpace
from fsbridge.layouts.directories import ArrayDirectory, GroupDirectory, PathDirectory
from fsbridge.layouts.flat import flat_cell, flat_entries
from fsbridge.layouts.forms import ChunkForm, chunk_steps
from fsbridge.layouts.nodes import DocumentFile
from fsbridge.layouts.zarr2.consolidated import CONSOLIDATED, Consolidated, consolidated_document
from fsbridge.layouts.zarr2.documents import ARRAY, ATTRIBUTES, GROUP, array_documents, group_documents, transposed
from fsbridge.metadata import JSON, ArrayMetadata, Index
from fsbridge.model import Array, Group
from fsbridge.tree import AnyNode, Attrs, Entry


class Zarr2:
    """The mount is an uncompressed Zarr v2 hierarchy (`directories.Layout`)."""

    name = "zarr2"
    documents = frozenset((GROUP, ARRAY, ATTRIBUTES, CONSOLIDATED))

    def __init__(self, separator: str = ".", consolidated: bool = False) -> None:
        """`separator`: between the coordinates of a chunk key. `consolidated`: the root has a `.zmetadata`."""
        self.separator = separator
        self.consolidated = consolidated

    def selective(self, format: str) -> bool:
        """Only Zarr v3 has chunks of several shapes, and text in any memory order."""
        return format not in ("zarr2", "n5", "hdf5", "hangar")

    def refusal(self, metadata: ArrayMetadata) -> str | None:
        if not metadata.grid.regular:
            return "Zarr v2 has no chunks of several shapes"
        if metadata.dtype.element is not None:
            return "Zarr v2 has no elements that may be missing"
        if metadata.dtype.serializer != "bytes" and transposed(metadata):
            return "Zarr v2 has no elements of variable length in this memory order"
        return None

    def file_names(self, name: str, metadata: ArrayMetadata) -> None:
        return None

    def describe(self, group: Group) -> JSON:
        return dict(group.attributes())

    def group_documents(self, described: JSON, names: Sequence[str]) -> Mapping[bytes, bytes]:
        return group_documents(described)

    def array_documents(self, metadata: ArrayMetadata, root: bool) -> Mapping[bytes, bytes]:
        return array_documents(metadata, self.separator)

    def group(self, path: PathDirectory, group: Group) -> GroupDirectory:
        root = not path.member.names
        return ConsolidatedGroup(path, group) if self.consolidated and root else GroupDirectory(path, group)

    def array(self, path: PathDirectory, array: Array) -> ArrayDirectory:
        return Zarr2Array(path, array, self.separator.encode())


class Zarr2Array(ArrayDirectory):
    """An array's directory: chunk files beside the documents, in one directory or nested."""

    def __init__(self, path: PathDirectory, array: Array, separator: bytes) -> None:
        super().__init__(path, array)
        self.space: ChunkSpace = Zarr2Space(path.identity(array), path.member.decoded(array))
        self.space.conceals = path.member.context.config.allow_other
        self.separator = separator
        self._listed = 0

    @property
    def extent(self) -> int:
        """Chunks of the last complete listing of a flat directory."""
        return self._listed

    def chunk(self, name: bytes) -> AnyNode:
        if self.separator == b"/" and self.space.rank:
            return ChunkDirectory(self.space, ()).lookup(name)
        cell = flat_cell(self.space, name, self.separator)
        if cell is None:
            raise NotFound(f"{name!r} is no chunk of this grid")
        return self.space.stored(cell)

    def chunk_entries(self) -> Iterator[Sequence[Entry]]:
        if self.separator == b"/" and self.space.rank:
            yield from ChunkDirectory(self.space, ()).entries()
            return
        listed = 0
        for batch in flat_entries(self.space, self.separator):
            listed += len(batch)
            yield batch
        self._listed = listed


class Zarr2Space(ChunkSpace):
    """Decoded chunks as they are, or turned into C order where the document cannot say their order."""

    __slots__ = ("_form",)

    def __init__(self, identity: Hashable, chunks: DecodedChunks) -> None:
        super().__init__(identity, chunks)
        metadata = chunks.metadata
        shape = metadata.grid.chunk_shape((0,) * len(metadata.shape)) if transposed(metadata) else None
        steps = () if shape is None else chunk_steps(metadata, shape)
        self._form = None if shape is None else ChunkForm(b"", shape, steps, metadata.dtype.itemsize)

    def form(self, cell: Index) -> ChunkForm | None:
        return self._form


class ConsolidatedGroup(GroupDirectory):
    """The root with `.zmetadata`, which is made when somebody first wants to know anything of it."""

    def __init__(self, path: PathDirectory, group: Group) -> None:
        super().__init__(path, group)
        self._made: tuple[float, Consolidated] | None = None

    def lookup(self, name: bytes) -> AnyNode:
        if name != CONSOLIDATED:
            return super().lookup(name)
        config = self.path.member.context.config
        made = self._made_since(-math.inf if config.immutable else time.monotonic() - config.metadata_ttl)
        return DocumentFile(self._opened, made.content, self.group.mtime_ns, made.owner)

    def entries(self) -> Iterator[Sequence[Entry]]:
        stream = super().entries()
        yield next(stream)
        yield [Entry(CONSOLIDATED, Attrs("file", None, self.group.mtime_ns), partial(self.lookup, CONSOLIDATED))]
        yield from stream

    def _opened(self) -> bytes:
        """The document as it is now."""
        return self._made_since(-math.inf if self.path.member.context.config.immutable else time.monotonic()).content

    def _made_since(self, earliest: float) -> Consolidated:
        """The document as it was at `earliest` (`time.monotonic`) or later."""
        made = self._made
        if made is None or made[0] < earliest:
            asked = time.monotonic()
            self._made = made = asked, consolidated_document(self.path.member, self.path.layout)
        return made[1]
