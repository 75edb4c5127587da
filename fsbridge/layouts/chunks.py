"""The chunk files of one array: directories by grid coordinate and the files in them, numbered, never remembered.

A `ChunkSpace` says what the grid of files is: here that of the decoded chunks, as they are. A layout that shows the axes in
another order, or other bytes, overrides what differs. Not here: how a chunk is found or decoded (`decoded/`), documents.
"""

from __future__ import annotations

import json
import math
import time
from bisect import bisect_right
from collections.abc import Generator, Hashable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from fsbridge.config import MIB
from fsbridge.decoded import DecodedChunk, DecodedChunks, settled
from fsbridge.errors import FsbridgeError, NotFound, WouldWait
from fsbridge.layouts.forms import ChunkForm
from fsbridge.metadata import Index, parse_coordinate
from fsbridge.model import Batch, ChunkInfo, prefix_owner
from fsbridge.owner import Owner, restricted
from fsbridge.tree import AnyNode, Attrs, Buffer, Dated, Deliver, Entry, Handle, Make, Numbered, keep

CONVERTED_BYTES = 16 * MIB
"""Files up to this size are converted whole, to be delivered before their reader comes."""
MAX_SIZE = 2**63 - 1
"""Bytes of a file, the most the kernel takes. Chunks larger by their metadata are shown as this; none can be read."""


