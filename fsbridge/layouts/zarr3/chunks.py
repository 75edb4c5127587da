"""The chunk files of one array: the directories `c`, `c/0`, ... and the files in them, numbered, never remembered.

Not here: how a chunk is found or decoded (`decoded.py`), `zarr.json`. The 0-D array's only chunk is the file `c`.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fsbridge.decoded import DecodedChunk, DecodedChunks, settled
from fsbridge.errors import NotFound
from fsbridge.model import ArrayMetadata, Batch, ChunkInfo, Index
from fsbridge.tree import AnyNode, Attrs, Dated, Deliver, Entry, Numbered

DIRECTORY = b"c"


class ChunkSpace:
    """All directories and files that the chunk grid of one array version can have (a `tree.Space`).

    Positions count breadth first: 0 is `c`, then one number per coordinate of the first dimension, and so on, each level in
    C order; a level's numbers are exact Python integers, however large the grid.
    """

    __slots__ = ("chunks", "counts", "identity", "levels")

    def __init__(self, identity: Hashable, chunks: DecodedChunks) -> None:
        self.identity = identity
        self.chunks = chunks
        self.counts = chunks.metadata.grid.counts
        sizes = [math.prod(self.counts[:level]) for level in range(len(self.counts) + 1)]
        self.levels = tuple(sum(sizes[:level]) for level in range(len(sizes) + 1))

    @property
    def metadata(self) -> ArrayMetadata:
        """The array's metadata."""
        return self.chunks.metadata

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
        linear = 0
        for coordinate, count in zip(prefix, self.counts, strict=False):
            linear = linear * count + coordinate
        return self.levels[len(prefix)] + linear

    def node(self, position: int) -> AnyNode:
        """The node at `position`, whether or not it is stored."""
        return self.at(self._prefix(position))

    def prefetch(self, position: int, deliver: Deliver) -> bool:
        """Decode the chunk whose file is at `position`."""
        return self.chunks.prefetch(self._prefix(position), deliver)

    def _prefix(self, position: int) -> Index:
        level = next(n for n in range(self.rank + 1) if position < self.levels[n + 1])
        linear = position - self.levels[level]
        prefix: list[int] = []
        for count in reversed(self.counts[:level]):
            linear, coordinate = divmod(linear, count)
            prefix.append(coordinate)
        return tuple(reversed(prefix))

    def at(self, prefix: Index) -> AnyNode:
        """The node at `prefix`: a file when it names a whole chunk index, else a directory."""
        if len(prefix) == self.rank:
            return ChunkFile(self, prefix, None)
        return ChunkDirectory(self, prefix)

    def stored(self, prefix: Index) -> AnyNode:
        """The node at `prefix` if the store has it, else NotFound."""
        if len(prefix) < self.rank:
            self.chunks.find_prefix(prefix)
            return ChunkDirectory(self, prefix)
        info = self.chunks.find(prefix)
        if self.metadata.chunk_bytes(prefix) is None:
            return ChunkFile(self, prefix, settled(info))
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
        return Attrs("directory", 0, self.of.chunks.array.chunks.find_prefix(self.prefix))

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
        for batch in self.of.chunks.scan(self.prefix):
            yield make(batch.pairs, batch.asked) if isinstance(batch, Batch) else make(batch, now)
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
            [
                Entry(b"%d" % i, Attrs("file", metadata.chunk_bytes((*prefix, i)), mtime_ns), base + i)
                for i, mtime_ns in batch
            ],
            asked,
        )

    def _unsized_entry(self, coordinate: int) -> Entry | None:
        """A file whose size and identity depend on its stored version."""
        index = (*self.prefix, coordinate)
        try:
            info = self.of.chunks.find(index)
        except NotFound:
            return None  # removed while we list
        file = ChunkFile(self.of, index, settled(info))
        return Entry(b"%d" % coordinate, Attrs("file", None, info.mtime_ns), lambda: file, file.version)


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
        return ChunkFile(self.of, self.index, settled(self.seen)) if self.seen is not None else None

    def attrs(self) -> Attrs:
        """Size in bytes (None where only decoding the chunk can tell it) and the stored object's mtime."""
        info = self.of.chunks.find(self.index, self.version) if self.seen is None else self.seen
        return Attrs("file", self.of.chunks.size(self.index), info.mtime_ns)

    def measured(self) -> Attrs:
        """`attrs` with the size, for which the chunk may have to be decoded."""
        info = self.of.chunks.find(self.index, self.version)
        return Attrs("file", self.of.chunks.measure(self.index, info), info.mtime_ns)

    def xattrs(self) -> Mapping[str, bytes]:
        """Where the chunk lies in the grid and how it is stored."""
        info = self.of.chunks.find(self.index)
        return {
            "user.fsbridge.chunk_index": json.dumps(list(self.index)).encode(),
            "user.fsbridge.stored_size": b"%d" % info.stored,
            "user.fsbridge.codec": self.of.metadata.codec.encode(),
        }

    def open(self) -> DecodedChunk:
        """Open the chunk as it is now; Stale when the array's metadata is no longer this version's."""
        return self.of.chunks.open(self.index, self.version)
