"""The chunk files of one array: the directories `c`, `c/0`, ... and the files in them, numbered, never remembered.

Not here: how a chunk is found or decoded (`model.Chunks`), `zarr.json`. The 0-D array's only chunk is the file `c`.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fsbridge.cache import ChunkCache
from fsbridge.errors import NotFound, Stale, TooLarge
from fsbridge.kernel.readahead import ReadAhead, Streams
from fsbridge.model import Array, ArrayMetadata, Batch, ChunkInfo, Index
from fsbridge.tree import AnyNode, Attrs, Buffer, Dated, Entry, Numbered

DIRECTORY = b"c"

_SEQUENTIAL = 64 * 1024
"""Bytes of a first read from which on somebody seems to want the whole chunk; a random reader asks for less."""


@dataclass(frozen=True, slots=True, eq=False)
class ChunkSpace:
    """All directories and files that the chunk grid of one array version can have (a `tree.Space`).

    Positions count breadth first: 0 is `c`, then one number per coordinate of the first dimension, and so on, each level in
    C order; a level's numbers are exact Python integers, however large the grid.
    """

    array: Array
    cache: ChunkCache
    max_chunk: int
    immutable: bool
    ahead: ReadAhead
    streams: Streams = field(init=False)
    counts: tuple[int, ...] = field(init=False)
    levels: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        counts = self.array.metadata.grid.counts
        sizes = [math.prod(counts[:level]) for level in range(len(counts) + 1)]
        object.__setattr__(self, "counts", counts)
        object.__setattr__(self, "levels", tuple(sum(sizes[:level]) for level in range(len(sizes) + 1)))
        object.__setattr__(self, "streams", Streams(self.ahead, sizes[-1], self._prefetch))

    @property
    def metadata(self) -> ArrayMetadata:
        """The array's metadata."""
        return self.array.metadata

    @property
    def size(self) -> int:
        """Number of positions."""
        return self.levels[-1]

    @property
    def rank(self) -> int:
        """Number of dimensions: the depth of chunk files below `c`."""
        return len(self.counts)

    def position(self, prefix: Index) -> int:
        """The number of the node at `prefix`."""
        return self.levels[len(prefix)] + self.linear(prefix)

    def linear(self, prefix: Index) -> int:
        """The number of the node at `prefix` among those of its level."""
        linear = 0
        for coordinate, count in zip(prefix, self.counts, strict=False):
            linear = linear * count + coordinate
        return linear

    def node(self, position: int) -> AnyNode:
        """The node at `position`, whether or not it is stored."""
        level = next(n for n in range(self.rank + 1) if position < self.levels[n + 1])
        return self.at(self._prefix(level, position - self.levels[level]))

    def _prefix(self, level: int, linear: int) -> Index:
        prefix: list[int] = []
        for count in reversed(self.counts[:level]):
            linear, coordinate = divmod(linear, count)
            prefix.append(coordinate)
        return tuple(reversed(prefix))

    def _prefetch(self, linear: int) -> bool:
        """Decode the chunk of that number if it is stored and of a known and reasonable size; False if there is no room."""
        index = self._prefix(self.rank, linear)
        size = self.metadata.chunk_bytes(index)
        if size is None or size > self.max_chunk:
            return True
        chunks = self.array.chunks
        info = chunks.find(index)
        key = (self, index, settled(info))
        if key[2] != info.version or self.cache.holds(key) or self.cache.holds(end_of(key)):
            return True
        view = self.cache.prefetch(key, size, lambda out: chunks.read_into(index, info, out), info.stored)
        if view is None:
            return self.cache.holds(key)
        delivered = self.ahead.deliver(self, self.position(index), info.version, view)
        if delivered:
            rest = view[delivered:]
            if self.cache.prefetch(end_of(key), len(rest), lambda out: copy(rest, out)) is not None:
                self.cache.discard(key)
        return True

    def at(self, prefix: Index) -> AnyNode:
        """The node at `prefix`: a file when it names a whole chunk index, else a directory."""
        if len(prefix) == self.rank:
            return ChunkFile(self, prefix, None)
        return ChunkDirectory(self, prefix)

    def stored(self, prefix: Index) -> AnyNode:
        """The node at `prefix` if the store has it, else NotFound."""
        if len(prefix) < self.rank:
            self.array.chunks.find_prefix(prefix)
            return ChunkDirectory(self, prefix)
        info = self.array.chunks.find(prefix)
        if self.metadata.chunk_bytes(prefix) is None:
            return ChunkFile(self, prefix, info.version)
        return ChunkFile(self, prefix, None, info)


