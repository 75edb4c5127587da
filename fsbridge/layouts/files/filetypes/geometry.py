"""Where a picture lies in space, for the headers of picture file types: spatial axes, and the place on Earth (GeoTIFF).

Coordinates are those of DICOM and ITK: left, posterior, superior, in millimeters. Without a unit of length, numbers stay
unchanged.

A geographic position comes from the coordinates, which must be evenly spaced. The reference system comes from a CF grid
mapping; for latitudes and longitudes in degrees without one it is WGS 84. Sources: OGC 19-008r4 (GeoTIFF 1.1), CF 1.11, 5.6.

Pure. Imports no library, because `fsbridge --help` names the file types. Not here: the files' other contents (`tiff.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from fsbridge.layouts.files.arrays.axis_kinds import color_axis, color_order, is_latitude, is_longitude, is_space
from fsbridge.layouts.files.arrays.extents import View
from fsbridge.layouts.units import converted, meters, text

if TYPE_CHECKING:
    from fsbridge.metadata import JSON, Axes, Axis


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


Tag = tuple[int, str, int, object, bool]
"""A tag for tifffile's writer: code, type, count, value, and True if only the first page has it."""

_WGS84 = 4326
_EARTH = [6378137, 298.257223563, None]
"""Semi-major axis and inverse flattening of WGS 84, and no radius."""
_LARGEST_CODE = 32766
"""Largest code of EPSG."""
_PIXEL_SCALE, _TIE_POINT, _TRANSFORMATION, _KEYS = 33550, 33922, 34264, 34735
_MODEL, _RASTER, _GEOGRAPHIC, _PROJECTED = 1024, 1025, 2048, 3072


class System(NamedTuple):
    """A coordinate reference system. `code`: of EPSG; None if it is not known."""

    code: int | None
    geographic: bool


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
    system = _system(view, plain)
    if plain and (system is None or system.geographic):
        system = system or System(_WGS84, True)
    elif system is None or system.geographic or not (_is_projected(view, y, "y") and _is_projected(view, x, "x")):
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


def _is_projected(view: View, axis: Axis, letter: str) -> bool:
    """True if an axis is the coordinate y or x of a map."""
    if (axis.name or "").casefold() == letter:
        return True
    found = None if axis.name is None else view.coordinate(axis.name)
    return found is not None and found[1].get("standard_name") == f"projection_{letter}_coordinate"


def _system(view: View, plain: bool) -> System | None:
    """Return the system from a grid mapping (CF) or from `_CRS` (GDAL's Zarr); None if there is neither.

    `plain`: axes are latitude and longitude.
    """
    own, mapping = view.attributes.get("_CRS"), view.attributes.get("grid_mapping")
    if isinstance(own, dict):
        return _of_wkt(own.get("wkt")) or System(_code(own.get("url")), plain)
    if mapping is None:
        return None
    variable = (text(mapping) or "").partition(":")[0].split()
    found = view.coordinate(variable[0]) if variable else None
    return System(None, plain) if found is None else _of_mapping(found[1], plain)


def _of_mapping(attributes: Mapping[str, JSON], plain: bool) -> System:
    """The system of a grid mapping's variable."""
    kind, codes = attributes.get("grid_mapping_name"), (_code(attributes.get(name)) for name in ("epsg_code", "epsg"))
    code = next((code for code in codes if code is not None), None)
    systems = (_of_wkt(attributes.get(name)) for name in ("crs_wkt", "spatial_ref"))
    if code is None and (found := next((system for system in systems if system is not None), None)) is not None:
        return found
    if not isinstance(kind, str) or kind != "latitude_longitude":
        return System(code, plain and not isinstance(kind, str))
    earth = [attributes.get(name) for name in ("semi_major_axis", "inverse_flattening", "earth_radius")]
    return System(code or (_WGS84 if earth in ([None] * 3, _EARTH) else None), True)


def _of_wkt(wkt: JSON) -> System | None:
    """Return the system in a well-known text; None if it is neither geographic nor projected."""
    kind = re.match(r"\s*(GEOG|GEOD|PROJ)[A-Z]*\s*\[", wkt) if isinstance(wkt, str) else None
    if kind is None or not isinstance(wkt, str):
        return None
    last = re.search(r'(?:AUTHORITY|ID)\s*\[\s*"EPSG"\s*,\s*"?([0-9]+)"?\s*\]\s*\]\s*$', wkt)
    return System(None if last is None else _code(last[1]), kind[1] != "PROJ")


def _code(written: JSON) -> int | None:
    """Return EPSG's code from a number, `EPSG:4326`, or an address that ends with it; None for anything else."""
    words = str(written) if isinstance(written, str | int) and not isinstance(written, bool) else ""
    found = re.fullmatch(r"\s*(?:(?:\S*\bepsg)?\S*[:/])?([0-9]{4,5})\s*", words, re.IGNORECASE)
    return int(found[1]) if found is not None and 1024 <= int(found[1]) <= _LARGEST_CODE else None
