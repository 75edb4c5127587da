"""The layout `n5` over the machinery of all layouts: `attributes.json`, and directories of blocks beside it.

A block file has the path of a chunk's block, a header, and big-endian elements, cropped to the array:

    00 00 | u16 number of dimensions | u32 extent for each, first dimension first | elements, first dimension fastest

With reversed axes, directories begin with `x`, while the store's keys begin with `z`. All stored chunks of an array are then
listed once and sorted so that every directory can be answered from them. They are kept for as long as a listing may be old:
a version of them all would be those of all directories, which take as long to ask for.
Whether one block is stored is asked of the store. Not here: the document's contents (`documents.py`), chunk files
(`chunks.py`).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fsbridge.asking import SlowListing
from fsbridge.decoded import DecodedChunks
from fsbridge.errors import NotFound
from fsbridge.layouts.chunk_variants import SCALAR, FilledSpace, find_rows, scalar_entries
from fsbridge.layouts.chunks import ChunkDirectory
from fsbridge.layouts.directories import ArrayDirectory, GroupDirectory, PathDirectory
from fsbridge.layouts.forms import ChunkForm, chunk_steps
from fsbridge.layouts.n5.documents import (
    DOCUMENT,
    array_document,
    group_document,
    native,
    refusal,
    reversed_axes,
    spacing,
)
from fsbridge.layouts.surroundings import Look, Surroundings
from fsbridge.lru import LRU
from fsbridge.meaning.conventions.n5_attributes import Spacing
from fsbridge.metadata import JSON, ArrayMetadata, Format, Index
from fsbridge.model import Array, Group
from fsbridge.tree import AnyNode, Entry

_Pairs = tuple[NDArray[np.int64], NDArray[Any]]


@dataclass(frozen=True, slots=True)
class _StoredBlocks:
    """All stored chunks of one array: their numbers in the reversed grid, ascending, with their mtimes in ns.

    Times are 64 bits long, or Python's integers where one of them needs more (before 1677, after 2262).
    """

    numbers: NDArray[np.int64]
    mtimes: NDArray[Any]

    def find_below(self, prefix: Index, counts: tuple[int, ...], mtime_ns: int | None) -> list[tuple[int, int]]:
        """Return the members of the directory `prefix` in the reversed grid of `counts`, as `BlockListings.scan` does."""
        number = 0
        for coordinate, count in zip(prefix, counts, strict=False):
            number = number * count + coordinate
        each = math.prod(counts[len(prefix) + 1 :])
        first = number * math.prod(counts[len(prefix) :])
        begin, end = np.searchsorted(self.numbers, (first, first + math.prod(counts[len(prefix) :])))
        if begin == end:
            return []
        coordinates = (self.numbers[begin:end] - first) // each
        if mtime_ns is None:
            return list(zip(coordinates.tolist(), self.mtimes[begin:end].tolist(), strict=True))
        return [(coordinate, mtime_ns) for coordinate in np.unique(coordinates).tolist()]


class BlockListings:
    """The latest lists of stored chunks for the arrays of one mount, used while they are recent enough. Thread-safe."""

    def __init__(self, most_kept: int = 2_000_000, batch: int = 5000) -> None:
        """`most_kept`: chunks that are kept, 16 bytes each. An array with more chunks is listed again for every directory.

        `batch`: the most members in one batch of a listing.
        """
        self._most_kept = most_kept
        self._batch = batch
        self._kept = LRU[DecodedChunks, SlowListing[_StoredBlocks]](most_kept)

    def scan(self, chunks: DecodedChunks, prefix: Index, mtime_ns: int | None) -> Iterator[Sequence[tuple[int, int]]]:
        """Yield what is stored below `prefix` of the reversed grid, in batches, as `model.Chunks.scan` does.

        `mtime_ns`: the mtime of all members if they are directories; None if they are files, which have their own.
        """
        counts = chunks.metadata.grid.counts[::-1]
        listing = self._kept.get(chunks)
        if (listing is None or not listing.will_do()) and math.prod(counts) < 2**63:
            listing = SlowListing[_StoredBlocks]()
            for step in self._walk(chunks, counts):
                if step is None:
                    yield ()
                listing.made = step
        if listing is None or (walk := listing.made) is None:
            yield from _search(chunks, prefix, mtime_ns)
            return
        self._kept.put(chunks, listing, len(walk.numbers) + self._most_kept // 64)  # at most 64 arrays
        pairs = walk.find_below(prefix, counts, mtime_ns)
        for first in range(0, len(pairs), self._batch):
            yield pairs[first : first + self._batch]

    def count_known(self, chunks: DecodedChunks) -> int:
        """Return the number of stored chunks in the array's latest list; 0 if there is none."""
        listing = self._kept.get(chunks)
        return 0 if listing is None or listing.made is None else len(listing.made.numbers)

    def _walk(self, chunks: DecodedChunks, counts: tuple[int, ...]) -> Iterator[_StoredBlocks | None]:
        """Yield None while the store is being listed, then all stored chunks; nothing if there are more than can be kept."""
        parts: list[_Pairs] = []
        count, pending = 0, []
        weights = [math.prod(counts[axis + 1 :]) for axis in reversed(range(len(counts)))]  # of the array's own axes
        for prefix in find_rows(chunks.scan, len(counts)):
            yield None
            if prefix is None:
                continue
            base = sum(i * weight for i, weight in zip(prefix, weights, strict=False))
            for pairs in chunks.scan(prefix):
                pending += [(base + i * weights[-1], mtime_ns) for i, mtime_ns in pairs]
                if len(pending) >= self._batch:
                    yield None
                    count += len(pending)
                    parts.append(_columns(pending))
                    pending = []
                if count > self._most_kept:
                    return
        parts.append(_columns(pending))
        numbers, mtimes = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        order = np.argsort(numbers, kind="stable")
        yield _StoredBlocks(numbers[order], mtimes[order])