@dataclass(frozen=True, slots=True)
class ChunkDirectory:
    """`c` or one of the directories below it: the stored chunks whose index begins with `prefix`."""

    of: ChunkSpace
    prefix: Index

    @property
    def version(self) -> Hashable:
        return None

    @property
    def place(self) -> tuple[ChunkSpace, int]:
        return self.of, self.of.position(self.prefix)

    @property
    def space(self) -> ChunkSpace:
        return self.of

    @property
    def extent(self) -> int:
        return self.of.counts[len(self.prefix)]

    def attrs(self) -> Attrs:
        return Attrs("directory", 0, self.of.array.chunks.find_prefix(self.prefix))

    def xattrs(self) -> Mapping[str, bytes]:
        return {}

    def lookup(self, name: bytes) -> AnyNode:
        """The member `name`, in canonical decimal spelling only."""
        coordinate = _coordinate(name, self.of.counts[len(self.prefix)])
        if coordinate is None:
            raise NotFound(f"{name!r} is no chunk of this grid")
        return self.of.stored((*self.prefix, coordinate))

    def entries(self) -> Iterator[Sequence[Entry]]:
        """Stored chunks only, sized from metadata alone."""
        make = self._batch_maker()
        now = time.monotonic()
        for batch in self.of.array.chunks.scan(self.prefix):
            yield make(batch, batch.asked if isinstance(batch, Batch) else now)
            now = time.monotonic()

    def _first(self) -> Index:
        return (*self.prefix, *[0] * (self.of.rank - len(self.prefix)))

    def _batch_maker(self) -> Callable[[Sequence[tuple[int, int]], float], Sequence[Entry]]:
        base = self.of.position((*self.prefix, 0))
        if len(self.prefix) + 1 < self.of.rank:
            return lambda batch, asked: Numbered("directory", 0, base, batch, asked)
        metadata, prefix = self.of.metadata, self.prefix
        size = metadata.chunk_bytes(self._first())
        if size is None:
            return lambda batch, asked: [entry for i, _ in batch if (entry := self._unsized_entry(i)) is not None]
        if metadata.grid.regular:
            return lambda batch, asked: Numbered("file", size, base, batch, asked)
        return lambda batch, asked: Dated(
            (
                Entry(b"%d" % i, Attrs("file", metadata.chunk_bytes((*prefix, i)), mtime_ns), base + i)
                for i, mtime_ns in batch
            ),
            asked,
        )

    def _unsized_entry(self, coordinate: int) -> Entry | None:
        """A file whose size and identity depend on its stored version."""
        index = (*self.prefix, coordinate)
        try:
            info = self.of.array.chunks.find(index)
        except NotFound:
            return None  # removed while we list
        file = ChunkFile(self.of, index, info.version)
        return Entry(b"%d" % coordinate, Attrs("file", None, info.mtime_ns), lambda: file, info.version)


def settled(info: ChunkInfo) -> Hashable:
    """What identifies the bytes of a stored chunk to all caches: its version, or, just after a change, nothing but itself.

    Two changes within one tick of the file system's clock can leave the same time, size and inode number, so what was read
    between them must not be taken for what is there afterwards.
    """
    return info.version if info.settled else (info.version, object())


def end_of(key: Hashable) -> Hashable:
    """The cache key of a chunk's end, which stays when the rest has been delivered to the kernel."""
    return key, "end"


def copy(source: memoryview, target: memoryview) -> None:
    """Fill `target`."""
    target[:] = source


def _coordinate(name: bytes, count: int) -> int | None:
    """`name` as a grid coordinate; None unless it is the canonical spelling of one inside the grid."""
    if not name.isdigit() or len(name) > 20:
        return None
    coordinate = int(name)
    return coordinate if b"%d" % coordinate == name and coordinate < count else None


