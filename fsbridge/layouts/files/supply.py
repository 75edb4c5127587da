"""The chunks of one version of an array as a file of its elements needs them: in its memory order, each decoded once.

Not here: which chunks a read touches (`reading.py`), the cache itself, what one version of an array is (`decoded.py`).

A file's reader goes through the chunks of one band (those that one plane touches) again for every plane of it. A band that
the cache cannot hold goes to a spill file; so does any chunk that has to be decoded a second time.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from fsbridge.decoded import ArrayVersion, DecodedChunk
from fsbridge.errors import FsbridgeError, NotFound, Stale, TooLarge
from fsbridge.layouts.files.helpers import Helpers
from fsbridge.layouts.files.ranged import copy_part
from fsbridge.layouts.files.selection import Selection
from fsbridge.layouts.files.spill import Spill, SpillFile
from fsbridge.model import Batch, Chunks, Index, prefix_owner
from fsbridge.owner import READ_MODE, Owner, entered, restricted

_SENT = 16
"""Chunks ahead of a reader whose stored bytes are sent, if they come from far away."""

_REMEMBERED_CHUNKS = 65536
"""Chunks of which an open file remembers what it found, so that they are not looked for again at each read."""

_WINDOWS_PART = 4
"""Of the cache (a quarter), that is left to windows of files where a chunk takes more than half of it."""

_DAMAGED_CHUNKS = 64
"""Damaged chunks of which an open file remembers the error instead of decoding them for each of their pages."""


Found: TypeAlias = OrderedDict[Index, DecodedChunk | None]
"""What was found of chunks in one version of an array; None: the chunk is not stored."""


class ChunkSupply:
    """Chunks for one open file. Thread-safe."""

    def __init__(
        self,
        version: ArrayVersion,
        selection: Selection,
        order: Sequence[int],
        helpers: Helpers,
        spill: Spill,
        found: Found | None = None,
        owner: Owner | None = None,
        narrow: Callable[[Owner | None], None] = lambda owner: None,
    ) -> None:
        """`order`: all dimensions of the array, slowest first, as the file has them. TooLarge without room for a band.

        `found`: what has been found of this version by others. `owner`: who may read the file, where others are let in;
        `narrow` is told when a chunk is for fewer.
        """
        self._version = version
        self._owner = owner
        self._narrow = narrow
        self._metadata = version.chunks.metadata
        self._cache = version.chunks.cache
        self._helpers = helpers
        self._spill = spill
        self._lock = threading.Lock()
        self._sent: set[Index] = set()
        self._opened: Found = OrderedDict() if found is None else found
        self._damaged: dict[Index, FsbridgeError] = {}
        self._decoded: set[Index] = set()
        native = self._metadata.order or tuple(range(len(self._metadata.shape)))
        kept = {i for i, pick in enumerate(selection.picks) if not pick.dropped}
        self._order = native if self._streams(native, kept) == self._streams(order, kept) else tuple(order)
        self._reordered = self._order != native
        self._inverse = tuple(self._order.index(i) for i in range(len(native)))
        edges = [edge for i in self._order if isinstance(edge := self._metadata.grid.edges[i], int)]
        self._extents = edges if len(edges) == len(native) else None  # of every chunk, where they are all the same
        self._bits = bits(self._metadata.dtype.itemsize)
        self._slots: SpillFile | None = None
        needed = self._band(selection, order)
        self._reserved = needed > 0
        if needed:
            self._slots = SpillFile(spill, self._largest(), needed)

    @property
    def far(self) -> bool:
        """Whether stored bytes take long to come, however fast they are decoded."""
        return self._version.chunks.array.fetch is not None

    def close(self) -> None:
        """Give back what is spilt."""
        if self._slots is not None:
            self._slots.close()

    def _streams(self, order: Sequence[int], kept: set[int]) -> int | None:
        """The dimension of the region along which elements of a chunk follow one another in memory."""
        edges = self._metadata.grid.edges
        return next((i for i in reversed(order) if edges[i] != 1 and i in kept), None)

    def _largest(self) -> int:
        """Bytes of the largest chunk."""
        edges = (max(edge) if isinstance(edge, tuple) else edge for edge in self._metadata.grid.edges)
        return math.prod(edges) * self._metadata.dtype.itemsize

    def _band(self, selection: Selection, order: Sequence[int]) -> int:
        """Chunks for which a spill file is needed, because one band of them does not fit into half of the cache."""
        grid = self._metadata.grid
        kept = [i for i in order if not selection.picks[i].dropped]
        while kept and grid.edges[kept[0]] == 1:
            kept.pop(0)
        touched = [min(grid.counts[i], selection.picks[i].length) for i in kept[1:]]
        chunk = max(1, self._largest())
        if chunk > self._cache.budget // 2:
            return 0  # such chunks are read by ranges, or are alone in memory and spilt when they are decoded again
        room = self._cache.budget // 2 // chunk
        band = math.prod(touched)
        if band <= room:
            return 0
        most = max(room, self._spill.limit // chunk)
        stored = sum(1 for _ in _stored(self._version.chunks.array.chunks, len(grid.shape), most + 1))
        return 0 if stored <= room else min(band, stored) if stored <= most else band

    def find(self, index: Index) -> DecodedChunk | None:
        """The chunk in this version of the array; None where it is not stored. Raises Stale if it has changed."""
        with self._lock:
            known = self._opened.get(index, self)  # itself: nothing is known
        if known is not self:
            return cast("DecodedChunk | None", known)
        found = self._version.open(index)
        self._check(found)
        with self._lock:
            self._opened[index] = found
            if len(self._opened) > _REMEMBERED_CHUNKS:
                with contextlib.suppress(KeyError):  # others use it too
                    self._opened.popitem(last=False)
        return found

    def _check(self, found: DecodedChunk | None) -> None:
        """Stale where a chunk's owner lets fewer read it than the file's: nobody here knows who does."""
        owner = self._owner
        if owner is None or found is None:
            return
        narrower = restricted(owner, found.info.owner)
        if narrower is None or narrower.mode & READ_MODE != owner.mode & READ_MODE:
            self._narrow(narrower)
            raise Stale(f"chunk {found.index} may be read by fewer users than the array's files, which are for these now")

    def in_memory(self, index: Index) -> tuple[bool, memoryview | None]:
        """Whether the chunk has been found, and is decoded or not stored; its bytes, if it is stored. Never blocks."""
        chunk = self._opened.get(index, self)  # itself: nothing is known
        if chunk is self or chunk is None:
            return chunk is None, None
        view = self._cache.peek(self._key(cast(DecodedChunk, chunk)))
        return view is not None, view

    def glance(self, index: Index) -> tuple[DecodedChunk | None, memoryview | None]:
        """The chunk (None where it is not stored) and its bytes, if they are in memory."""
        chunk = self.find(index)
        return chunk, None if chunk is None else self._cache.peek(self._key(chunk))

    def use(self, chunk: DecodedChunk, look: Callable[[NDArray[Any]], None]) -> None:
        """Call `look` with the elements of a chunk, decoded now if need be."""
        slots = self._slots
        if slots is not None and slots.holds(key := self._key(chunk)):
            with slots.using(key, chunk.size) as view:
                if view is not None:
                    look(self.shaped(view, chunk.index))
                    return
        look(self.shaped(self._load(chunk), chunk.index))

    def ranged(self, chunk: DecodedChunk, out: NDArray[Any], source: Sequence[slice | int]) -> bool:
        """`chunk[source]` into `out` by ranges, where the chunk is too large to be decoded whole; else False.

        TooLarge, too, where the codec decodes chunks only whole.
        """
        of = self._version.chunks
        if self._fits(chunk):
            return False

        def read(start: int, stop: int) -> bytes:
            found = of.array.chunks.read_range(chunk.index, chunk.info, start, stop)
            if found is None:
                raise self._cache.refusal(chunk.size, of.max_chunk, chunk.size + self._extra(chunk))
            return found

        shape = self._metadata.grid.chunk_shape(chunk.index)
        copy_part(out, source, shape, self._metadata.order or range(len(shape)), read)
        return True

    def prepare(self, chunks: Sequence[DecodedChunk]) -> None:
        """Decode several chunks by all processors; what fails will fail again when it is asked for."""
        slots = self._slots
        wanted = [
            chunk for chunk in chunks
            if chunk.index not in self._damaged and (slots is None or not slots.holds(self._key(chunk)))
            and chunk.size <= self._cache.budget // 2  # else one would make the other go before anybody has looked
        ]  # fmt: skip
        if len(wanted) > 1:
            self._helpers.share([partial(self._quietly, chunk) for chunk in wanted])

    def send(self, indices: Iterable[Index]) -> None:
        """Have the stored bytes of chunks sent that will be wanted now, once each, where the store is far away."""
        fetch = self._version.chunks.array.fetch
        if fetch is None:
            return
        for index in indices:
            known = self._opened.get(index)
            if index not in self._sent and (known is None or not self._cache.holds(self._key(known))):
                self._sent.add(index)
                fetch(index)
        if len(self._sent) > _REMEMBERED_CHUNKS:
            self._sent.clear()

    def passed(self, index: Index) -> None:
        """Say that nobody is expected to come back for a chunk: it is the first to go when room is needed."""
        chunk = self._opened.get(index)
        if chunk is not None:
            self._cache.consumed(self._key(chunk))
            if self._slots is not None:
                self._slots.passed(self._key(chunk))

    def prefetch(self, indices: deque[Index], most: int) -> None:
        """Decode `most` bytes of chunks that nobody has asked for yet, or as far as there is room; what is done leaves."""
        self.send(islice(indices.copy(), _SENT))
        with contextlib.suppress(IndexError):
            while most > 0:
                index = indices.popleft()
                chunk = self._missing(index)
                if chunk is None or not self._fits(chunk):
                    continue
                view = self._cache.prefetch(self._key(chunk), chunk.size, partial(self._decode, chunk), self._extra(chunk))
                if view is not None:
                    self._keep(chunk, view)
                    most -= chunk.size
                elif not self._cache.holds(self._key(chunk)):
                    indices.appendleft(index)
                    return

    def _missing(self, index: Index) -> DecodedChunk | None:
        """The chunk, if it is stored and not in memory."""
        try:
            chunk = self.find(index)
        except FsbridgeError:
            return None
        if chunk is None or self._cache.holds(key := self._key(chunk)) or index in self._damaged:
            return None
        return None if self._slots is not None and self._slots.holds(key) else chunk

    def _quietly(self, chunk: DecodedChunk) -> None:
        if self._cache.holds(self._key(chunk)):
            return
        with contextlib.suppress(FsbridgeError, OSError):
            self._load(chunk)

    def _key(self, chunk: DecodedChunk) -> tuple[object, ...]:
        if self._reordered:
            return (self._version.chunks, chunk.index, chunk.version, self._order)
        return (self._version.chunks, chunk.index, chunk.version)

    def _extra(self, chunk: DecodedChunk) -> int:
        """Bytes that decoding a chunk takes besides its own."""
        return chunk.info.stored + (chunk.size if self._reordered else 0)

    def _fits(self, chunk: DecodedChunk) -> bool:
        """Whether a chunk can be decoded whole, beside what is assembled of it for the files."""
        windows = self._cache.budget // _WINDOWS_PART if chunk.size > self._cache.budget // 2 else 0
        return chunk.size <= self._version.chunks.max_chunk and self._cache.permits(chunk.size, self._extra(chunk) + windows)

    def _load(self, chunk: DecodedChunk) -> memoryview:
        """All bytes of a chunk in the file's memory order."""
        index, limit = chunk.index, self._version.chunks.max_chunk
        failed = self._damaged.get(index)
        if failed is not None:
            raise type(failed)(*failed.args)
        if not self._fits(chunk):
            raise self._cache.refusal(chunk.size, limit, chunk.size + self._extra(chunk))
        decoded = False

        def load(out: memoryview) -> None:
            nonlocal decoded
            decoded = True
            self._decode(chunk, out)

        try:
            view = self._cache.get(self._key(chunk), chunk.size, load, self._extra(chunk))
        except FsbridgeError as error:
            if type(error).errno == FsbridgeError.errno and len(self._damaged) < _DAMAGED_CHUNKS:
                self._damaged[index] = type(error)(*error.args)
            raise
        if decoded:
            self._keep(chunk, view)
        return view

    def _keep(self, chunk: DecodedChunk, view: memoryview) -> None:
        """Spill a chunk of a band that the cache cannot hold, or one that has to be decoded a second time."""
        again = chunk.index in self._decoded
        self._decoded.add(chunk.index)
        if len(self._decoded) > _REMEMBERED_CHUNKS:
            self._decoded.clear()
        if self._slots is None and again and chunk.size <= self._spill.free:
            with contextlib.suppress(TooLarge), self._lock:
                self._slots = self._slots or SpillFile(self._spill, self._largest())
        if self._slots is not None and (again or self._reserved):
            self._slots.put(self._key(chunk), view)

    def _decode(self, chunk: DecodedChunk, out: memoryview) -> None:
        chunks = self._version.chunks.array.chunks
        if not self._reordered:
            chunks.read_into(chunk.index, chunk.info, out)
            return
        plain = np.empty(chunk.size, np.uint8)
        chunks.read_into(chunk.index, chunk.info, plain.data)
        native = self._metadata.order or tuple(range(len(self._metadata.shape)))
        shape = self._metadata.grid.chunk_shape(chunk.index)
        source = self._typed(plain.data).reshape([shape[i] for i in native]).transpose(np.argsort(native))
        target = self._typed(out).reshape([shape[i] for i in self._order])
        target[...] = source.transpose(self._order)

    def shaped(self, view: memoryview, index: Index) -> NDArray[Any]:
        """The elements of a chunk, dimensions in the array's order."""
        extents = self._extents
        if extents is None:
            shape = self._metadata.grid.chunk_shape(index)
            extents = [shape[i] for i in self._order]
        return np.frombuffer(view, self._bits).reshape(extents).transpose(self._inverse)

    def _typed(self, view: memoryview) -> NDArray[Any]:
        return np.frombuffer(view, self._bits)


