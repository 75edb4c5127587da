"""Which elements of an array a preview uses: the dimensions of a picture, and places in few chunks, to decode quickly. Pure.

They are every n-th element of the whole extent or, if that would take too many bytes or chunks, of the middle. Not here:
how they are drawn (`picture.py`, `curves.py`), how elements are read (`elements/`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fsbridge.layouts.files.arrays.colors import find_color_axis
from fsbridge.layouts.files.arrays.extents import Unfit, View
from fsbridge.layouts.files.arrays.selection import Pick, Selection
from fsbridge.layouts.files.looks.previews import CHUNKS, DECODED_BYTES
from fsbridge.meaning.kinds import is_channel, is_geographic, is_latitude, is_longitude, is_space, is_time
from fsbridge.meaning.units import convert
from fsbridge.metadata import ArrayMetadata

if TYPE_CHECKING:
    import numpy as np

    from fsbridge.meaning import Axis


MOST_COLUMNS = 16
"""Most columns of a table that is drawn as curves. A wider one is drawn as a picture."""

_TABLE_ROWS = 8
"""Least rows for each column of a 2-D array without dimension names that counts as a table."""

_FEW_COLUMNS = 4
"""Most columns of a 2-D array that is a table, and no picture, whatever its dimensions are called: bounds of cells, say."""

_KINDS = "biufcmM"
"""Kinds of elements that can be drawn, as numpy calls them."""


class Plane(NamedTuple):
    """The dimensions of a picture.

    `geographic`: rows are latitudes, columns longitudes; `color`: channels are red, green, blue.
    """

    rows: int
    columns: int
    channels: int | None
    geographic: bool
    color: bool


def check_drawable(view: View) -> np.dtype[Any]:
    """Return the type of the elements. Unfit if they cannot be drawn, or if there are none."""
    dtype = view.dtype
    fields = [] if dtype is None or dtype.names is None else [dtype[name] for name in dtype.names]
    if dtype is None or not any(map(is_number, fields or [dtype])):
        raise Unfit(f"a preview cannot show elements of type {view.metadata.dtype.native}")
    if fields and len(view.shape) > 1:
        raise Unfit("compounds are only drawn as curves, which need one dimension")
    if 0 in view.shape:
        raise Unfit("the array has no elements to draw")
    return dtype


def is_number(dtype: np.dtype[Any]) -> bool:
    """True if elements, or one field of them, can be drawn: `dtype` is a number, a truth value or a time."""
    return dtype.kind in _KINDS and dtype.subdtype is None


def is_table(view: View) -> bool:
    """True if the array is drawn as curves: it has one dimension, or few columns that are no picture."""
    return find_curve_dimension(view) is not None


def find_curve_dimension(view: View) -> int | None:
    """Return the dimension along which an array is drawn as curves, one for each column.

    None if it is drawn as a picture.
    """
    if len(view.shape) < 2:
        return 0
    if len(view.shape) > 2 or view.x_first:
        return None
    named = any(axis.name is not None for axis in view.axes)
    for long, across in ((0, 1), (1, 0)):
        rows, columns = view.shape[long], view.shape[across]
        if columns > MOST_COLUMNS:
            continue
        if is_time(view.axes[long]) or (columns <= _FEW_COLUMNS and rows >= _TABLE_ROWS * columns):
            return long
        if (not named or is_channel(view.axes[across])) and rows >= _TABLE_ROWS * max(_TABLE_ROWS, columns):
            return long
    return None


def choose_plane(view: View) -> Plane:
    """Choose which dimensions of an array of two dimensions or more a picture shows."""
    color = find_color_axis(view)
    if color is None and _is_stack_of_colors(view):
        color = len(view.shape) - 1
    channels = color
    if channels is None:
        channels = next((i for i in view.picture if is_channel(view.axes[i]) and view.shape[i] > 1), None)
    others = [i for i in view.picture if i != channels]
    if len(others) < 2:
        others, channels = list(view.picture), None
    north, east = _find_only(view, others, is_latitude), _find_only(view, others, is_longitude)
    if north is not None and east is not None:
        return Plane(north, east, channels, True, False)
    named = {(view.axes[i].name or "").casefold(): i for i in others}
    if {"y", "x"} <= named.keys():
        return Plane(named["y"], named["x"], channels, False, color is not None)
    extended = [i for i in others if view.shape[i] > 1]
    spaces = [i for i in extended if is_space(view.axes[i])]
    chosen = next(choice for choice in (spaces, extended, others) if len(choice) >= 2 or choice is others)
    return Plane(chosen[-2], chosen[-1], channels, False, color is not None)


def _is_stack_of_colors(view: View) -> bool:
    """True if an array without names of axes looks like many colour pictures, as for machine learning.

    Colours are its last axis.
    """
    unnamed = not view.x_first and all(axis.name is None for axis in view.axes)
    shape = view.shape
    return unnamed and view.dtype == "u1" and len(shape) > 3 and shape[-1] in (3, 4) and min(shape[-3:-1]) > shape[-1]


def find_step(view: View, dimension: int) -> float | None:
    """Return the spacing along a dimension, the mean one if it is irregular; None if it is unknown."""
    scale, positions = view.axes[dimension].scale, view.find_positions(dimension)
    if scale is not None or positions is None or len(positions) < 2:
        return scale
    step = float(positions[-1] - positions[0]) / (len(positions) - 1)
    return step if math.isfinite(step) and step else None


def compute_aspect(rows: Axis, columns: Axis, steps: tuple[float | None, float | None]) -> float | None:
    """Return the height of an element divided by its width; None if the ratio is unknown, or too extreme to draw."""
    row, column = steps
    if row is None or column is None:
        return 1.0 if {rows.name, columns.name} == {"y", "x"} else None
    same = row if rows.unit == columns.unit else None if columns.unit is None else convert(row, rows.unit, columns.unit)
    if same is None and is_geographic(rows) and is_geographic(columns):
        same = row  # `degrees_north` and `degrees_east`
    ratio = None if same is None else abs(same / column)
    return ratio if ratio is not None and 1 / 64 <= ratio <= 64 else None


def enlarge(size: tuple[int, int], ratio: float | None) -> tuple[int, int]:
    """Return a larger picture's rows and columns, whole multiples of `size`, so that every element has as many pixels.

    `ratio`: the height of an element divided by its width; if it is None, a thin picture is made less thin.
    """
    times = -(-LEAST_PIXELS // max(size))
    thin = times if ratio is not None else max(times, -(-THIN_PIXELS // min(size)))
    height, width = size
    return (height * times, width * thin) if height > width else (height * thin, width * times)


def _find_only(view: View, among: list[int], wanted: Callable[[Axis], bool]) -> int | None:
    matches = [i for i in among if wanted(view.axes[i])]
    return matches[0] if len(matches) == 1 else None


PIXELS = 512
"""Width and height of a preview, at most."""

LEAST_PIXELS = 256
"""Pixels of the longer side of a preview, at least: each element is several pixels wide and high in a smaller array."""

THIN_PIXELS = 64
"""Pixels of the shorter side, at least, if nothing tells the proportions of elements: thinner is a line, and no picture."""

_LEAST_PIXELS, _FEWEST_PIXELS = 128, 32
"""Least pixels of the longer side for a coarse sample of a whole array. Below, a fine sample of its middle is better.

