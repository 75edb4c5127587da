"""Which blocks are stored, with axes reversed: directories begin with `x`, while the store's keys begin with `z`.

All stored chunks of an array are listed once and sorted so that every directory can be answered from them. They are kept
for as long as a listing may be old. Not here: whether one block is stored (`layout.py` asks the store).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fsbridge.asking import context, oldest, used
from fsbridge.decoded import DecodedChunks
from fsbridge.layouts.chunk_variants import stored_rows
from fsbridge.lru import LRU
from fsbridge.metadata import Index

MAX_KEPT = 2_000_000
"""Most chunks kept for the listings of one mount, 16 bytes each. An array with more is listed again for every directory."""

MAX_WALKS = 64
"""Most arrays with kept chunks."""

BATCH_PAIRS = 5000
"""Members that a listing gives at once."""

_Pairs = tuple[NDArray[np.int64], NDArray[Any]]


@dataclass(frozen=True, slots=True)
class _StoredBlocks:
    """All stored chunks of one array: their numbers in the reversed grid, ascending, with their mtimes in ns.

    Times are 64 bits long, or Python's integers where one of them needs more (before 1677, after 2262).
    """

    asked: float
    numbers: NDArray[np.int64]
    mtimes: NDArray[Any]

    def below(self, prefix: Index, counts: tuple[int, ...], mtime_ns: int | None) -> list[tuple[int, int]]:
        """Return the members of the directory `prefix` in the reversed grid of `counts`, as `BlockListings.scan` does."""
        number = 0
        for coordinate, count in zip(prefix, counts, strict=False):
            number = number * count + coordinate
        each = math.prod(counts[len(prefix) + 1 :])
        first = number * math.prod(counts[len(prefix) :])
        begin, end = np.searchsorted(self.numbers, (first, first + math.prod(counts[len(prefix) :])))
        if begin == end:
            return []
        coordinates = (self.numbers[begin:end] - first) // each
        if mtime_ns is None:
            return list(zip(coordinates.tolist(), self.mtimes[begin:end].tolist(), strict=True))
        return [(coordinate, mtime_ns) for coordinate in np.unique(coordinates).tolist()]


class BlockListings:
    """The latest lists of stored chunks for the arrays of one mount, used while they are recent enough. Thread-safe."""

    def __init__(self) -> None:
        self._kept = LRU[DecodedChunks, _StoredBlocks](MAX_KEPT)

    def scan(self, chunks: DecodedChunks, prefix: Index, mtime_ns: int | None) -> Iterator[Sequence[tuple[int, int]]]:
        """What is stored below `prefix` of the reversed grid, in batches, as `model.Chunks.scan` gives it.

        `mtime_ns`: the mtime of all members if they are directories; None if they are files, which have their own.
        """
        counts = chunks.metadata.grid.counts[::-1]
        walk = self._fresh(chunks)
        if walk is None and math.prod(counts) < 2**63:
            for step in _walked(chunks, counts):
                if step is None:
                    yield ()
                else:
                    walk = step
        if walk is None:
            yield from _searched(chunks, prefix, mtime_ns)
            return
        self._kept.put(chunks, walk, len(walk.numbers) + MAX_KEPT // MAX_WALKS)
        pairs = walk.below(prefix, counts, mtime_ns)
        for first in range(0, len(pairs), BATCH_PAIRS):
            used(walk.asked)
            yield pairs[first : first + BATCH_PAIRS]

    def known(self, chunks: DecodedChunks) -> int:
        """Return the number of stored chunks in the array's latest list; 0 if there is none."""
        walk = self._kept.get(chunks)
        return 0 if walk is None else len(walk.numbers)

    def _fresh(self, chunks: DecodedChunks) -> _StoredBlocks | None:
        walk = self._kept.get(chunks)
        return walk if walk is not None and walk.asked >= context.listed else None


def _walked(chunks: DecodedChunks, counts: tuple[int, ...]) -> Iterator[_StoredBlocks | None]:
    """Yield None while the store is being listed, then all stored chunks; nothing if there are more than may be kept."""
    asked = oldest()
    parts: list[_Pairs] = []
    found, pending = 0, []
    weights = [math.prod(counts[axis + 1 :]) for axis in reversed(range(len(counts)))]  # of the array's own axes
    for prefix in stored_rows(chunks.scan, len(counts)):
        yield None
        if prefix is None:
            continue
        base = sum(i * weight for i, weight in zip(prefix, weights, strict=False))
        for pairs in chunks.scan(prefix):
            asked = min(asked, oldest())
            pending += [(base + i * weights[-1], mtime_ns) for i, mtime_ns in pairs]
            if len(pending) >= BATCH_PAIRS:
                yield None
                found += len(pending)
                parts.append(_columns(pending))
                pending = []
            if found > MAX_KEPT:
                return
    parts.append(_columns(pending))
    numbers, mtimes = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(numbers, kind="stable")
    yield _StoredBlocks(asked, numbers[order], mtimes[order])


def _columns(pairs: list[tuple[int, int]]) -> _Pairs:
    try:
        table: NDArray[Any] = np.array(pairs, np.int64).reshape(-1, 2)
        return table[:, 0].copy(), table[:, 1].copy()
    except OverflowError:
        return np.array([number for number, _ in pairs], np.int64), np.array([mtime_ns for _, mtime_ns in pairs], object)


def _searched(chunks: DecodedChunks, prefix: Index, mtime_ns: int | None) -> Iterator[Sequence[tuple[int, int]]]:
    """Yield the members of one directory in batches, from a walk through all stored chunks of which nothing else is kept."""
    rank = len(chunks.metadata.shape)
    told: set[int] = set()
    last = prefix[::-1]
    for row in stored_rows(chunks.scan, rank):
        yield ()
        if row is None:
            continue
        for pairs in chunks.scan(row):
            fresh: list[tuple[int, int]] = []
            for i, own_ns in pairs:
                index = (*row, i)
                member = index[rank - len(prefix) - 1]
                if index[rank - len(prefix) :] == last and member not in told:
                    told.add(member)
                    fresh.append((member, own_ns if mtime_ns is None else mtime_ns))
            yield sorted(fresh)
