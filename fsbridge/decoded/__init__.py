"""Decoded chunks, through which every layout reads. Here: one version of a whole array, for files made of many chunks.

Not here: the chunks of one array, and what each decodes to (`chunks.py`), how a chunk is found or decoded (`model.Chunks`),
the memory of decoded bytes (`cache.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Hashable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fsbridge.asking import before_waiting
from fsbridge.decoded.cache import ChunkCache
from fsbridge.decoded.chunks import DecodedChunk, DecodedChunks, settled
from fsbridge.errors import CorruptData, FsbridgeError, NotFound, Stale
from fsbridge.metadata import Index
from fsbridge.model import Array, ChunkInfo
from fsbridge.threads.deadlines import Deadline

_TICK_SECONDS = 0.02
"""Seconds between two looks at a chunk that has just changed."""

_TICK_TRIES = 5
"""How often, at that interval, a chunk that has just changed is looked at before the slower looks begin."""

_SECOND_SECONDS, _SECOND_TRIES = 0.25, 21
"""Seconds between two further looks at a chunk while its version stays the same, and the most such looks.

They are needed because some stores' clocks tick every one or two seconds, and because a large object may still be being
written for five seconds (`store.local.status`).
"""

_LOOK_SECONDS = 1.0
"""Most seconds for looking at all used chunks: enough for about twenty thousand on a local disk."""

_BLOCK_CHUNKS = 64
"""Number of neighbouring chunks whose versions an `ArrayVersion` keeps in one block.

