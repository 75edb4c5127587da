"""Two variants of chunk files for Zarr v2 and N5: all in one flat directory, and files of chunks that are not stored.

In a flat directory, files are named by their coordinates with a separator between them. A chunk that is not stored may be
shown as a file full of the fill value, because some readers would fill it with something else. Such a file can be opened by
its name. If the array has few chunks, it is listed as well, so that a copy of the tree is complete. Not here: directories by
coordinate (`chunks.py`), which element fills a chunk, and which layouts need that (`n5/`, `zarr2.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from typing import TypeAlias

from fsbridge.decoded import DecodedChunks
from fsbridge.errors import NotFound, Stale
from fsbridge.layouts.chunks import ChunkSpace
from fsbridge.metadata import Index, parse_coordinate
from fsbridge.model import ChunkInfo
from fsbridge.tree import Buffer, Entry, Handle

SCALAR = b"0"
"""Name of the only chunk file of an array of rank 0, in Zarr v2 and in N5."""

BATCH_ENTRIES = 2000
"""Most entries of one batch of a listing."""


def flat_entries(space: ChunkSpace, separator: bytes) -> Iterator[Sequence[Entry]]:
    """Yield all stored files as members of one directory, named by their coordinates with `separator` between them."""
    if not space.rank:
        yield from scalar_entries(space)
        return
    batch: list[Entry] = []
    for prefix in find_rows(space.scan, space.rank):
        if prefix is None:
            yield ()
            continue
        begin = b"".join(b"%d%s" % (i, separator) for i in prefix)
        for pairs in space.scan(prefix):
            if not pairs:
                yield ()
            entries = (space.entry((*prefix, i), begin + b"%d" % i, mtime_ns) for i, mtime_ns in pairs)
            batch += (entry for entry in entries if entry is not None)
            if len(batch) >= BATCH_ENTRIES:
                yield batch
                batch = []
    yield batch


def scalar_entries(space: ChunkSpace) -> Iterator[Sequence[Entry]]:
    """Yield the only file of an array without dimensions if it is stored. It is called `0`."""
    try:
        entry = space.entry((), SCALAR, space.find(()).mtime_ns)
    except NotFound:
        return
    if entry is not None:
        yield [entry]


Scan: TypeAlias = Callable[[Index], Iterator[Sequence[tuple[int, int]]]]
"""Yields what is stored below a prefix, as `model.Chunks.scan` does."""


def find_rows(scan: Scan, rank: int, prefix: Index = ()) -> Iterator[Index | None]:
    """Yield the prefix (all coordinates but the last) of each row with stored chunks; None while the store is busy."""
    if len(prefix) >= rank - 1:
        yield prefix
        return
    for pairs in scan(prefix):
        if not pairs:
            yield None
        for i, _ in pairs:
            yield from find_rows(scan, rank, (*prefix, i))


def flat_cell(space: ChunkSpace, name: bytes, separator: bytes) -> Index | None:
    """Return the cell of the file `name` in a flat directory; None if no file is spelled like this."""
    if not space.rank:
        return () if name == SCALAR else None
    parts = name.split(separator)
    if len(parts) != space.rank:
        return None
    coordinates = [parse_coordinate(part, count) for part, count in zip(parts, space.counts, strict=True)]
    return None if None in coordinates else tuple(i for i in coordinates if i is not None)


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
        """Return the stored chunk. A chunk that is not stored, but has a file, gets the version `ABSENT`."""
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
                yield ()  # an empty batch says that the listing is still being made
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
            raise Stale("the chunk was not stored at the look-up, and is stored now")
        self.chunks.check()
        form, size = self.form(cell), self.file_size(cell)
        assert size is not None
        return FilledHandle(b"" if form is None else form.header, self._fill, size)


class FilledHandle(Handle):
    """The open file of a chunk that is not stored: a header, then the fill value."""

    __slots__ = ("_element", "_header", "size")

    version = ABSENT

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