def bits(itemsize: int) -> np.dtype[Any]:
    """A dtype of that many bytes whose elements are copied as they are, as fast as numpy can."""
    return np.dtype({1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}.get(itemsize, f"V{itemsize}"))


def chunk_owners(chunks: Chunks, rank: int, most: int) -> set[Owner | None]:
    """Whom the first stored chunks, and the directories that they are in, let read; `most`: of so many, roughly."""
    return set(islice(_owners(chunks, rank), most))


def _owners(chunks: Chunks, rank: int, prefix: Index = ()) -> Iterator[Owner | None]:
    try:
        if len(prefix) == rank:
            yield chunks.find(prefix).owner
            return
        for batch in chunks.scan(prefix):
            common = batch.owner if isinstance(batch, Batch) and len(prefix) == rank - 1 else None
            if common is not None:
                yield common
                continue
            for coordinate, _ in batch:
                if len(prefix) < rank - 1:
                    yield entered(prefix_owner(chunks, (*prefix, coordinate)))
                yield from _owners(chunks, rank, (*prefix, coordinate))
    except NotFound:
        return


def _stored(chunks: Chunks, rank: int, most: int, prefix: Index = ()) -> Iterator[Index]:
    """Grid positions of stored chunks, at most that many."""
    if len(prefix) == rank:
        yield prefix
        return
    count = 0
    try:
        for batch in chunks.scan(prefix):
            for coordinate, _ in batch:
                for found in _stored(chunks, rank, most - count, (*prefix, coordinate)):
                    yield found
                    count += 1
                if count >= most:
                    return
    except NotFound:
        return
