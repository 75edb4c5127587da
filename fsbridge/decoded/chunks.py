"""DecodedChunks: the decoded chunks of one array.

It decides what identifies their bytes, how much of a chunk a read decodes, and what may be prefetched.

Not here: how a chunk is found or decoded (`model.Chunks`), the memory of decoded bytes (`cache.py`), which file shows which
chunk (the layouts), what is read ahead (`kernel/readahead/`), what one version of the whole array is (`__init__.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterator, Sequence
from operator import itemgetter

from fsbridge.asking import WouldWait, before_waiting, without_waiting
from fsbridge.decoded.cache import ChunkCache
from fsbridge.errors import CorruptData, FsbridgeError, NotFound, Stale, TooLarge
from fsbridge.metadata import ArrayMetadata, Index
from fsbridge.model import Array, ChunkInfo, OpenChunk
from fsbridge.tree import Handle, Unsettled

log = logging.getLogger(__name__)

_SEQUENTIAL_BYTES = 64 * 1024
"""A first read of so many bytes suggests that the whole chunk is wanted; a random reader asks for less."""

_SELECTIVE_PART = 4
"""Once more than this part (a quarter) of a chunk was asked for piece by piece, the chunk is decoded whole."""

_REMOTE_BYTES = 4 << 20
"""Stored bytes of a remote chunk up to which it is always decoded whole: a part takes two requests, one by one."""

_LIKELY_BYTES, _LIKELY_TIMES = 1 << 20, 4
"""An array's first chunk is expected to decode to at most so many bytes, or so many times its stored bytes if that is more.