@dataclass(frozen=True, slots=True)
class ChunkFile:
    """The decoded bytes of one chunk, whatever they are now; of one version, if that is given: where its size depends on it.

    `seen`: what a look-up has just found, so that its attributes cost no second look; nobody keeps such a node.
    """

    of: ChunkSpace
    index: Index
    version: Hashable
    seen: ChunkInfo | None = None

    @property
    def place(self) -> tuple[ChunkSpace, int] | None:
        return (self.of, self.of.position(self.index)) if self.version is None else None

    @property
    def pinned(self) -> ChunkFile | None:
        return ChunkFile(self.of, self.index, self.seen.version) if self.seen is not None else None

    def attrs(self) -> Attrs:
        """Size in bytes (None where only decoding the chunk can tell it) and the stored object's mtime."""
        info = self._find() if self.seen is None else self.seen
        return Attrs("file", self.of.metadata.chunk_bytes(self.index), info.mtime_ns)

    def measured(self) -> Attrs:
        """`attrs` with the size, for which the chunk may have to be decoded."""
        info = self._find()
        size = self.of.metadata.chunk_bytes(self.index)
        if size is None:
            if self.of.metadata.varlength:
                size = self.of.array.chunks.size(self.index, info)
            else:
                size = len(self._all(info, settled(info)))
        return Attrs("file", size, info.mtime_ns)

    def xattrs(self) -> Mapping[str, bytes]:
        """Where the chunk lies in the grid and how it is stored."""
        info = self.of.array.chunks.find(self.index)
        return {
            "user.fsbridge.chunk_index": json.dumps(list(self.index)).encode(),
            "user.fsbridge.stored_size": b"%d" % info.stored,
            "user.fsbridge.codec": self.of.metadata.codec.encode(),
        }

    def open(self) -> ChunkHandle:
        """Open the chunk as it is now; Stale when the array's metadata is no longer this version's."""
        info = self._find()
        if not self.of.immutable and not self.of.array.current():
            raise Stale("the array's metadata changed")
        version = settled(info)
        size = self.of.metadata.chunk_bytes(self.index)
        if size is None:
            size = len(self._all(info, version))
        return ChunkHandle(self.of, self.index, info, version, size)

    def _find(self) -> ChunkInfo:
        info = self.of.array.chunks.find(self.index)
        if self.version is not None and info.version != self.version:
            raise Stale("the stored chunk changed")
        return info

    def _all(self, info: ChunkInfo, version: Hashable) -> memoryview:
        key = (self.of, self.index, version)
        return self.of.cache.get_all(key, lambda: self.of.array.chunks.read_all(self.index, info), info.stored)


class ChunkHandle:
    """One version of one chunk, open for reading."""

    __slots__ = ("_ended", "_index", "_info", "_key", "_next", "_ranged", "_size", "_space", "_version")

    def __init__(self, space: ChunkSpace, index: Index, info: ChunkInfo, version: Hashable, size: int) -> None:
        self._space = space
        self._index = index
        self._info = info
        self._size = size
        self._version = version
        self._key = (space, index, version)
        self._ranged = 0  # bytes answered without decoding the whole chunk
        self._next = 0  # where the last read ended that was not answered from memory
        self._ended = False
        space.streams.opened(space.linear(index))

    @property
    def size(self) -> int:
        """Decoded bytes."""
        return self._size

    @property
    def version(self) -> Hashable:
        """The stored object's version, see `settled`."""
        return self._version

    def peek(self, offset: int, size: int) -> Buffer | None:
        """The bytes if the chunk is decoded."""
        view = self._space.cache.peek(self._key)
        if view is not None:
            return self._slice(view, offset, size)
        view = self._space.cache.peek(end_of(self._key))
        if view is None or offset < self._size - len(view):
            return None
        self._space.cache.consumed(end_of(self._key))
        return self._slice(view, offset, size, self._size - len(view))

    def read(self, offset: int, size: int) -> Buffer:
        """The bytes, decoding the chunk, or only the part that is asked for while little of it is."""
        stop = min(offset + size, self._size)
        if offset >= stop:
            return b""
        too_large = self._size > self._space.max_chunk
        selective = self._selective(offset, stop)
        self._next = stop
        if too_large or selective:
            part = self._space.array.chunks.read_range(self._index, self._info, offset, stop)
            if part is not None:
                self._ranged += stop - offset
                return part
        if too_large:
            raise TooLarge(f"chunk of {self._size} bytes, the limit here is {self._space.max_chunk}; see --cache-size")
        return self._slice(self._decoded(), offset, size)

    def close(self) -> None:
        """Nothing is held; the cache forgets by itself."""

    def _selective(self, offset: int, stop: int) -> bool:
        """Whether the reader seems to want parts of the chunk only: not one after the other, and little so far."""
        sequential = offset == self._next and (offset > 0 or stop >= min(_SEQUENTIAL, self._size))
        return not sequential and (self._ranged + stop - offset) * 4 <= self._size

    def _decoded(self) -> memoryview:
        chunks, index, info = self._space.array.chunks, self._index, self._info
        if self._space.metadata.chunk_bytes(index) is None:
            return self._space.cache.get_all(self._key, lambda: chunks.read_all(index, info), info.stored)
        return self._space.cache.get(self._key, self._size, lambda out: chunks.read_into(index, info, out), info.stored)

    def _slice(self, view: memoryview, offset: int, size: int, first: int = 0) -> memoryview:
        """Bytes of the chunk out of `view`, which begins with its byte `first`."""
        if offset + size >= self._size:
            self._space.cache.consumed(self._key)
            if not self._ended:
                self._ended = True
                self._space.streams.finished(self._space.linear(self._index))
        return view[offset - first : offset - first + size]
