"""Index arithmetic of the reading engine: splits a range of elements into boxes, and a box into parts of chunks. Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice
from typing import NamedTuple

from fsbridge.layouts.files.selection import Pick, Selection
from fsbridge.metadata import ChunkGrid

Span = tuple[int, int]


class Run(NamedTuple):
    """Consecutive positions of one dimension of the region that lie in the same chunk.

    `first`, `length`: the positions; `chunk`: the chunk's coordinate in the grid; `start`, `step`: places in the chunk.
    """

    first: int
    length: int
    chunk: int
    start: int
    step: int

    @property
    def inside(self) -> slice:
        """Return the positions within the chunk as a slice."""
        stop = self.start + self.length * self.step
        return slice(self.start, stop if stop >= 0 else None, self.step)


def boxes(shape: Sequence[int], start: int, stop: int) -> Iterator[tuple[int, tuple[Span, ...]]]:
    """Split elements [start, stop) of an array in C order into boxes, each with the number of its first element.

    Each box is contiguous in C order. There are at most twice as many boxes as dimensions.
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


def runs(grid: ChunkGrid, dimension: int, pick: Pick, span: Span) -> Iterator[Run]:
    """Split the positions `span` of one dimension's pick into runs, each within one chunk."""
    edge = grid.edges[dimension]
    bounds = None if isinstance(edge, int) else [0, *accumulate(edge)]
    position, end = span
    while position < end:
        element = pick.start + position * pick.step
        if bounds is None:
            assert isinstance(edge, int)
            chunk = element // edge
            low, high = chunk * edge, (chunk + 1) * edge
        else:
            chunk = bisect_right(bounds, element) - 1
            low, high = bounds[chunk], bounds[chunk + 1]
        left = (high - 1 - element) // pick.step if pick.step > 0 else (element - low) // -pick.step
        count = min(end - position, left + 1)
        yield Run(position, count, chunk, element - low, pick.step)
        position += count


def band(
    grid: ChunkGrid, selection: Selection, dimensions: Sequence[int], shape: Sequence[int], element: int
) -> tuple[tuple[Span, ...], int | None]:
    """Return a box that touches all chunks of the band of `element`, and the next band's first element, if any.

    Take the slowest dimension in which chunks are longer than one element. The chunks at one position of it, and of all
    slower dimensions, are a band.
    """
    cell: list[int] = []
    following: int | None = None
    for i, dimension in enumerate(dimensions):
        row = math.prod(shape[i + 1 :])
        position, element = divmod(element, row) if row else (0, 0)
        cell.append(position)
        if grid.edges[dimension] != 1 or i == len(dimensions) - 1:
            found = list(islice(runs(grid, dimension, selection.picks[dimension], (position, shape[i])), 2))
            following = found[1].first if len(found) > 1 else shape[i]
            break
    first = 0
    for extent, position in zip(shape, (*cell[:-1], following or 0), strict=False):
        first = first * extent + position
    first *= math.prod(shape[len(cell) :])
    box = (*((at, at + 1) for at in cell), *((0, extent) for extent in shape[len(cell) :]))
    return box, first if following is not None and first < math.prod(shape) else None
