"""Finds and lists the stored chunk files of a keyed array (N5, Zarr v2 and v3).

There are two kinds of places: nested (`0/4/1`, `c/0/4/1`), where each directory is listed when it is needed, and flat
(`0.4.1`), in `flatchunks.py`. Not here: the spelling of keys (`chunkkeys.py`), the bytes of a chunk and their decoding
(the formats), shards' inner chunks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from fsbridge.errors import NotFound
from fsbridge.formats.keyed.chunkkeys import ChunkKeys
from fsbridge.formats.keyed.flatchunks import FlatChunkFiles
from fsbridge.formats.keyed.listedtimes import BATCH_ENTRIES, ListedTimes
from fsbridge.formats.keyed.placedchunks import ChunkFiles, PlacedChunkFiles, stored_once
from fsbridge.formats.keyed.storedchunks import FlatDirectories
from fsbridge.metadata import ChunkGrid, Index, parse_coordinate, parse_coordinates
from fsbridge.model import Pairs
from fsbridge.store import Key, Stat, Store

FIRST_DIRECTORIES = 256
"""Most chunk directories that `first` searches. More are needed only if that many of them are empty."""

FEW_MEMBERS = 16
"""Listings of directories with at most this many chunks are not remembered: listing them again is cheaper."""

SMALL_DIRECTORY_BYTES = 4096
"""Largest size of a directory that counts as small, on file systems where the size grows with the members."""


def chunk_files(
    store: Store,
    directory: Key,
    grid: ChunkGrid,
    keys: ChunkKeys,
    directories: FlatDirectories,
    listed: ListedTimes | None = None,
) -> ChunkFiles:
    """Return the chunk files of the array at `directory`. Without `listed`, no listing is shared with other arrays."""
    listed = ListedTimes() if listed is None else listed
    rank = len(grid.shape)
    if keys.separator == "." and rank + len(keys.prefix) > 1:
        return FlatChunkFiles(store, directory, grid, keys, listed, directories)
    return NestedChunkFiles(store, directory, grid, keys, listed)


class NestedChunkFiles(PlacedChunkFiles):
    """Chunk files in nested directories, one for each leading coordinate. A directory without chunks is shown empty."""

    def _find_directory(self, prefix: Index) -> int:
        key = self._prefix_key(prefix)
        stat = self.store.stat(key)
        if not stat.is_dir:
            raise NotFound(f"{self.store.describe(key)}: a file in place of a directory of chunks")
        if not prefix and not self.keys.prefix and not self._any(key, stat):
            raise NotFound(f"{self.store.describe(key)}: no chunk is stored")
        return stat.mtime_ns

    def _any(self, key: Key, stat: Stat) -> bool:
        """True if the array's own directory holds a chunk. The listing of a small directory is remembered for `scan`."""
        if stat.size > SMALL_DIRECTORY_BYTES:
            return next(self._members(key, 0), None) is not None
        first = list(islice(self._listed((), key, stat), 2))  # two batches: a short one ends, and is remembered
        return any(map(len, first))

    def _scan(self, prefix: Index) -> Iterator[Pairs]:
        depth = len(prefix)
        directory = self._prefix_key(prefix)
        if prefix:  # many chunk directories will probably be listed
            self.store.foresee(self._prefix_key(()), self._cuts(self.keys, self.counts))
        try:
            if prefix and self.counts[depth] <= FEW_MEMBERS and not self.store.prefixes:
                yield from self._scan_directory(directory, depth)
            else:
                yield from self._listed(prefix, directory, self.store.stat(directory))
        except NotFound:
            return

    def _listed(self, prefix: Index, directory: Key, before: Stat) -> Iterator[Pairs]:
        """Yield the listing of `directory`, remembered for the version of `before`, its stat from before the listing."""
        depth = len(prefix)
        return self.listed.through(self._listing(prefix), before.version, lambda: self._scan_directory(directory, depth))

    def _scan_directory(self, directory: Key, depth: int) -> Iterator[Pairs]:
        for coordinates in self._members(directory, depth):
            yield self._dated(directory, "", sorted(coordinates))

    def _members(self, directory: Key, depth: int) -> Iterator[list[int]]:
        """Yield the coordinates of the members of a directory at that depth, in batches."""
        count = self.counts[depth]
        for names in self._names(directory, depth):
            if coordinates := parse_coordinates(names, count):
                yield coordinates

    def _names(self, directory: Key, depth: int) -> Iterator[Sequence[str]]:
        if depth == len(self.counts) - 1:
            # A directory in place of a chunk is listed. Opening it is an error; hiding it would mean the fill value.
            yield from self.store.names(directory, self._cuts(ChunkKeys("/"), self.counts[depth:]))
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

    def _count(self) -> int:
        """Return the number of stored chunks. Lists every chunk directory once."""
        return self._count_below(self._prefix_key(()), 0)

    def _count_below(self, key: Key, depth: int) -> int:
        count, last = self.counts[depth], depth == len(self.counts) - 1
        total = 0
        below: list[str] = []
        try:
            for entry in self.store.list(key):
                if parse_coordinate(entry.name, count) is not None:
                    if last:
                        total += 1
                    elif entry.is_dir or entry.hidden:
                        below.append(entry.name)
        except NotFound:
            return total
        return total + sum(self._count_below(key / name, depth + 1) for name in below)

    def _prefix_key(self, prefix: Index) -> Key:
        parts = [str(self.directory)] if self.directory else []
        return Key("/".join([*parts, *self.keys.prefix, *map(str, prefix)]))
