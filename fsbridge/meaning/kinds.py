"""What an axis counts: time, channels, space, latitudes, longitudes. Pure; imports no library."""

from __future__ import annotations

from fsbridge.meaning import Axis
from fsbridge.meaning.units import seconds

_TIMES = frozenset({"t", "time", "frame", "frames"})
_CHANNELS = frozenset({"c", "ch", "channel", "channels", "band", "bands", "rgb", "s", "sample", "samples"})


def is_time(axis: Axis) -> bool:
    """True if an axis is time: its source says so, or else its unit or its name."""
    if axis.kind is not None:
        return axis.kind == "time"
    return seconds(axis.unit) is not None or (axis.name or "").casefold() in _TIMES


def is_channel(axis: Axis) -> bool:
    """True if an axis counts channels: its source says so, or else its name."""
    if axis.kind is not None:
        return axis.kind == "channel"
    return (axis.name or "").casefold() in _CHANNELS


def is_space(axis: Axis) -> bool:
    """True if an axis is neither time nor channels; axes without a name are space, too."""
    return not is_time(axis) and not is_channel(axis)


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


def is_northing(axis: Axis) -> bool:
    """True if an axis is the coordinate y of a map in a projection."""
    return axis.kind == "northing" or (axis.name or "").casefold() == "y"


def is_easting(axis: Axis) -> bool:
    """True if an axis is the coordinate x of a map in a projection."""
    return axis.kind == "easting" or (axis.name or "").casefold() == "x"
