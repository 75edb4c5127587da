"""`ChunkForm`: how the bytes of a chunk file follow from those of the decoded chunk.

A layout's readers may need a header in front, another memory order, another byte order, or chunks at the edge that are
cropped to the array.

Not here: which layout needs what (the layouts), the decoding (`decoded/`). Only what is read is converted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fsbridge.metadata import ArrayMetadata
from fsbridge.tree import Buffer


class Box(NamedTuple):
    """Elements that follow each other in a file, and their places in the decoded chunk.

    `offset`: of the first element, in bytes. `shape`: elements along each axis; `steps`: bytes from one element to the next
    along each axis. The slowest axis comes first in both.
    """

    offset: int
    shape: tuple[int, ...]
    steps: tuple[int, ...]

    @property
    def end(self) -> int:
        """Offset of the last element's first byte in the decoded chunk."""
        return self.offset + sum((extent - 1) * step for extent, step in zip(self.shape, self.steps, strict=True))


@dataclass(frozen=True, slots=True)
class ChunkForm:
    """The bytes of one chunk file: `header`, then elements of `itemsize` bytes. The last axis of `shape` is the fastest.

    `steps`: bytes from one element to the next along each axis of the decoded chunk. `swap`: the byte order is reversed.
    """

    header: bytes
    shape: tuple[int, ...]
    steps: tuple[int, ...]
    itemsize: int
    swap: bool = False
    packed: bool = field(init=False)
    """True if the elements follow each other in the decoded chunk as they do in the file."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "packed", self.steps == packed_steps(self.shape, self.itemsize))

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return len(self.header) + math.prod(self.shape) * self.itemsize

    @property
    def plain(self) -> bool:
        """True if the file consists of the decoded chunk's bytes, or of their beginning."""
        return self.packed and not self.swap and not self.header

    @property
    def quick(self) -> bool:
        """True if converting takes no longer than copying, because the elements of each row stay together."""
        return self.packed or not self.shape or self.steps[-1] == self.itemsize

    def extent(self, start: int, stop: int) -> tuple[int, int]:
        """Return the range (start, stop) of the decoded chunk's bytes that is needed for the file's bytes [start, stop)."""
        first, last = self._elements(start, stop)
        if first >= last:
            return 0, 0
        if self.packed:
            return first * self.itemsize, last * self.itemsize
        boxes = list(_boxes(self.shape, self.steps, first, last))
        return min(box.offset for box in boxes), max(box.end for box in boxes) + self.itemsize

    def convert(self, start: int, stop: int, data: Buffer) -> Buffer:
        """Return the file's bytes [start, stop). `data`: the decoded chunk's bytes in the range `extent(start, stop)`."""
        first, last = self._elements(start, stop)
        offset = start - len(self.header) - first * self.itemsize  # negative inside the header
        count = stop - max(start, len(self.header))
        body: Buffer = b"" if first >= last else self._body(first, last, data)
        if offset >= 0:
            return body if len(body) == count else memoryview(body)[offset : offset + count]
        return b"".join((self.header[start:stop], memoryview(body)[: max(0, count)]))

    def _elements(self, start: int, stop: int) -> tuple[int, int]:
        """Return the range (first, end) of elements that lie at least partly in the file's bytes [start, stop)."""
        begin = len(self.header)
        return max(0, start - begin) // self.itemsize, -(-max(0, stop - begin) // self.itemsize)

    def _body(self, first: int, last: int, data: Buffer) -> Buffer:
        if self.packed and not self.swap:
            return data
        stored, shown = self._types()
        result = np.empty(last - first, shown)
        if self.packed:
            result[...] = np.frombuffer(data, stored)
            return result.data.cast("B")
        boxes = list(_boxes(self.shape, self.steps, first, last))
        begin, position = min(box.offset for box in boxes), 0
        for box in boxes:
            count = math.prod(box.shape)
            part = np.ndarray(box.shape, stored, data, box.offset - begin, box.steps)
            result[position : position + count].reshape(box.shape)[...] = part
            position += count
        return result.view(np.uint8).data

    def _types(self) -> tuple[np.dtype[Any], np.dtype[Any]]:
        """Return the type of an element in the decoded chunk, and its type in the file."""
        if self.itemsize not in (1, 2, 4, 8):
            opaque = np.dtype(f"V{self.itemsize}")
            return opaque, opaque
        shown = np.dtype(f"u{self.itemsize}")  # elements of any type are copied and swapped fastest as integers
        return shown.newbyteorder() if self.swap else shown, shown


def packed_steps(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the bytes from one element to the next along each axis, if the last axis varies fastest."""
    return tuple(itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def chunk_steps(metadata: ArrayMetadata, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the bytes from one element to the next along each axis of the array, in decoded chunks of `shape`."""
    order = metadata.order if metadata.order is not None else tuple(range(len(shape)))
    along = packed_steps(tuple(shape[axis] for axis in order), metadata.dtype.itemsize)
    return tuple(along[order.index(axis)] for axis in range(len(shape)))


def _boxes(shape: tuple[int, ...], steps: tuple[int, ...], first: int, last: int, offset: int = 0) -> Iterator[Box]:
    """Yield the elements [first, last) as boxes: a partial row, then all whole rows, then another partial row."""
    if not shape:
        yield Box(offset, (), ())
        return
    row = math.prod(shape[1:])
    begin, before = divmod(first, row)
    end, behind = divmod(last, row)
    if begin == end:
        yield from _boxes(shape[1:], steps[1:], before, behind, offset + begin * steps[0])
        return
    if before:
        yield from _boxes(shape[1:], steps[1:], before, row, offset + begin * steps[0])
        begin += 1
    if begin < end:
        yield Box(offset + begin * steps[0], (end - begin, *shape[1:]), steps)
    if behind:
        yield from _boxes(shape[1:], steps[1:], 0, behind, offset + end * steps[0])
