"""Chunk files in the proposed encoding `fanout`: each digit of a coordinate is a directory, so that none has many members.

    d0/12/34/d1/5/c     the chunk (1234, 5) with digits to the base 100

Not here: the spelling of keys (`chunkkeys.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from fsbridge.errors import NotFound
from fsbridge.formats.keyed.chunkkeys import ChunkFiles
from fsbridge.formats.keyed.storedchunks import BATCH_ENTRIES
from fsbridge.metadata import Index, parse_coordinate
from fsbridge.model import Pairs
from fsbridge.store import ROOT, Key


class FanoutChunkFiles(ChunkFiles):
    """Chunk files below directories of digits.

    A directory of digits may be the beginning of a longer coordinate only. It is a coordinate if it holds a chunk, or a
    directory of the next dimension that is not empty.
    """

    def _find_directory(self, prefix: Index) -> int:
        directory = self._below(prefix)
        if not self._continues(directory, len(prefix)):
            raise NotFound(f"{self.store.describe(directory)}: no chunk is stored")
        return self._directory_ns(directory)

    def _scan(self, prefix: Index) -> Iterator[Pairs]:
        pairs: list[tuple[int, int]] = []
        for coordinate, directory in self._coordinates(self._below(prefix) / f"d{len(prefix)}", 0, len(prefix)):
            last = len(prefix) == len(self.counts) - 1
            mtime_ns = self.store.stat(directory / "c").mtime_ns if last else self._directory_ns(directory)
            pairs.append((coordinate, mtime_ns))
        pairs.sort()
        for start in range(0, len(pairs), BATCH_ENTRIES):
            yield pairs[start : start + BATCH_ENTRIES]

    def _count(self) -> int:
        def count(directory: Key, depth: int) -> int:
            if depth == len(self.counts):
                return 1
            directories = self._coordinates(directory / f"d{depth}", 0, depth)
            return sum(count(below, depth + 1) for _, below in directories)

        return count(self.directory, 0)

    def _coordinates(self, directory: Key, number: int, depth: int) -> Iterator[tuple[int, Key]]:
        """Yield the coordinates of a dimension that have chunks, with their directories, from the digits in `directory`."""
        try:
            names = [entry.name for entry in self.store.list(directory) if entry.is_dir or entry.hidden]
        except NotFound:
            return
        for name in names:
            digit = parse_coordinate(name, self.keys.fanout)
            coordinate = None if digit is None else number * self.keys.fanout + digit
            if coordinate is None or coordinate >= self.counts[depth]:
                continue
            below = directory / name
            if self._continues(below, depth + 1):
                yield coordinate, below
            if coordinate:  # no number but zero begins with zero
                yield from self._coordinates(below, coordinate, depth)

    def _continues(self, directory: Key, depth: int) -> bool:
        """True if `directory` holds the chunk, or a directory of the next dimension that is not empty."""
        try:
            if depth < len(self.counts):
                return next(iter(self.store.list(directory / f"d{depth}")), None) is not None
            self.store.stat(directory / "c")
        except NotFound:
            return False
        return True

    def _directory_ns(self, directory: Key) -> int:
        """Return the mtime of a directory. In a store without directories, all have the mtime of the store."""
        return self.store.stat(ROOT if self.store.has_no_directories else directory).mtime_ns

    def _below(self, prefix: Index) -> Key:
        below = self.keys.beginning(prefix) if prefix else ""
        return Key(self._start + below) if below else self.directory

    def _leads(self, name: str) -> bool:
        """True for directories of digits and of dimensions, because a scan shows the chunks in them."""
        return all(part[:1] == "d" or parse_coordinate(part, self.keys.fanout) is not None for part in name.split("/"))
