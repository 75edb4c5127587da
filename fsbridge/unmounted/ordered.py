"""Arrays of a source as sequences of elements in C order and in one byte order: what digests and comparisons read.

Memory is bounded by the cache; bands of chunks that it cannot hold are written to temporary files.
Not here: chunks (`decoded/`), how ranges are assembled (`layouts/files/elements/`).
"""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
from numpy.lib.recfunctions import repack_fields
from numpy.typing import NDArray

from fsbridge.decoded import DecodedArray
from fsbridge.errors import CorruptData, Unsupported
from fsbridge.layouts.files.arrays.selection import Pick, Selection, select_all
from fsbridge.layouts.files.elements.pieces import FoundChunks
from fsbridge.layouts.files.elements.reading import ElementReader
from fsbridge.layouts.files.elements.spill import Spill
from fsbridge.layouts.files.elements.supply import ChunkSupply
from fsbridge.metadata import JSON
from fsbridge.model import Array
from fsbridge.threads.workers import Workers
from fsbridge.unmounted import VirtualTree
from fsbridge.unmounted.units import UNIT_BYTES, WorkSources

BAND_ITEMS = 1 << 24
"""Most elements of variable length in memory at a time."""

WIDE_PART = 8
"""A band of chunks larger than an eighth of the cache is read by one thread at a time, because several would not fit."""