def _columns(pairs: list[tuple[int, int]]) -> _Pairs:
    try:
        table: NDArray[Any] = np.array(pairs, np.int64).reshape(-1, 2)
        return table[:, 0].copy(), table[:, 1].copy()
    except OverflowError:
        return np.array([number for number, _ in pairs], np.int64), np.array([mtime_ns for _, mtime_ns in pairs], object)


def _search(chunks: DecodedChunks, prefix: Index, mtime_ns: int | None) -> Iterator[Sequence[tuple[int, int]]]:
    """Yield the members of one directory in batches.

    All stored chunks are walked through, and only these members are kept.
    """
    rank = len(chunks.metadata.shape)
    seen: set[int] = set()
    last = prefix[::-1]
    for row in find_rows(chunks.scan, rank):
        yield ()
        if row is None:
            continue
        for pairs in chunks.scan(row):
            fresh: list[tuple[int, int]] = []
            for i, own_ns in pairs:
                index = (*row, i)
                member = index[rank - len(prefix) - 1]
                if index[rank - len(prefix) :] == last and member not in seen:
                    seen.add(member)
                    fresh.append((member, own_ns if mtime_ns is None else mtime_ns))
            yield sorted(fresh)


MAX_FORMS = 256
"""Most cached forms of one array's blocks. There are up to 2 to the power of the rank: each axis is cropped or not."""


class BlockSpace(FilledSpace):
    """The blocks of one array version. Axes may be reversed, see `documents.reversed_axes`.

    N5 readers fill absent blocks with zeros. If the fill value is not zero, an absent block can still be opened by its name,
    and is full of the fill value; it is not listed. With reversed axes any directory of the grid can be opened by its name,
    because only a search of the store could tell whether a block is stored in it.
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
        form = self._forms.get(shape)
        if form is None:
            form = self._form(shape)
            if len(self._forms) < MAX_FORMS:
                self._forms[shape] = form
        return form

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
        return max(super().extent(prefix), self._listings.count_known(self.chunks) if self._turned else 0)

    def _form(self, shape: tuple[int, ...]) -> ChunkForm:
        """Return the form of a block with the lengths `shape` along the array's own axes."""
        of = self.chunks.metadata.dtype
        slowest_first = slice(None) if self._turned or len(shape) < 2 else slice(None, None, -1)
        shown = shape[slowest_first]
        header = struct.pack(f">HH{len(shown)}I", 0, len(shown), *shown[::-1])
        return ChunkForm(header, shown, self._steps[slowest_first], of.itemsize, of.endian == "little")


class N5:
    """Shows a source as an uncompressed N5 container (`directories.Layout`)."""

    name = "n5"
    documents = frozenset((DOCUMENT,))
    of_groups = of_arrays = (DOCUMENT,)

    def __init__(self, listings: BlockListings | None = None) -> None:
        self.listings = BlockListings() if listings is None else listings

    def selective(self, format: Format) -> bool:
        return True

    def refusal(self, metadata: ArrayMetadata) -> str | None:
        return refusal(metadata)

    def file_names(self, name: str, metadata: ArrayMetadata) -> None:
        return None

    def group_file_names(self, name: str, group: Group) -> None:
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
    """An array's directory: the document, and a directory for each coordinate along N5's first dimension."""

    def __init__(self, path: PathDirectory, array: Array, listings: BlockListings) -> None:
        super().__init__(path, array)
        self.space: BlockSpace = BlockSpace(path.identity(array), path.member.share_chunks(array), listings)
        self._look: Look | None = None  # the last one, from which the next one has what has not changed

    def find_surroundings(self) -> Hashable:
        """Return the spacing that the array's document says; none for an array of N5, because its own document has it."""
        member = self.path.member
        if member.context.format_at(member.names).first_axis_fastest:
            return Spacing()
        self._look = Look(member.context, member.above)
        return spacing(self.array.metadata, member.names, Surroundings(self._look))

    @property
    def extent(self) -> int:
        return self.space.extent(()) if self.space.rank else 1

    def chunk(self, name: bytes) -> AnyNode:
        if self.space.rank:
            return ChunkDirectory(self.space, ()).lookup(name)
        if name != SCALAR:
            raise NotFound(f"{name!r} is no block of an array of rank 0")
        return self.space.find_node(())

    def chunk_entries(self) -> Iterator[Sequence[Entry]]:
        return ChunkDirectory(self.space, ()).entries() if self.space.rank else scalar_entries(self.space)
