"""Where a picture lies in space, for the headers of picture file types: spatial axes, and the place on Earth (GeoTIFF).

Coordinates are those of DICOM and ITK: left, posterior, superior, in millimeters. Axes that do not say where they point in
a body are taken for these, x first. Without a unit of length, numbers stay unchanged.

A geographic position comes from the coordinates, which must be evenly spaced. The reference system comes from a CF grid
mapping; for latitudes and longitudes in degrees without one it is WGS 84. Sources: OGC 19-008r4 (GeoTIFF 1.1), CF 1.11, 5.6.

Pure. Imports no library, because `fsbridge --help` names the file types. Not here: the files' other contents (`tiff.py`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fsbridge.layouts.files.arrays.colors import find_color_axis, order_colors
from fsbridge.layouts.files.arrays.extents import View
from fsbridge.layouts.files.filetypes.projections import geotiff_keys
from fsbridge.meaning import Axis, System
from fsbridge.meaning.kinds import is_channel, is_easting, is_latitude, is_longitude, is_northing, is_space
from fsbridge.meaning.systems import WGS84
from fsbridge.meaning.units import convert


def volume(view: View) -> tuple[int, ...]:
    """Return the region's dimensions, slowest first. Axes named x, y and z are put in the order of volume formats.

    So an element gets the same place in formats that name the x axis, and in formats that count axes.
    """
    places = [i for i in view.picture if is_space(view.axes[i])]
    named = {(view.axes[i].name or "").casefold(): i for i in places}
    if len(named) < len(places) or not named.keys() <= {"x", "y", "z"}:
        return view.picture
    spaces = iter([named[name] for name in "zyx" if name in named])
    return tuple(next(spaces) if is_space(view.axes[i]) else i for i in view.picture)


def spacing(axis: Axis, unit: str | None) -> float:
    """Return the axis' scale, converted to `unit` if its own unit is known. An axis without a scale gets 1."""
    if axis.scale is None:
        return 1.0
    scale = None if unit is None else convert(axis.scale, axis.unit, unit)
    return axis.scale if scale is None else scale


def offset(axis: Axis, unit: str | None) -> float:
    """Return the axis' offset, converted to `unit` if its own unit is known."""
    number = None if unit is None else convert(axis.offset, axis.unit, unit)
    return axis.offset if number is None else number


class Placement(NamedTuple):
    """Where the elements of a file lie. `steps[i][j]`: what one element along axis j of the file adds to coordinate i.

    `origin`: coordinates of the first element.
    """

    steps: list[list[float]]
    origin: list[float]

    @property
    def vectors(self) -> list[list[float]]:
        """For each axis of the file, the way from one element to the next."""
        return [list(vector) for vector in zip(*self.steps, strict=True)]

    @property
    def lengths(self) -> list[float]:
        """For each axis of the file, the distance from one element to the next."""
        return [_short(math.hypot(*vector)) for vector in self.vectors]

    @property
    def turned(self) -> bool:
        """True if some axis of the file is not parallel to the coordinate of the same number."""
        return any(step for i, row in enumerate(self.steps) for j, step in enumerate(row) if i != j)


def placement(view: View, order: Sequence[int | None], unit: str | None) -> Placement | None:
    """Return where the elements lie, in `unit`; None if that is not known for some axis of space.

    `order`: the region's dimension for each axis of the file, fastest first; None for an axis that the region lacks. If all
    three axes of space say where they point, the coordinates of the result are left, posterior and superior, as ITK's. All
    other axes keep their place. Elements are numbered along an axis without known positions.
    """
    axes = [Axis() if i is None else view.axes[i] for i in order]
    spaces = [place for place, axis in enumerate(axes) if is_space(axis)]
    targets = {place: (place, 1.0) for place in range(len(axes))}
    targets |= _anatomical({place: axes[place] for place in spaces}, [place for place in spaces if order[place] is not None])
    steps, origin = [[0.0] * len(axes) for _ in axes], [0.0] * len(axes)
    for place, axis in enumerate(axes):
        line, start = _line(view, order, place)
        if line is None and is_space(axis) and order[place] is not None:
            return None
        target, sign = targets[place]
        along = _convert_to(unit, axis, line or _make_step(place, len(axes)))
        steps[target] = [sign * step + 0.0 for step in along]  # 0.0 and not -0.0
        origin[target] = sign * _convert_to(unit, axis, [start])[0] + 0.0
    return Placement(steps, origin)


