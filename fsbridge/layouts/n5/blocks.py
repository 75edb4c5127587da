"""N5's blocks as files: where the block of a chunk is, its header, its big-endian elements without what overhangs the array.

    00 00 | u16 number of dimensions | u32 extent for each, first dimension first | elements, first dimension fastest

Not here: `attributes.json` (`documents.py`), which blocks are listed (`listing.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress

from fsbridge.decoded import DecodedChunks
from fsbridge.errors import NotFound, Stale
from fsbridge.layouts.chunks import ChunkSpace
from fsbridge.layouts.forms import ChunkForm, chunk_steps
from fsbridge.layouts.n5.documents import reversed_axes
from fsbridge.layouts.n5.listing import Listings
from fsbridge.metadata import Index
from fsbridge.model import ChunkInfo, owners
from fsbridge.owner import Owner, entered, restricted
from fsbridge.tree import Buffer, Deliver, Handle

ABSENT = "absent"
"""Version of a block that is not stored."""

MAX_FORMS = 256
"""Forms of one array's blocks that are kept: more than two to the power of any real rank."""


class BlockSpace(ChunkSpace):
    """The blocks of one array version. Axes may be reversed, see `documents.reversed_axes`.

    A reader takes an absent block for zeros; where the fill value is another, such a block opens by its name and is full of
    it, without being listed. With reversed axes a directory opens by its name whether or not a block is stored in it: the
    store would have to be searched to know.
    """

    __slots__ = ("_fill", "_forms", "_full", "_listings", "_steps", "_turned")

    def __init__(self, identity: Hashable, chunks: DecodedChunks, listings: Listings) -> None:
        metadata = chunks.metadata
        self._turned = reversed_axes(metadata)
        counts = metadata.grid.counts
        super().__init__(identity, chunks, counts[::-1] if self._turned else counts)
        self._full = metadata.grid.chunk_shape((0,) * len(metadata.shape))
        self._steps = chunk_steps(metadata, self._full)
        self._forms: dict[tuple[int, ...], ChunkForm] = {}
        fill = metadata.fill if isinstance(metadata.fill, bytes) else b""
        self._fill = (fill[::-1] if metadata.dtype.endian == "little" else fill) if any(fill) else None
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

    def find(self, cell: Index, version: Hashable = None) -> ChunkInfo:
        """The stored chunk, or for one that is not stored a version of its own where its bytes are not zeros."""
        try:
            return self.chunks.find(self.index(cell), None if version == ABSENT else version)
        except NotFound:
            if self._fill is None:
                raise
        if version not in (None, ABSENT):
            raise Stale("the chunk was removed")
        return ChunkInfo(ABSENT, 0, self.chunks.array.mtime_ns, owner=self._absent_owner() if self.chunks.owned else None)

    def find_prefix(self, prefix: Index) -> int:
        try:
            return self.chunks.find_prefix(() if self._turned else prefix)
        except NotFound:
            if self._fill is None and not self._turned:
                raise
            return self.chunks.array.mtime_ns

    def prefix_owner(self, prefix: Index) -> Owner | None:
        """Of a directory that the store has not: who may look into the nearest one above it."""
        for depth in range(len(prefix), -1, -1):
            with suppress(NotFound):
                return super().prefix_owner(prefix[:depth])
        return owners(self.chunks.array).directory

    def owner(self, cell: Index, info: ChunkInfo) -> Owner | None:
        return info.owner if info.version == ABSENT else super().owner(cell, info)

    def scan(self, prefix: Index) -> Iterator[Sequence[tuple[int, int]]]:
        if not self._turned:
            yield from self.chunks.scan(prefix)
            return
        mtime_ns = self.find_prefix(()) if len(prefix) + 1 < self.rank else None  # the same for all directories
        yield from self._listings.scan(self.chunks, prefix, mtime_ns)

    def extent(self, prefix: Index) -> int:
        return max(super().extent(prefix), self._listings.known(self.chunks) if self._turned else 0)

    def open(self, cell: Index, version: Hashable) -> Handle:
        """Open the block as it is now."""
        if self._fill is None:
            return super().open(cell, version)
        if version != ABSENT:
            try:
                return super().open(cell, version)
            except NotFound:
                if version is not None:
                    raise Stale("the chunk was removed") from None
        elif self.find(cell).version != ABSENT:
            raise Stale("the chunk has been stored")
        self.chunks.check()
        return FilledBlock(self.form(cell), self._fill)

    def _absent_owner(self) -> Owner | None:
        """The fill value is metadata; that a block is absent is for those who may look where it would be."""
        return restricted(owners(self.chunks.array).metadata, entered(self.prefix_owner(())))

    def _form(self, shape: tuple[int, ...]) -> ChunkForm:
        """`shape`: the block's extents along the array's own axes."""
        of = self.chunks.metadata.dtype
        slowest_first = slice(None) if self._turned or len(shape) < 2 else slice(None, None, -1)
        shown = shape[slowest_first]
        header = struct.pack(f">HH{len(shown)}I", 0, len(shown), *shown[::-1])
        return ChunkForm(header, shown, self._steps[slowest_first], of.itemsize, of.endian == "little")


class FilledBlock:
    """A block that is not stored, open for reading (a `tree.Handle`): its header, and the fill value everywhere."""

    __slots__ = ("_element", "_header", "size")

    version = ABSENT
    window = 0

    def __init__(self, form: ChunkForm, element: bytes) -> None:
        self._header = form.header
        self._element = element
        self.size = form.size

    def peek(self, offset: int, size: int) -> Buffer:
        return self.read(offset, size)

    def read(self, offset: int, size: int) -> Buffer:
        begin, stop = len(self._header), min(offset + size, self.size)
        first = max(0, offset - begin) // len(self._element)
        count = -(-max(0, stop - begin) // len(self._element)) - first
        start = max(offset, begin) - begin - first * len(self._element)
        elements = (self._element * max(0, count))[start : start + max(0, stop - max(offset, begin))]
        return self._header[offset:stop] + elements

    def prefetch(self, start: int, stop: int, deliver: Deliver) -> bool:
        """Never asked for, see `window`."""
        return True

    def close(self) -> None:
        """Nothing is held."""
