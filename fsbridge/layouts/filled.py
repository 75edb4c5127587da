"""Chunks that are not stored, shown as files full of the fill value, for readers that would fill them with something else.

Such a file can be opened by its name. If the array has few chunks, the file is listed as well, so that a copy of the tree is
complete. Not here: which element fills it, and which layouts need that (`n5/blocks.py`, `zarr2/layout.py`).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress

from fsbridge.decoded import DecodedChunks
from fsbridge.errors import NotFound, Stale
from fsbridge.layouts.chunks import ChunkSpace
from fsbridge.metadata import Index
from fsbridge.model import ChunkInfo
from fsbridge.tree import Buffer, Handle

ABSENT = "absent"
"""Version of a chunk that is not stored."""


class FilledSpace(ChunkSpace):
    """A chunk space that shows absent chunks as files as well.

    `fill`: the bytes of one element in the files; None: absent chunks have no files. `listed`: absent chunks are listed if
    the array has at most this number of chunks.
    """

    __slots__ = ("_fill", "_listed")

    def __init__(
        self,
        identity: Hashable,
        chunks: DecodedChunks,
        fill: bytes | None,
        counts: tuple[int, ...] | None = None,
        listed: int = 0,
    ) -> None:
        super().__init__(identity, chunks, counts)
        self._fill = fill
        self._listed = fill is not None and math.prod(self.counts) <= listed

    def find(self, cell: Index, version: Hashable = None) -> ChunkInfo:
        """Return the stored chunk. For a chunk that is not stored but has a file, return one with the version `ABSENT`."""
        try:
            return self.chunks.find(self.index(cell), None if version == ABSENT else version)
        except NotFound:
            if self._fill is None:
                raise
        if version not in (None, ABSENT):
            raise Stale("the chunk was removed")
        return ChunkInfo(ABSENT, 0, self.chunks.array.mtime_ns)

    def find_prefix(self, prefix: Index) -> int:
        try:
            return super().find_prefix(prefix)
        except NotFound:
            if self._fill is None:
                raise
            return self.chunks.array.mtime_ns

    def scan(self, prefix: Index) -> Iterator[Sequence[tuple[int, int]]]:
        if not self._listed:
            yield from super().scan(prefix)
            return
        stored: dict[int, int] = {}
        with suppress(NotFound):
            for batch in super().scan(prefix):
                stored.update(batch)
                yield ()  # still at work
        mtime_ns = self.chunks.array.mtime_ns
        yield [(number, stored.get(number, mtime_ns)) for number in range(self.counts[len(prefix)])]

    def open(self, cell: Index, version: Hashable) -> Handle:
        """Open the file as it is now."""
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
        form, size = self.form(cell), self.file_size(cell)
        assert size is not None
        return FilledChunk(b"" if form is None else form.header, self._fill, size)


class FilledChunk:
    """The file of a chunk that is not stored, open for reading: its header, then the fill value."""

    __slots__ = ("_element", "_header", "size")

    version = ABSENT
    window = 0

    def __init__(self, header: bytes, element: bytes, size: int) -> None:
        self._header = header
        self._element = element
        self.size = size

    def peek(self, offset: int, size: int) -> Buffer:
        return self.read(offset, size)

    def read(self, offset: int, size: int) -> Buffer:
        begin, stop = len(self._header), min(offset + size, self.size)
        first = max(0, offset - begin) // len(self._element)
        count = -(-max(0, stop - begin) // len(self._element)) - first
        start = max(offset, begin) - begin - first * len(self._element)
        elements = (self._element * max(0, count))[start : start + max(0, stop - max(offset, begin))]
        return self._header[offset:stop] + elements

    def prefetch(self, start: int, stop: int) -> None:
        """Do nothing: there is no `window`."""

    def close(self) -> None:
        """Nothing is held."""
