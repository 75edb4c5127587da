"""DecodedChunks: the decoded chunks of one array. What identifies their bytes, how much of a chunk a read decodes, what may
be decoded before anybody asks.

Not here: how a chunk is found or decoded (`model.Chunks`), the memory of decoded bytes (`cache.py`), which file shows which
chunk (the layouts), who is read ahead (`kernel/readahead.py`), what one version of the whole array is (`versions.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Hashable, Iterator, Sequence
from functools import partial
from operator import itemgetter

from fsbridge.cache import ChunkCache
from fsbridge.config import AT_ONCE_BYTES
from fsbridge.errors import CorruptData, FsbridgeError, NotFound, Stale, TooLarge, WouldWait
from fsbridge.metadata import ArrayMetadata, Index
from fsbridge.model import Array, ChunkInfo, OpenChunk, open_chunk
from fsbridge.tree import Deliver, Make, Unsettled, keep

log = logging.getLogger(__name__)

_SEQUENTIAL_BYTES = 64 * 1024
"""Bytes of a first read from which on somebody seems to want the whole chunk; a random reader asks for less."""

_SELECTIVE_PART = 4
"""A chunk is decoded whole once more than this part (a quarter) of it was asked for piece by piece."""

_FAR_BYTES = 4 << 20
"""Stored bytes of a chunk far away up to which it is always decoded whole: a part takes two requests, one by one."""

_EARLY_BYTES = 128 * 1024
"""Bytes of a chunk up to which it is decoded by the job that opens it."""

_LIKELY_BYTES, _LIKELY_TIMES = 1 << 20, 4
"""What an array's first chunk has at most, likely, where only decoding tells: so many bytes, or times the stored ones."""

_LARGER_PART = 4
"""By this part (a quarter) any further one is likely larger than the largest so far, at most."""

_OPEN_TRIES = 3
"""Versions of a small chunk that an open tries to read before it leaves a chunk that is being rewritten to its reader."""


