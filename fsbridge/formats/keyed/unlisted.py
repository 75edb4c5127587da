"""Chunks of arrays in stores that list nothing (web servers): they are asked for one by one.

Never an empty directory for what is not known. Not here: groups (`named_members.py`), requests (`store/remote/`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

from fsbridge.asking import Kept
from fsbridge.errors import CorruptData, NotFound, Unsupported
from fsbridge.formats.keyed.chunkkeys import ChunkKeys
from fsbridge.metadata import ChunkGrid, Index
from fsbridge.model import Pairs
from fsbridge.parallel import each
from fsbridge.store import Key, Store

MOST_CHUNKS = 4096
"""Chunks of an array that are asked for one by one: about four seconds at 30 ms."""
REQUESTS_AT_ONCE = 32


class UnlistedChunks:
    """Which chunks of one array are stored, found out by asking for each."""

    def __init__(self, store: Store, directory: Key, grid: ChunkGrid, keys: ChunkKeys) -> None:
        self._store = store
        self._directory = directory
        self._keys = keys
        self._counts = grid.counts
        self._kept = Kept[Mapping[Index, int]]()

    def scan(self, prefix: Index) -> Iterator[Pairs]:
        """The next coordinates of the chunks that begin with `prefix`."""
        found: dict[int, int] = {}
        for index, mtime_ns in self.stored().items():
            if index[: len(prefix)] == prefix:
                found.setdefault(index[len(prefix)], mtime_ns)
        yield sorted(found.items())

    def stored(self) -> Mapping[Index, int]:
        """The stored chunks and their mtimes in ns; Unsupported for too large a grid, or what the store answers."""
        return self._kept.get(self._ask, listing=True)

    def _ask(self) -> Mapping[Index, int]:
        count = math.prod(self._counts)
        if count > MOST_CHUNKS:
            place = self._store.describe(self._directory)
            raise Unsupported(f"{place}: the server lists nothing, and {count} chunks are too many to ask for each")
        every = list(itertools.product(*map(range, self._counts)))
        times = each(self._look, every, REQUESTS_AT_ONCE)
        return {index: mtime for index, mtime in zip(every, times, strict=True) if mtime is not None}

    def _look(self, index: Index) -> int | None:
        below = self._keys.encode(index)
        try:
            return self._store.stat(Key(f"{self._directory}/{below}" if self._directory else below), (0, 1)).mtime_ns
        except NotFound:
            return None
        except CorruptData:  # an empty object: opening it says so
            return 0
