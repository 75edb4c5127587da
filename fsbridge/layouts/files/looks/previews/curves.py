"""Figures of arrays that are drawn as curves: 1-D, few columns, compounds, or times of events; as positioned shapes. Pure.

A curve is the envelope of the least and greatest element of each of at most 2,000 parts. No plotting library is used,
because importing one takes half a second. Not here: how shapes are drawn (`drawing.py`), pictures (`picture.py`).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fsbridge.layouts.files.arrays.extents import View
from fsbridge.layouts.files.looks.previews.picture import Preview, convert_to_real, find_markers, spell_region
from fsbridge.layouts.files.looks.previews.sampling import (
    MOST_COLUMNS,
    Sample,
    Wish,
    check_drawable,
    choose_sample,
    find_curve_dimension,
    is_number,
)
from fsbridge.meaning.units import symbol

POINTS = 2000
"""Parts of a curve, at most."""

Real = Callable[[NDArray[Any]], NDArray[np.float64]]
"""Converts elements to real numbers, missing ones to NaN."""

LEAST_NORMAL = sys.float_info.min
"""The least positive double with all its digits. A quotient by half of a smaller one may be infinite."""

_BLOCK = 1 << 20
"""Elements that are converted to real numbers at a time."""


class Curve(NamedTuple):
    """One panel.

    `low`, `high`: least and greatest number of each part, NaN if there is none; `x`: the parts' positions, unsorted.
    """

    title: str
    x: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


class Events(NamedTuple):
    """One panel with a row for each unit. `times`: one for each mark; `rows`: the row number of each mark."""

    title: str
    times: NDArray[np.float64]
    rows: NDArray[np.int64]
    units: int


Kind = Literal["axis", "grid", "curve"]


class Line(NamedTuple):
    """A line from one point to another."""

    x0: float
    y0: float
    x1: float
    y1: float
    kind: Kind


class Letters(NamedTuple):
    """A text. `x`: its left end, middle or right end, according to its alignment; `y`: its base line."""

    x: float
    y: float
    text: str
    anchor: Literal["start", "middle", "end"] = "start"


class Band(NamedTuple):
    """The area between two curves, `top` and `bottom`, which share their `x` and lie within a panel."""

    x: NDArray[np.float64]
    top: NDArray[np.float64]
    bottom: NDArray[np.float64]


class Marks(NamedTuple):
    """Vertical lines of `height` pixels. `x`, `y`: the upper end of each."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    height: float


Shape = Line | Letters | Band | Marks


@dataclass(frozen=True, slots=True)
class Figure:
    """Panels, one below the other, with a common horizontal axis.

    `unit`: of the elements; `note`: which part of the array is shown; `texts`: by keyword, kept in the file and not drawn.
    """

    title: str
    panels: Sequence[Curve | Events]
    x_label: str
    unit: str | None = None
    note: str | None = None
    texts: dict[str, str] = field(default_factory=dict)


LEFT, RIGHT, TOP, BOTTOM = 76, 12, 22, 40
"""Margins in pixels: left for the vertical axis, right for half a number, top for the title, bottom for the axis."""


def choose_height(figure: Figure, most: int) -> int:
    """Return the height in pixels that the panels need, but at most `most`."""
    return min(most, TOP + BOTTOM + len(figure.panels) * (150 if len(figure.panels) < 3 else 80))


def make_shapes(figure: Figure, width: int, height: int) -> list[Shape]:
    """Return the shapes of a figure, in pixels from the upper left corner."""
    drawing: list[Shape] = [Letters(4, 14, _make_titles(figure))]
    x_ends = _find_ends([panel.times if isinstance(panel, Events) else panel.x for panel in figure.panels])
    left, right = LEFT, width - RIGHT
    room = (height - TOP - BOTTOM) / len(figure.panels)
    for number, panel in enumerate(figure.panels):
        top = TOP + number * room + (8 if len(figure.panels) > 1 else 0)
        drawing += _draw_panel(panel, x_ends, (left, right, top, TOP + (number + 1) * room - 4))
    bottom = TOP + len(figure.panels) * room - 4
    for tick in choose_ticks(*x_ends, 5):
        x = _place(tick, x_ends, left, right)
        drawing += [Line(x, bottom, x, bottom + 4, "axis"), Letters(x, bottom + 15, spell_number(tick, x_ends), "middle")]
    drawing.append(Letters((left + right) / 2, bottom + 29, figure.x_label, "middle"))
    return drawing


def _make_titles(figure: Figure) -> str:
    unit = f" ({figure.unit})" if figure.unit else ""
    return f"{figure.title}{unit}{', ' + figure.note if figure.note else ''}"


