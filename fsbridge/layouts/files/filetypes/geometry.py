"""Which axes of a picture are space, in which order and unit a file has them: what the headers of picture formats share.

Places are those of DICOM and ITK: left, posterior, superior, in millimeters. Without a unit of length, numbers stay as they
are.
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
"""Pixels in width and height from which a last axis of 3 or 4 without a name is taken for colours."""


def color_axis(view: View) -> int | None:
    """The dimension of a picture of bytes that holds red, green, blue (and alpha) in 3 or 4 elements; None if there is none.

    It is an axis with the name of channels, or the last of three axes without names. Where channels are described they must
    be called red, green and blue or have these colours and no other names: microscopes have three channels often enough.
    Stacks are no colour pictures; axes of length 1 do not count.
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
    """Axes of length 1, then rows, columns, colours: the region's dimensions as picture formats interleave them."""
    places = _extended(view)
    ones = [i for i in view.picture if i not in places]
    return (*ones, *(i for i in view.picture if i in places and i != axis), axis)


def _extended(view: View) -> list[int]:
    """Dimensions of more than one element; all of an array that has at most three."""
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
    """The region's dimensions, slowest first, as formats of volumes want them: axes named x, y and z change to that order.

    A format that says by name which axis is x would then have another place for an element than one that counts axes.
    """
    places = [i for i in view.picture if is_space(view.axes[i])]
    named = {(view.axes[i].name or "").casefold(): i for i in places}
    if len(named) < len(places) or not named.keys() <= {"x", "y", "z"}:
        return view.picture
    spaces = iter([named[name] for name in "zyx" if name in named])
    return tuple(next(spaces) if is_space(view.axes[i]) else i for i in view.picture)


def spacing(axis: Axis, unit: str | None) -> float:
    """The axis' scale in `unit`; as it is where its own unit is not known, 1 without a scale."""
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
    """The shortest decimal text that is the same double, whole numbers without a point."""
    return repr(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
