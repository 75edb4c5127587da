"""Supplies a file with the chunks of one version of an array: in the file's memory order, each decoded only once.

Not here: which chunks a read touches (`reading.py`), finding them (`pieces.py`), the order that they are kept in
(`chunk_bytes.py`), the cache itself.

A file's reader needs the chunks of one band (those that one plane touches) again for every plane in it. A band that the
cache cannot hold goes to a spill file, and so does any chunk that has to be decoded a second time.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fsbridge.decoded import DecodedChunk
from fsbridge.errors import CorruptData, FsbridgeError, TooLarge
from fsbridge.layouts.files.arrays.selection import Selection
from fsbridge.layouts.files.elements.chunk_bytes import RANGE_BYTES, Arrangement, copy_part, kept_order, native_order
from fsbridge.layouts.files.elements.pieces import (
    REMEMBERED_CHUNKS,
    SLAB_LIMITS,
    FoundChunks,
    Piece,
    SlabLimits,
    Slabs,
    choose_slabs,
    cut_grid,
    find_stored,
)
from fsbridge.layouts.files.elements.spill import Spill, SpillFile
from fsbridge.metadata import ArrayMetadata, Index
from fsbridge.threads.workers import Workers

_WINDOWS_PART = 4
"""Part of the cache (a quarter) that is reserved for windows of files if a chunk takes more than half of the cache."""

_DAMAGED_CHUNKS = 64
"""Most damaged chunks for which an open file remembers the error, instead of decoding them again for each page."""


class ChunkSupply:
    """Finds and decodes chunks for the readers of one open file. Thread-safe."""

    def __init__(
        self,
        chunks: FoundChunks,
        selection: Selection,
        order: Sequence[int],
        helpers: Workers,
        spill: Spill,
        slab_limits: SlabLimits = SLAB_LIMITS,
        range_bytes: int = RANGE_BYTES,
    ) -> None:
        """`order`: all dimensions of the array, slowest first, as in the file. TooLarge if there is no room for a band.

        `range_bytes`: most bytes that are read at once of a chunk too large to be decoded whole.
        """
        self._chunks = chunks
        self._version = version = chunks.version
        self._cache = version.chunks.cache
        self._helpers = helpers
        self._spill = spill
        self._slab_limits = slab_limits
        self._range_bytes = range_bytes
        self._lock = threading.Lock()
        self._fetched: set[Index] = set()
        self._damaged: dict[Index, FsbridgeError] = {}
        self._decoded: set[Index] = set()
        self._divided: dict[Index, bool] = {}
        self._metadata = version.chunks.metadata
        kept = kept_order(self._metadata, selection, order)
        self._slabs = self._choose_slabs(selection) if kept == native_order(self._metadata) else Slabs()
        self._metadata = cut_grid(self._metadata, self._slabs)
        self._arrangement = Arrangement(self._metadata, kept)
        self._reordered = self._arrangement.differs
        self.reshape = self._arrangement.reshape
        self._slots: SpillFile | None = None
        needed = self._count_reserved(selection, order)
        self._reserved = needed > 0
        if needed:
            self._slots = SpillFile(spill, self._count_largest_bytes(), needed)

    def _choose_slabs(self, selection: Selection) -> Slabs:
        """Choose how chunks are cut into slabs; not at all for a remote store, or for chunks too large for the cache."""
        of = self._version.chunks
        chunks = of.array.chunks
        whole = self.remote or not chunks.in_parts
        if whole or self._count_largest_bytes() > min(of.max_chunk, self._cache.budget // 2):
            return Slabs()
        return choose_slabs(self._metadata, selection, native_order(self._metadata), self._slab_limits)

    @property
    def metadata(self) -> ArrayMetadata:
        """The array's metadata for its reader. If chunks are cut into slabs, its grid is the grid of slabs."""
        return self._metadata

    @property
    def remote(self) -> bool:
        """True if the store is remote, so that fetching chunks takes longer than decoding them."""
        return self._version.chunks.array.fetch is not None

    def close(self) -> None:
        """Free the disk space of spilled chunks. Never blocks."""
        if self._slots is not None:
            self._slots.close_later()

    def _count_largest_bytes(self) -> int:
        """Return the bytes of the largest chunk."""
        edges = (max(edge) if isinstance(edge, tuple) else edge for edge in self._metadata.grid.edges)
        return math.prod(edges) * self._metadata.dtype.itemsize

    def _count_reserved(self, selection: Selection, order: Sequence[int]) -> int:
        """Return how many chunks a spill file must hold from the start.

        It is 0 if half of the cache holds a band, and also if half of the cache does not hold even one chunk.
        """
        grid = self._metadata.grid
        kept = [i for i in order if not selection.picks[i].dropped]
        while kept and grid.edges[kept[0]] == 1:
            kept.pop(0)
        counts = [min(grid.counts[i], selection.picks[i].length) for i in kept[1:]]
        chunk = max(1, self._count_largest_bytes())
        if chunk > self._cache.budget // 2:
            return 0  # such chunks are read by ranges, or one at a time, and spilled if they are decoded again
        room = self._cache.budget // 2 // chunk
        band = math.prod(counts)
        if band <= room:
            return 0
        most = max(room, self._spill.limit // chunk)
        stored = self._slabs.count * sum(
            1 for _ in find_stored(self._version.chunks.array.chunks, len(grid.shape), most + 1)
        )
        return 0 if stored <= room else min(band, stored) if stored <= most else band

    def find(self, index: Index) -> Piece | None:
        """Return the piece of this version of the array; None if its chunk is not stored. Stale if the array has changed."""
        return self.find_all([index])[0]

    def find_all(self, indices: Sequence[Index]) -> list[Piece | None]:
        """Return what `find` returns for each of several pieces, which costs less than single calls."""
        wanted = [self._slabs.chunk(index) for index in indices]
        known = self._chunks.find_all(wanted)
        pairs = [(index, known[chunk]) for index, chunk in zip(indices, wanted, strict=True)]
        return [None if chunk is None else self._slabs.piece(index, chunk) for index, chunk in pairs]

    def in_memory(self, index: Index) -> tuple[bool, memoryview | None]:
        """Return whether a piece is ready, and its bytes. Never blocks.

        A piece is ready if its decoded bytes are in memory, or if it is known to be absent from the store (bytes: None).
        """
        chunk = self._chunks.known.get(self._slabs.chunk(index), self)  # `self`: an unknown chunk
        if chunk is self or chunk is None:
            return chunk is None, None
        view = self.peek(self._slabs.piece(index, cast(DecodedChunk, chunk)))
        return view is not None, view

    def peek(self, piece: Piece) -> memoryview | None:
        """Return the bytes of a piece if they are in memory, else None. Never blocks."""
        view = self._cache.peek(self._key(piece))
        if view is None and piece.is_slab:
            whole = self._cache.peek(self._key(self._slabs.whole(piece.chunk)))
            view = None if whole is None else whole[piece.start : piece.start + piece.size]
        return view

    def use(self, piece: Piece, look: Callable[[NDArray[Any]], None]) -> None:
        """Call `look` with the elements of a piece, which is decoded first if it is not in memory."""
        slots = self._slots
        if slots is not None and slots.holds(key := self._key(piece)):
            with slots.using(key, piece.size) as view:
                if view is not None:
                    look(self.reshape(view, piece.index))
                    return
        look(self.reshape(self._load(piece), piece.index))

    def copy_ranges(self, piece: Piece, out: NDArray[Any], source: Sequence[slice | int]) -> bool:
        """Copy `piece[source]` into `out` by ranges if it is a chunk too large to be decoded whole; else return False.

        TooLarge if the codec can only decode whole chunks.
        """
        of, chunk = self._version.chunks, piece.chunk
        if self._fits(piece):
            return False

        def read(start: int, stop: int) -> bytes:
            content = of.array.chunks.read_range(chunk.index, chunk.info, start, stop)
            if content is None:
                raise self._cache.refusal(chunk.size, of.max_chunk, chunk.size + self._count_extra_bytes(piece))
            return content

        shape = self._metadata.grid.chunk_shape(chunk.index)
        copy_part(out, source, shape, native_order(self._metadata), read, self._range_bytes)
        return True

    def prepare(self, pieces: Sequence[Piece]) -> None:
        """Decode several pieces on all processors. Errors are ignored, because reading the piece will raise them again."""
        slots = self._slots
        wanted = [
            piece for piece in pieces
            if piece.index not in self._damaged and (slots is None or not slots.holds(self._key(piece)))
            and piece.size <= self._cache.budget // 2  # two larger ones would evict each other unused
        ]  # fmt: skip
        if len(wanted) > 1:
            self._helpers.share([partial(self._load_quietly, piece) for piece in wanted])

    def fetch(self, indices: Iterable[Index]) -> None:
        """Prefetch the stored bytes of chunks from a remote store, each chunk once."""
        fetch = self._version.chunks.array.fetch
        if fetch is None:
            return
        for index in indices:
            known = self._chunks.known.get(index)
            if index not in self._fetched and (known is None or not self._cache.holds(self._key(self._slabs.whole(known)))):
                self._fetched.add(index)
                fetch(index)
        if len(self._fetched) > REMEMBERED_CHUNKS:
            self._fetched.clear()

    def give_up(self, index: Index) -> None:
        """Note that a piece is not expected to be read again, so that it is dropped first when room is needed."""
        chunk = self._chunks.known.get(self._slabs.chunk(index))
        if chunk is not None:
            piece = self._slabs.piece(index, chunk)
            self._cache.note_consumed(self._key(piece))
            if piece.is_slab and piece.start + piece.size == chunk.size:
                self._cache.note_consumed(self._key(self._slabs.whole(chunk)))
            if self._slots is not None:
                self._slots.forget(self._key(piece))

    def _load_quietly(self, piece: Piece) -> None:
        if self._cache.holds(self._key(piece)):
            return
        with contextlib.suppress(FsbridgeError, OSError):
            self._load(piece, patient=False)

    def _key(self, piece: Piece) -> tuple[object, ...]:
        chunk = piece.chunk
        if self._reordered:
            return (self._version.chunks, chunk.index, chunk.version, self._arrangement.order)
        if piece.is_slab:
            return (self._version.chunks, chunk.index, chunk.version, piece.start, piece.size)
        return (self._version.chunks, chunk.index, chunk.version)

    def _count_extra_bytes(self, piece: Piece) -> int:
        """Return the bytes that decoding a piece takes besides its own."""
        if piece.is_slab:
            return 2 * piece.size  # its stored bytes, and a copy of them as a frame that the codec can decode
        return piece.chunk.info.stored + (piece.size if self._reordered else 0)

    def _fits(self, piece: Piece) -> bool:
        """True if a piece can be decoded whole and fits in the cache beside the windows of files."""
        windows = self._cache.budget // _WINDOWS_PART if piece.size > self._cache.budget // 2 else 0
        return piece.size <= self._version.chunks.max_chunk and self._cache.permits(
            piece.size, self._count_extra_bytes(piece) + windows
        )

    def _divides(self, piece: Piece) -> bool:
        """True if a slab can be decoded without the rest of its chunk."""
        chunk = piece.chunk
        known = self._divided.get(chunk.index)
        if known is None:
            step = self._version.chunks.array.chunks.step(chunk.index, chunk.info)
            known = self._divided[chunk.index] = step is not None and step <= piece.size
            if len(self._divided) > REMEMBERED_CHUNKS:
                self._divided.clear()
        return known

    def _load(self, piece: Piece, patient: bool = True) -> memoryview:
        """Return all bytes of a piece in the file's memory order. Unless `patient`, do not wait for room in the cache."""
        index, limit = piece.index, self._version.chunks.max_chunk
        failed = self._damaged.get(index)
        if failed is not None:
            raise failed.anew()
        if not self._fits(piece):
            raise self._cache.refusal(piece.size, limit, piece.size + self._count_extra_bytes(piece))
        decoded = False

        def load(out: memoryview) -> None:
            nonlocal decoded
            decoded = True
            self._decode(piece, out)

        try:
            if piece.is_slab and not self._divides(piece):
                return self._load(self._slabs.whole(piece.chunk), patient)[piece.start : piece.start + piece.size]
            view = self._cache.get(self._key(piece), piece.size, load, self._count_extra_bytes(piece), patient)
        except FsbridgeError as error:
            # Only damage is remembered, because other errors may be gone at the next read.
            if type(error) is CorruptData and len(self._damaged) < _DAMAGED_CHUNKS:
                self._damaged[index] = error.anew()
            raise
        if decoded:
            self._keep(piece, view)
        return view

    def _keep(self, piece: Piece, view: memoryview) -> None:
        """Copy a piece to the spill file if the cache cannot hold its band, or if it was decoded before."""
        again = piece.index in self._decoded
        self._decoded.add(piece.index)
        if len(self._decoded) > REMEMBERED_CHUNKS:
            self._decoded.clear()
        if self._slots is None and again and piece.size <= self._spill.free:
            with contextlib.suppress(TooLarge), self._lock:
                self._slots = self._slots or SpillFile(self._spill, self._count_largest_bytes())
        if self._slots is not None and (again or self._reserved):
            for part in (piece,) if piece.is_slab else self._slabs.cut(piece.chunk):
                self._slots.put(self._key(part), view[part.start - piece.start :][: part.size])

    def _decode(self, piece: Piece, out: memoryview) -> None:
        chunks, chunk = self._version.chunks.array.chunks, piece.chunk
        if piece.is_slab:
            chunks.read_part(chunk.index, chunk.info, piece.start, out)
            return
        if not self._reordered:
            chunks.read_into(chunk.index, chunk.info, out)
            return
        plain = np.empty(piece.size, np.uint8)
        chunks.read_into(chunk.index, chunk.info, plain.data)
        self._arrangement.arrange(plain.data, chunk.index, out)
