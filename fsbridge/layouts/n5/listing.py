"""Which blocks are stored, by reversed axes: `x/` first, while the store knows them by `z`.

The stored chunks of an array are walked through once and kept for as long as a listing may be old, in an order that answers
for every directory. Not here: whether one block is stored (`blocks.py` asks the store).
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fsbridge.config import listed_again
from fsbridge.decoded import DecodedChunks
from fsbridge.layouts.chunks import stored_rows
from fsbridge.model import Batch, Index

MAX_KEPT = 2_000_000
"""Chunks that the listings of one mount keep, 16 bytes each; larger arrays are walked through for every directory."""

MAX_WALKS = 64
"""Arrays of which a walk is kept."""

BATCH_PAIRS = 5000
"""Members that a listing gives at once."""

_Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class _Walk:
    """All stored chunks of one array: their numbers in the reversed grid, ascending, with their mtimes in ns."""

    chunks: DecodedChunks
    asked: float
    numbers: NDArray[np.int64]
    mtimes: NDArray[np.int64]

    def below(self, prefix: Index, counts: tuple[int, ...]) -> list[tuple[int, int]]:
        """The next coordinates behind `prefix` in the reversed grid of `counts`; a directory's mtime is the newest in it."""
        number = 0
        for coordinate, count in zip(prefix, counts, strict=False):
            number = number * count + coordinate
        each = math.prod(counts[len(prefix) + 1 :])
        first = number * math.prod(counts[len(prefix) :])
        begin, end = np.searchsorted(self.numbers, (first, first + math.prod(counts[len(prefix) :])))
        if begin == end:
            return []
        coordinates = (self.numbers[begin:end] - first) // each
        starts = np.flatnonzero(np.diff(coordinates, prepend=-1))
        newest = np.maximum.reduceat(self.mtimes[begin:end], starts)
        return list(zip(coordinates[starts].tolist(), newest.tolist(), strict=True))


class Listings:
    """The last walks through arrays of one mount, for `ttl` seconds and a share for their length. Thread-safe."""

    def __init__(self, ttl: float) -> None:
        self._ttl = ttl
        self._lock = threading.Lock()
        self._kept: OrderedDict[int, _Walk] = OrderedDict()  # the last used last

    def scan(self, chunks: DecodedChunks, prefix: Index) -> Iterator[Sequence[tuple[int, int]]]:
        """What is stored below `prefix` of the reversed grid, in batches, as `model.Chunks.scan` gives it."""
        counts = chunks.metadata.grid.counts[::-1]
        walk = self._fresh(chunks)
        if walk is None and math.prod(counts) < 2**63:
            for step in _walked(chunks, counts):
                if step is None:
                    yield ()
                else:
                    walk = step
        if walk is None:
            yield from _searched(chunks, prefix)
            return
        self._keep(walk)
        pairs = walk.below(prefix, counts)
        for first in range(0, len(pairs), BATCH_PAIRS):
            yield Batch(pairs[first : first + BATCH_PAIRS], walk.asked)

    def _fresh(self, chunks: DecodedChunks) -> _Walk | None:
        with self._lock:
            walk = self._kept.get(id(chunks))
        if walk is None or walk.chunks is not chunks:
            return None
        lifetime = math.inf if chunks.immutable else listed_again(self._ttl, len(walk.numbers))
        return walk if time.monotonic() - walk.asked < lifetime else None

    def _keep(self, walk: _Walk) -> None:
        with self._lock:
            self._kept[id(walk.chunks)] = walk
            self._kept.move_to_end(id(walk.chunks))
            while len(self._kept) > MAX_WALKS or sum(len(kept.numbers) for kept in self._kept.values()) > MAX_KEPT:
                self._kept.popitem(last=False)


def _walked(chunks: DecodedChunks, counts: tuple[int, ...]) -> Iterator[_Walk | None]:
    """None while at work, then the walk, unless more is stored than is kept."""
    asked = time.monotonic()
    parts: list[_Pairs] = []
    found, pending = 0, []
    weights = [math.prod(counts[axis + 1 :]) for axis in reversed(range(len(counts)))]  # of the array's own axes
    for prefix in stored_rows(chunks.scan, len(counts)):
        yield None
        if prefix is None:
            continue
        base = sum(i * weight for i, weight in zip(prefix, weights, strict=False))
        for pairs in chunks.scan(prefix):
            asked = min(asked, pairs.asked) if isinstance(pairs, Batch) else asked
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
    yield _Walk(chunks, asked, numbers[order], mtimes[order])


def _columns(pairs: list[tuple[int, int]]) -> _Pairs:
    table: NDArray[Any] = np.array(pairs, np.int64).reshape(-1, 2)
    return table[:, 0].copy(), table[:, 1].copy()


def _searched(chunks: DecodedChunks, prefix: Index) -> Iterator[Sequence[tuple[int, int]]]:
    """The same without keeping more than this directory's members: every stored chunk is looked at."""
    rank = len(chunks.metadata.shape)
    told: set[int] = set()
    last = prefix[::-1]
    for row in stored_rows(chunks.scan, rank):
        yield ()
        if row is None:
            continue
        for pairs in chunks.scan(row):
            fresh: list[tuple[int, int]] = []
            for i, mtime_ns in pairs:
                index = (*row, i)
                member = index[rank - len(prefix) - 1]
                if index[rank - len(prefix) :] == last and member not in told:
                    told.add(member)
                    fresh.append((member, mtime_ns))
            yield sorted(fresh)