class ChunkSpace:
    """All directories and files that the chunk grid of one array version can have (a `tree.Space`).

    A file's cell is its position in the grid of files, `counts` of them along each axis: the chunk index, unless a layout
    says otherwise (`index`). Numbers count breadth first: 0 is the directory of all, then one per coordinate of the first
    axis, and so on, each level in C order; exact Python integers, however large the grid.
    """

    __slots__ = ("chunks", "conceals", "counts", "identity", "levels")

    def __init__(self, identity: Hashable, chunks: DecodedChunks, counts: tuple[int, ...] | None = None) -> None:
        self.identity = identity
        self.chunks = chunks
        self.conceals = False  # whether directories that this layout does not show say who may read (`--allow-other`)
        self.counts = chunks.metadata.grid.counts if counts is None else counts
        sizes = [math.prod(self.counts[:level]) for level in range(len(self.counts) + 1)]
        self.levels = tuple(sum(sizes[:level]) for level in range(len(sizes) + 1))

    # What a layout may override

    def index(self, cell: Index) -> Index:
        """The chunk whose file is at `cell`."""
        return cell

    def form(self, cell: Index) -> ChunkForm | None:
        """How the file's bytes follow from the decoded chunk; None for the decoded bytes themselves."""
        return None

    def find(self, cell: Index, version: Hashable = None) -> ChunkInfo:
        """The chunk whose file is at `cell` as of now; NotFound if there is none, Stale if it is not of `version`."""
        return self.chunks.find(self.index(cell), version)

    def find_prefix(self, prefix: Index) -> int:
        """mtime (ns) of the directory at `prefix`; NotFound if no chunk is stored below."""
        return self.chunks.find_prefix(prefix)

    def scan(self, prefix: Index) -> Iterator[Sequence[tuple[int, int]]]:
        """What is stored below `prefix`, in batches, see `model.Chunks.scan`."""
        return self.chunks.scan(prefix)

    def extent(self, prefix: Index) -> int:
        """About how many members a listing of the directory at `prefix` has to look at (does not block)."""
        return self.counts[len(prefix)]

    def file_size(self, cell: Index) -> int | None:
        """Bytes of a file; None when only its stored bytes can tell."""
        form = self.form(cell)
        size = self.chunks.size(self.index(cell)) if form is None else form.size
        return size if size is None or size <= MAX_SIZE else MAX_SIZE

    def open(self, cell: Index, version: Hashable) -> Handle:
        """Open the file as it is now; NotFound, or Stale when chunk or metadata are not those that it stands for."""
        chunk, form = self.chunks.open(self.index(cell), version), self.form(cell)
        return chunk if form is None else ConvertedChunk(chunk, form)

    def open_at_once(self, cell: Index, version: Hashable, deliver: Deliver) -> Handle | None:
        """The same where it takes no waiting; else None. The bytes of a small file go to `deliver`."""
        index, form = self.index(cell), self.form(cell)
        if form is None:
            return self.chunks.open_at_once(index, version, deliver)
        chunk = self.chunks.open_at_once(index, version, form.delivery(deliver))
        return None if chunk is None else ConvertedChunk(chunk, form)

    # What is the same for all

    def prefix_owner(self, prefix: Index) -> Owner | None:
        """Who may look into the directory at `prefix`."""
        return prefix_owner(self.chunks.array.chunks, () if self.conceals else prefix)

    def directory_attrs(self, prefix: Index) -> Attrs:
        """Attributes of the directory at `prefix`; NotFound if no chunk is stored below."""
        return Attrs("directory", 0, self.find_prefix(prefix), self.prefix_owner(prefix) if self.chunks.owned else None)

    def owner(self, cell: Index, info: ChunkInfo) -> Owner | None:
        """Who may read the file at `cell`."""
        if not self.conceals:
            return info.owner
        chunks, index = self.chunks.array.chunks, self.index(cell)
        return restricted(info.owner, *(prefix_owner(chunks, index[:depth]) for depth in range(len(index))))

    @property
    def size(self) -> int:
        """Number of positions."""
        return self.levels[-1]

    @property
    def rank(self) -> int:
        """Number of axes: the depth of chunk files."""
        return len(self.counts)

    def position(self, prefix: Index) -> int:
        """The number of the node at `prefix`."""
        linear = 0
        for coordinate, count in zip(prefix, self.counts, strict=False):
            linear = linear * count + coordinate
        return self.levels[len(prefix)] + linear

    def node(self, position: int) -> AnyNode:
        """The node at `position`, whether or not it is stored."""
        prefix = self._prefix(position)
        deepest = len(prefix) == len(self.counts)
        return ChunkFile(self, prefix, None, None, position) if deepest else ChunkDirectory(self, prefix)

    def level(self, position: int) -> range:
        """The positions of the directories as deep as the one at `position`."""
        depth = bisect_right(self.levels, position) - 1
        return range(self.levels[depth], self.levels[depth + 1])

    def lookup_at_once(self, position: int, name: bytes) -> tuple[AnyNode, Attrs] | None:
        """A chunk file of fixed size, if it takes no waiting to find it."""
        prefix, at_once = self._prefix(position), self.chunks.array.at_once
        if at_once is None or len(prefix) + 1 != self.rank:
            return None
        found = parse_coordinate(name, self.counts[-1])
        size = None if found is None else self.file_size(cell := (*prefix, found))
        if size is None:
            return None
        try:
            with at_once():
                info = self.find(cell)
                owner = self.owner(cell, info)
        except (WouldWait, FsbridgeError, OSError):  # a worker says what is wrong
            return None
        return ChunkFile(self, cell, None, info), Attrs("file", size, info.mtime_ns, owner)

    def fetch(self, position: int) -> bool:
        fetch = self.chunks.array.fetch
        if fetch is None:
            return False
        index = self.index(self._prefix(position))
        if not self.chunks.holds(index):
            fetch(index)
        return True

    def ahead(self, positions: Sequence[int]) -> Generator[tuple[int, Make]]:
        """The chunks whose files are at `positions`, to be decoded."""
        cells = [self._prefix(position) for position in positions]
        with closing(self.chunks.ahead([self.index(cell) for cell in cells])) as found:
            for place, make in found:
                form = self.form(cells[place])
                yield positions[place], make if form is None else partial(_make_converted, make, form)

    def stored(self, prefix: Index) -> AnyNode:
        """The node at `prefix` if the store has it, else NotFound."""
        if len(prefix) < self.rank:
            return ChunkDirectory(self, prefix, self.directory_attrs(prefix))
        info = self.find(prefix)
        if self.file_size(prefix) is None:
            return ChunkFile(self, prefix, settled(info))
        return ChunkFile(self, prefix, None, info)

    def entry(self, cell: Index, name: bytes, mtime_ns: int) -> Entry | None:
        """A stored file as a member of a listing; None if it was removed meanwhile."""
        size = self.file_size(cell)
        if size is not None:
            return Entry(name, Attrs("file", size, mtime_ns), self.position(cell))
        try:  # a file whose size and identity depend on its stored version
            info = self.find(cell)
        except NotFound:
            return None
        file = ChunkFile(self, cell, settled(info))
        return Entry(name, Attrs("file", None, info.mtime_ns, self.owner(cell, info)), lambda: file, file.version)

    def _prefix(self, position: int) -> Index:
        level = bisect_right(self.levels, position) - 1
        linear = position - self.levels[level]
        prefix = [0] * level
        for axis in range(level - 1, 0, -1):
            linear, prefix[axis] = divmod(linear, self.counts[axis])
        if level:
            prefix[0] = linear
        return tuple(prefix)


