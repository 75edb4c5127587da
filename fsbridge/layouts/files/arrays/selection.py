"""A region of an array, in numpy's slice syntax as a part of a file name: `NAME[0:64,:,100:200].npy`. Pure.

Also the index arithmetic of reading one: a range of elements is split into boxes, and a box into parts of chunks. Not here:
which file names there are (`names.py`), reading (`elements/`).
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import NamedTuple

from fsbridge.meaning import Affine, Axes, Axis
from fsbridge.metadata import ChunkGrid

LONGEST_STEP = 1 << 20
"""Longest step. A longer step beyond the dimension's end picks the same element, and its spacing would fit no header."""

_ITEM = re.compile(r"\s*([+-]?[0-9]+)?\s*(?:(:)\s*([+-]?[0-9]+)?\s*(?:(:)\s*([+-]?[0-9]+)?\s*)?)?")


class Pick(NamedTuple):
    """The positions `start`, `start + step`, ... of one dimension, `length` of them. `dropped`: the index is an integer."""

    start: int
    step: int
    length: int
    dropped: bool = False

    @property
    def whole(self) -> bool:
        """True if the dimension is kept, and its positions begin at 0 and have no gaps."""
        return self.start == 0 and self.step == 1 and not self.dropped


@dataclass(frozen=True, slots=True)
class Selection:
    """A region of an array: one pick for each dimension."""

    picks: tuple[Pick, ...]

    @property
    def kept(self) -> tuple[int, ...]:
        """The numbers of the dimensions that are not dropped."""
        return tuple(i for i, pick in enumerate(self.picks) if not pick.dropped)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the region, in the array's order."""
        return tuple(pick.length for pick in self.picks if not pick.dropped)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(pick.length for pick in self.picks)

    def cut_axes(self, axes: Axes) -> Axes:
        """Convert the array's axes to those of the region.

        Each kept dimension has one, moved by the start of its pick and stretched by its step.
        """
        return tuple(_move(axes[i], self.picks[i]) for i in self.kept)

    def cut_affine(self, affine: Affine | None) -> Affine | None:
        """Convert where the array's elements lie to where the region's do.

        None if it is unknown, or if a dimension that it depends on is dropped.
        """
        kept = self.kept
        if affine is None or not set(affine.dimensions).issubset(kept):
            return None
        picks = [self.picks[i] for i in affine.dimensions]
        moved = [sum(step * pick.start for step, pick in zip(row, picks, strict=True)) for row in affine.matrix]
        return Affine(
            tuple(kept.index(i) for i in affine.dimensions),
            tuple(tuple(step * pick.step for step, pick in zip(row, picks, strict=True)) for row in affine.matrix),
            tuple(start + by for start, by in zip(affine.offset, moved, strict=True)),
        )

    def cut_at(self, dimension: int, position: int) -> Selection:
        """Return the region at one `position` of `dimension`, which is then dropped. `dimension`: an index into `picks`."""
        pick = self.picks[dimension]
        one = Pick(pick.start + position * pick.step, 1, 1, True)
        return Selection((*self.picks[:dimension], one, *self.picks[dimension + 1 :]))


def select_all(shape: tuple[int, ...]) -> Selection:
    """Return the selection of a whole array."""
    return Selection(tuple(Pick(0, 1, n) for n in shape))


def parse_region(text: str, shape: tuple[int, ...]) -> Selection:
    """Parse a region as numpy's `array[text]` has it: integers, slices and one `...`. ValueError says what is wrong."""
    items = text.split(",")
    if len(items) > 1 and not items[-1].strip():
        items.pop()  # a trailing comma is allowed, as in a[1:2,]
    dots = [i for i, item in enumerate(items) if item.strip() == "..."]
    if len(dots) > 1:
        raise ValueError("there is more than one '...'")
    given = len(items) - len(dots)
    if given > len(shape):
        raise ValueError(f"there are {given} items for {len(shape)} dimensions")
    missing = [":"] * (len(shape) - given)
    position = dots[0] if dots else len(items)
    items[position : position + len(dots)] = missing
    return Selection(tuple(_parse_item(item, n) for item, n in zip(items, shape, strict=True)))


