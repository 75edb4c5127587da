"""A region of an array, in numpy's slice syntax as a part of a file name: `NAME[0:64,:,100:200].npy`.

Pure. Not here: which file names there are (`names.py`), reading (`elements/`).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from fsbridge.metadata import Axes, Axis

LONGEST_STEP = 1 << 20
"""Longest step. A longer step beyond the dimension's end picks the same element, and its spacing would fit no header."""

_ITEM = re.compile(r"\s*([+-]?[0-9]+)?\s*(?:(:)\s*([+-]?[0-9]+)?\s*(?:(:)\s*([+-]?[0-9]+)?\s*)?)?")


class Pick(NamedTuple):
    """The `length` positions `start`, `start + step`, ... of one dimension. `dropped`: the index is an integer."""

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
    """One pick for each dimension of the array."""

    picks: tuple[Pick, ...]

    @property
    def kept(self) -> tuple[int, ...]:
        """Numbers of the array's dimensions that are not dropped."""
        return tuple(i for i, pick in enumerate(self.picks) if not pick.dropped)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the region, in the array's order."""
        return tuple(pick.length for pick in self.picks if not pick.dropped)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(pick.length for pick in self.picks)

    def axes(self, axes: Axes) -> Axes:
        """Return the region's axes, one per kept dimension, with spacing and offset changed by the steps and starts."""
        return tuple(_moved(axes[i], self.picks[i]) for i in self.kept)

    def at(self, dimension: int, position: int) -> Selection:
        """Return the region with `dimension` (an index into `picks`) reduced to the one `position`, and dropped."""
        pick = self.picks[dimension]
        one = Pick(pick.start + position * pick.step, 1, 1, True)
        return Selection((*self.picks[:dimension], one, *self.picks[dimension + 1 :]))


@lru_cache(maxsize=1024)
def whole(shape: tuple[int, ...]) -> Selection:
    """All of an array."""
    return Selection(tuple(Pick(0, 1, n) for n in shape))


def parse_region(text: str, shape: tuple[int, ...]) -> Selection:
    """Parse what numpy's `array[text]` selects by integers, slices and one `...`. ValueError says what is wrong."""
    items = text.split(",")
    if len(items) > 1 and not items[-1].strip():
        items.pop()  # as in a[1:2,]
    dots = [i for i, item in enumerate(items) if item.strip() == "..."]
    if len(dots) > 1:
        raise ValueError("more than one '...'")
    given = len(items) - len(dots)
    if given > len(shape):
        raise ValueError(f"{given} items for {len(shape)} dimensions")
    missing = [":"] * (len(shape) - given)
    position = dots[0] if dots else len(items)
    items[position : position + len(dots)] = missing
    return Selection(tuple(_pick(item, n) for item, n in zip(items, shape, strict=True)))


def _pick(item: str, length: int) -> Pick:
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
        raise ValueError("a step of 0")
    chosen = range(length)[slice(*numbers)]
    count = (chosen.stop - chosen.start + chosen.step - (1 if chosen.step > 0 else -1)) // chosen.step
    most = max(length, LONGEST_STEP)
    return Pick(chosen.start if count > 0 else 0, max(-most, min(chosen.step, most)), max(0, count))


def _moved(axis: Axis, pick: Pick) -> Axis:
    if pick.whole:
        return axis
    scale = 1.0 if axis.scale is None else axis.scale
    known = axis.scale is not None or pick.step != 1
    return axis._replace(scale=scale * pick.step if known else None, offset=axis.offset + pick.start * scale)
