"""Where the chunks of a keyed array (N5, Zarr v2 and v3) are stored: chunk keys, and which of them exist.

Not here: the bytes of a chunk and their decoding (the formats), shards' inner chunks.

A chunk key is accepted in its canonical spelling only: `00`, `+1`, `1_0` and Arabic digits are other people's files, and so
are temporary files, metadata documents and numbers outside the grid. Two kinds of placing exist:
- nested (`0/4/1`, `c/0/4/1`): each directory is listed when it is asked for;
- flat (`0.4.1`, `c.0.4.1`): all chunks lie in one directory, which is indexed in one pass (8 bytes a chunk, shared by all
  readers of the source through `FlatDirectories`) and again when its version changes.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, Protocol

import numpy as np

from fsbridge.errors import CorruptData, NotFound, TooLarge
from fsbridge.formats.keyed.asked import AskedChunks
from fsbridge.formats.keyed.listedtimes import BATCH, ListedTimes
from fsbridge.formats.keyed.storedchunks import FlatDirectories, Listing, Numbers, StoredChunks
from fsbridge.model import Batch, ChunkGrid, ChunkInfo, Index, parse_coordinate
from fsbridge.owner import Owner
from fsbridge.store import WHOLE, Key, Range, Stat, Store, Times

WINDOW = 1 << 20
"""Positions of a flat index that are grouped at once when only their first coordinates are wanted."""

FIRST_DIRECTORIES = 256
"""Chunk directories that `first` looks into; only a store with that many empty ones needs more."""

SHORTLY = 0.5
"""Seconds that anybody waits for a flat index without a sign of life: one of few threads is held."""

SMALL_DIRECTORY_BYTES = 4096
"""Size of a directory that has few members, on file systems that tell by it; on others two batches are looked at."""

_NUMBER = "(0|[1-9][0-9]{0,18})"


@dataclass(frozen=True, slots=True)
class ChunkKeys:
    """The spelling of chunk keys: `prefix` is `c` in Zarr v3's default encoding, else empty.

    The key of a 0-D array's only chunk is the prefix, or `0` without one (N5, Zarr v2, Zarr v3's `v2` encoding).
    """

    separator: Literal["/", "."]
    prefix: Literal["", "c"] = ""

    def encode(self, index: Index) -> str:
        """The key of the chunk at `index`, below the array's own key."""
        parts = [*self.prefix, *(str(coordinate) for coordinate in index)]
        return self.separator.join(parts) if parts else "0"


class ChunkFiles(Protocol):
    """The stored chunk objects of one array; the parts of `model.Chunks` that need no decoding. Thread-safe."""

    def key(self, index: Index) -> Key:
        """The store key of the chunk at `index`."""

    def find(self, index: Index, read: Range = WHOLE) -> ChunkInfo:
        """The stored chunk; NotFound when absent or outside the grid, CorruptData for a directory in its place.

        `read`: what of it is read next, see `store.Store.stat`.
        """

    def find_prefix(self, prefix: Index) -> int: ...

    def prefix_owner(self, prefix: Index) -> Owner | None:
        """Whose the directory is that holds what begins with `prefix`."""

    def scan(self, prefix: Index) -> Iterator[Batch]: ...

    def count(self) -> int: ...


def chunk_files(
    store: Store,
    directory: Key,
    grid: ChunkGrid,
    keys: ChunkKeys,
    directories: FlatDirectories,
    listed: ListedTimes | None = None,
) -> ChunkFiles:
    """The chunk files of the array at `directory`. Without `listed`, every listing asks the store for every mtime."""
    listed = ListedTimes() if listed is None else listed
    rank = len(grid.shape)
    if keys.separator == "." and rank + len(keys.prefix) > 1:
        return FlatChunkFiles(store, directory, grid, keys, listed, directories)
    return NestedChunkFiles(store, directory, grid, keys, listed)


