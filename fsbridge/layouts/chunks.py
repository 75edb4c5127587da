"""The chunk files of one array, in directories by grid coordinate. Nodes are made from their numbers, and not kept.

A `ChunkSpace` defines the grid of files. By default each file is one decoded chunk, unchanged. A layout that shows the axes
in another order, or other bytes, overrides what differs. A `Numbering` gives each file and directory a number, so that a
listing needs no object for each. Not here: how a chunk is found or decoded (`decoded/`), which inodes numbers get
(`kernel/inodes.py`), flat directories (`chunk_variants.py`), documents.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fsbridge.decoded import DecodedChunk, DecodedChunks, identify
from fsbridge.errors import NotFound
from fsbridge.layouts.forms import ChunkForm
from fsbridge.metadata import Index, parse_coordinate
from fsbridge.model import ChunkInfo, Pairs
from fsbridge.tree import AnyNode, Attrs, Buffer, Directory, Entry, File, Handle, Numbered, Space


class Numbering:
    """Numbers all files and directories of a grid. A node's number is called its position.

    The top directory is 0. The directories by the first axis' coordinate follow, then those by the second axis, and so on.
    Each level is in C order. Numbers are exact Python integers, however large the grid.
    """

    __slots__ = ("counts", "levels")

    def __init__(self, counts: tuple[int, ...]) -> None:
        self.counts = counts
        sizes = [math.prod(counts[:level]) for level in range(len(counts) + 1)]
        self.levels = tuple(sum(sizes[:level]) for level in range(len(sizes) + 1))

    @property
    def size(self) -> int:
        """Number of positions."""
        return self.levels[-1]

    @property
    def rank(self) -> int:
        """Number of axes: the depth of the files."""
        return len(self.counts)

    def position(self, prefix: Index) -> int:
        """Return the number of the node at `prefix`."""
        linear = 0
        for coordinate, count in zip(prefix, self.counts, strict=False):
            linear = linear * count + coordinate
        return self.levels[len(prefix)] + linear

    def prefix(self, position: int) -> Index:
        """Return the coordinates of the node at `position`."""
        level = bisect_right(self.levels, position) - 1
        linear = position - self.levels[level]
        prefix = [0] * level
        for axis in range(level - 1, 0, -1):
            linear, prefix[axis] = divmod(linear, self.counts[axis])
        if level:
            prefix[0] = linear
        return tuple(prefix)

    def level(self, position: int) -> range:
        """Return the numbers of all nodes at the same depth as the node `position`."""
        depth = bisect_right(self.levels, position) - 1
        return range(self.levels[depth], self.levels[depth + 1])


MAX_SIZE = 2**63 - 1
"""Largest file size in bytes that the kernel accepts. A chunk that is larger by its metadata has this size, and no bytes."""


class ChunkSpace(Numbering, Space):
    """All directories and files that the chunk grid of one array version can have.

    A file's cell is its position in the grid of files, which has `counts` files along each axis. It is the chunk index,
    unless a layout says otherwise (`index`).
    """

    __slots__ = ("chunks", "identity")

    def __init__(self, identity: Hashable, chunks: DecodedChunks, counts: tuple[int, ...] | None = None) -> None:
        super().__init__(chunks.metadata.grid.counts if counts is None else counts)
        self.identity = identity
        self.chunks = chunks

    # What a layout may override

    def index(self, cell: Index) -> Index:
        """Return the index of the chunk that the file at `cell` shows."""
        return cell

    def form(self, cell: Index) -> ChunkForm | None:
        """Return how the file's bytes follow from the decoded chunk; None if they are the decoded bytes themselves."""
        return None

    def find(self, cell: Index, version: Hashable = None) -> ChunkInfo:
        """Return the chunk that the file at `cell` shows now.

        NotFound if there is none, Stale if it is not of `version`.
        """
        return self.chunks.find(self.index(cell), version)

    def find_prefix(self, prefix: Index) -> int:
        """Return the mtime (ns) of the directory at `prefix`; NotFound if no chunk is stored below."""
        return self.chunks.find_prefix(prefix)

    def scan(self, prefix: Index) -> Iterator[Sequence[tuple[int, int]]]:
        """Yield what is stored below `prefix`, in batches, as `model.Chunks.scan` does."""
        return self.chunks.scan(prefix)

    def extent(self, prefix: Index) -> int:
        """Estimate how many members a listing of the directory at `prefix` has to look at. Does not block."""
        return self.counts[len(prefix)]

    def file_size(self, cell: Index) -> int | None:
        """Return the size of a file in bytes; None if it is only known from the stored bytes."""
        form = self.form(cell)
        size = self.chunks.size(self.index(cell)) if form is None else form.size
        return size if size is None or size <= MAX_SIZE else MAX_SIZE

    def open(self, cell: Index, version: Hashable) -> Handle:
        """Open the file as it is now. NotFound if there is none, Stale if the chunk or the metadata have changed."""
        form = self.form(cell)
        chunk = self.chunks.open(self.index(cell), version)
        return chunk if form is None else ConvertedHandle(chunk, form)

    # What is the same for all

    def directory_attrs(self, prefix: Index) -> Attrs:
        """Return the attributes of the directory at `prefix`; NotFound if no chunk is stored below."""
        return Attrs("directory", 0, self.find_prefix(prefix))

    def node(self, position: int) -> AnyNode:
        """Return the node at `position`, whether or not it is stored."""
        prefix = self.prefix(position)
        deepest = len(prefix) == len(self.counts)
        return ChunkFile(self, prefix, None, None, position) if deepest else ChunkDirectory(self, prefix)

    def name(self, position: int) -> str:
        """Return the path of the node at `position` below the array's directory."""
        return "/".join(map(str, self.prefix(position))) or "0"

    def fetch(self, position: int) -> bool:
        fetch = self.chunks.array.fetch
        if fetch is None:
            return False
        index = self.index(self.prefix(position))
        if not self.chunks.holds(index):
            fetch(index)
        return True

    def prefetch(self, positions: Sequence[int]) -> int | None:
        """Decode the chunks of the files at `positions`."""
        left = self.chunks.prefetch([self.index(self.prefix(position)) for position in positions])
        return None if left is None else positions[left]

    def find_node(self, prefix: Index) -> AnyNode:
        """Return the node at `prefix`; NotFound if the store does not have it."""
        if len(prefix) < self.rank:
            return ChunkDirectory(self, prefix, self.directory_attrs(prefix))
        info = self.find(prefix)
        if self.file_size(prefix) is None:
            return ChunkFile(self, prefix, identify(info))
        return ChunkFile(self, prefix, None, info)

    def entry(self, cell: Index, name: bytes, mtime_ns: int) -> Entry | None:
        """Return a stored file as a member of a listing; None if it was removed meanwhile."""
        size = self.file_size(cell)
        if size is not None:
            return Entry(name, Attrs("file", size, mtime_ns), self.position(cell))
        try:  # size and identity of the file depend on its stored version
            info = self.find(cell)
        except NotFound:
            return None
        file = ChunkFile(self, cell, identify(info))
        return Entry(name, Attrs("file", None, info.mtime_ns), lambda: file, file.version)


