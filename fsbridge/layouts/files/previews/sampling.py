"""Which elements of an array a preview uses. They lie in few chunks, so that decoding is quick. Pure.

They are every n-th element of the whole extent or, if that would decode too much, of the middle. Not here: which
dimensions are shown (`picture.py`, `plot.py`), how elements are read (`elements/`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fsbridge.layouts.files.extents import Unfit
from fsbridge.layouts.files.previews import DECODED_BYTES
from fsbridge.layouts.files.selection import Pick, Selection
from fsbridge.metadata import ArrayMetadata

PIXELS = 512
"""Width and height of a preview, at most."""

_LEAST_PIXELS = 128
"""Least pixels of the longer side for a coarse sample of a whole array. Below, a fine sample of its middle is better."""


class Sample(NamedTuple):
    """The elements of a preview. `steps`: by dimension of the region; `middle`: only the middle of the extent is sampled."""

    selection: Selection
    steps: tuple[int, ...]
    middle: bool


class Wish(NamedTuple):
    """What is wanted of one dimension: at most `most` elements, evenly spread. None: all of them."""

    most: int | None


def sampled(
    metadata: ArrayMetadata,
    region: Selection,
    shown: Mapping[int, Wish],
    at: Mapping[int, int],
    kept: Mapping[int, int] | None = None,
) -> Sample:
    """Return the elements of a region that a preview shows. Unfit where a single chunk is too large.

    `shown`: wishes by dimension of the region; `at`: positions in dimensions that are cut at one position. `kept`: number of
    elements, from the first on, in dimensions that are not sampled; fewer if single chunks would already be too much.
    """
    kept = kept or {}
    shape, first = region.shape, {dimension: (0, count) for dimension, count in kept.items()}
    wishes = {dimension: wish.most for dimension, wish in shown.items()}
    for factor in (1, 2, 4):
        whole = {
            dimension: (0, shape[dimension], _step(shape[dimension], most, factor)) for dimension, most in wishes.items()
        }
        finest = max((most // factor for most in wishes.values() if most is not None), default=0)
        if factor > 1 and finest < _LEAST_PIXELS:
            break
        found = _selection(region, whole, at, first)
        if _cost(metadata, found) <= DECODED_BYTES:
            return Sample(found, tuple(whole[i][2] if i in whole else 1 for i in range(len(shape))), False)
    counts = {dimension: shape[dimension] for dimension in wishes}
    while True:
        parts = {}
        for dimension, most in wishes.items():
            count = counts[dimension]
            start = (shape[dimension] - count) // 2
            parts[dimension] = (start, start + count, _step(count, most, 1))
        found = _selection(region, parts, at, first)
        if _cost(metadata, found) <= DECODED_BYTES:
            return Sample(found, tuple(parts[i][2] if i in parts else 1 for i in range(len(shape))), True)
        places = [region.kept[dimension] for dimension in counts]
        single = all(_touched(found.picks[place], metadata.grid.edges[place]) <= 1 for place in places)
        if single and any(stop > 1 for _, stop in first.values()):
            first = {dimension: (0, max(1, stop // 2)) for dimension, (_, stop) in first.items()}
            continue
        longer = [dimension for dimension, count in counts.items() if count > 1]
        if not longer:
            raise Unfit(f"a chunk has more than {DECODED_BYTES} bytes, and a preview decodes no more")
        longest = max(longer, key=lambda dimension: counts[dimension] / _edge(metadata, region, dimension))
        counts[longest] = counts[longest] * 3 // 4


def _step(count: int, most: int | None, factor: int) -> int:
    """Return the step that leaves `most` elements or somewhat more; 1 if there are fewer, or no limit."""
    return 1 if most is None else max(1, count * factor // max(1, most))


def _edge(metadata: ArrayMetadata, region: Selection, dimension: int) -> int:
    edge = metadata.grid.edges[region.kept[dimension]]
    return max(edge) if isinstance(edge, tuple) else edge


def _selection(
    region: Selection,
    parts: Mapping[int, tuple[int, int, int]],
    at: Mapping[int, int],
    kept: Mapping[int, tuple[int, int]],
) -> Selection:
    """Every `step`-th of [start, stop) in the dimensions of `parts`, as picks of the array itself."""
    picks = list(region.picks)
    for dimension, place in enumerate(region.kept):
        pick = picks[place]
        if dimension in at:
            picks[place] = Pick(pick.start + at[dimension] * pick.step, 1, 1, True)
        elif dimension in parts:
            start, stop, step = parts[dimension]
            picks[place] = Pick(pick.start + start * pick.step, pick.step * step, -(-(stop - start) // step))
        elif dimension in kept:
            start, stop = kept[dimension]
            picks[place] = Pick(pick.start + start * pick.step, pick.step, stop - start)
    return Selection(tuple(picks))


def _cost(metadata: ArrayMetadata, selection: Selection) -> int:
    """Return the bytes of all chunks that hold one of the elements."""
    touched = math.prod(_touched(pick, edge) for pick, edge in zip(selection.picks, metadata.grid.edges, strict=True))
    largest = math.prod(max(edge) if isinstance(edge, tuple) else edge for edge in metadata.grid.edges)
    return touched * largest * max(1, metadata.dtype.itemsize)


def _touched(pick: Pick, edge: int | tuple[int, ...]) -> int:
    """Return the most chunks along one dimension that contain a picked element."""
    if not pick.length:
        return 0
    last = pick.start + (pick.length - 1) * pick.step
    low, high = min(pick.start, last), max(pick.start, last)
    if isinstance(edge, tuple):
        return min(pick.length, _place(edge, high) - _place(edge, low) + 1)
    return min(pick.length, high // edge - low // edge + 1)


def _place(edges: Sequence[int], position: int) -> int:
    """The number of the chunk that holds a position, in a grid of different edges."""
    stop = 0
    for number, edge in enumerate(edges):
        stop += edge
        if position < stop:
            return number
    return len(edges) - 1