class _Placed:
    """What both kinds of placing share: keys, bounds and the look at one chunk."""

    def __init__(self, store: Store, directory: Key, grid: ChunkGrid, keys: ChunkKeys, listed: ListedTimes) -> None:
        self.store = store
        self.directory = directory
        self.keys = keys
        self.grid = grid
        self.counts = grid.counts
        self.listed = listed
        self.variant = (keys, self.counts)
        self.asked = None if store.listable else AskedChunks(store, directory, grid, keys)

    def key(self, index: Index) -> Key:
        if len(index) != len(self.counts) or not self.grid.contains(index):
            raise NotFound(f"{self.store.describe(self.directory)}: no chunk {list(index)} in a grid of {list(self.counts)}")
        below = self.keys.encode(index)
        return Key(f"{self.directory}/{below}" if self.directory else below)

    def find(self, index: Index, read: Range = WHOLE) -> ChunkInfo:
        key = self.key(index)
        stat = self.store.stat(key, read)
        if stat.is_dir:
            raise CorruptData(f"{self.store.describe(key)}: a directory in place of a chunk")
        if index:
            self.listed.seen(self._listing(index[:-1]), index[-1], stat.mtime_ns)
        return ChunkInfo(stat.version, stat.size, stat.mtime_ns, None, stat.settled, stat.owner)

    def _listing(self, prefix: Index) -> Hashable:
        """What the listing of `prefix` is remembered under."""
        return self.directory, self.variant, prefix

    def _dated(self, directory: Key, start: str, coordinates: list[int]) -> Batch:
        """Members of the store's `directory`, whose names are `start` and a coordinate, with their mtimes as of now."""
        asked = time.monotonic()
        found = self.store.mtimes(directory, [f"{start}{coordinate}" for coordinate in coordinates])
        pairs = [(number, mtime_ns) for number, mtime_ns in zip(coordinates, found, strict=True) if mtime_ns is not None]
        return Batch(pairs, asked, found.owner if isinstance(found, Times) else None)

    def _outside(self, prefix: Index) -> bool:
        return not self.grid.contains(prefix)


class NestedChunkFiles(_Placed):
    """One directory per leading coordinate. A directory that holds no chunk is shown as it is, empty."""

    def find_prefix(self, prefix: Index) -> int:
        if self._outside(prefix) or len(prefix) >= len(self.counts):
            return self.find(prefix).mtime_ns
        if self.store.prefixes:  # its listing, or the look-up of a chunk in it, is the answer
            return self.store.stat(self.directory).mtime_ns
        key = self._place(prefix)
        stat = self.store.stat(key)
        if not stat.is_dir:
            raise NotFound(f"{self.store.describe(key)}: a file in place of a directory of chunks")
        if not prefix and not self.keys.prefix and not self._any(key, stat):
            raise NotFound(f"{self.store.describe(key)}: no chunk is stored")
        return stat.mtime_ns

    def prefix_owner(self, prefix: Index) -> Owner | None:
        return self.store.stat(self._place(prefix)).owner

    def _any(self, key: Key, stat: Stat) -> bool:
        """Whether the array's own directory holds a chunk. A small one is listed for that, and is then known to `scan`."""
        if stat.size > SMALL_DIRECTORY_BYTES:
            return next(self._members(key, 0), None) is not None
        first = list(islice(self._listed((), key, stat), 2))  # two: then it has come to its end, and is remembered
        return any(map(len, first))

    def scan(self, prefix: Index) -> Iterator[Batch]:
        depth = len(prefix)
        if self._outside(prefix) or depth >= len(self.counts):
            return
        if self.asked is not None:
            yield from self.asked.scan(prefix)
            return
        place = self._place(prefix)
        self.store.foresee(self._place(()))
        try:
            yield from self._listed(prefix, place, self.store.stat(place))
        except NotFound:
            return

    def _listed(self, prefix: Index, place: Key, before: Stat) -> Iterator[Batch]:
        """The listing of `place`, which is as `before`: what changes during it changes the next one."""
        depth = len(prefix)
        return self.listed.through(
            self._listing(prefix), before.version, self.counts[depth], lambda: self._scan(place, depth)
        )

    def _scan(self, place: Key, depth: int) -> Iterator[Batch]:
        for coordinates in self._members(place, depth):
            yield self._dated(place, "", sorted(coordinates))

    def _members(self, place: Key, depth: int) -> Iterator[list[int]]:
        """Coordinates of what is stored in a directory of that depth, in batches."""
        count = self.counts[depth]
        for names in self._names(place, depth):
            coordinates = [value for name in names if (value := parse_coordinate(name, count)) is not None]
            if coordinates:
                yield coordinates

    def _names(self, place: Key, depth: int) -> Iterator[Sequence[str]]:
        if depth == len(self.counts) - 1:
            # A directory in place of a chunk is listed: looking at it is an error, hiding it would mean the fill value.
            yield from self.store.names(place)
            return
        directories = (entry.name for entry in self.store.list(place) if entry.is_dir)
        while names := list(islice(directories, BATCH)):
            yield names

    def first(self) -> Index | None:
        """Any stored chunk; None if there is none, or none within FIRST_DIRECTORIES directories."""
        if not self.counts:
            return () if _stored(self, ()) else None
        if self.asked is not None:
            corner = (0,) * len(self.counts)
            return corner if self.grid.contains(corner) and _stored(self, corner) else None
        return self._first(self._place(()), (), iter(range(FIRST_DIRECTORIES)))

    def _first(self, key: Key, prefix: Index, budget: Iterator[int]) -> Index | None:
        depth = len(prefix)
        try:
            for entry in self.store.list(key):
                coordinate = parse_coordinate(entry.name, self.counts[depth])
                if coordinate is None:
                    continue
                if depth == len(self.counts) - 1:
                    return (*prefix, coordinate)
                if entry.is_dir:
                    if next(budget, None) is None:
                        return None
                    found = self._first(key / entry.name, (*prefix, coordinate), budget)
                    if found is not None:
                        return found
        except NotFound:
            pass
        return None

    def count(self) -> int:
        """Number of stored chunks; lists every chunk directory once."""
        if not self.counts:
            return _stored(self, ())
        if self.asked is not None:
            return len(self.asked.stored())
        return self._count(self._place(()), 0)

    def _count(self, key: Key, depth: int) -> int:
        count, last = self.counts[depth], depth == len(self.counts) - 1
        total = 0
        below: list[str] = []
        try:
            for entry in self.store.list(key):
                if parse_coordinate(entry.name, count) is not None:
                    if last:
                        total += 1
                    elif entry.is_dir:
                        below.append(entry.name)
        except NotFound:
            return total
        return total + sum(self._count(key / name, depth + 1) for name in below)

    def _place(self, prefix: Index) -> Key:
        parts = [str(self.directory)] if self.directory else []
        return Key("/".join([*parts, *self.keys.prefix, *map(str, prefix)]))


