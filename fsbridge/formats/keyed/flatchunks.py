"""Chunks that are all in one directory (`0.4.1`, `c.0.4.1`), found by one listing of it that all readers share.

Not here: sharing the listings (`storedchunks.py`), nested directories (`chunkfiles.py`).
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator

import numpy as np

from fsbridge.asking import before_waiting
from fsbridge.errors import NotFound, TooLarge
from fsbridge.formats.keyed.chunkkeys import ChunkKeys
from fsbridge.formats.keyed.listedtimes import BATCH_ENTRIES, ListedTimes
from fsbridge.formats.keyed.placedchunks import PlacedChunkFiles
from fsbridge.formats.keyed.storedchunks import LOOK_SECONDS, ChunkListing, FlatDirectories, Numbers, StoredChunks
from fsbridge.metadata import ChunkGrid, Index
from fsbridge.model import Pairs
from fsbridge.store import Key, Store

WINDOW_CHUNKS = 1 << 20
"""Chunks of a listing that are grouped in one step if only their leading coordinates are wanted; limits the memory."""

WAIT_SECONDS = 0.5
"""Longest wait for a listing before its readers get partial results, because a wait holds one of few threads."""

_NUMBER = "(0|[1-9][0-9]{0,18})"


class FlatChunkFiles(PlacedChunkFiles):
    """Chunk files that are all in the array's own directory, found in a shared listing of it."""

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

    def _find_directory(self, prefix: Index) -> int:
        # Every look-up of a chunk comes through here. If an outdated listing has a chunk below `prefix`, that is enough;
        # otherwise a store that is being written to would be listed again for every look-up.
        stored = self._directories.peek(self.directory, self.variant)
        if stored is None or not self._holds(stored, prefix):
            # Wait only briefly: during the first listing the directory is shown, although it may turn out to be empty.
            stored = self._join().wait(WAIT_SECONDS)
        if stored is None or self._holds(stored, prefix):
            return self.store.stat(self.directory).mtime_ns
        raise NotFound(f"{self.store.describe(self.directory)}: no chunk {self.keys.encode(prefix)} is stored")

    def _scan(self, prefix: Index) -> Iterator[Pairs]:
        depth = len(prefix)
        making = self._join()
        stored = making.wait(WAIT_SECONDS)
        if stored is None:
            yield from self._arriving(making, prefix)
            return
        if depth < len(self.counts) - 1:
            yield from self._known(stored, prefix)
            return
        yield from self.listed.through(self._listing(prefix), stored.serial, lambda: self._known(stored, prefix))

    def _arriving(self, making: ChunkListing, prefix: Index) -> Iterator[Pairs]:
        """Yield coordinates below `prefix` during a long listing, in the order of the store, not sorted."""
        all_below, stride = self._strides[len(prefix)], self._strides[len(prefix) + 1]
        first = np.uint64(self._linear(prefix) * all_below)
        shown: set[int] = set()
        said = time.monotonic()
        for numbers in making.arriving():
            new: set[int] = set()
            if numbers is not None:
                below = numbers[numbers >= first] - first
                new = set(np.unique(below[below < np.uint64(all_below)] // np.uint64(stride)).tolist()) - shown
            if stride > 1:
                shown |= new
            if new:
                yield self._with_times(prefix, sorted(new))
            elif numbers is None or time.monotonic() - said > LOOK_SECONDS:
                yield ()  # sign of life: millions of chunks may come that are not below `prefix` or were yielded already
            else:
                continue
            said = time.monotonic()

    def _known(self, stored: StoredChunks, prefix: Index) -> Iterator[Pairs]:
        for coordinates in self._coordinates(stored, prefix):
            yield self._with_times(prefix, coordinates)

    def _with_times(self, prefix: Index, coordinates: list[int]) -> Pairs:
        """Return coordinates with mtimes: those of chunks, or for groups of chunks that of the store's directory."""
        if len(prefix) == len(self.counts) - 1:
            return self._dated(self.directory, self.keys.encode((*prefix, 0))[:-1], coordinates)
        stat = self.store.stat(self.directory)
        return [(coordinate, stat.mtime_ns) for coordinate in coordinates]

    def _coordinates(self, stored: StoredChunks, prefix: Index) -> Iterator[list[int]]:
        """Yield the coordinates that follow `prefix` in stored chunks, in batches."""
        depth = len(prefix)
        position, stop = self._range(stored, prefix)
        stride = self._strides[depth + 1]
        base = np.uint64(self._linear(prefix) * self._strides[depth])
        while position < stop:
            end = min(position + WINDOW_CHUNKS, stop)
            if stride > 1 and end < stop:  # a coordinate's chunks must not be split over two windows
                group = int(stored.numbers[end - 1] - base) // stride
                end = stored.search(int(base) + (group + 1) * stride)
            names = stored.numbers[position:end] - base
            if stride > 1:
                groups = names // np.uint64(stride)
                names = groups[np.flatnonzero(np.diff(groups, prepend=groups[0] + np.uint64(1)))]
            for first in range(0, len(names), BATCH_ENTRIES):
                yield names[first : first + BATCH_ENTRIES].tolist()
            position = end

    def _count(self) -> int:
        making = self._join()
        while (stored := making.wait(WAIT_SECONDS)) is None:
            pass
        return len(stored.numbers)

    def _holds(self, stored: StoredChunks, prefix: Index) -> bool:
        start, stop = self._range(stored, prefix)
        return start < stop

    def _join(self) -> ChunkListing:
        before_waiting()
        if self._strides[0] >= 2**64:
            raise TooLarge(f"{self.store.describe(self.directory)}: a grid of {list(self.counts)} cells cannot be listed")
        return self._directories.join(self.directory, self.variant, self._read)

    def _read(self) -> Iterator[Numbers]:
        """List the directory and yield the linear numbers of its chunks."""
        is_chunk = self._name.fullmatch
        try:
            for names in self.store.names(self.directory, self._cuts(self.keys, self.counts)):
                yield self._numbers(list(filter(is_chunk, names)))
        except NotFound:
            pass

    def _numbers(self, names: list[str]) -> Numbers:
        """Return the linear numbers of chunk names; names outside the grid are left out."""
        if not names:
            return np.empty(0, np.uint64)
        parts = self.keys.separator.join(names).split(self.keys.separator)
        columns = len(parts) // len(names)
        numbered = range(columns - len(self.counts), columns)
        found = [np.array(list(map(int, parts[column::columns])), np.uint64) for column in numbered]
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
        """Return the positions [start, stop) in the sorted numbers of the chunks with indexes that begin with `prefix`."""
        stride = self._strides[len(prefix)]
        first = self._linear(prefix) * stride
        return stored.search(first), stored.search(first + stride)
