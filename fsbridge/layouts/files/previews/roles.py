"""Which dimensions of an array are a picture's rows, columns and channels, or the columns of a table. Pure.

Imports no library, because the table of file types imports this module.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from fsbridge.layouts.files.extents import Unfit, View
from fsbridge.layouts.files.filetypes.geometry import (
    color_axis,
    is_channel,
    is_geographic,
    is_latitude,
    is_longitude,
    is_space,
    is_time,
)
from fsbridge.layouts.units import converted

if TYPE_CHECKING:
    import numpy as np

    from fsbridge.layouts.axes import Coordinate
    from fsbridge.metadata import Axis

MOST_COLUMNS = 16
"""Most columns of a table that is drawn as curves. A wider one is drawn as a picture."""

_TABLE_ROWS = 8
"""Rows per column from which on a 2-D array without dimension names counts as a table."""

_KINDS = "biufcmM"
"""Kinds of elements that can be drawn, as numpy calls them."""


class Plane(NamedTuple):
    """Dimensions of the array. `geographic`: rows are latitudes, columns longitudes. `color`: of RGB."""

    rows: int
    columns: int
    channels: int | None
    geographic: bool
    color: bool


def drawable(view: View) -> np.dtype[Any]:
    """Return the type of elements that can be drawn; Unfit for others, and for arrays without any."""
    dtype = view.dtype
    fields = [] if dtype is None or dtype.names is None else [dtype[name] for name in dtype.names]
    if dtype is None or not any(map(is_number, fields or [dtype])):
        raise Unfit(f"elements of type {view.metadata.dtype.native} are not drawn")
    if fields and len(view.shape) > 1:
        raise Unfit("compounds are drawn as curves, of one dimension")
    if 0 in view.shape:
        raise Unfit("an array without elements is not drawn")
    return dtype


def is_number(dtype: np.dtype[Any]) -> bool:
    """True if elements, or those of one field, can be drawn."""
    return dtype.kind in _KINDS and dtype.subdtype is None


def is_table(view: View) -> bool:
    """True if the array is drawn as curves: it has one dimension, or few columns that are no picture."""
    if len(view.shape) < 2:
        return True
    if len(view.shape) > 2 or view.shape[1] > MOST_COLUMNS or view.x_first:
        return False
    if is_time(view.axes[0]):
        return True
    named = any(axis.name is not None for axis in view.axes)
    return not named and view.shape[0] >= _TABLE_ROWS * max(_TABLE_ROWS, view.shape[1])


def plane(view: View) -> Plane:
    """Return the dimensions of the picture of an array of two dimensions or more."""
    color = color_axis(view)
    channels = color
    if channels is None:
        channels = next((i for i in view.picture if is_channel(view.axes[i]) and view.shape[i] > 1), None)
    others = [i for i in view.picture if i != channels]
    if len(others) < 2:
        others, channels = list(view.picture), None
    north, east = _only(view, others, is_latitude), _only(view, others, is_longitude)
    if north is not None and east is not None:
        return Plane(north, east, channels, True, False)
    named = {(view.axes[i].name or "").casefold(): i for i in others}
    if {"y", "x"} <= named.keys():
        return Plane(named["y"], named["x"], channels, False, color is not None)
    extended = [i for i in others if view.shape[i] > 1]
    spaces = [i for i in extended if is_space(view.axes[i])]
    chosen = next(found for found in (spaces, extended, others) if len(found) >= 2 or found is others)
    return Plane(chosen[-2], chosen[-1], channels, False, color is not None)


def step_of(axis: Axis, length: int, coordinate: Coordinate) -> float | None:
    """Return the axis' spacing; if it is irregular, the mean spacing of its coordinate; None if it is unknown."""
    if axis.scale is not None:
        return axis.scale
    found = None if axis.name is None or length < 2 else coordinate(axis.name)
    if found is None or found[0] is None or len(found[0]) != length:
        return None
    step = float(found[0][-1] - found[0][0]) / (length - 1)
    return step if math.isfinite(step) and step else None


def aspect(rows: Axis, columns: Axis, steps: tuple[float | None, float | None]) -> float:
    """Return the ratio of an element's height to its width; 1 if it is unknown, or too extreme to draw."""
    row, column = steps
    if row is None or column is None:
        return 1.0
    same = row if rows.unit == columns.unit else None if columns.unit is None else converted(row, rows.unit, columns.unit)
    if same is None and is_geographic(rows) and is_geographic(columns):
        same = row  # `degrees_north` and `degrees_east`
    found = 1.0 if same is None else abs(same / column)
    return found if 1 / 64 <= found <= 64 else 1.0


def _only(view: View, among: list[int], wanted: Callable[[Axis], bool]) -> int | None:
    found = [i for i in among if wanted(view.axes[i])]
    return found[0] if len(found) == 1 else None