@dataclass(frozen=True, slots=True)
class ChunkDirectory:
    """The directory of the stored chunks whose cell begins with `prefix`. `seen`: see `ChunkFile`."""

    of: ChunkSpace
    prefix: Index
    seen: Attrs | None = None

    @property
    def version(self) -> Hashable:
        return None

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

    def xattrs(self) -> Mapping[str, bytes]:
        return {}

    def lookup(self, name: bytes) -> AnyNode:
        """The member `name`, in canonical decimal spelling only.

        Stale instead of NotFound where the array has changed (grown, perhaps): the kernel then looks up the whole path anew.
        """
        found = parse_coordinate(name, self.of.counts[len(self.prefix)])
        if found is None:
            self.of.chunks.check()
            raise NotFound(f"{name!r} is no chunk of this grid")
        return self.of.stored((*self.prefix, found))

    def present(self) -> ChunkDirectory:
        return self

    def entries(self) -> Iterator[Sequence[Entry]]:
        """Stored chunks only, sized from metadata alone."""
        now = time.monotonic()
        for batch in self.of.scan(self.prefix):
            yield from self._shown(batch if isinstance(batch, Batch) else Batch(batch, now))
            now = time.monotonic()

    def _shown(self, listed: Batch) -> Iterator[Sequence[Entry]]:
        of, prefix = self.of, self.prefix
        batch, asked, owner = listed.pairs, listed.asked, None if self.of.conceals else listed.owner
        base = of.position((*prefix, 0))
        if len(prefix) + 1 < of.rank:
            yield Numbered("directory", 0, base, batch, asked, owner)
            return
        last = of.counts[-1] - 1
        size, regular = of.file_size((*prefix, 0)), of.chunks.metadata.grid.regular
        if not batch or size is None or not regular:
            found = (of.entry((*prefix, i), b"%d" % i, mtime_ns) for i, mtime_ns in batch)
            yield Dated([entry for entry in found if entry is not None], asked)
            return
        edge = batch[-1][0] == last and of.file_size((*prefix, last)) != size  # smaller than all the others
        yield Numbered("file", size, base, batch[:-1] if edge else batch, asked, owner)
        if edge:
            entry = of.entry((*prefix, last), b"%d" % last, batch[-1][1])
            yield Dated([] if entry is None else [entry], asked)


class ChunkFile:
    """The bytes of one chunk's file, whatever they are now; of one version, if that is given: where its size depends on it.

    `seen`: what a look-up has just found, so that its attributes cost no second look; nobody keeps such a node. `position`:
    its number, if that is known.
    """

    __slots__ = ("at", "of", "seen", "slot", "version")

    def __init__(
        self, of: ChunkSpace, at: Index, version: Hashable, seen: ChunkInfo | None = None, position: int | None = None
    ) -> None:
        self.of = of
        self.at = at
        self.version = version
        self.seen = seen
        self.slot: tuple[ChunkSpace, int] | None = None
        if version is None:
            self.slot = of, of.position(at) if position is None else position

    @property
    def pinned(self) -> ChunkFile | None:
        return ChunkFile(self.of, self.at, settled(self.seen)) if self.seen is not None else None

    def attrs(self) -> Attrs:
        """Size in bytes (None where only decoding the chunk can tell it) and the stored object's mtime."""
        info = self.of.find(self.at, self.version) if self.seen is None else self.seen
        return Attrs("file", self.of.file_size(self.at), info.mtime_ns, self.of.owner(self.at, info))

    def measured(self) -> Attrs:
        """`attrs` with the size, for which the chunk may have to be decoded."""
        info, size = self.of.find(self.at, self.version), self.of.file_size(self.at)
        size = self.of.chunks.measure(self.of.index(self.at), info) if size is None else size
        return Attrs("file", size, info.mtime_ns, self.of.owner(self.at, info))

    def xattrs(self) -> Mapping[str, bytes]:
        """Where the chunk lies in the grid and how it is stored."""
        info = self.of.find(self.at)
        return {
            "user.fsbridge.chunk_index": json.dumps(list(self.of.index(self.at))).encode(),
            "user.fsbridge.stored_size": b"%d" % info.stored,
            "user.fsbridge.codec": self.of.chunks.metadata.codec.encode(),
        }

    def open(self) -> Handle:
        """Open the chunk as it is now; Stale when the array's metadata is no longer this version's."""
        return self.of.open(self.at, self.version)

    def open_at_once(self, deliver: Deliver) -> Handle | None:
        return self.of.open_at_once(self.at, self.version, deliver)


def _make_converted(make: Make, form: ChunkForm, deliver: Deliver) -> bool:
    return make(keep if form.size > CONVERTED_BYTES else form.delivery(deliver))


class ConvertedChunk:
    """One version of one chunk in another form, open for reading. Only what is read is converted."""

    __slots__ = ("_chunk", "_form", "size", "version")

    window = 0  # as of the decoded chunk

    def __init__(self, chunk: DecodedChunk, form: ChunkForm) -> None:
        self._chunk = chunk
        self._form = form
        self.size = form.size
        self.version = chunk.version

    def peek(self, offset: int, size: int) -> Buffer | None:
        """The bytes if the chunk is decoded and they are quickly converted, else None."""
        if not self._form.quick:
            return None
        stop = min(offset + size, self.size)
        first, last = self._form.extent(offset, stop)
        data = self._chunk.peek(first, last - first)
        return None if data is None else self._form.convert(offset, stop, data)

    def read(self, offset: int, size: int) -> Buffer:
        """The bytes, decoding the chunk as `DecodedChunk.read` does."""
        stop = max(offset, min(offset + size, self.size))
        first, last = self._form.extent(offset, stop)
        data = self._chunk.read(first, last - first) if first < last else b""
        return self._form.convert(offset, stop, data)

    def prefetch(self, start: int, stop: int, deliver: Deliver) -> bool:
        """Never asked for, see `window`."""
        return True

    def close(self) -> None:
        """Nothing is held."""