def _parse_item(item: str, length: int) -> Pick:
    match = _ITEM.fullmatch(item)
    if match is None or not item.strip():
        raise ValueError(f"{item!r} is neither an integer nor a slice")
    start, colon, stop, _, step = match.groups()
    if colon is None:
        position = int(start)
        if not -length <= position < length:
            raise ValueError(f"index {position} is outside a dimension of {length}")
        return Pick(position % length, 1, 1, True)
    numbers = [None if number is None else int(number) for number in (start, stop, step)]
    if numbers[2] == 0:
        raise ValueError("the step is 0")
    chosen = range(length)[slice(*numbers)]
    count = (chosen.stop - chosen.start + chosen.step - (1 if chosen.step > 0 else -1)) // chosen.step
    most = max(length, LONGEST_STEP)
    return Pick(chosen.start if count > 0 else 0, max(-most, min(chosen.step, most)), max(0, count))


def _move(axis: Axis, pick: Pick) -> Axis:
    if pick.whole or axis.scale is None:
        return axis
    return axis._replace(scale=axis.scale * pick.step, offset=axis.offset + pick.start * axis.scale)


Span = tuple[int, int]


class Run(NamedTuple):
    """Consecutive positions of one dimension of the region, with elements in the same chunk.

    `first`, `length`: the positions; `chunk`: the chunk's coordinate in the grid; `start`, `step`: places in the chunk.
    """

    first: int
    length: int
    chunk: int
    start: int
    step: int

    @property
    def inside(self) -> slice:
        """The places within the chunk, as a slice."""
        stop = self.start + self.length * self.step
        return slice(self.start, stop if stop >= 0 else None, self.step)


def split_into_boxes(shape: Sequence[int], start: int, stop: int) -> Iterator[tuple[int, tuple[Span, ...]]]:
    """Split elements [start, stop) of an array in C order into boxes. Yields each with the number of its first element.

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
        for offset, box in split_into_boxes(shape[1:], begin, end):
            yield first * row + offset, ((first, first + 1), *box)
        return
    if begin:
        for offset, box in split_into_boxes(shape[1:], begin, row):
            yield first * row + offset, ((first, first + 1), *box)
        first += 1
    if first < last:
        yield first * row, ((first, last), *((0, extent) for extent in shape[1:]))
    if end:
        for offset, box in split_into_boxes(shape[1:], 0, end):
            yield last * row + offset, ((last, last + 1), *box)


def split_into_runs(grid: ChunkGrid, dimension: int, pick: Pick, span: Span) -> Iterator[Run]:
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


def find_band(
    grid: ChunkGrid, selection: Selection, dimensions: Sequence[int], shape: Sequence[int], element: int
) -> tuple[tuple[Span, ...], int | None]:
    """Return a box that touches all chunks of the band of `element`, and the next band's first element.

    The latter is None after the last band. A band consists of all chunks at one position of each of the slowest dimensions;
    the last of these is the slowest one in which chunks are longer than one element.
    """
    cell: list[int] = []
    following: int | None = None
    for i, dimension in enumerate(dimensions):
        row = math.prod(shape[i + 1 :])
        position, element = divmod(element, row) if row else (0, 0)
        cell.append(position)
        if grid.edges[dimension] != 1 or i == len(dimensions) - 1:
            next_runs = list(islice(split_into_runs(grid, dimension, selection.picks[dimension], (position, shape[i])), 2))
            following = next_runs[1].first if len(next_runs) > 1 else shape[i]
            break
    first = 0
    for extent, position in zip(shape, (*cell[:-1], following or 0), strict=False):
        first = first * extent + position
    first *= math.prod(shape[len(cell) :])
    box = (*((at, at + 1) for at in cell), *((0, extent) for extent in shape[len(cell) :]))
    return box, first if following is not None and first < math.prod(shape) else None