A reader of all chunks then needs 12 bytes of memory for each, a reader of scattered chunks 750.
"""

_MANY_CHUNKS, _LOOK_BLOCKS = 64, 16
"""Number of chunks from which on the store is asked only once which are missing; blocks that are checked at a time."""

_UNUSED, _ABSENT = 0, 1
"""What an `ArrayVersion` notes of a chunk that was not used yet, and of one that is not stored."""


class UsedChunks(NamedTuple):
    """The chunks that readers of an `ArrayVersion` have used, and in `versions` a hash of the versions of all these chunks.

    `runs`: ranges of chunk numbers, each as its first number and the number after its last. A million chunks read one after
    the other are one range.
    """

    version: Hashable
    commit: Hashable
    runs: NDArray[np.int64]
    versions: int


class ArrayVersion:
    """One version of an array as a whole: its metadata, and every chunk as it was when it was first used (P9).

    A file made of many chunks reads through it. A chunk that was replaced, removed or added after its first use raises
    Stale, so a reader never gets two versions of a chunk. A chunk not used yet may have any version. But if many change at
    once (a commit, another directory in the array's place), all are from before or all are from after the change.
    Thread-safe.
    """

    __slots__ = ("_blocks", "_commit", "_counts", "_lock", "_looks", "_sparse", "chunks")

    def __init__(self, chunks: DecodedChunks) -> None:
        self.chunks = chunks
        self._counts = chunks.metadata.grid.counts
        self._lock = threading.Lock()
        self._commit = None if chunks.immutable else chunks.array.chunks.commit()
        self._blocks: dict[
            int, NDArray[np.uint64]
        ] = {}  # numbers that stand for versions, by the block's number in the grid
        self._sparse = False  # true if most of the chunks looked for last are not stored
        self._looks = 0  # counts the looks of `current` at the versions: see `_used`

    @property
    def version(self) -> Hashable:
        """What stands for the bytes of this version: files for which it is equal have equal bytes and may share pages.

        It is this object itself, or in an immutable store the array's version.
        """
        return self.chunks.array.version if self.chunks.immutable else self

    def open(self, index: Index) -> DecodedChunk | None:
        """Return the chunk in this version of the array; None if it is not stored (fill value). Stale if it has changed.

        Just after a change of the chunk, waits until a further change would get another version (see `settled`).
        """
        return self.open_all([index])[0]

    def open_all(self, indices: Sequence[Index]) -> list[DecodedChunk | None]:
        """Do what `open` does for several chunks. The metadata is checked only once, when all are found."""
        looks = self._looks
        absent = self._absent(indices) if self._sparse else ()
        try:
            found = [self._used(index, looks if index in absent else None) for index in indices]
        except CorruptData:
            self.chunks.check()  # in another version the chunks may be stored elsewhere or in another form
            raise
        self._sparse = len(found) >= _MANY_CHUNKS and found.count(None) > len(found) // 2
        self.chunks.check()
        if not self._is_committed():
            raise Stale("the array was changed by a commit, or another one has taken its place")
        return [
            None if info is None else self.chunks.opened(index, info) for index, info in zip(indices, found, strict=True)
        ]

    def _absent(self, indices: Sequence[Index]) -> Collection[Index]:
        """Return those of many chunks that the store knows to be missing after a single look; none for few chunks."""
        return self.chunks.array.chunks.absent(indices) if len(indices) >= _MANY_CHUNKS else ()

    def _used(self, index: Index, absent: int | None = None) -> ChunkInfo | None:
        """Return the stored chunk, or None if there is none, and record that this version has the chunk in this state.

        `absent`: None if the chunk must be looked for; if it was just found to be missing, the value that `_looks` had
        before that. Raises Stale if another state of the chunk is recorded already.
        """
        block, offset = divmod(self._number(index), _BLOCK_CHUNKS)
        while True:
            looks, info = (self._looks, self._find(index)) if absent is None else (absent, None)
            absent = None
            version = _version_number(info)
            with self._lock:
                versions = self._blocks.get(block)
                if versions is None:
                    versions = self._blocks[block] = np.zeros(_BLOCK_CHUNKS, np.uint64)
                before = int(versions[offset])
                if before == _UNUSED and looks != self._looks:
                    continue  # `current` has looked since, without this chunk, which may have been replaced before
                if before not in (_UNUSED, version):
                    raise Stale(f"chunk {list(index)} was changed after it had been read")
                versions[offset] = version
                return info

    def current(self) -> bool:
        """True if the metadata and all used chunks are still those of this version.

        Also False if finding that out takes too long for an open: the file is then opened as a new version.
        """
        if self.chunks.immutable:
            return True
        if not self.chunks.array.current() or not self._is_committed():
            return False
        if self._blocks:
            before_waiting()  # it looks at every chunk of them
        with self._lock:
            self._looks += 1
            blocks = [(number, versions.copy()) for number, versions in self._blocks.items()]
        deadline = Deadline(_LOOK_SECONDS)
        for first in range(0, len(blocks), _LOOK_BLOCKS):
            looked = [
                (self._index(block * _BLOCK_CHUNKS + offset), int(versions[offset]))
                for block, versions in blocks[first : first + _LOOK_BLOCKS]
                for offset in np.flatnonzero(versions).tolist()
            ]
            absent = self._absent([index for index, version in looked if version == _ABSENT])
            for index, version in looked:
                if deadline.passed:
                    return False
                if version == _ABSENT and index in absent:
                    continue
                try:
                    info = self._find(index)
                except (FsbridgeError, OSError):  # damaged, for example: only a reader of that chunk gets the error (P8)
                    return False
                if version != _version_number(info):
                    return False
        return True

    def used_chunks(self) -> UsedChunks:
        """Return what a later object's `resume` needs to check that the chunks used here are unchanged."""
        with self._lock:
            blocks = [(number * _BLOCK_CHUNKS, versions.copy()) for number, versions in sorted(self._blocks.items())]
        none = np.zeros(0, np.uint64)
        numbers = np.hstack([none.view(np.int64), *[first + np.flatnonzero(versions) for first, versions in blocks]])
        versions = np.hstack([none, *[versions[versions != _UNUSED] for _, versions in blocks]])
        ends = np.flatnonzero(np.diff(numbers) != 1)
        runs = np.stack([numbers[np.r_[0, ends + 1]], numbers[np.r_[ends, -1]] + 1], 1) if len(numbers) else numbers
        return UsedChunks(self.chunks.array.version, self._commit, runs, _sum(versions))

    def resume(self, used_chunks: UsedChunks) -> None:
        """Continue another `ArrayVersion` that used these chunks; Stale if one of them has changed."""
        if self.chunks.immutable:
            return
        same = (used_chunks.version, used_chunks.commit) == (self.chunks.array.version, self._commit)
        numbers = chain.from_iterable(range(first, stop) for first, stop in used_chunks.runs.tolist()) if same else ()
        found = (self._used(self._index(number)) for number in numbers)
        if not same or _sum(np.fromiter((_version_number(info) for info in found), np.uint64)) != used_chunks.versions:
            raise Stale("the array was changed after it had been read")

    def _is_committed(self) -> bool:
        return self.chunks.immutable or self.chunks.array.chunks.commit() == self._commit

    def _number(self, index: Index) -> int:
        number = 0
        for coordinate, count in zip(index, self._counts, strict=True):
            number = number * count + coordinate
        return number

    def _index(self, number: int) -> Index:
        coordinates: list[int] = []
        for count in reversed(self._counts):
            number, coordinate = divmod(number, count)
            coordinates.append(coordinate)
        return tuple(reversed(coordinates))

    def _find(self, index: Index) -> ChunkInfo | None:
        """Find the stored chunk, or None, and wait until any later change of it would show as another version.

        In an immutable store it does not wait. Raises Stale if the chunk keeps changing or never gets that far.
        """
        before = None
        for tried in range(_TICK_TRIES + _SECOND_TRIES):
            try:
                info = self.chunks.array.chunks.find(index)  # the array itself is checked once for all chunks
            except NotFound:
                return None
            if info.settled or self.chunks.immutable:
                return info
            if tried >= _TICK_TRIES and info.version != before:
                break
            before = info.version
            before_waiting()
            time.sleep(_TICK_SECONDS if tried < _TICK_TRIES else _SECOND_SECONDS)
        raise Stale(f"chunk {list(index)} is being written")


class DecodedArray(DecodedChunks):
    """The decoded chunks of an array that is also read as a whole."""

    __slots__ = ("_lock", "_whole")

    def __init__(self, array: Array, cache: ChunkCache, max_chunk: int, immutable: bool = False) -> None:
        super().__init__(array, cache, max_chunk, immutable)
        self._lock = threading.Lock()
        self._whole: ArrayVersion | None = None

    def whole(self) -> ArrayVersion:
        """Return the present version of the whole array: the previous one if nothing in it has changed, else a new one.

        Checks every chunk that was used through the previous one. Raises Stale if the array's metadata has changed.
        """
        known = self._whole
        if known is not None and known.current():
            return known
        self.check()
        with self._lock:
            if self._whole is None or self._whole is known:  # else that of another reader, which has seen the change too
                self._whole = ArrayVersion(self)
            return self._whole


def _version_number(info: ChunkInfo | None) -> int:
    """Return a 64-bit number for the version of a stored chunk, or for its absence; never `_UNUSED`."""
    return _ABSENT if info is None else max(hash((info.version, "chunk")) & 0xFFFF_FFFF_FFFF_FFFF, _ABSENT + 1)


def _sum(versions: NDArray[np.uint64]) -> int:
    """Return a number that stands for all these versions, in their order."""
    return hash(versions.tobytes())


__all__ = ["ArrayVersion", "DecodedArray", "DecodedChunk", "DecodedChunks", "UsedChunks", "settled"]
