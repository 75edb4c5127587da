"""Chunks of arrays in stores that cannot list (web servers): a request for each chunk tells whether it is stored.

If a grid is too large for that, listing it is an error and never an empty directory. Not here: groups
(`named_members.py`), requests (`store/remote/`).
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
"""Most chunks of an array that are asked for one by one: about four seconds at 30 ms latency."""
REQUESTS_AT_ONCE = 32


class UnlistedChunks:
    """The stored chunks of one array, found by a request for each chunk of the grid."""

    def __init__(self, store: Store, directory: Key, grid: ChunkGrid, keys: ChunkKeys) -> None:
        self._store = store
        self._directory = directory
        self._keys = keys
        self._counts = grid.counts
        self._kept = Kept[Mapping[Index, int]]()

    def scan(self, prefix: Index) -> Iterator[Pairs]:
        """Yield the coordinates that follow `prefix` in stored chunks, with mtimes."""
        found: dict[int, int] = {}
        for index, mtime_ns in self.stored().items():
            if index[: len(prefix)] == prefix:
                found.setdefault(index[len(prefix)], mtime_ns)
        yield sorted(found.items())

    def stored(self) -> Mapping[Index, int]:
        """Return the stored chunks with mtimes in ns. Raises Unsupported for too large a grid, or the store's errors."""
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
        except CorruptData:  # an empty object: opening it reports the error
            return 0