def _draw_panel(panel: Curve | Events, x_ends: tuple[float, float], box: tuple[float, float, float, float]) -> list[Shape]:
    left, right, top, bottom = box
    drawing: list[Shape] = [Line(left, top, left, bottom, "axis"), Line(left, bottom, right, bottom, "axis")]
    if isinstance(panel, Events):
        return drawing + _draw_events(panel, x_ends, box)
    y_ends = _find_ends([panel.low, panel.high])
    for tick in choose_ticks(*y_ends, 4 if bottom - top > 90 else 2):
        y = _place(tick, y_ends, bottom, top)
        drawing += [Line(left, y, right, y, "grid"), Letters(left - 5, y + 3, spell_number(tick, y_ends), "end")]
    x = _place_all(panel.x, x_ends, left, right)
    drawing.append(Band(x, _place_all(panel.high, y_ends, bottom, top), _place_all(panel.low, y_ends, bottom, top)))
    return [*drawing, Letters(left + 4, top + 7, panel.title)] if panel.title else drawing


def _draw_events(panel: Events, x_ends: tuple[float, float], box: tuple[float, float, float, float]) -> list[Shape]:
    left, right, top, bottom = box
    row = (bottom - top) / panel.units
    x = np.rint(_place_all(panel.times, x_ends, left, right))
    cells = np.unique(np.stack([x, panel.rows.astype(np.float64)], axis=1)[np.isfinite(x)], axis=0)
    label = f"{panel.units} units" if panel.units > 1 else "events"
    return [Marks(cells[:, 0], top + cells[:, 1] * row, max(1.0, row * 0.8)), Letters(left - 5, top + 10, label, "end")]


def compute_envelope(values: NDArray[Any], real: Real, points: int = POINTS) -> tuple[NDArray[np.float64], ...]:
    """Divide `values` into `points` parts. Return each part's middle position, its least and its greatest number.

    They are NaN if the part has no finite number.
    """
    count = min(points, len(values))
    edges = np.arange(count + 1, dtype=np.int64) * len(values) // max(1, count)
    low, high = np.full(count, np.nan), np.full(count, np.nan)
    begin = 0
    while begin < count:
        stop = max(begin + 1, int(np.searchsorted(edges, edges[begin] + _BLOCK, "right")) - 1)
        numbers = real(values[edges[begin] : edges[stop]])
        numbers[~np.isfinite(numbers)] = np.nan
        starts = edges[begin:stop] - edges[begin]
        low[begin:stop], high[begin:stop] = np.fmin.reduceat(numbers, starts), np.fmax.reduceat(numbers, starts)
        begin = stop
    return (edges[:-1] + edges[1:] - 1) / 2, low, high