@dataclass(frozen=True, slots=True)
class ChunkDirectory(Directory):
    """The directory of the stored chunks with coordinates that begin with `prefix`. `seen`: see `ChunkFile`."""

    of: ChunkSpace
    prefix: Index
    seen: Attrs | None = None

    @property
    def slot(self) -> tuple[ChunkSpace, int]:
        return self.of, self.of.position(self.prefix)

    @property
    def space(self) -> ChunkSpace:
        return self.of

    @property
    def extent(self) -> int:
        return self.of.extent(self.prefix)

    def attrs(self) -> Attrs:
        return self.of.directory_attrs(self.prefix) if self.seen is None else self.seen

    def lookup(self, name: bytes) -> AnyNode:
        """Return the member `name`, which must be a coordinate in canonical decimal spelling.

        Stale instead of NotFound if the array has changed (grown, perhaps): the kernel then looks up the whole path again.
        """
        coordinate = parse_coordinate(name, self.of.counts[len(self.prefix)])
        if coordinate is None:
            self.of.chunks.check()
            raise NotFound(f"{name!r} is no chunk of this grid")
        return self.of.find_node((*self.prefix, coordinate))

    def entries(self) -> Iterator[Sequence[Entry]]:
        """Yield the stored chunks, or the directories that lead to some. Sizes come from the metadata alone."""
        for batch in self.of.scan(self.prefix):
            yield from self._list_batch(batch)

    def _list_batch(self, batch: Pairs) -> Iterator[Sequence[Entry]]:
        of, prefix = self.of, self.prefix
        base = of.position((*prefix, 0))
        if len(prefix) + 1 < of.rank:
            yield Numbered("directory", 0, base, batch)
            return
        last = of.counts[-1] - 1
        size, regular = of.file_size((*prefix, 0)), of.chunks.metadata.grid.regular
        if not batch or size is None or not regular:
            entries = (of.entry((*prefix, i), b"%d" % i, mtime_ns) for i, mtime_ns in batch)
            yield [entry for entry in entries if entry is not None]
            return
        edge = batch[-1][0] == last and of.file_size((*prefix, last)) != size  # the array's edge crops the last one
        yield Numbered("file", size, base, batch[:-1] if edge else batch)
        if edge:
            entry = of.entry((*prefix, last), b"%d" % last, batch[-1][1])
            yield [] if entry is None else [entry]


