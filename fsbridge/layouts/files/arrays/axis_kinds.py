"""What an axis counts: time, channels, space, latitudes, longitudes; and which axis holds the colours of a picture.

Pure. Imports no library, because `fsbridge --help` names the file types. Not here: how axes are found (`axes.py`), where a
picture lies in space (`filetypes/geometry.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsbridge.layouts.files.arrays.extents import View
from fsbridge.layouts.units import seconds

if TYPE_CHECKING:
    from fsbridge.metadata import Axis

_TIMES = frozenset({"t", "time", "frame", "frames"})
_CHANNELS = frozenset({"c", "ch", "channel", "channels", "band", "bands", "rgb", "s", "sample", "samples"})


def is_time(axis: Axis) -> bool:
    """True if the unit or the name of an axis says that it is time."""
    return seconds(axis.unit) is not None or (axis.name or "").casefold() in _TIMES


def is_channel(axis: Axis) -> bool:
    """True if the name of an axis says that it counts channels."""
    return (axis.name or "").casefold() in _CHANNELS


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
    """True if an axis is latitude in degrees, by its name or by a unit of latitudes only, and nothing says longitude."""
    return is_geographic(axis) and _starts(axis, *_LATITUDE) and not _starts(axis, *_LONGITUDE)


def is_longitude(axis: Axis) -> bool:
    """True if an axis is longitude in degrees, by its name or by a unit of longitudes only, and nothing says latitude."""
    return is_geographic(axis) and _starts(axis, *_LONGITUDE) and not _starts(axis, *_LATITUDE)


_LATITUDE = "lat", ("degrees_n", "degree_n", "degreesn", "degreen")
_LONGITUDE = "lon", ("degrees_e", "degree_e", "degreese", "degreee")
"""How the names, and the units, of such axes begin."""


def _starts(axis: Axis, name: str, units: tuple[str, ...]) -> bool:
    return (axis.name or "").casefold().startswith(name) or (axis.unit or "").casefold().startswith(units)