def choose_ticks(low: float, high: float, count: int) -> list[float]:
    """Return about `count` round numbers from `low` to `high`."""
    rough = (high - low) / count
    if not math.isfinite(rough) or rough <= 0:
        return [low]
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * times for times in (1, 2, 5, 10) if power * times >= rough * 0.999)
    if step <= abs(low) * 1e-12 or step <= abs(high) * 1e-12:
        return [low]
    return [number * step for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def spell_number(value: float, ends: tuple[float, float]) -> str:
    """Return the text of a number on an axis between `ends`, with enough digits to differ from its neighbours."""
    span, largest = ends[1] - ends[0], max(map(abs, ends))
    if abs(value) < abs(span) * 1e-9:
        return "0"
    places = 3 if not 0 < span < math.inf else 3 - math.floor(math.log10(span))
    if largest < 1e7 and places <= 7:
        text = f"{value:.{max(0, places)}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    digits = 4 if not 0 < span < math.inf else max(4, math.ceil(math.log10(largest / span)) + 3)
    return f"{value:.{min(digits, 15)}g}"


def _find_ends(parts: Sequence[NDArray[np.float64]]) -> tuple[float, float]:
    """Return the least and the greatest finite number, moved apart if they are equal or too close for a division."""
    finite = [part[np.isfinite(part)] for part in parts]
    if not any(len(part) for part in finite):
        return 0.0, 1.0
    low = min(float(part.min()) for part in finite if len(part))
    high = max(float(part.max()) for part in finite if len(part))
    if high / 2 - low / 2 >= LEAST_NORMAL:
        return low, high
    away = abs(low) * 0.01
    away = away if away >= LEAST_NORMAL else 1.0
    return low - away, low + away


def _place_all(values: NDArray[np.float64], ends: tuple[float, float], first: float, last: float) -> NDArray[np.float64]:
    """Convert numbers to pixel positions: `ends` become `first` and `last`."""
    half = ends[0] / 2, ends[1] / 2  # halved, because their difference may be infinite
    return first + (values / 2 - half[0]) / (half[1] - half[0]) * (last - first)


def _place(value: float, ends: tuple[float, float], first: float, last: float) -> float:
    return float(_place_all(np.array([value]), ends, first, last)[0])


_MOST_UNITS = 64
"""Most rows in a raster of events."""


def plan_curves(view: View, draw: Callable[[Figure], bytes]) -> Preview:
    """Plan the figure of an array with one dimension or few columns; Unfit if nothing can be drawn."""
    check_drawable(view)
    long = find_curve_dimension(view) or 0
    kept = {i: min(view.shape[i], MOST_COLUMNS) for i in range(len(view.shape)) if i != long}
    shown = {long: Wish(None)} if view.shape else {}
    sample = choose_sample(view.metadata, view.selection, shown, {}, kept)
    how = _DrawnTable(view, long, sample, draw)
    order = (long, *kept) if view.shape else ()
    return Preview(sample.selection, order, sample.middle, partial(_draw, how))


@dataclass(frozen=True, slots=True)
class _DrawnTable:
    """How elements become curves.

    `along`: the dimension of the region along which they are drawn; `draw`: makes the file.
    """

    view: View
    along: int
    sample: Sample
    draw: Callable[[Figure], bytes]


def _draw(how: _DrawnTable, elements: NDArray[Any]) -> bytes:
    view = how.view
    elements = elements.reshape(-1, *elements.shape[1:]) if elements.ndim else elements.reshape(1)
    first = _find_begin(how)
    note = None
    if how.sample.middle:
        note = f"elements {first:,} to {first + len(elements) - 1:,} of {view.shape[how.along]:,}"
    texts = {"Elements": spell_region(how.sample.selection)}
    ends = _find_unit_ends(how, elements)
    if ends is not None:
        times = convert_to_real(elements, find_markers(view), view.packing)
        rows = np.searchsorted(ends, np.arange(len(times)), "right")
        shown = rows < _MOST_UNITS
        panel = Events("", times[shown], rows[shown], min(len(ends), _MOST_UNITS))
        return how.draw(Figure(view.name, [panel], f"time ({view.unit})", None, note, texts))
    positions = _make_position_function(how, first)
    panels = []
    for title, column, real in _split_columns(view, elements):
        x, low, high = compute_envelope(column, real)
        panels.append(Curve(title, positions(x), low, high))
    return how.draw(Figure(view.name, panels, _make_label(how), view.unit, note, texts))


def _split_columns(view: View, elements: NDArray[Any]) -> Iterator[tuple[str, NDArray[Any], Real]]:
    """Yield each column's title, its elements, and the function that converts them to real numbers."""
    if elements.dtype.names is not None:
        fields = [name for name in elements.dtype.names if is_number(elements.dtype[name])]
        for name in fields[:MOST_COLUMNS]:
            yield name, elements[name], partial(convert_to_real, markers=(), packing=None)
        return
    real = partial(convert_to_real, markers=find_markers(view), packing=view.packing)
    if elements.ndim == 1:
        yield "", elements, real
        return
    for number in range(elements.shape[1]):
        yield str(number), elements[:, number], real


def _find_unit_ends(how: _DrawnTable, elements: NDArray[Any]) -> NDArray[np.int64] | None:
    """Return for each unit the number of the element after its last event; None if the elements are no times of events.

    All events belong to one unit if their units are not known, or if only a part of the array is drawn.
    """
    if not how.view.meaning.values.events or elements.ndim != 1:
        return None
    ends = how.view.meaning.ends
    if ends is None or len(elements) != how.view.metadata.shape[0]:
        return np.array([len(elements)])
    rising = len(ends) and ends[-1] <= len(elements) and (np.diff(ends) >= 0).all() and ends[0] >= 0
    return ends if rising else np.array([len(elements)])


def _find_begin(how: _DrawnTable) -> int:
    """Return the position in the region of the first element that is drawn."""
    if not how.view.shape:
        return 0
    place = how.view.selection.kept[how.along]
    region, shown = how.view.selection.picks[place], how.sample.selection.picks[place]
    return (shown.start - region.start) // region.step


def _make_position_function(how: _DrawnTable, first: int) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """Return a function that converts positions in the drawn part to values on the horizontal axis.

    The values follow from the axis's spacing, else they are a coordinate's values, else positions in the array. For a
    coordinate itself they are always positions, because over its own values it would be a straight line.
    """
    view = how.view
    if not view.shape:
        return lambda x: x
    axis, place = view.axes[how.along], view.selection.kept[how.along]
    region = view.selection.picks[place]
    own = axis.name == view.name
    if axis.scale is not None and not own:
        scale, offset = axis.scale, axis.offset
        return lambda x: offset + (x + first) * scale
    values = None if own else view.find_positions(how.along)
    if values is not None:
        return lambda x: values[np.rint(x).astype(np.int64) + first]
    return lambda x: region.start + (x + first) * region.step


def _make_label(how: _DrawnTable) -> str:
    view = how.view
    axis = view.axes[how.along] if view.axes else None
    if axis is None:
        return ""
    if axis.name == view.name or (axis.scale is None and view.find_positions(how.along) is None):
        return f"{axis.name} index" if axis.name else "index"
    unit = symbol(axis.unit)
    return f"{axis.name or 'position'}{f' ({unit})' if unit else ''}"