class ChunkFile(File):
    """The file of one chunk. With `version` it shows only that version, else whatever the chunk is now.

    `version` is given if the size of the file depends on it. `seen`: what a look-up has just found, so that the attributes
    need no second request to the store; a node with it is not kept. `position`: the number of the chunk, if it is known.
    """

    __slots__ = ("at", "of", "seen", "slot", "version")

    slot: tuple[ChunkSpace, int] | None

    def __init__(
        self, of: ChunkSpace, at: Index, version: Hashable, seen: ChunkInfo | None = None, position: int | None = None
    ) -> None:
        self.of = of
        self.at = at
        self.version = version
        self.seen = seen
        self.slot = None
        if version is None:
            self.slot = of, of.position(at) if position is None else position

    @property
    def pinned(self) -> ChunkFile | None:
        return ChunkFile(self.of, self.at, identify(self.seen)) if self.seen is not None else None

    def attrs(self) -> Attrs:
        """Return the size in bytes (None if only decoding the chunk can tell it) and the stored object's mtime."""
        info = self.of.find(self.at, self.version) if self.seen is None else self.seen
        return Attrs("file", self.of.file_size(self.at), info.mtime_ns)

    def measure(self) -> Attrs:
        """Return `attrs` with the size known, which may need the chunk to be decoded."""
        info, size = self.of.find(self.at, self.version), self.of.file_size(self.at)
        size = self.of.chunks.measure(self.of.index(self.at), info) if size is None else size
        return Attrs("file", size, info.mtime_ns)

    def xattrs(self) -> Mapping[str, bytes]:
        """Return where the chunk lies in the grid, and how it is stored."""
        info = self.of.find(self.at)
        return {
            "user.fsbridge.chunk_index": json.dumps(list(self.of.index(self.at))).encode(),
            "user.fsbridge.stored_size": b"%d" % info.stored,
            "user.fsbridge.codec": self.of.chunks.metadata.codec.encode(),
        }

    def open(self) -> Handle:
        """Open the chunk as it is now; Stale if the array's metadata has changed."""
        return self.of.open(self.at, self.version)


class ConvertedHandle(Handle):
    """An open file that shows one version of one chunk in another form. Only the bytes that are read are converted."""

    __slots__ = ("_chunk", "_form", "size", "version")

    def __init__(self, chunk: DecodedChunk, form: ChunkForm) -> None:
        self._chunk = chunk
        self._form = form
        self.size = form.size
        self.version = chunk.version

    def peek(self, offset: int, size: int) -> Buffer | None:
        """Return the bytes if the chunk is decoded already and converting them is quick, else None."""
        if not self._form.quick:
            return None
        stop = min(offset + size, self.size)
        first, last = self._form.extent(offset, stop)
        data = self._chunk.peek(first, last - first)
        return None if data is None else self._form.convert(offset, stop, data)

    def read(self, offset: int, size: int) -> Buffer:
        """Return the bytes. The chunk is decoded as `DecodedChunk.read` decodes it."""
        stop = max(offset, min(offset + size, self.size))
        first, last = self._form.extent(offset, stop)
        data = self._chunk.read(first, last - first) if first < last else b""
        return self._form.convert(offset, stop, data)
