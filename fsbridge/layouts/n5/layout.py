"""The layout `n5` over the machinery of all layouts: `attributes.json`, and directories of blocks beside it.

A block is the path of a chunk's block, its header, and its big-endian elements, cropped to the array:

    00 00 | u16 number of dimensions | u32 extent for each, first dimension first | elements, first dimension fastest

Not here: the document's contents (`documents.py`), which blocks are listed (`listing.py`), chunk files (`chunks.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Iterator, Mapping, Sequence

from fsbridge.decoded import DecodedChunks
from fsbridge.errors import NotFound
from fsbridge.layouts.chunk_variants import SCALAR, FilledSpace, scalar_entries
from fsbridge.layouts.chunks import ChunkDirectory
from fsbridge.layouts.directories import ArrayDirectory, GroupDirectory, PathDirectory
from fsbridge.layouts.forms import ChunkForm, chunk_steps
from fsbridge.layouts.n5.documents import DOCUMENT, array_document, group_document, native, refusal, reversed_axes, spacing
from fsbridge.layouts.n5.listing import BlockListings
from fsbridge.metadata import JSON, ArrayMetadata, Format, Index
from fsbridge.model import Array, Group
from fsbridge.tree import AnyNode, Entry

MAX_FORMS = 256
"""Most cached forms of one array's blocks. There are up to 2 to the power of the rank: each axis is cropped or not."""


class BlockSpace(FilledSpace):
    """The blocks of one array version. Axes may be reversed, see `documents.reversed_axes`.

    A reader takes an absent block for zeros. If the fill value is another, such a block opens by its name and is full of it,
    without being listed. With reversed axes a directory opens by its name whether or not a block is stored in it, because
    the store would have to be searched to know.
    """

    __slots__ = ("_forms", "_full", "_listings", "_steps", "_turned")

    def __init__(self, identity: Hashable, chunks: DecodedChunks, listings: BlockListings) -> None:
        metadata = chunks.metadata
        self._turned = reversed_axes(metadata)
        counts = metadata.grid.counts
        fill = metadata.fill if isinstance(metadata.fill, bytes) else b""
        shown = (fill[::-1] if metadata.dtype.endian == "little" else fill) if any(fill) else None
        super().__init__(identity, chunks, shown, counts[::-1] if self._turned else counts)
        self._full = metadata.grid.chunk_shape((0,) * len(metadata.shape))
        self._steps = chunk_steps(metadata, self._full)
        self._forms: dict[tuple[int, ...], ChunkForm] = {}
        self._listings = listings

    def index(self, cell: Index) -> Index:
        return cell[::-1] if self._turned else cell

    def form(self, cell: Index) -> ChunkForm:
        index, metadata = self.index(cell), self.chunks.metadata
        shape = tuple(
            min(full, extent - i * full) for i, full, extent in zip(index, self._full, metadata.shape, strict=True)
        )
        found = self._forms.get(shape)
        if found is None:
            found = self._form(shape)
            if len(self._forms) < MAX_FORMS:
                self._forms[shape] = found
        return found

    def find_prefix(self, prefix: Index) -> int:
        try:
            return super().find_prefix(() if self._turned else prefix)
        except NotFound:
            if not self._turned:
                raise
            return self.chunks.array.mtime_ns

    def scan(self, prefix: Index) -> Iterator[Sequence[tuple[int, int]]]:
        if not self._turned:
            yield from self.chunks.scan(prefix)
            return
        mtime_ns = self.find_prefix(()) if len(prefix) + 1 < self.rank else None  # the same for all directories
        yield from self._listings.scan(self.chunks, prefix, mtime_ns)

    def extent(self, prefix: Index) -> int:
        return max(super().extent(prefix), self._listings.known(self.chunks) if self._turned else 0)

    def _form(self, shape: tuple[int, ...]) -> ChunkForm:
        """`shape`: the block's extents along the array's own axes."""
        of = self.chunks.metadata.dtype
        slowest_first = slice(None) if self._turned or len(shape) < 2 else slice(None, None, -1)
        shown = shape[slowest_first]
        header = struct.pack(f">HH{len(shown)}I", 0, len(shown), *shown[::-1])
        return ChunkForm(header, shown, self._steps[slowest_first], of.itemsize, of.endian == "little")


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
