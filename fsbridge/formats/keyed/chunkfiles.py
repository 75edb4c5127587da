"""Finds and lists the stored chunk files of a keyed array (N5, Zarr v2 and v3).

There are two kinds of places: nested (`0/4/1`, `c/0/4/1`), where each directory is listed when it is needed, and flat
(`0.4.1`, `c.0.4.1`), where all are in one directory, found by one listing of it that all readers share. Not here: a
third kind, directories of digits (`fanout.py`), the spelling of keys (`chunkkeys.py`), sharing the listings
(`storedchunks.py`), the bytes of a chunk and their decoding (the formats), shards' inner chunks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from fsbridge.asking import before_waiting
from fsbridge.errors import NotFound, TooLarge
from fsbridge.formats.keyed.chunkkeys import ChunkFiles, ChunkKeys, stored_once
from fsbridge.formats.keyed.fanout import FanoutChunkFiles
from fsbridge.formats.keyed.other_files import is_other_name
from fsbridge.formats.keyed.storedchunks import BATCH_ENTRIES, ChunkListing, FlatDirectories, Numbers, search
from fsbridge.metadata import ChunkGrid, Index, parse_coordinate, parse_coordinates
from fsbridge.model import Pairs
from fsbridge.store import Key, Store
from fsbridge.threads.deadlines import Stopwatch

FIRST_DIRECTORIES = 256
"""Most chunk directories that `first` searches. More are needed only if that many of them are empty."""


def chunk_files(store: Store, directory: Key, grid: ChunkGrid, keys: ChunkKeys, directories: FlatDirectories) -> ChunkFiles:
    """Return the chunk files of the array at `directory`: nested, flat, or fanned out, as its keys are."""
    rank = len(grid.shape)
    if keys.fanout and rank:
        return FanoutChunkFiles(store, directory, grid, keys)
    if keys.separator == "." and rank + len(keys.lead) > 1:
        return FlatChunkFiles(store, directory, grid, keys, directories)
    return NestedChunkFiles(store, directory, grid, keys)


class NestedChunkFiles(ChunkFiles):
    """Chunk files in nested directories, one for each leading coordinate. A directory without chunks is shown empty."""

    def _find_directory(self, prefix: Index) -> int:
        key = self._prefix_key(prefix)
        stat = self.store.stat(key)
        if not stat.is_dir:
            raise NotFound(f"{self.store.describe(key)}: there is a file in place of a directory of chunks")
        if not prefix and not self.keys.lead and next(self._members(key, 0), None) is None:
            raise NotFound(f"{self.store.describe(key)}: no chunk is stored")
        return stat.mtime_ns

    def _scan(self, prefix: Index) -> Iterator[Pairs]:
        depth = len(prefix)
        directory = self._prefix_key(prefix)
        if prefix:  # many chunk directories will probably be listed
            self.store.prefetch_listing(self._prefix_key(()), self._cuts(self.keys, self.counts))
        try:
            for coordinates in self._members(directory, depth):
                yield self._find_dates(directory, "", sorted(coordinates), self._end(depth))
        except NotFound:
            return

    def _members(self, directory: Key, depth: int) -> Iterator[list[int]]:
        """Yield the coordinates of the members of a directory at that depth, in batches."""
        count = self.counts[depth]
        for names in self._names(directory, depth):
            if coordinates := parse_coordinates(names, count):
                yield coordinates

    def _names(self, directory: Key, depth: int) -> Iterator[Sequence[str]]:
        if depth == len(self.counts) - 1:
            # A directory in place of a chunk is listed. Opening it is an error; hiding it would mean the fill value.
            for names in self.store.names(directory, self._cuts(ChunkKeys("/"), self.counts[depth:])):
                yield self.keys.unsuffixed(names)
            return
        directories = (entry.name for entry in self.store.list(directory) if entry.is_dir or entry.hidden)
        while names := list(islice(directories, BATCH_ENTRIES)):
            yield names

    def first(self) -> Index | None:
        """Return the index of any stored chunk, or None if none is found in FIRST_DIRECTORIES directories."""
        if not self.counts:
            return () if stored_once(self, ()) else None
        if self.asked is not None:
            corner = (0,) * len(self.counts)
            return corner if self.grid.contains(corner) and stored_once(self, corner) else None
        return self._first(self._prefix_key(()), (), iter(range(FIRST_DIRECTORIES)))

    def _first(self, key: Key, prefix: Index, budget: Iterator[int]) -> Index | None:
        depth = len(prefix)
        try:
            for entry in self.store.list(key):
                coordinate = self._coordinate(entry.name, depth)
                if coordinate is None:
                    continue
                if depth == len(self.counts) - 1:
                    return (*prefix, coordinate)
                if entry.is_dir:
                    if next(budget, None) is None:
                        return None
                    index = self._first(key / entry.name, (*prefix, coordinate), budget)
                    if index is not None:
                        return index
        except NotFound:
            pass
        return None

    def _count(self) -> int:
        """Return the number of stored chunks. Lists every chunk directory once."""
        return self._count_below(self._prefix_key(()), 0)

    def _count_below(self, key: Key, depth: int) -> int:
        last = depth == len(self.counts) - 1
        total = 0
        below: list[str] = []
        try:
            for entry in self.store.list(key):
                if self._coordinate(entry.name, depth) is not None:
                    if last:
                        total += 1
                    elif entry.is_dir or entry.hidden:
                        below.append(entry.name)
        except NotFound:
            return total
        return total + sum(self._count_below(key / name, depth + 1) for name in below)

    def _end(self, depth: int) -> str:
        """Return what follows coordinates in the names of members of a directory at that depth."""
        return self.keys.suffix if depth == len(self.counts) - 1 else ""

    def _coordinate(self, name: str, depth: int) -> int | None:
        """Return the coordinate that a member of a directory at that depth has, or None if it has none."""
        end = self._end(depth)
        return parse_coordinate(name[: len(name) - len(end)], self.counts[depth]) if name.endswith(end) else None

    def _prefix_key(self, prefix: Index) -> Key:
        parts = [str(self.directory)] if self.directory else []
        return Key("/".join([*parts, *self.keys.lead, *map(str, prefix)]))


_NUMBER = "(0|[1-9][0-9]{0,18})"


class FlatChunkFiles(ChunkFiles):
    """Chunk files that are all in the array's own directory, found in a shared listing of it."""

    def __init__(self, store: Store, directory: Key, grid: ChunkGrid, keys: ChunkKeys, directories: FlatDirectories) -> None:
        super().__init__(store, directory, grid, keys)
        self._directories = directories
        self._limits = directories.limits
        # _strides[d] is the number of grid cells below one coordinate of dimension d - 1.
        self._strides = [math.prod(self.counts[depth:]) for depth in range(len(self.counts) + 1)]
        separator = re.escape(keys.separator)
        self._name = re.compile(separator.join([*keys.lead, *[_NUMBER] * len(self.counts)]) + re.escape(keys.suffix))

    def _find_directory(self, prefix: Index) -> int:
        # Every look-up of a chunk comes through here. If an outdated listing has a chunk below `prefix`, that is enough;
        # otherwise a store that is being written to would be listed again for every look-up.
        stored = self._directories.peek(self.directory, self.listing_key)
        if stored is None or not self._holds(stored, prefix):
            # Wait only briefly: during the first listing the directory is shown, although it may turn out to be empty.
            stored = self._join().wait(self._limits.wait)
        if stored is None or self._holds(stored, prefix):
            return self.store.stat(self.directory).mtime_ns
        raise NotFound(f"{self.store.describe(self.directory)}: no chunk {self.keys.beginning(prefix)} is stored")

    def _scan(self, prefix: Index) -> Iterator[Pairs]:
        making = self._join()
        stored = making.wait(self._limits.wait)
        if stored is None:
            yield from self._arriving(making, prefix)
            return
        for coordinates in self._coordinates(stored, prefix):
            yield self._with_times(prefix, coordinates)

    def _arriving(self, making: ChunkListing, prefix: Index) -> Iterator[Pairs]:
        """Yield coordinates below `prefix` during a long listing, in the order of the store, not sorted."""
        all_below, stride = self._strides[len(prefix)], self._strides[len(prefix) + 1]
        first = np.uint64(self._linear(prefix) * all_below)
        shown: set[int] = set()
        said = Stopwatch()
        for numbers in making.follow():
            new: set[int] = set()
            if numbers is not None:
                below = numbers[numbers >= first] - first
                new = set(np.unique(below[below < np.uint64(all_below)] // np.uint64(stride)).tolist()) - shown
            if stride > 1:
                shown |= new
            if new:
                yield self._with_times(prefix, sorted(new))
            elif numbers is None or said.seconds > self._limits.look:
                yield ()  # sign of life: millions of chunks may come that are not below `prefix` or were yielded already
            else:
                continue
            said.restart()

    def _with_times(self, prefix: Index, coordinates: list[int]) -> Pairs:
        """Return coordinates with mtimes.

        A coordinate that stands for one chunk has the chunk's mtime. Any other has the mtime of the array's directory.
        """
        if len(prefix) == len(self.counts) - 1:
            return self._find_dates(self.directory, self.keys.beginning((*prefix, 0))[:-1], coordinates, self.keys.suffix)
        stat = self.store.stat(self.directory)
        return [(coordinate, stat.mtime_ns) for coordinate in coordinates]

    def _coordinates(self, stored: Numbers, prefix: Index) -> Iterator[list[int]]:
        """Yield the coordinates that follow `prefix` in stored chunks, in batches."""
        depth = len(prefix)
        position, stop = self._range(stored, prefix)
        stride = self._strides[depth + 1]
        base = np.uint64(self._linear(prefix) * self._strides[depth])
        while position < stop:
            end = min(position + self._limits.window, stop)
            if stride > 1 and end < stop:  # a coordinate's chunks must not be split over two windows
                group = int(stored[end - 1] - base) // stride
                end = search(stored, int(base) + (group + 1) * stride)
            names = stored[position:end] - base
            if stride > 1:
                groups = names // np.uint64(stride)
                names = groups[np.flatnonzero(np.diff(groups, prepend=groups[0] + np.uint64(1)))]
            for first in range(0, len(names), self._limits.batch):
                yield names[first : first + self._limits.batch].tolist()
            position = end

    def _count(self) -> int:
        making = self._join()
        while (stored := making.wait(self._limits.wait)) is None:
            pass
        return len(stored)

    def _holds(self, stored: Numbers, prefix: Index) -> bool:
        start, stop = self._range(stored, prefix)
        return start < stop

    def _join(self) -> ChunkListing:
        before_waiting()
        if self._strides[0] >= 2**64:
            raise TooLarge(f"{self.store.describe(self.directory)}: a grid of {list(self.counts)} cells cannot be listed")
        return self._directories.join(self.directory, self.listing_key, self._read)

    def _other_names(self) -> Iterator[Sequence[str]]:
        making = self._join()
        while making.wait(self._limits.wait) is None:
            yield ()
        if making.others:
            yield making.others

    def _read(self, others: list[str]) -> Iterator[Numbers]:
        """List the directory and yield the linear numbers of its chunks. `others` gets the names of other files."""
        is_chunk = self._name.fullmatch
        try:
            for names in self.store.names(self.directory, self._cuts(self.keys, self.counts)):
                chunks = list(filter(is_chunk, names))
                if len(chunks) < len(names):
                    others += (name for name in names if is_other_name(name) and not is_chunk(name))
                yield self._numbers(self.keys.unsuffixed(chunks))
        except NotFound:
            pass

    def _numbers(self, names: Sequence[str]) -> Numbers:
        """Return the linear numbers of chunk names; names outside the grid are left out."""
        if not names:
            return np.empty(0, np.uint64)
        parts = self.keys.separator.join(names).split(self.keys.separator)
        columns = len(parts) // len(names)
        numbered = range(columns - len(self.counts), columns)
        coordinates_by_axis = [np.array(list(map(int, parts[column::columns])), np.uint64) for column in numbered]
        inside = np.ones(len(names), bool)
        linear = np.zeros(len(names), np.uint64)
        for coordinates, count, stride in zip(coordinates_by_axis, self.counts, self._strides[1:], strict=True):
            inside &= coordinates < np.uint64(count)
            linear += coordinates * np.uint64(stride)  # wraps around only for names outside the grid
        return linear[inside]

    def _linear(self, prefix: Index) -> int:
        number = 0
        for coordinate, count in zip(prefix, self.counts, strict=False):
            number = number * count + coordinate
        return number

    def _range(self, stored: Numbers, prefix: Index) -> tuple[int, int]:
        """Return the positions [start, stop) in the sorted numbers of the chunks with indexes that begin with `prefix`."""
        stride = self._strides[len(prefix)]
        first = self._linear(prefix) * stride
        return search(stored, first), search(stored, first + stride)
