"""Where a picture lies in space, for the headers of picture file types: spatial axes, and the place on Earth (GeoTIFF).

Coordinates are those of DICOM and ITK: left, posterior, superior, in millimeters. Without a unit of length, numbers stay
unchanged.

A geographic position comes from the coordinates, which must be evenly spaced. The reference system comes from a CF grid
mapping; for latitudes and longitudes in degrees without one it is WGS 84. Sources: OGC 19-008r4 (GeoTIFF 1.1), CF 1.11, 5.6.

Pure. Imports no library, because `fsbridge --help` names the file types. Not here: the files' other contents (`tiff.py`).
"""

from __future__ import annotations

from fsbridge.layouts.files.arrays.colors import color_axis, color_order
from fsbridge.layouts.files.arrays.extents import View
from fsbridge.meaning import Axes, Axis, System
from fsbridge.meaning.kinds import is_easting, is_latitude, is_longitude, is_northing, is_space
from fsbridge.meaning.systems import WGS84
from fsbridge.meaning.units import converted, meters


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
    """Return the axis' scale in `unit`; unconverted if its own unit is unknown. An unknown scale is 1, in no unit."""
    if axis.scale is None:
        return 1.0
    scale = None if unit is None else converted(axis.scale, axis.unit, unit)
    return axis.scale if scale is None else scale


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


Tag = tuple[int, str, int, object, bool]
"""A tag for tifffile's writer: code, type, count, value, and True if only the first page has it."""

_PIXEL_SCALE, _TIE_POINT, _TRANSFORMATION, _KEYS = 33550, 33922, 34264, 34735
_MODEL, _RASTER, _GEOGRAPHIC, _PROJECTED = 1024, 1025, 2048, 3072


def georeference(view: View) -> list[Tag]:
    """Return the tags of a picture; an empty list if its place is not known."""
    color = color_axis(view)
    order = view.picture if color is None else color_order(view, color)[:-1]
    if len(order) < 2:
        return []
    y, x = (view.axes[i] for i in order[-2:])
    if y.scale is None or x.scale is None:
        return []
    plain = is_latitude(y) and is_longitude(x)
    system = view.meaning.system
    if system is not None and system.geographic is None:
        system = System(system.code, plain)
    if plain and (system is None or system.geographic):
        system = system or System(WGS84, True)
    elif system is None or system.geographic or not (is_northing(y) and is_easting(x)):
        return []  # the degrees of a rotated pole are no latitudes and longitudes
    (left, width), (top, height) = _edge(x), _edge(y)
    tags: list[Tag] = []
    if height < 0 < width:
        tags.append((_PIXEL_SCALE, "d", 3, (width, -height, 0.0), False))
        tags.append((_TIE_POINT, "d", 6, (0.0, 0.0, 0.0, left, top, 0.0), False))
    else:  # GDAL ignores the sign of a scale
        matrix = (width, 0.0, 0.0, left, 0.0, height, 0.0, top, *(0.0,) * 4, 0.0, 0.0, 0.0, 1.0)
        tags.append((_TRANSFORMATION, "d", 16, matrix, False))
    if system.code is not None:
        keys = [(_MODEL, 2 if system.geographic else 1), (_RASTER, 1)]
        keys.append((_GEOGRAPHIC if system.geographic else _PROJECTED, system.code))
        words = (1, 1, 0, len(keys), *(word for key, value in keys for word in (key, 0, 1, value)))
        tags.append((_KEYS, "H", len(words), words, False))
    return tags


def _edge(axis: Axis) -> tuple[float, float]:
    """Return the first pixel's outer edge (its center is the first coordinate) and the step; kilometers become meters."""
    assert axis.scale is not None
    factor = 1000.0 if axis.unit == "kilometer" else 1.0
    step = axis.scale * factor
    return _short(axis.offset * factor - step / 2), _short(step)


def _short(value: float) -> float:
    """Round a sum to 15 digits, which removes floating-point noise."""
    return float(f"{value:.15g}")