class DecodedChunks:
    """The decoded chunks of one version of an array's metadata. Thread-safe; blocking but for `size` and `peek`s.

    `max_chunk`: decoded bytes of the largest chunk that is decoded whole. `immutable`: the metadata is not looked at again.
    `owned`: somebody wants to know whose the stored objects are.
    """

    __slots__ = (
        *("__weakref__", "_largest", "_regular"),
        *("array", "cache", "immutable", "max_chunk", "owned"),
    )

    def __init__(
        self, array: Array, cache: ChunkCache, max_chunk: int, immutable: bool = False, owned: bool = False
    ) -> None:
        self.array = array
        self.cache = cache
        self.max_chunk = max_chunk
        self.immutable = immutable
        self.owned = owned
        self._largest: int | None = None  # bytes of a chunk of which only decoding tells them, and some more
        grid = array.metadata.grid
        self._regular = array.metadata.chunk_bytes((0,) * len(grid.shape)) if grid.regular else None

    @property
    def metadata(self) -> ArrayMetadata:
        """The array's metadata."""
        return self.array.metadata

    def size(self, index: Index) -> int | None:
        """Decoded bytes of the chunk at `index`; None when only its stored bytes can tell."""
        return self.array.metadata.chunk_bytes(index) if self._regular is None else self._regular

    def find(self, index: Index, version: Hashable = None) -> ChunkInfo:
        """The stored chunk as of now; NotFound if there is none, Stale if it is another than the one of `version`.

        Stale, too, instead of any error of an array that has changed: its chunks may lie elsewhere now, or in another way.
        """
        try:
            info = self.array.chunks.find(index)
        except (NotFound, CorruptData):
            self.check()
            raise
        if version is not None:
            _expect(info, version)
        return info

    def measure(self, index: Index, info: ChunkInfo) -> int:
        """Decoded bytes of a stored chunk, for which it may have to be decoded."""
        size = self.size(index)
        if size is not None:
            return size
        if self.metadata.varlength:
            return self.array.chunks.size(index, info)
        return len(self._unsized(index, info, settled(info)))

    def open(self, index: Index, version: Hashable = None) -> DecodedChunk:
        """The chunk as it is now (of `version`, if given); Stale also when the array's metadata is no longer this one."""
        for _ in range(_OPEN_TRIES):
            info = self.find(index, version)
            self.check()
            chunk = self.opened(index, info)
            if chunk.size > _EARLY_BYTES or self.size(index) is None:
                break
            try:
                # Decoded if there is room: it will be read, and that spares a hand-over.
                self.cache.prefetch(chunk.key, chunk.size, partial(self.array.chunks.read_into, index, info), info.stored)
                break
            except Stale:  # replaced since it was found: open the new one
                continue
            except (FsbridgeError, OSError):  # who reads the chunk meets it
                break
        return chunk

    def open_at_once(self, index: Index, version: Hashable = None, deliver: Deliver = keep) -> DecodedChunk | None:
        """`open` on the event loop, where it takes no waiting; else None. A small chunk is decoded, too, and delivered."""
        at_once, size = self.array.at_once, self.size(index)
        if at_once is None or size is None:
            return None
        try:
            with at_once():
                if size <= AT_ONCE_BYTES:
                    return self._decoded_at_once(index, version, size, deliver)
                info = self.find(index, version)
                self.check()
                return DecodedChunk(self, index, info, settled(info), size)
        except (WouldWait, FsbridgeError, OSError):  # a worker says what is wrong
            return None

    def _decoded_at_once(self, index: Index, version: Hashable, size: int, deliver: Deliver) -> DecodedChunk:
        found = open_chunk(self.array.chunks, index)
        try:
            if version is not None:
                _expect(found.info, version)
            self.check()
            chunk = DecodedChunk(self, index, found.info, settled(found.info), size)
            data = self.cache.peek(chunk.key)
            if data is None:  # not by way of the cache: mostly the kernel takes it
                data = memoryview(bytearray(size))
                found.read_into(data)
        finally:
            found.close()
        if not deliver(chunk.version, 0, data):
            self.cache.prefetch(chunk.key, size, lambda out: _copy(data, out))
        return chunk

    def holds(self, index: Index) -> bool:
        """Whether a chunk is decoded, or with the kernel, in the version that it has as far as is known (does not block)."""
        at_once = self.array.at_once
        if at_once is None:
            return False
        try:
            with at_once():
                key = (self, index, settled(self.find(index)))
        except (WouldWait, FsbridgeError, OSError):
            return False
        return self.cache.holds(key) or self.cache.holds(end_of(key))

    def find_prefix(self, prefix: Index) -> int:
        """mtime (ns) of the set of stored chunks that begin with `prefix`, see `model.Chunks`; Stale as for `find`."""
        try:
            return self.array.chunks.find_prefix(prefix)
        except (NotFound, CorruptData):
            self.check()
            raise

    def scan(self, prefix: Index) -> Iterator[Sequence[tuple[int, int]]]:
        """What is stored below `prefix`, in batches, see `model.Chunks`."""
        return self.array.chunks.scan(prefix)

    def check(self) -> None:
        """Raise Stale unless the store still holds this version of the metadata."""
        if not self.immutable and not self.array.current():
            raise Stale("the array's metadata changed")

    def ahead(self, indices: Sequence[Index]) -> Generator[tuple[int, Make]]:
        """Chunks to be decoded before anybody asks: the place of each in `indices`, and what decodes it, see `tree.Space`.

        Those that are not stored, or of no known and reasonable size, are left out. All are opened first: after a decoding,
        when nothing else is left in the processor's caches, it takes four times as long.
        """
        found: list[tuple[int, OpenChunk]] = []
        try:
            self._open_ahead(indices, found)
            for place, chunk in found:
                yield place, partial(self._make, indices[place], chunk)
        finally:
            for _, chunk in found:
                chunk.close()

    def _open_ahead(self, indices: Sequence[Index], found: list[tuple[int, OpenChunk]]) -> None:
        sizes, at_once = map(self.size, indices), self.array.at_once
        places = [place for place, size in enumerate(sizes) if size is not None and size <= self.max_chunk]
        if at_once is not None:  # mostly it takes no waiting, and then holds up nobody else
            with at_once():
                places = [place for place in places if not self._open_one(indices[place], place, found)]
        for place in places:
            self._open_one(indices[place], place, found)
        found.sort(key=itemgetter(0))

    def _open_one(self, index: Index, place: int, found: list[tuple[int, OpenChunk]]) -> bool:
        """Whether that is done with; else it takes waiting."""
        try:
            found.append((place, open_chunk(self.array.chunks, index, found[-1][1] if found else None)))
        except WouldWait:
            return False
        except (FsbridgeError, OSError) as error:  # who comes for the chunk meets it
            log.debug("not read ahead: %s", error)
        return True

    def _make(self, index: Index, found: OpenChunk, deliver: Deliver) -> bool:
        """What `deliver` takes leaves the cache."""
        size, info = self.size(index), found.info
        assert size is not None
        key = (self, index, info.version)
        if not info.settled or self.cache.holds(end_of(key)):
            return True
        view = self.cache.prefetch(key, size, found.read_into, info.stored)
        if view is None:
            return self.cache.holds(key)
        delivered = deliver(info.version, 0, view)
        if delivered:
            rest = view[delivered:]
            if not rest or self.cache.prefetch(end_of(key), len(rest), lambda out: _copy(rest, out)) is not None:
                self.cache.discard(key)
        return True

    def opened(self, index: Index, info: ChunkInfo) -> DecodedChunk:
        """The stored chunk that was found at `index`."""
        version = settled(info)
        size = self.size(index)
        if size is None:
            size = len(self._unsized(index, info, version))
        return DecodedChunk(self, index, info, version, size)

    def _unsized(self, index: Index, info: ChunkInfo, version: Hashable) -> memoryview:
        """All bytes of a chunk of which only decoding tells how many they are.

        Room is reserved for as many as are likely, and no more are decoded; where that does not do, for as many as there may
        be at most.
        """
        most = min(self.max_chunk, self.cache.budget // 2)
        likely = max(_LIKELY_BYTES, _LIKELY_TIMES * info.stored) if self._largest is None else self._largest
        try:
            view = self._decode_all(index, info, version, min(most, max(likely, info.stored)))
        except (CorruptData, TooLarge):
            view = self._decode_all(index, info, version, most)  # which says what is wrong, if anything is
        self._largest = max(self._largest or 0, len(view) + len(view) // _LARGER_PART)
        return view

    def _decode_all(self, index: Index, info: ChunkInfo, version: Hashable, limit: int) -> memoryview:
        chunks = self.array.chunks
        return self.cache.get_all((self, index, version), lambda: chunks.read_all(index, info, limit), info.stored + limit)


class DecodedChunk:
    """One version of one chunk, open for reading (a `tree.Handle`)."""

    __slots__ = ("_next", "_of", "_ranged", "index", "info", "key", "size", "version")

    window = 0  # nothing is prefetched within a chunk: it is decoded whole, or in the parts that are asked for

    def __init__(self, of: DecodedChunks, index: Index, info: ChunkInfo, version: Hashable, size: int) -> None:
        """`version`: what identifies the bytes, see `settled`; `size`: decoded bytes."""
        self._of = of
        self.index = index
        self.info = info
        self.version = version
        self.size = size
        self.key = (of, index, version)
        self._ranged = 0  # bytes answered without decoding the whole chunk
        self._next = 0  # where the last read ended that was not answered from memory

    def peek(self, offset: int, size: int) -> memoryview | None:
        """The bytes if the chunk is decoded, else None. Does not block."""
        cache = self._of.cache
        view = cache.peek(self.key)
        if view is not None:
            return self._part(view, offset, size)
        end = end_of(self.key)
        view = cache.peek(end)
        if view is None or offset < self.size - len(view):
            return None
        cache.consumed(end)
        first = self.size - len(view)
        return view[offset - first : offset - first + size]

    def read(self, offset: int, size: int) -> bytes | memoryview:
        """The bytes, decoding the chunk, or only the part that is asked for while little of it is."""
        stop = min(offset + size, self.size)
        if offset >= stop:
            return b""
        view = self.peek(offset, size)  # not only whoever has peeked: a layout that converts slowly does not
        if view is not None:
            return view
        too_large = self.size > self._of.max_chunk or not self._of.cache.permits(self.size, self.info.stored)
        selective = self._selective(offset, stop) and not self._of.cache.holds(self.key)  # who decodes it is faster
        self._next = stop
        if too_large or selective:
            part = self._of.array.chunks.read_range(self.index, self.info, offset, stop)
            if part is not None:
                self._ranged += stop - offset
                return part
        return self._part(self.decoded(), offset, size)

    def decoded(self) -> memoryview:
        """All bytes of the chunk; TooLarge above the limit. While the view lives, its memory counts against the cache."""
        of, index, info = self._of, self.index, self.info
        if self.size > of.max_chunk:
            raise of.cache.refusal(self.size, of.max_chunk, self.size + info.stored)
        if of.size(index) is None:
            return of._unsized(index, info, self.version)
        return of.cache.get(self.key, self.size, lambda out: of.array.chunks.read_into(index, info, out), info.stored)

    def prefetch(self, start: int, stop: int, deliver: Deliver) -> bool:
        """Never asked for, see `window`."""
        return True

    def close(self) -> None:
        """Nothing is held; the cache forgets by itself."""

    def _selective(self, offset: int, stop: int) -> bool:
        """Whether the reader seems to want parts of the chunk only: not one after the other, and little so far."""
        if self._of.array.fetch is not None and self.info.stored <= _FAR_BYTES:
            return False
        sequential = offset == self._next and (offset > 0 or stop >= min(_SEQUENTIAL_BYTES, self.size))
        return not sequential and (self._ranged + stop - offset) * _SELECTIVE_PART <= self.size

    def _part(self, view: memoryview, offset: int, size: int) -> memoryview:
        if offset + size >= self.size:
            self._of.cache.consumed(self.key)
        return view[offset : offset + size]


def _expect(info: ChunkInfo, version: Hashable) -> None:
    """Raise Stale if a chunk is another than the one of `version`, where one is given."""
    expected = version.version if isinstance(version, Unsettled) else version
    if expected is not None and info.version != expected:
        raise Stale("the stored chunk changed")


def settled(info: ChunkInfo) -> Hashable:
    """What identifies the bytes of a stored chunk to all caches: its version, or, just after a change, nothing but itself.

    Two changes within one tick of the store's clock can leave the same version, so what was read between them must not be
    taken for what is there afterwards.
    """
    return info.version if info.settled else Unsettled(info.version)


def end_of(key: Hashable) -> Hashable:
    """The cache key of a chunk's end, which stays when the rest has been delivered to the kernel."""
    return key, "end"


def _copy(source: memoryview, target: memoryview) -> None:
    target[:] = source