def _line(view: View, order: Sequence[int | None], place: int) -> tuple[list[float] | None, float]:
    """Return how far one element along each axis of the file moves along axis `place`, and the first element's position.

    The former is None if it is not known.
    """
    dimension, affine = order[place], view.affine
    if dimension is None:
        return None, 0.0
    if affine is None or dimension not in affine.dimensions:
        axis = view.axes[dimension]
        return None if axis.scale is None else _make_step(place, len(order), axis.scale), axis.offset
    if not set(affine.dimensions).issubset(order):
        return None, 0.0
    row = affine.dimensions.index(dimension)
    steps = dict(zip(affine.dimensions, affine.matrix[row], strict=True))
    return [0.0 if i is None else steps.get(i, 0.0) for i in order], affine.offset[row]


def _make_step(place: int, count: int, step: float = 1.0) -> list[float]:
    return [step if i == place else 0.0 for i in range(count)]


def _convert_to(unit: str | None, axis: Axis, values: Sequence[float]) -> list[float]:
    numbers = [None if unit is None else convert(value, axis.unit, unit) for value in values]
    return [value if one is None else one for one, value in zip(numbers, values, strict=True)]


_COORDINATES = {"L": (0, 1.0), "R": (0, -1.0), "P": (1, 1.0), "A": (1, -1.0), "S": (2, 1.0), "I": (2, -1.0)}
"""The coordinate of ITK by where an axis points, and its direction."""


def _anatomical(axes: Mapping[int, Axis], present: Sequence[int]) -> dict[int, tuple[int, float]]:
    """Return, for each axis of space, the coordinate of ITK that it lies along and its sign.

    The result is empty unless all axes that are `present` say where they point.
    """
    places, letters = list(axes), [axes[place].orientation for place in present]
    directions = [_COORDINATES[letter] for letter in letters if letter is not None]
    used = {coordinate for coordinate, _ in directions}
    if len(places) != 3 or not len(used) == len(directions) == len(present):
        return {}
    said = {place: (places[coordinate], sign) for place, (coordinate, sign) in zip(present, directions, strict=True)}
    left = iter([places[coordinate] for coordinate in range(3) if coordinate not in used])
    return {place: said.get(place) or (next(left), 1.0) for place in places}