The second number is for an array of many small chunks, because a fine sample of these shows next to nothing of it.
"""


class Sample(NamedTuple):
    """The elements that a preview shows. `steps`: for each dimension of the region; `middle`: only its middle is sampled."""

    selection: Selection
    steps: tuple[int, ...]
    middle: bool


class Wish(NamedTuple):
    """How many elements are wanted of one dimension: `most` or somewhat more, evenly spread. None: all of them."""

    most: int | None


def choose_sample(
    metadata: ArrayMetadata,
    region: Selection,
    shown: Mapping[int, Wish],
    at: Mapping[int, int],
    kept: Mapping[int, int] | None = None,
) -> Sample:
    """Choose which elements of a region a preview shows. Unfit if a single chunk is too large for a preview.

    `shown`: wishes by dimension of the region; `at`: positions in dimensions that are cut at one position. `kept`: number of
    elements, from the first on, in dimensions that are not sampled; fewer if single chunks would already be too much.
    """
    kept = kept or {}
    shape, first = region.shape, {dimension: (0, count) for dimension, count in kept.items()}
    wishes = {dimension: wish.most for dimension, wish in shown.items()}
    least = _LEAST_PIXELS
    for factor in (1, 2, 4, 6, 8, 10, 13, 16):
        whole = {
            dimension: (0, shape[dimension], _choose_step(shape[dimension], most, factor))
            for dimension, most in wishes.items()
        }
        finest = max((most // factor for most in wishes.values() if most is not None), default=0)
        if factor > 1 and finest < least:
            break
        selection = _make_selection(region, whole, at, first)
        count, size = _count_cost(metadata, selection)
        least = _LEAST_PIXELS if size > DECODED_BYTES else _FEWEST_PIXELS
        if count <= CHUNKS and size <= DECODED_BYTES:
            return Sample(selection, tuple(whole[i][2] if i in whole else 1 for i in range(len(shape))), False)
    counts = {dimension: shape[dimension] for dimension in wishes}
    while True:
        parts = {}
        for dimension, most in wishes.items():
            length = counts[dimension]
            start = (shape[dimension] - length) // 2
            parts[dimension] = (start, start + length, _choose_step(length, most, 1))
        selection = _make_selection(region, parts, at, first)
        count, size = _count_cost(metadata, selection)
        if count <= CHUNKS and size <= DECODED_BYTES:
            return Sample(selection, tuple(parts[i][2] if i in parts else 1 for i in range(len(shape))), True)
        places = [region.kept[dimension] for dimension in counts]
        single = all(_count_chunks(selection.picks[place], metadata.grid.edges[place]) <= 1 for place in places)
        if single and any(stop > 1 for _, stop in first.values()):
            first = {dimension: (0, max(1, stop // 2)) for dimension, (_, stop) in first.items()}
            continue
        longer = [dimension for dimension, count in counts.items() if count > 1]
        if not longer:
            raise Unfit(f"a chunk has more than {DECODED_BYTES} bytes, and a preview decodes no more")
        longest = max(longer, key=lambda dimension: counts[dimension] / _find_edge(metadata, region, dimension))
        counts[longest] = counts[longest] * 3 // 4


def _choose_step(count: int, most: int | None, factor: int) -> int:
    """Return the step that leaves `most` elements or somewhat more; 1 if there are fewer, or if `most` is None."""
    return 1 if most is None else max(1, count * factor // max(1, most))


def _find_edge(metadata: ArrayMetadata, region: Selection, dimension: int) -> int:
    edge = metadata.grid.edges[region.kept[dimension]]
    return max(edge) if isinstance(edge, tuple) else edge


def _make_selection(
    region: Selection,
    parts: Mapping[int, tuple[int, int, int]],
    at: Mapping[int, int],
    kept: Mapping[int, tuple[int, int]],
) -> Selection:
    """Return the selection of every `step`-th of [start, stop) for `parts`. `at`, `kept`: see `choose_sample`."""
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


def _count_cost(metadata: ArrayMetadata, selection: Selection) -> tuple[int, int]:
    """Return the largest possible number of chunks that must be decoded for a selection, and of their bytes."""
    chunks = math.prod(_count_chunks(pick, edge) for pick, edge in zip(selection.picks, metadata.grid.edges, strict=True))
    largest = math.prod(max(edge) if isinstance(edge, tuple) else edge for edge in metadata.grid.edges)
    return chunks, chunks * largest * max(1, metadata.dtype.itemsize)


def _count_chunks(pick: Pick, edge: int | tuple[int, ...]) -> int:
    """Return how many chunks along one dimension contain a picked element, at most."""
    if not pick.length:
        return 0
    last = pick.start + (pick.length - 1) * pick.step
    low, high = min(pick.start, last), max(pick.start, last)
    if isinstance(edge, tuple):
        return min(pick.length, _find_chunk(edge, high) - _find_chunk(edge, low) + 1)
    return min(pick.length, high // edge - low // edge + 1)


def _find_chunk(edges: Sequence[int], position: int) -> int:
    """Return the number of the chunk that contains a position.

    `edges`: length of each chunk, for grids of unequal chunks.
    """
    stop = 0
    for number, edge in enumerate(edges):
        stop += edge
        if position < stop:
            return number
    return len(edges) - 1
