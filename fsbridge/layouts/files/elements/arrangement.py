"""How the elements of a chunk lie in memory for a file: as it is decoded, or in the file's order. Not here: decoding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fsbridge.layouts.files.selection import Selection
from fsbridge.metadata import ArrayMetadata, Index


def native_order(metadata: ArrayMetadata) -> tuple[int, ...]:
    """Dimensions of the array as a decoded chunk has them, slowest first."""
    return metadata.order or tuple(range(len(metadata.shape)))


def kept_order(metadata: ArrayMetadata, selection: Selection, order: Sequence[int]) -> tuple[int, ...]:
    """Return the order in which chunks are kept for a file in `order`: their own if both have the same fastest dimension."""
    native = native_order(metadata)
    kept = {i for i, pick in enumerate(selection.picks) if not pick.dropped}
    return native if _streams(metadata, native, kept) == _streams(metadata, order, kept) else tuple(order)


def _streams(metadata: ArrayMetadata, order: Sequence[int], kept: set[int]) -> int | None:
    """Return the fastest dimension in `order` that the region keeps and in which chunks are longer than 1, if any."""
    edges = metadata.grid.edges
    return next((i for i in reversed(order) if edges[i] != 1 and i in kept), None)


class Arrangement:
    """The memory order in which chunks of an array are kept: `order` has the dimensions, slowest first."""

    def __init__(self, metadata: ArrayMetadata, order: tuple[int, ...]) -> None:
        self.order = order
        self._metadata = metadata
        self._native = native_order(metadata)
        self._inverse = tuple(order.index(i) for i in range(len(order)))
        edges = [edge for i in order if isinstance(edge := metadata.grid.edges[i], int)]
        self._extents = edges if len(edges) == len(order) else None  # of every chunk, where they are all the same
        self._bits = bits(metadata.dtype.itemsize)

    @property
    def differs(self) -> bool:
        """True if the order is not that of a decoded chunk."""
        return self.order != self._native

    def shaped(self, view: memoryview, index: Index) -> NDArray[Any]:
        """The elements of a chunk, dimensions in the array's order."""
        extents = self._extents
        if extents is None:
            shape = self._metadata.grid.chunk_shape(index)
            extents = [shape[i] for i in self.order]
        return np.frombuffer(view, self._bits).reshape(extents).transpose(self._inverse)

    def arrange(self, decoded: memoryview, index: Index, out: memoryview) -> None:
        """Copy a decoded chunk to `out`, in this memory order."""
        shape = self._metadata.grid.chunk_shape(index)
        source = np.frombuffer(decoded, self._bits).reshape([shape[i] for i in self._native])
        target = np.frombuffer(out, self._bits).reshape([shape[i] for i in self.order])
        target[...] = source.transpose(np.argsort(self._native)).transpose(self.order)


def bits(itemsize: int) -> np.dtype[Any]:
    """Return the dtype of `itemsize` bytes that numpy copies fastest without changing any bits."""
    return np.dtype({1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}.get(itemsize, f"V{itemsize}"))
