"""Arithmetic of the reading engine: a range of elements as boxes, a box as parts of chunks. Pure; whole numbers only."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from fsbridge.layouts.files.selection import Pick, Selection
from fsbridge.model import ChunkGrid

Span = tuple[int, int]


class Run(NamedTuple):
    """Consecutive positions of one dimension of the region that lie in the same chunk.

    `first`, `length`: the positions; `chunk`: the coordinate of the chunk in the grid; `start`, `step`: elements within it.
    """

    first: int
    length: int
    chunk: int
    start: int
    step: int

    @property
    def inside(self) -> slice:
        """The elements within the chunk."""
        stop = self.start + self.length * self.step
        return slice(self.start, stop if stop >= 0 else None, self.step)


def boxes(shape: Sequence[int], start: int, stop: int) -> Iterator[tuple[int, tuple[Span, ...]]]:
    """Elements [start, stop) of an array of `shape` in C order as boxes, each with the number of its first element.

    Each box is contiguous in C order; there are at most twice as many as dimensions.
    """
    if start >= stop:
        return
    if not shape:
        yield start, ()
        return
    row = math.prod(shape[1:])
    first, begin = divmod(start, row)
    last, end = divmod(stop, row)
    if first == last:
        for offset, box in boxes(shape[1:], begin, end):
            yield first * row + offset, ((first, first + 1), *box)
        return
    if begin:
        for offset, box in boxes(shape[1:], begin, row):
            yield first * row + offset, ((first, first + 1), *box)
        first += 1
    if first < last:
        yield first * row, ((first, last), *((0, extent) for extent in shape[1:]))
    if end:
        for offset, box in boxes(shape[1:], 0, end):
            yield last * row + offset, ((last, last + 1), *box)


def runs(grid: ChunkGrid, dimension: int, pick: Pick, span: Span) -> list[Run]:
    """The positions [span) of what is picked of one dimension, cut where another chunk begins."""
    edge = grid.edges[dimension]
    bounds = None if isinstance(edge, int) else [0, *accumulate(edge)]
    found: list[Run] = []
    position, end = span
    while position < end:
        element = pick.start + position * pick.step
        if bounds is None:
            assert isinstance(edge, int)
            chunk = element // edge
            low, high = chunk * edge, (chunk + 1) * edge
        else:
            chunk = _containing(bounds, element)
            low, high = bounds[chunk], bounds[chunk + 1]
        left = (high - 1 - element) // pick.step if pick.step > 0 else (element - low) // -pick.step
        count = min(end - position, left + 1)
        found.append(Run(position, count, chunk, element - low, pick.step))
        position += count
    return found


def next_band(
    grid: ChunkGrid, selection: Selection, dimensions: Sequence[int], shape: Sequence[int], element: int
) -> tuple[tuple[int, ...], tuple[Span, ...]] | None:
    """The band behind the one that holds `element`: its first position and one box that touches all its chunks.

    A band is what one position of the slowest dimension touches in which chunks have more than one element; None after the
    last one.
    """
    cell: list[int] = []
    for i, dimension in enumerate(dimensions):
        row = math.prod(shape[i + 1 :])
        position, element = divmod(element, row) if row else (0, 0)
        cell.append(position)
        edge = grid.edges[dimension]
        if edge != 1 or i == len(dimensions) - 1:
            found = runs(grid, dimension, selection.picks[dimension], (position, shape[i]))
            if len(found) < 2:
                return None
            cell[-1] = found[1].first
            inner = [(0, extent) for extent in shape[i + 1 :]]
            return tuple(cell), (*((at, at + 1) for at in cell), *inner)
    return None


def _containing(bounds: list[int], element: int) -> int:
    """The number of the interval between two bounds that holds `element`."""
    low, high = 0, len(bounds) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if bounds[middle] <= element:
            low = middle
        else:
            high = middle
    return low
