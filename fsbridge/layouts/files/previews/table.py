"""Figures of arrays that are drawn as curves: 1-D, few columns, compounds, or times of events. Pure.

Not here: where a figure's parts stand (`plot.py`), pictures (`picture.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fsbridge.layouts.conventions import packing
from fsbridge.layouts.files.extents import View
from fsbridge.layouts.files.previews import tones
from fsbridge.layouts.files.previews.picture import Preview, markers, spelled
from fsbridge.layouts.files.previews.plot import Curve, Events, Figure, Real, envelope
from fsbridge.layouts.files.previews.sampling import MOST_COLUMNS, Sample, Wish, drawable, is_number, sampled
from fsbridge.layouts.units import symbol

_MOST_UNITS = 64
"""Most rows in a raster of events."""


def curves(view: View, drawn: Callable[[Figure], bytes]) -> Preview:
    """Return the plan of a figure of an array with one dimension or few columns; Unfit if nothing can be drawn."""
    drawable(view)
    kept = {1: min(view.shape[1], MOST_COLUMNS)} if len(view.shape) == 2 else {}
    shown = {0: Wish(None)} if view.shape else {}
    sample = sampled(view.metadata, view.selection, shown, {}, kept)
    how = _DrawnTable(view, sample, drawn)
    return Preview(sample.selection, tuple(range(len(view.shape))), sample.middle, partial(_draw, how))


@dataclass(frozen=True, slots=True)
class _DrawnTable:
    view: View
    sample: Sample
    drawn: Callable[[Figure], bytes]


def _draw(how: _DrawnTable, elements: NDArray[Any]) -> bytes:
    view = how.view
    elements = elements.reshape(-1, *elements.shape[1:]) if elements.ndim else elements.reshape(1)
    first = _begin(how)
    note = None
    if how.sample.middle:
        note = f"elements {first:,} to {first + len(elements) - 1:,} of {view.shape[0]:,}"
    texts = {"Elements": spelled(how.sample.selection)}
    ends = _units(how, elements)
    if ends is not None:
        times = tones.numbers(elements, markers(view.metadata), packing(view.metadata))
        rows = np.searchsorted(ends, np.arange(len(times)), "right")
        shown = rows < _MOST_UNITS
        panel = Events("", times[shown], rows[shown], min(len(ends), _MOST_UNITS))
        return how.drawn(Figure(view.name, [panel], f"time ({view.unit or 's'})", None, note, texts))
    positions = _positions(how, first)
    panels = []
    for title, column, real in _columns(view, elements):
        x, low, high = envelope(column, real)
        panels.append(Curve(title, positions(x), low, high))
    return how.drawn(Figure(view.name, panels, _label(view), view.unit, note, texts))


def _columns(view: View, elements: NDArray[Any]) -> Iterator[tuple[str, NDArray[Any], Real]]:
    """Title and elements of each column, and what makes them real numbers."""
    if elements.dtype.names is not None:
        fields = [name for name in elements.dtype.names if is_number(elements.dtype[name])]
        for name in fields[:MOST_COLUMNS]:
            yield name, elements[name], partial(tones.numbers, markers=(), packing=None)
        return
    real = partial(tones.numbers, markers=markers(view.metadata), packing=packing(view.metadata))
    if elements.ndim == 1:
        yield "", elements, real
        return
    for number in range(elements.shape[1]):
        yield str(number), elements[:, number], real


def _units(how: _DrawnTable, elements: NDArray[Any]) -> NDArray[np.int64] | None:
    """Where each unit's events end, if the array has times of events: NWB's `spike_times` and its index."""
    view = how.view
    if elements.ndim != 1 or elements.dtype.kind != "f" or not view.name.endswith("spike_times"):
        return None
    found = view.coordinate(f"{view.name}_index")
    if found is None or found[0] is None or how.sample.middle or len(view.shape) != 1:
        return np.array([len(elements)])
    ends = found[0].astype(np.int64)
    rising = len(ends) and ends[-1] <= len(elements) and (np.diff(ends) >= 0).all() and ends[0] >= 0
    return ends if rising else np.array([len(elements)])


def _begin(how: _DrawnTable) -> int:
    """The position in the region of the first element that is shown."""
    if not how.view.shape:
        return 0
    place = how.view.selection.kept[0]
    region, shown = how.view.selection.picks[place], how.sample.selection.picks[place]
    return (shown.start - region.start) // region.step


def _positions(how: _DrawnTable, first: int) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """Return a function that turns drawn positions into values on the axis of positions.

    They come from the axis's spacing, else from a coordinate's values, else they are positions in the array.
    """
    view = how.view
    if not view.shape:
        return lambda x: x
    axis, place = view.axes[0], view.selection.kept[0]
    region = view.selection.picks[place]
    if axis.scale is not None:
        scale, offset = axis.scale, axis.offset
        return lambda x: offset + (x + first) * scale
    found = None if axis.name is None or axis.name == view.name else view.coordinate(axis.name)
    if found is not None and found[0] is not None and len(found[0]) == view.metadata.shape[place]:
        values = found[0]
        return lambda x: np.asarray(values[region.start + (np.rint(x).astype(np.int64) + first) * region.step], np.float64)
    return lambda x: region.start + (x + first) * region.step


def _label(view: View) -> str:
    axis = view.axes[0] if view.axes else None
    if axis is None:
        return ""
    told = axis.scale is not None or axis.unit is not None
    unit = symbol(axis.unit)
    return f"{axis.name or ('position' if told else 'index')}{f' ({unit})' if unit else ''}"
