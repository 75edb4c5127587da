"""Which axes of a picture are spatial, and their order and unit in a file, for the headers of all picture formats.

Coordinates are those of DICOM and ITK: left, posterior, superior, in millimeters. Without a unit of length, numbers stay
unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsbridge.layouts.files.extents import View
from fsbridge.layouts.units import converted, meters, seconds

if TYPE_CHECKING:
    from fsbridge.metadata import Axes, Axis

TIMES = frozenset({"t", "time", "frame", "frames"})
CHANNELS = frozenset({"c", "ch", "channel", "channels", "band", "bands", "rgb", "s", "sample", "samples"})


def is_time(axis: Axis) -> bool:
    """True if the unit or the name of an axis says that it is time."""
    return seconds(axis.unit) is not None or (axis.name or "").casefold() in TIMES


def is_channel(axis: Axis) -> bool:
    """True if the name of an axis says that it counts channels."""
    return (axis.name or "").casefold() in CHANNELS


def is_space(axis: Axis) -> bool:
    """True if an axis is neither time nor channels; axes without a name are space, too."""
    return not is_time(axis) and not is_channel(axis)


_PRIMARIES = ((255, 0, 0), (0, 255, 0), (0, 0, 255))
_COLOR_NAMES = (("r", "g", "b"), ("red", "green", "blue"))
_LEAST_PICTURE = 5
"""Least width and height of a picture for an unnamed last axis of length 3 or 4 to count as colours."""


def color_axis(view: View) -> int | None:
    """The dimension of a picture of bytes that holds red, green, blue (and alpha) in 3 or 4 elements; None if there is none.

    It is an axis that is named as channels, or the last of three axes without names. If channels are described, they must be
    called red, green and blue, or have these colours and no names, because three microscope channels are not a colour
    picture. Stacks are no colour pictures either. Axes of length 1 are ignored.
    """
    dtype, places = view.dtype, _extended(view)
    if dtype is None or dtype != "u1" or len(places) != 3:
        return None
    named = [i for i in places if is_channel(view.axes[i])]
    if not named and not view.x_first and len(view.shape) == 3 and all(axis.name is None for axis in view.axes):
        named = [2] if min(view.shape[:2]) >= _LEAST_PICTURE else []
    if len(named) != 1 or view.shape[named[0]] not in (3, 4):
        return None
    channels = view.image.channels if view.image is not None else ()
    if channels:
        labels = tuple((channel.label or "").casefold() for channel in channels)
        colors = tuple(channel.color for channel in channels)
        if len(channels) != 3 or not (labels in _COLOR_NAMES or (not any(labels) and colors == _PRIMARIES)):
            return None
    return named[0]


def color_order(view: View, axis: int) -> tuple[int, ...]:
    """Return the region's dimensions for interleaved colours: axes of length 1, then rows, columns, colours."""
    places = _extended(view)
    ones = [i for i in view.picture if i not in places]
    return (*ones, *(i for i in view.picture if i in places and i != axis), axis)


def _extended(view: View) -> list[int]:
    """Return the dimensions longer than one element; all dimensions if there are at most three."""
    every = list(range(len(view.shape)))
    return every if len(every) <= 3 else [i for i in every if view.shape[i] != 1]


def is_geographic(axis: Axis) -> bool:
    """True if an axis is latitude or longitude in degrees."""
    unit, name = (axis.unit or "").casefold(), (axis.name or "").casefold()
    return unit.startswith("degree") or (not unit and name in {"lat", "latitude", "lon", "longitude"})


def is_latitude(axis: Axis) -> bool:
    """True if an axis is latitude in degrees, by its name or by a unit of latitudes only."""
    return is_geographic(axis) and _starts(axis, "lat", ("degrees_n", "degree_n", "degreesn", "degreen"))


def is_longitude(axis: Axis) -> bool:
    """True if an axis is longitude in degrees, by its name or by a unit of longitudes only."""
    return is_geographic(axis) and _starts(axis, "lon", ("degrees_e", "degree_e", "degreese", "degreee"))


def _starts(axis: Axis, name: str, units: tuple[str, ...]) -> bool:
    return (axis.name or "").casefold().startswith(name) or (axis.unit or "").casefold().startswith(units)


def volume(view: View) -> tuple[int, ...]:
    """Return the region's dimensions, slowest first, for volume formats: axes named x, y and z are put in that order.

    Formats that name the x axis and formats that count axes then give each element the same place.
    """
    places = [i for i in view.picture if is_space(view.axes[i])]
    named = {(view.axes[i].name or "").casefold(): i for i in places}
    if len(named) < len(places) or not named.keys() <= {"x", "y", "z"}:
        return view.picture
    spaces = iter([named[name] for name in "zyx" if name in named])
    return tuple(next(spaces) if is_space(view.axes[i]) else i for i in view.picture)


def spacing(axis: Axis, unit: str | None) -> float:
    """Return the axis' scale in `unit`; unconverted if its own unit is unknown, and 1 if it has no scale."""
    scale = 1.0 if axis.scale is None else axis.scale
    found = None if unit is None else converted(scale, axis.unit, unit)
    return scale if found is None else found


def offset(axis: Axis, unit: str | None) -> float:
    """The axis' offset, converted as its spacing is."""
    found = None if unit is None else converted(axis.offset, axis.unit, unit)
    return axis.offset if found is None else found


def length_unit(axes: Axes) -> str | None:
    """The unit of length of the first axis of space that has one."""
    return next((axis.unit for axis in axes if is_space(axis) and meters(axis.unit) is not None), None)


def number(value: float) -> str:
    """Return the shortest decimal text that reads back as the same double; whole numbers without a point."""
    return repr(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
