"""The elements in the bytes of a chunk: their order in memory, parts by ranges of bytes, and elements of variable length.

A chunk is kept as it is decoded, or in the file's order. Chunks that are too large to be decoded whole are read by ranges.
Not here: decoding, when a part is read (`reading.py`), what a range costs (`model.Chunks.read_range`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fsbridge.config import MIB
from fsbridge.errors import CorruptData
from fsbridge.layouts.files.arrays.selection import Selection
from fsbridge.metadata import ArrayMetadata, Index


def native_order(metadata: ArrayMetadata) -> tuple[int, ...]:
    """Return the dimensions of the array as a decoded chunk has them, slowest first."""
    return metadata.order or tuple(range(len(metadata.shape)))


def kept_order(metadata: ArrayMetadata, selection: Selection, order: Sequence[int]) -> tuple[int, ...]:
    """Return the memory order in which chunks are kept for a file in the order `order`.

    It is the chunks' own order if that has the same fastest dimension as the file's, else the file's.
    """
    native = native_order(metadata)
    kept = {i for i, pick in enumerate(selection.picks) if not pick.dropped}
    return native if _find_fastest(metadata, native, kept) == _find_fastest(metadata, order, kept) else tuple(order)


def _find_fastest(metadata: ArrayMetadata, order: Sequence[int], kept: set[int]) -> int | None:
    """Return the fastest dimension in `order` that the region keeps and along which chunks are longer than 1.

    None without one.
    """
    edges = metadata.grid.edges
    return next((i for i in reversed(order) if edges[i] != 1 and i in kept), None)


class Arrangement:
    """The memory order in which chunks of an array are kept. `order`: all dimensions, slowest first."""

    def __init__(self, metadata: ArrayMetadata, order: tuple[int, ...]) -> None:
        self.order = order
        self._metadata = metadata
        self._native = native_order(metadata)
        self._inverse = tuple(order.index(i) for i in range(len(order)))
        edges = [edge for i in order if isinstance(edge := metadata.grid.edges[i], int)]
        self._extents = edges if len(edges) == len(order) else None  # None if chunks differ in their extents
        self._bits = bits(metadata.dtype.itemsize)

    @property
    def differs(self) -> bool:
        """True if the order is not that of a decoded chunk."""
        return self.order != self._native

    def reshape(self, view: memoryview, index: Index) -> NDArray[Any]:
        """Return the elements of a chunk, dimensions in the array's order."""
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


RANGE_BYTES = 8 * MIB
"""Most bytes that are read at once. They are in memory besides the cache."""

Ranges = Callable[[int, int], bytes]
"""Bytes [start, stop) of the chunk, or an error."""


def copy_part(
    out: NDArray[Any],
    source: Sequence[slice | int],
    shape: Sequence[int],
    order: Sequence[int],
    read: Ranges,
    most: int = RANGE_BYTES,
) -> None:
    """Copy the elements `chunk[source]` to `out`, which has the dimensions in the array's order.

    `shape`: of the chunk; `order`: its dimensions, slowest first, as they lie in memory. `read` is called for ranges of
    bytes of the chunk. The region is split along its slowest dimensions until no range has more than `most` bytes.
    """
    strides = [0] * len(shape)
    stride = out.itemsize
    for dimension in reversed(order):
        strides[dimension] = stride
        stride *= shape[dimension]
    picks = [
        (chosen, 1, 1) if isinstance(chosen, int) else (chosen.start, chosen.step or 1, _count(chosen, extent))
        for chosen, extent in zip(source, shape, strict=True)
    ]
    kept = [i for i, chosen in enumerate(source) if isinstance(chosen, slice)]
    _copy(out, [picks[i] for i in kept], [strides[i] for i in kept], [order.index(i) for i in kept],
          sum(picks[i][0] * strides[i] for i in range(len(picks)) if i not in kept), read, most)  # fmt: skip


def _copy(
    out: NDArray[Any],
    picks: list[tuple[int, int, int]],
    strides: list[int],
    ranks: list[int],
    base: int,
    read: Ranges,
    most: int,
) -> None:
    """Copy a part of a chunk to `out`.

    `picks`: start, step and count for each dimension of `out`; `ranks`: each dimension's place in memory (0: slowest).
    """
    if 0 in out.shape:
        return
    ends = [sorted((start * stride, (start + (count - 1) * step) * stride))
            for (start, step, count), stride in zip(picks, strides, strict=True)]  # fmt: skip
    low = base + sum(end[0] for end in ends)
    high = base + sum(end[1] for end in ends) + out.itemsize
    longest = [i for i in range(len(picks)) if picks[i][2] > 1]
    if high - low <= most or not longest:
        first = base + sum(start * stride for (start, _, _), stride in zip(picks, strides, strict=True))
        steps = [step * stride for (_, step, _), stride in zip(picks, strides, strict=True)]
        out[...] = np.ndarray(out.shape, out.dtype, read(low, high), first - low, steps)
        return
    split = min(longest, key=lambda i: ranks[i])
    start, step, count = picks[split]
    half = max(1, min(count // 2, most // max(1, abs(step) * strides[split])))
    for begin in range(0, count, half):
        some = min(half, count - begin)
        part = [*picks[:split], (start + begin * step, step, some), *picks[split + 1 :]]
        _copy(out[(slice(None),) * split + (slice(begin, begin + some),)], part, strides, ranks, base, read, most)


def _count(chosen: slice, extent: int) -> int:
    return len(range(*chosen.indices(extent)))


_LENGTH = struct.Struct("<I")


def decode_items(kind: str, data: memoryview, count: int) -> list[str | bytes]:
    """Return the first `count` items of a chunk, invalid UTF-8 as surrogate escapes. CorruptData if there are fewer."""
    if len(data) < _LENGTH.size or _LENGTH.unpack_from(data)[0] < count:
        raise CorruptData(f"a chunk of {len(data)} bytes does not hold {count} items")
    items: list[str | bytes] = []
    position = _LENGTH.size
    for _ in range(count):
        if position + _LENGTH.size > len(data):
            raise CorruptData(f"a chunk of {len(data)} bytes ends after {len(items)} of {count} items")
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        if position + length > len(data):
            raise CorruptData(f"item {len(items)} of a chunk is longer than the chunk")
        raw = bytes(data[position : position + length])
        items.append(raw.decode("utf-8", "surrogateescape") if kind == "vlen-utf8" else raw)
        position += length
    return items


def fill_item(kind: str, fill: bytes | str | None) -> str | bytes:
    """Return the value of an element of variable length in a chunk that is not stored."""
    if kind == "vlen-utf8":
        return fill if isinstance(fill, str) else (fill or b"").decode("utf-8", "replace")
    return fill if isinstance(fill, bytes) else b""