def number(value: float) -> str:
    """Return the shortest decimal text that reads back as the same double; whole numbers without a point."""
    return repr(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


Tag = tuple[int, str, int, object, bool]
"""A tag for tifffile's writer: code, type, count, value, and True if only the first page has it."""

_PIXEL_SCALE, _TIE_POINT, _TRANSFORMATION, _KEYS, _REALS = 33550, 33922, 34264, 34735, 34736
_MODEL, _RASTER, _GEOGRAPHIC, _PROJECTED = 1024, 1025, 2048, 3072


def plane_names(view: View) -> list[str]:
    """Return a name for each plane of a stack, made of its channel or its positions; an empty list if some are not known."""
    parts = [_names_along(view, dimension) for dimension in view.picture[:-2]]
    return [", ".join(names) for names in itertools.product(*parts)] if parts and all(parts) else []


def _names_along(view: View, dimension: int) -> list[str]:
    axis, count = view.axes[dimension], view.shape[dimension]
    channels = view.image.channels if view.image is not None else ()
    if is_channel(axis) and len(channels) == count:
        return [channel.label or f"Band {i + 1}" for i, channel in enumerate(channels)]
    uneven = view.find_positions(dimension)
    places = None if uneven is None else uneven.tolist()
    if axis.scale is not None:
        places = [axis.offset + i * axis.scale for i in range(count)]
    if axis.name is None or places is None:
        return []
    unit = f" {axis.unit}" if axis.unit else ""
    return [f"{axis.name} {number(float(f'{place:.12g}'))}{unit}" for place in places]


class Georeference(NamedTuple):
    """The place of a map. x = x0 + x_column * column + x_row * row, and y in the same way.

    Columns and rows are counted from the outer corner of the first pixel.
    """

    x0: float
    x_column: float
    x_row: float
    y0: float
    y_column: float
    y_row: float
    system: System


def georeference(view: View) -> Georeference | None:
    """Return the place of a picture on Earth; None if the place is not known, or if the picture is no map."""
    color = find_color_axis(view)
    order = view.picture if color is None else order_colors(view, color)[:-1]
    place = placement(view, order[:-3:-1], None) if len(order) > 1 else None
    if place is None:
        return None
    y, x = (view.axes[i] for i in order[-2:])
    plain = is_latitude(y) and is_longitude(x)
    system = view.meaning.system
    if system is not None and system.geographic is None:
        system = System(system.code, plain)
    if plain and (system is None or system.geographic):
        system = system or System(WGS84, True)
    elif system is None or system.geographic or not (is_northing(y) and is_easting(x)) or _is_angle(x) or _is_angle(y):
        return None  # the degrees of a rotated pole are no latitudes and longitudes
    (x0, y0), ((x_column, x_row), (y_column, y_row)) = place.origin, place.steps
    kx, ky = (1000.0 if axis.unit == "kilometer" else 1.0 for axis in (x, y))
    if system.projection is not None and not (_is_metric(x) and _is_metric(y)):
        system = system._replace(projection=None)
    across = [_short(kx * value) for value in (x0 - (x_column + x_row) / 2, x_column, x_row)]
    down = [_short(ky * value) for value in (y0 - (y_column + y_row) / 2, y_column, y_row)]
    return Georeference(across[0], across[1], across[2], down[0], down[1], down[2], system)


def _is_metric(axis: Axis) -> bool:
    """True if an axis of a map is in meters, or in a unit that can be converted to meters."""
    return axis.unit in ("meter", "kilometer")


def _is_angle(axis: Axis) -> bool:
    """True if an axis is in degrees or radians, as for a camera in a satellite."""
    return (axis.unit or "").casefold().startswith(("deg", "rad"))


def geotiff(view: View) -> list[Tag]:
    """Return the GeoTIFF tags of a map; an empty list if its place is not known."""
    location = georeference(view)
    if location is None:
        return []
    tags: list[Tag] = []
    if location.y_row < 0 < location.x_column and not location.x_row and not location.y_column:
        tags.append((_PIXEL_SCALE, "d", 3, (location.x_column, -location.y_row, 0.0), False))
        tags.append((_TIE_POINT, "d", 6, (0.0, 0.0, 0.0, location.x0, location.y0, 0.0), False))
    else:  # GDAL ignores the sign of a scale
        rows = (location.x_column, location.x_row, 0.0, location.x0, location.y_column, location.y_row, 0.0, location.y0)
        tags.append((_TRANSFORMATION, "d", 16, (*rows, *(0.0,) * 4, 0.0, 0.0, 0.0, 1.0), False))
    system = location.system
    if system.code is not None:
        tags += _keys(system, [(_GEOGRAPHIC if system.geographic else _PROJECTED, system.code)])
    elif system.projection is not None:
        tags += _keys(system, geotiff_keys(system.projection))
    return tags


def _keys(system: System, keys: Sequence[tuple[int, int | float]]) -> list[Tag]:
    """Return the tags that hold GeoTIFF's keys. Keys that are real numbers lie in a tag of their own."""
    keys = [(_MODEL, 2 if system.geographic else 1), (_RASTER, 1), *keys]
    reals = [value for _, value in keys if isinstance(value, float)]
    places = {key: place for place, key in enumerate(key for key, value in keys if isinstance(value, float))}
    words = [1, 1, 0, len(keys)]
    for key, value in keys:
        words += [key, _REALS, 1, places[key]] if isinstance(value, float) else [key, 0, 1, value]
    tags: list[Tag] = [(_KEYS, "H", len(words), tuple(words), False)]
    return [*tags, (_REALS, "d", len(reals), tuple(reals), False)] if reals else tags


def _short(value: float) -> float:
    """Round a sum to 15 digits, which removes floating-point noise. Negative zero becomes zero."""
    return float(f"{value:.15g}") + 0.0