Used where only decoding tells the size of a chunk.
"""

_LARGER_PART = 4
"""Each further chunk is expected to exceed the largest so far by at most this part (a quarter)."""


class DecodedChunks:
    """The decoded chunks of one version of an array's metadata. Thread-safe. All may block, except `size` and `peek`.

    `max_chunk`: decoded bytes of the largest chunk that is decoded whole. `immutable`: the metadata is never checked again.
    """

    __slots__ = (
        *("__weakref__", "_largest", "_regular"),
        *("array", "cache", "immutable", "max_chunk"),
    )

    def __init__(self, array: Array, cache: ChunkCache, max_chunk: int, immutable: bool = False) -> None:
        self.array = array
        self.cache = cache
        self.max_chunk = max_chunk
        self.immutable = immutable
        self._largest: int | None = None  # the largest size found by decoding, plus a margin
        grid = array.metadata.grid
        self._regular = array.metadata.chunk_bytes((0,) * len(grid.shape)) if grid.regular else None

    @property
    def metadata(self) -> ArrayMetadata:
        """The array's metadata."""
        return self.array.metadata

    def size(self, index: Index) -> int | None:
        """Return the decoded size in bytes of the chunk at `index`; None if only its stored bytes can tell."""
        return self.array.metadata.chunk_bytes(index) if self._regular is None else self._regular

    def find(self, index: Index, version: Hashable = None) -> ChunkInfo:
        """Return the stored chunk as of now; NotFound if there is none, Stale if its version is not `version`.

        If the array has changed, any error becomes Stale, because its chunks may now be stored elsewhere or differently.
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
        """Return the decoded size of a stored chunk in bytes. The chunk is decoded if nothing else tells its size."""
        size = self.size(index)
        if size is not None:
            return size
        if self.metadata.varlength:
            return self.array.chunks.size(index, info)
        return len(self._decode_unsized(index, info, identify(info)))

    def open(self, index: Index, version: Hashable = None) -> DecodedChunk:
        """Open the chunk as it is now; Stale if it is not of `version` (if given), or if the array's metadata has changed.

        It is decoded only if nothing else tells its size. Otherwise damage is met by the first read.
        """
        try:
            chunk = self.array.chunks.open(index)  # only opening it tells whether it may be opened
        except (NotFound, CorruptData):
            self.check()
            raise
        chunk.close()
        if version is not None:
            _expect(chunk.info, version)
        self.check()
        return self.open_stored(index, chunk.info)

    def holds(self, index: Index) -> bool:
        """True if a chunk's decoded bytes are cached in the newest version that is known (does not block)."""
        try:
            with without_waiting():
                key = (self, index, identify(self.find(index)))
        except (WouldWait, FsbridgeError, OSError):
            return False
        return self.cache.holds(key)

    def find_prefix(self, prefix: Index) -> int:
        """Return the mtime (ns) of the set of chunks stored below `prefix`, see `model.Chunks`; Stale as in `find`."""
        try:
            return self.array.chunks.find_prefix(prefix)
        except (NotFound, CorruptData):
            self.check()
            raise

    def scan(self, prefix: Index) -> Iterator[Sequence[tuple[int, int]]]:
        """Yield what is stored below `prefix`, in batches, see `model.Chunks.scan`."""
        return self.array.chunks.scan(prefix)

    def check(self) -> None:
        """Raise Stale unless the store still holds this version of the metadata."""
        if not self.immutable and not self.array.current():
            raise Stale("the array's metadata changed")

    def prefetch(self, indices: Sequence[Index]) -> int | None:
        """Prefetch chunks; return the place in `indices` of the first one for which there was no room, or None.

        Chunks that are not stored, or have no known and reasonable size, are left out. Errors in the others are left to
        their readers. All chunks are opened before the first is decoded: opening takes four times as long after a
        decoding, which empties the processor's caches.
        """
        open_chunks: list[tuple[int, OpenChunk]] = []
        try:
            self._open_ahead(indices, open_chunks)
            for place, chunk in open_chunks:
                try:
                    if not self._make(indices[place], chunk):
                        return place
                except (FsbridgeError, OSError) as error:
                    log.debug("not read ahead: %s", error)
        finally:
            for _, chunk in open_chunks:
                chunk.close()
        return None

    def _open_ahead(self, indices: Sequence[Index], open_chunks: list[tuple[int, OpenChunk]]) -> None:
        sizes = map(self.size, indices)
        places = [place for place, size in enumerate(sizes) if size is not None and size <= self.max_chunk]
        with without_waiting():  # first those that take no waiting
            places = [place for place in places if not self._open_one(indices[place], place, open_chunks)]
        for place in places:
            self._open_one(indices[place], place, open_chunks)
        open_chunks.sort(key=itemgetter(0))

    def _open_one(self, index: Index, place: int, open_chunks: list[tuple[int, OpenChunk]]) -> bool:
        """Open one chunk and append it to `open_chunks`; false if that takes waiting. Errors are left to the reader."""
        try:
            open_chunks.append((place, self.array.chunks.open(index, open_chunks[-1][1] if open_chunks else None)))
        except WouldWait:
            return False
        except (FsbridgeError, OSError) as error:  # the reader of the chunk meets it
            log.debug("not read ahead: %s", error)
        return True

    def _make(self, index: Index, chunk: OpenChunk) -> bool:
        """Decode a chunk; False when there is no room for it now."""
        size, info = self.size(index), chunk.info
        assert size is not None
        key = (self, index, info.version)
        if not info.settled:
            return True
        return self.cache.prefetch(key, size, chunk.read_into, info.stored) is not None or self.cache.holds(key)

    def open_stored(self, index: Index, info: ChunkInfo) -> DecodedChunk:
        """Return an open chunk for the stored chunk that was found at `index`."""
        version = identify(info)
        size = self.size(index)
        if size is None:
            before_waiting()
            size = len(self._decode_unsized(index, info, version))
        return DecodedChunk(self, index, info, version, size)

    def _decode_unsized(self, index: Index, info: ChunkInfo, version: Hashable) -> memoryview:
        """Decode a chunk of a size that only decoding tells, and return all of its bytes.

        The first attempt reserves memory for the likely size and fails if the chunk is larger. The second one reserves
        memory for the largest size that is permitted.
        """
        most = min(self.max_chunk, self.cache.budget // 2)
        likely = max(_LIKELY_BYTES, _LIKELY_TIMES * info.stored) if self._largest is None else self._largest
        try:
            view = self._decode_all(index, info, version, min(most, max(likely, info.stored)))
        except (CorruptData, TooLarge):
            view = self._decode_all(index, info, version, most)  # raises an error if the chunk is damaged or too large
        self._largest = max(self._largest or 0, len(view) + len(view) // _LARGER_PART)
        return view

    def _decode_all(self, index: Index, info: ChunkInfo, version: Hashable, limit: int) -> memoryview:
        chunks = self.array.chunks
        return self.cache.get_all((self, index, version), lambda: chunks.read_all(index, info, limit), info.stored + limit)


class DecodedChunk(Handle):
    """One version of one chunk as an open file. Unlike `model.OpenChunk` it holds nothing open in the store.

    It is decoded whole, or in the parts that are asked for, so nothing in it is prefetched (`window` is 0).
    """

    __slots__ = ("_next", "_of", "_ranged", "index", "info", "key", "size", "version")

    def __init__(self, of: DecodedChunks, index: Index, info: ChunkInfo, version: Hashable, size: int) -> None:
        """`version`: what identifies the bytes, see `identify`; `size`: decoded bytes."""
        self._of = of
        self.index = index
        self.info = info
        self.version = version
        self.size = size
        self.key = (of, index, version)
        self._ranged = 0  # bytes answered without decoding the whole chunk
        self._next = 0  # where the last read ended that was not answered from memory

    def peek(self, offset: int, size: int) -> memoryview | None:
        """Return the bytes if the chunk is decoded, else None. Does not block."""
        view = self._of.cache.peek(self.key)
        return None if view is None else self._part(view, offset, size)

    def read(self, offset: int, size: int) -> bytes | memoryview:
        """Return the bytes. Decodes the whole chunk, or only the requested part while little of the chunk has been read."""
        stop = min(offset + size, self.size)
        if offset >= stop:
            return b""
        view = self.peek(offset, size)  # callers that convert slowly have not peeked themselves
        if view is not None:
            return view
        too_large = self.size > self._of.max_chunk or not self._of.cache.permits(self.size, self.info.stored)
        selective = self._selective(offset, stop) and not self._of.cache.holds(self.key)  # a running decode is faster
        self._next = stop
        if too_large or selective:
            part = self._of.array.chunks.read_range(self.index, self.info, offset, stop)
            if part is not None:
                self._ranged += stop - offset
                self._of.cache.count_apart(stop - offset)
                return part
        return self._part(self.decode(), offset, size)

    def decode(self) -> memoryview:
        """Return all bytes of the chunk; TooLarge above the limit. While the view lives, its memory counts in the cache."""
        of, index, info = self._of, self.index, self.info
        if self.size > of.max_chunk:
            raise of.cache.refusal(self.size, of.max_chunk, self.size + info.stored)
        if of.size(index) is None:
            return of._decode_unsized(index, info, self.version)
        return of.cache.get(self.key, self.size, lambda out: of.array.chunks.read_into(index, info, out), info.stored)

    def _selective(self, offset: int, stop: int) -> bool:
        """True if the reader seems to want only parts of the chunk: it does not read in sequence, and has read little."""
        if self._of.array.fetch is not None and self.info.stored <= _REMOTE_BYTES:
            return False
        sequential = offset == self._next and (offset > 0 or stop >= min(_SEQUENTIAL_BYTES, self.size))
        return not sequential and (self._ranged + stop - offset) * _SELECTIVE_PART <= self.size

    def _part(self, view: memoryview, offset: int, size: int) -> memoryview:
        if offset + size >= self.size:
            self._of.cache.note_consumed(self.key)
        return view[offset : offset + size]


def _expect(info: ChunkInfo, version: Hashable) -> None:
    """Raise Stale if `version` is given and the chunk is not of this version."""
    expected = version.version if isinstance(version, Unsettled) else version
    if expected is not None and info.version != expected:
        raise Stale("the stored chunk changed")


def identify(info: ChunkInfo) -> Hashable:
    """Return what identifies a chunk's bytes in all caches: its version, or just after a change a value equal to no other.

    Two changes within one tick of the store's clock can leave the same version, so what was read between them must not be
    taken for what is there afterwards.
    """
    return info.version if info.settled else Unsettled(info.version)