class FlatChunkFiles(_Placed):
    """All chunks in the array's own directory, known through an index."""

    def __init__(
        self,
        store: Store,
        directory: Key,
        grid: ChunkGrid,
        keys: ChunkKeys,
        listed: ListedTimes,
        directories: FlatDirectories,
    ) -> None:
        super().__init__(store, directory, grid, keys, listed)
        self._directories = directories
        # _strides[d] is the number of grid cells below one coordinate of dimension d - 1.
        self._strides = [math.prod(self.counts[depth:]) for depth in range(len(self.counts) + 1)]
        separator = re.escape(keys.separator)
        self._name = re.compile(separator.join([*keys.prefix, *[_NUMBER] * len(self.counts)]))

    def find_prefix(self, prefix: Index) -> int:
        if self._outside(prefix) or len(prefix) >= len(self.counts):
            return self.find(prefix).mtime_ns
        if self.store.prefixes:
            return self.store.stat(self.directory).mtime_ns
        # The way to every chunk leads through here: an index that is out of date is good enough where it says yes, or a
        # store that is being written to would be indexed anew for every chunk that is looked up.
        stored = self._directories.peek(self.directory, self.variant)
        if stored is None or not self._holds(stored, prefix):
            # Nor does anybody wait long: while the first pass is under way, a directory that may be empty is shown.
            stored = self._join().wait(SHORTLY)
        if stored is None or self._holds(stored, prefix):
            return self.store.stat(self.directory).mtime_ns
        raise NotFound(f"{self.store.describe(self.directory)}: no chunk {self.keys.encode(prefix)} is stored")

    def prefix_owner(self, prefix: Index) -> Owner | None:
        return self.store.stat(self.directory).owner

    def scan(self, prefix: Index) -> Iterator[Batch]:
        depth = len(prefix)
        if self._outside(prefix) or depth >= len(self.counts):
            return
        if self.asked is not None:
            yield from self.asked.scan(prefix)
            return
        making = self._join()
        stored = making.wait(SHORTLY)
        if stored is None:
            yield from self._arriving(making, prefix)
            return
        if depth < len(self.counts) - 1:
            yield from self._known(stored, prefix)
            return
        yield from self.listed.through(
            self._listing(prefix), stored.serial, self.counts[depth], lambda: self._known(stored, prefix)
        )

    def _arriving(self, making: Listing, prefix: Index) -> Iterator[Batch]:
        """The listing while a long pass is under way: in the order in which the store gives the chunks."""
        all_below, stride = self._strides[len(prefix)], self._strides[len(prefix) + 1]
        first = np.uint64(self._linear(prefix) * all_below)
        told: set[int] = set()
        for numbers in making.arriving():
            if numbers is None:
                yield Batch((), time.monotonic())  # still at work
                continue
            below = numbers[numbers >= first] - first
            new = set(np.unique(below[below < np.uint64(all_below)] // np.uint64(stride)).tolist()) - told
            if stride > 1:
                told |= new
            if new:
                yield self._with_times(prefix, sorted(new))

    def _known(self, stored: StoredChunks, prefix: Index) -> Iterator[Batch]:
        for coordinates in self._coordinates(stored, prefix):
            yield self._with_times(prefix, coordinates)

    def _with_times(self, prefix: Index, coordinates: list[int]) -> Batch:
        """Chunks with their mtimes; what stands for a group of chunks has the store directory's."""
        if len(prefix) == len(self.counts) - 1:
            return self._dated(self.directory, self.keys.encode((*prefix, 0))[:-1], coordinates)
        stat = self.store.stat(self.directory)
        return Batch([(coordinate, stat.mtime_ns) for coordinate in coordinates], time.monotonic(), stat.owner)

    def _coordinates(self, stored: StoredChunks, prefix: Index) -> Iterator[list[int]]:
        """The next coordinates of the stored chunks that begin with `prefix`, in batches."""
        depth = len(prefix)
        position, stop = self._range(stored, prefix)
        stride = self._strides[depth + 1]
        base = np.uint64(self._linear(prefix) * self._strides[depth])
        while position < stop:
            end = min(position + WINDOW, stop)
            if stride > 1 and end < stop:  # a coordinate's chunks must not be split over two windows
                group = int(stored.numbers[end - 1] - base) // stride
                end = stored.search(int(base) + (group + 1) * stride)
            coordinates = (stored.numbers[position:end] - base) // np.uint64(stride)
            firsts = np.flatnonzero(np.diff(coordinates, prepend=coordinates[0] + np.uint64(1)))
            names = coordinates[firsts]
            for first in range(0, len(names), BATCH):
                yield names[first : first + BATCH].tolist()
            position = end

    def count(self) -> int:
        if not self.counts:
            return _stored(self, ())
        if self.asked is not None:
            return len(self.asked.stored())
        making = self._join()
        while (stored := making.wait(SHORTLY)) is None:
            pass
        return len(stored.numbers)

    def _holds(self, stored: StoredChunks, prefix: Index) -> bool:
        start, stop = self._range(stored, prefix)
        return start < stop

    def _join(self) -> Listing:
        if self._strides[0] >= 2**64:
            raise TooLarge(f"{self.store.describe(self.directory)}: a grid of {list(self.counts)} cells cannot be listed")
        return self._directories.join(self.directory, self.variant, self._read)

    def _read(self) -> Iterator[Numbers]:
        """One pass over the directory."""
        is_chunk = self._name.fullmatch
        try:
            for names in self.store.names(self.directory):
                yield self._numbers([name for name in names if is_chunk(name)])
        except NotFound:
            pass

    def _numbers(self, names: list[str]) -> Numbers:
        """The linear numbers of those names that lie in the grid."""
        if not names:
            return np.empty(0, np.uint64)
        parts = self.keys.separator.join(names).split(self.keys.separator)
        columns = len(parts) // len(names)
        numbered = range(columns - len(self.counts), columns)
        found = [np.array([int(part) for part in parts[column::columns]], np.uint64) for column in numbered]
        inside = np.ones(len(names), bool)
        linear = np.zeros(len(names), np.uint64)
        for coordinates, count, stride in zip(found, self.counts, self._strides[1:], strict=True):
            inside &= coordinates < np.uint64(count)
            linear += coordinates * np.uint64(stride)  # wraps around only for names outside the grid
        return linear[inside]

    def _linear(self, prefix: Index) -> int:
        number = 0
        for coordinate, count in zip(prefix, self.counts, strict=False):
            number = number * count + coordinate
        return number

    def _range(self, stored: StoredChunks, prefix: Index) -> tuple[int, int]:
        """Positions of the stored chunks that begin with `prefix`."""
        stride = self._strides[len(prefix)]
        first = self._linear(prefix) * stride
        return stored.search(first), stored.search(first + stride)


def _stored(files: ChunkFiles, index: Index) -> int:
    """1 if the chunk is stored (readable or not), else 0."""
    try:
        files.find(index)
    except NotFound:
        return 0
    except CorruptData:
        return 1
    return 1
