"""Decoded chunks, through which every layout reads. Here: one version of a whole array, for files made of many chunks.

Not here: the chunks of one array, and what each decodes to (`chunks.py`), how a chunk is found or decoded (`model.Chunks`),
the memory of decoded bytes (`cache.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fsbridge.asking import before_waiting
from fsbridge.decoded.cache import ChunkCache
from fsbridge.decoded.chunks import DecodedChunk, DecodedChunks, identify
from fsbridge.errors import CorruptData, FsbridgeError, NotFound, Stale, TimedOut, is_lasting
from fsbridge.metadata import Index
from fsbridge.model import Array, ChunkInfo
from fsbridge.threads.deadlines import Deadline
from fsbridge.threads.parallel import each

_BLOCK_CHUNKS = 64
"""Number of neighbouring chunks whose versions an `ArrayVersion` keeps in one block.

A reader of all chunks then needs 12 bytes of memory for each, a reader of scattered chunks 750.
"""

_LOOK_CHUNKS, _LOOKS_AT_ONCE = 1024, 32
"""Most chunks that are looked at together, and most requests at a time for those of a remote store."""

_UNUSED, _ABSENT = 0, 1
"""What an `ArrayVersion` notes of a chunk that was not used yet, and of one that is not stored."""


@dataclass(frozen=True, slots=True)
class LookLimits:
    """How often and for how long an `ArrayVersion` looks at stored chunks.

    The slow looks are needed because some stores' clocks tick every one or two seconds, and because a large object may still
    be being written for five seconds (`store.local.status`).

    Eight seconds for all used chunks are enough for a million of them on a local disk, and for about five thousand in object
    storage.
    """

    tick_seconds: float = 0.02
    """Seconds between two looks at a chunk that has just changed."""
    tick_tries: int = 5
    """Most such looks at one chunk. Then the slow looks begin."""
    slow_seconds: float = 0.25
    """Seconds between two slow looks at a chunk."""
    slow_tries: int = 21
    """Most slow looks at one chunk. There are more than one only while its version stays the same."""
    open_seconds: float = 8.0
    """Most seconds for looking at all used chunks when a file is opened (P7: 10 s for the whole open)."""
    read_seconds: float = 25.0
    """Most seconds for looking at all used chunks when a file is read (P7: 30 s for the whole read)."""


class UsedChunks(NamedTuple):
    """The chunks that readers of an `ArrayVersion` have used, and in `versions` a hash of the versions of all these chunks.

    `runs`: ranges of chunk numbers, each as its first number and the number after its last. A million chunks read one after
    the other are one range.
    """

    version: Hashable
    commit: Hashable
    runs: NDArray[np.int64]
    versions: int


class _Moment(NamedTuple):
    """A moment by two clocks: one that is never set (`time.monotonic_ns`), and the one that dates files (`time.time_ns`)."""

    monotonic_ns: int
    time_ns: int

    @classmethod
    def now(cls) -> _Moment:
        return cls(time.monotonic_ns(), time.time_ns())

    def before(self, changed_ns: int) -> bool:
        """True if a change dated `changed_ns` may have come after this moment, even if the clock was set back since."""
        monotonic, present = self.now()
        set_back = (self.time_ns - self.monotonic_ns) - (present - monotonic)
        return changed_ns > self.time_ns - max(0, set_back)


class ArrayVersion:
    """One version of an array as a whole: its metadata, and every chunk as it was when it was first used (P9).

    A file made of many chunks reads through it. A chunk that was replaced, removed or added after its first use raises
    Stale. All used chunks are also of one state of the array: the object keeps a moment at which every used chunk was as it
    was used. Before it uses a chunk that has changed after this moment, it looks at all used chunks again. If none has
    changed, the moment becomes now; otherwise Stale is raised. One state can be promised only for a store that tells when a
    chunk changed (`ChunkInfo.changed_ns`), or that changes all chunks at once (`Chunks.commit`). Thread-safe.
    """

    __slots__ = ("_blocks", "_commit", "_counts", "_limits", "_lock", "_looks", "_moment", "chunks")

    def __init__(self, chunks: DecodedChunks, limits: LookLimits) -> None:
        self.chunks = chunks
        self._limits = limits
        self._counts = chunks.metadata.grid.counts
        self._lock = threading.Lock()
        self._commit = None if chunks.immutable else chunks.array.chunks.commit()
        self._moment = _Moment.now()
        self._blocks: dict[
            int, NDArray[np.uint64]
        ] = {}  # numbers that stand for versions, by the block's number in the grid
        self._looks = 0  # counts the looks at all used chunks: see `_note_use`

    @property
    def version(self) -> Hashable:
        """What stands for this version's bytes: files with equal values have equal bytes, so they may share pages.

        The value is this object itself; in an immutable store it is the array's version.
        """
        return self.chunks.array.version if self.chunks.immutable else self

    def open(self, index: Index) -> DecodedChunk | None:
        """Return the chunk in this version of the array; None if it is not stored (fill value). Stale if it has changed.

        Just after a change of the chunk, waits until a further change would get another version (see `identify`).
        """
        return self.open_all([index])[0]

    def open_all(self, indices: Sequence[Index]) -> list[DecodedChunk | None]:
        """Do what `open` does for several chunks. The metadata is checked only once, when all are found."""
        try:
            infos = self._use_all(indices)
        except CorruptData:
            self.chunks.check()  # in another version the chunks may be stored elsewhere or in another form
            raise
        self.chunks.check()
        if not self._is_committed():
            raise Stale("the array was changed by a commit, or another array has taken its place")
        if self._moment.before(self._changed_ns(indices, infos)):
            self._move_on()
        return [
            None if info is None else self.chunks.open_stored(index, info)
            for index, info in zip(indices, infos, strict=True)
        ]

    def _changed_ns(self, indices: Sequence[Index], infos: Sequence[ChunkInfo | None]) -> int:
        """Return the latest time (ns, of files) at which one of the chunks may have been changed or, if missing, removed."""
        if self.chunks.immutable:
            return 0
        missing = [index for index, info in zip(indices, infos, strict=True) if info is None]
        removed = self.chunks.array.chunks.removed_ns(missing) if missing else 0
        return max([removed, *(info.changed_ns for info in infos if info is not None)])

    def _move_on(self) -> None:
        """Look at all used chunks again, and set the moment to now; Stale if one of them has changed since its use."""
        if not self._is_unchanged(self._limits.read_seconds):
            raise Stale("chunks of the array were changed after others had been read")

    def _use_all(self, indices: Sequence[Index]) -> list[ChunkInfo | None]:
        """Return the stored chunks, None for one that is not stored, and record that this version has them in this state.

        Raises Stale if another state of a chunk is recorded already.
        """
        looks = self._looks
        return [self._note_use(index, info, looks) for index, info in zip(indices, self._find_all(indices), strict=True)]

    def _note_use(self, index: Index, info: ChunkInfo | None, looks: int) -> ChunkInfo | None:
        """Record that the chunk at `index` was found as `info`, and return that. `looks`: `_looks` before it was found."""
        block, offset = divmod(self._number(index), _BLOCK_CHUNKS)
        while True:
            version = _version_number(info)
            with self._lock:
                versions = self._blocks.get(block)
                if versions is None:
                    versions = self._blocks[block] = np.zeros(_BLOCK_CHUNKS, np.uint64)
                before = int(versions[offset])
                if before not in (_UNUSED, version):
                    raise Stale(f"chunk {list(index)} was changed after it had been read")
                if before == version or looks == self._looks:
                    versions[offset] = version
                    return info
            # All used chunks were looked at since, without this one, which may have been replaced before.
            looks, info = self._looks, self._find(index)

    def current(self) -> bool:
        """True if the metadata and all used chunks are still those of this version; TimedOut if that takes too long."""
        return self.chunks.immutable or (
            self.chunks.array.current() and self._is_committed() and self._is_unchanged(self._limits.open_seconds)
        )

    def _is_unchanged(self, seconds: float) -> bool:
        """True if all used chunks are what they were: then all are of the state that the array has at this moment.

        TimedOut if that is not known in time. False for a damaged chunk: only a reader of that chunk gets its error (P8).
        Each chunk is looked at, because a directory keeps its version when a member is rewritten in place.
        """
        if self._blocks:
            before_waiting()  # it looks at every chunk of them
        moment, deadline = _Moment.now(), Deadline(seconds)
        with self._lock:
            self._looks += 1
            blocks = [(number, versions.copy()) for number, versions in self._blocks.items()]
        numbers = (
            (number * _BLOCK_CHUNKS + offset, int(versions[offset]))
            for number, versions in blocks
            for offset in np.flatnonzero(versions).tolist()
        )
        try:
            while used := dict(islice(numbers, _LOOK_CHUNKS)):
                if deadline.passed:
                    raise TimedOut("too many chunks were used to look at them all in time")
                infos = self._find_all(list(map(self._index, used)), deadline)
                if list(map(_version_number, infos)) != list(used.values()):
                    return False
        except (FsbridgeError, OSError) as error:
            if isinstance(error, Stale) or is_lasting(error):
                return False
            raise
        self._moment = max(self._moment, moment)
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
        """Use the chunks that another `ArrayVersion` has used, as it did; Stale if one of them has changed since."""
        if self.chunks.immutable:
            return
        same = (used_chunks.version, used_chunks.commit) == (self.chunks.array.version, self._commit)
        numbers = chain.from_iterable(range(first, stop) for first, stop in used_chunks.runs.tolist())
        versions = [np.zeros(0, np.uint64)]
        while same and (some := list(map(self._index, islice(numbers, _LOOK_CHUNKS)))):
            versions.append(np.fromiter(map(_version_number, self._use_all(some)), np.uint64))
        if not same or _sum(np.hstack(versions)) != used_chunks.versions:
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

    def _find_all(self, indices: Sequence[Index], deadline: Deadline | None = None) -> list[ChunkInfo | None]:
        """Do what `_find` does for several chunks. With a `deadline`, ask a remote store in parallel; TimedOut after it."""
        together = self.chunks.array.chunks.find_all(indices) if len(indices) > 1 else {}
        infos = {index: info for index, info in together.items() if info is None or info.settled}
        left = [index for index in indices if index not in infos]
        if deadline is None or self.chunks.array.fetch is None:
            infos.update((index, self._find(index)) for index in left)
        else:
            infos.update(zip(left, each(self._find, left, _LOOKS_AT_ONCE, deadline), strict=True))
        return [infos[index] for index in indices]

    def _find(self, index: Index) -> ChunkInfo | None:
        """Return the stored chunk, or None if there is none. If the chunk's version is unsettled, wait until it is settled.

        In an immutable store, do not wait. Raises Stale if the chunk keeps changing, or stays unsettled for too long.
        """
        before, limits = None, self._limits
        for tried in range(limits.tick_tries + limits.slow_tries):
            try:
                info = self.chunks.array.chunks.find(index)  # the array itself is checked once for all chunks
            except NotFound:
                return None
            if info.settled or self.chunks.immutable:
                return info
            if tried >= limits.tick_tries and info.version != before:
                break
            before = info.version
            before_waiting()
            time.sleep(limits.tick_seconds if tried < limits.tick_tries else limits.slow_seconds)
        raise Stale(f"chunk {list(index)} is being written")


class DecodedArray(DecodedChunks):
    """The decoded chunks of an array that is also read as a whole."""

    __slots__ = ("_limits", "_lock", "_whole")

    def __init__(
        self,
        array: Array,
        cache: ChunkCache,
        max_chunk: int,
        immutable: bool = False,
        limits: LookLimits | None = None,
    ) -> None:
        super().__init__(array, cache, max_chunk, immutable)
        self._limits = limits or LookLimits()
        self._lock = threading.Lock()
        self._whole: ArrayVersion | None = None

    def whole(self) -> ArrayVersion:
        """Return the present version of the whole array: the previous one if nothing in it has changed, else a new one.

        Checks every chunk that was used through the previous one. Raises Stale if the array's metadata has changed, and
        TimedOut if too many chunks were used to check them in time: only the next call returns a new version.
        """
        known = self._whole
        try:
            if known is not None and known.current():
                return known
        except TimedOut:
            with self._lock:
                if self._whole is known:
                    self._whole = None
            raise
        self.check()
        with self._lock:
            if self._whole is None or self._whole is known:  # else that of another reader, which has seen the change too
                self._whole = ArrayVersion(self, self._limits)
            return self._whole


def _version_number(info: ChunkInfo | None) -> int:
    """Return a 64-bit number for the version of a stored chunk, or for its absence; never `_UNUSED`."""
    return _ABSENT if info is None else max(hash((info.version, "chunk")) & 0xFFFF_FFFF_FFFF_FFFF, _ABSENT + 1)


def _sum(versions: NDArray[np.uint64]) -> int:
    """Return a number that stands for all these versions, in their order."""
    return hash(versions.tobytes())


__all__ = ["ArrayVersion", "DecodedArray", "DecodedChunk", "DecodedChunks", "LookLimits", "UsedChunks", "identify"]