def type_text(name: JSON) -> str:
    """Return a Zarr v3 data type as text: its name, or its JSON with sorted keys and without blanks."""
    return name if isinstance(name, str) else json.dumps(name, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _utf8(text: str) -> bytes:
    """Return text in UTF-8, and surrogates as the stored bytes they stand for; CorruptData for other surrogates."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # JSON can spell half of a surrogate pair
        raise CorruptData(f"{text[:80]!a} is no text") from None


def ordered(
    sources: WorkSources, source: int, path: str, reversed_axes: bool = False, array: Array | None = None
) -> OrderedArray:
    """Return an array's elements. They are kept, so that all units in this process see the same version.

    If `array` is given, return its elements, and keep them in place of earlier ones.
    """
    tree = sources.tree(source)

    def make() -> OrderedArray:
        return OrderedArray(tree, sources.array(source, path) if array is None else array, reversed_axes)

    return sources.keep((source, path, reversed_axes), make, anew=array is not None)


class OrderedArray:
    """The elements of one version of an array in C order; with `reversed_axes`, of its transpose. Thread-safe."""

    def __init__(self, tree: VirtualTree, array: Array, reversed_axes: bool = False) -> None:
        """Raise Unsupported for elements that have no bytes of their own."""
        metadata = array.metadata
        if metadata.refused is not None:
            raise Unsupported(metadata.refused)
        if metadata.varlength or metadata.dtype.serializer == "optional":
            raise Unsupported("its elements are optional, or its chunks vary in size although its elements do not")
        self.array = array
        self.is_text = metadata.dtype.serializer != "bytes"
        self.shape = metadata.shape[::-1] if reversed_axes else metadata.shape
        self.size = math.prod(self.shape)
        rank = range(len(metadata.shape))
        self._order = tuple(reversed(rank)) if reversed_axes else tuple(rank)
        config = tree.config
        chunks = DecodedArray(array, tree.cache, config.max_direct, config.immutable)
        self._version = chunks.whole()
        self._found = FoundChunks(self._version)
        self._helpers = Workers("helper", (os.cpu_count() or 1) - 1)
        self._spill = Spill(config.spill_dir, config.spill_size)
        self._room = tree.cache.budget
        native = metadata.dtype.numpy
        self.dtype = None if native is None or self.is_text else _packed(native)
        self.band = max(1, math.prod(self.shape[1:])) * self._edge()
        """Elements in a band: in all chunks that share one chunk position of the slowest dimension."""
        is_wide = self.band * metadata.dtype.itemsize > self._room // WIDE_PART
        self._turn = threading.RLock() if is_wide and not self.is_text else nullcontext()

    def pieces(self, block: int = 1) -> Iterator[tuple[int, int]]:
        """Yield start and stop of pieces for one thread each, of about `UNIT_BYTES`.

        The pieces meet at multiples of the number `band`, rounded up to multiples of `block`. There is only one piece if the
        elements have no fixed size, or if there are none.
        """
        if self.is_text or not self.size:
            yield 0, self.size
            return
        itemsize = max(1, self.array.metadata.dtype.itemsize)
        step = self.band * max(1, UNIT_BYTES // (self.band * itemsize))
        stop = 0
        for number in range(1, math.ceil(self.size / step) + 1):
            start, stop = stop, min(self.size, math.ceil(number * step / block) * block)
            if start < stop:
                yield start, stop

    @contextmanager
    def reading(self) -> Iterator[ElementSequence]:
        """Read elements of a fixed size; nothing is decoded twice within one such context, if there is room for it."""
        with self._turn:
            supply, reader = self._open(select_all(self.array.metadata.shape))
            try:
                yield ElementSequence(self.array, self.dtype, reader)
            finally:
                supply.close()

    def texts(self) -> Iterator[list[bytes]]:
        """Yield the elements of variable length, a band at a time, as bytes: text in UTF-8, or stored bytes as they are."""
        for selection in self._bands():
            supply, reader = self._open(selection)
            try:
                elements = reader.read_objects().reshape(-1)
            finally:
                supply.close()
            yield [_utf8(item) if isinstance(item, str) else bytes(item) for item in elements]

    def check(self) -> None:
        """Raise Stale if the store now holds another version of the array. Readers check only their own chunks."""
        self._version.open_all([])

    def _open(self, selection: Selection) -> tuple[ChunkSupply, ElementReader]:
        supply = ChunkSupply(self._found, selection, self._order, self._helpers, self._spill)
        return supply, ElementReader(supply.metadata, selection, self._order, supply, self._room)

    def _edge(self) -> int:
        """Return the length of a chunk in the slowest dimension; the least one if chunks differ."""
        if not self.shape:
            return 1
        edges = self.array.metadata.grid.edges[self._order[0]]
        return max(1, edges if isinstance(edges, int) else min(edges))

    def _bands(self) -> Iterator[Selection]:
        """Yield regions along the slowest dimension, each as long as a chunk."""
        shape = self.array.metadata.shape
        if not shape:
            yield select_all(shape)
            return
        axis = self._order[0]
        plane = max(1, math.prod(shape) // max(1, shape[axis]))
        step = min(self._edge(), max(1, BAND_ITEMS // plane))
        if plane > BAND_ITEMS:
            raise Unsupported(f"a plane has {plane} elements of variable length, the limit is {BAND_ITEMS}")
        for start in range(0, shape[axis], step):
            picks = [Pick(0, 1, n) for n in shape]
            picks[axis] = Pick(start, 1, min(step, shape[axis] - start))
            yield Selection(tuple(picks))


class ElementSequence:
    """Elements of a fixed size as one sequence in C order. For one thread."""

    def __init__(self, array: Array, dtype: np.dtype[Any] | None, reader: ElementReader) -> None:
        self._array = array
        self._dtype = dtype
        self._reader = reader

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return elements [start, stop), little-endian and packed; as rows of bytes if numpy lacks the array's type."""
        elements, dtype = self._reader.read(start, stop), self._array.metadata.dtype
        if self._dtype is not None:
            assert dtype.numpy is not None
            return elements.view(dtype.numpy).astype(self._dtype, copy=False)
        rows = elements.view(np.uint8).reshape(-1, dtype.itemsize)
        return rows[:, ::-1] if dtype.endian == "big" else rows


def _packed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    little = dtype.newbyteorder("<")
    return little if little.names is None else np.dtype(repack_fields(little, recurse=True))
