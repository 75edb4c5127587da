"""CF and netCDF: coordinates, missing and packed elements, `_Unsigned`, units, grid mappings.

Not here: how xarray and Zarr spell `_FillValue` (`xarray.py`), what netCDF-C notes in HDF5 files (`netcdf.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fsbridge.meaning import Attributes, Axis, Kind, Meaning, Positions, System, Values
from fsbridge.meaning.attributes import finite, number, numbers, single, text
from fsbridge.meaning.convention import Convention, Written, place_on_map, sensible
from fsbridge.meaning.conventions.cf_mappings import code_of_mapping, projection_of_mapping
from fsbridge.meaning.systems import WGS84, epsg_code, system_of_wkt
from fsbridge.meaning.times import is_since
from fsbridge.meaning.units import fold
from fsbridge.metadata import JSON, ArrayMetadata

FILL_VALUE = "_FillValue"
MISSING_VALUE = "missing_value"
UNITS = "units"
CALENDAR = "calendar"
PACKED = ("scale_factor", "add_offset")

_TYPED = frozenset((FILL_VALUE, MISSING_VALUE, "valid_min", "valid_max", "valid_range", "flag_values", "flag_masks"))
_RANGE = "actual_range"
"""Attributes with numbers of the type of the elements. `actual_range` has the type of the unpacked quantity."""

BOUNDS = ("bounds", "climatology")
"""Attributes of a coordinate that name another array with the edges of each cell (CF conventions, 7.1 and 7.4)."""

OF_COORDINATES = frozenset((UNITS, CALENDAR, *BOUNDS, "standard_name", "axis", "positive", FILL_VALUE))
"""Attributes that change the meaning of a coordinate's values."""

REGULAR_TOLERANCE = 1e-5
"""Largest deviation of a coordinate from regular spacing, as a fraction of the step: float32 coordinates are rounded."""

_EARTH = [6378137, 298.257223563, None]
"""Semi-major axis and inverse flattening of WGS 84, and no radius."""

_KINDS: dict[JSON, Kind] = {"projection_y_coordinate": "northing", "projection_x_coordinate": "easting"}


def _array(written: Written, known: Meaning) -> Meaning:
    known = _place(written, known)
    mapping = written.attributes.get(_MAPPING)
    if mapping is not None:
        described = _mapping(written, mapping)
        system = System(None, None) if described is None else system_of_mapping(described)
        known = _transform(replace(known, system=known.system or system), described or {})
    words = (text(single(written.attributes.get(name))) for name in ("long_name", "standard_name"))
    long_name = known.long_name or next((word for word in words if word is not None), None)
    values = _bounding(written, _values(written, known.values))
    return replace(known, values=values, long_name=long_name)


# ---- axes


def _place(written: Written, known: Meaning) -> Meaning:
    """Add units, and spacing or positions, from the arrays that are called like the dimensions."""
    axes, positions = list(known.axes), dict(known.positions)
    for dimension, (axis, length) in enumerate(zip(axes, written.metadata.shape, strict=True)):
        if axis.name is None or known.is_placed(dimension):
            continue
        beside = written.coordinate(axis.name)
        if beside is None or (beside[0] is not None and len(beside[0]) != length):
            continue
        values, attributes = beside
        axes[dimension], uneven = along(axis, values, attributes)
        if uneven is not None:
            positions[dimension] = uneven
    return replace(known, axes=sensible(tuple(axes)), positions=positions)


def along(axis: Axis, values: Positions | None, attributes: Attributes) -> tuple[Axis, Positions | None]:
    """Return the axis with what its coordinate says about it, and the coordinate's values if they are not evenly spaced."""
    packing = packing_of(attributes, *PACKED)
    if values is not None and packing is not None:
        values = values * packing[0] + packing[1]
    spacing = None if values is None else regular(values)
    unit = axis.unit or fold(attributes.get(UNITS) or attributes.get("unit"))
    kind = axis.kind or _KINDS.get(text(attributes.get("standard_name")))
    axis = axis._replace(unit=unit, kind=kind, calendar=axis.calendar or text(single(attributes.get(CALENDAR))))
    if spacing is None:
        return axis, values
    return axis._replace(scale=spacing[0], offset=spacing[1]), None


def regular(values: NDArray[np.float64]) -> tuple[float, float] | None:
    """Return step and first value of coordinates; None if they are not regularly spaced, or if there are fewer than two."""
    if len(values) < 2 or not np.isfinite(values).all():
        return None
    first, step = float(values[0]), float(values[-1] - values[0]) / (len(values) - 1)
    if not step or not math.isfinite(step):
        return None
    away = np.abs(values - (first + step * np.arange(len(values))))
    rounding = abs(float(np.abs(values).max())) * 2.0**-22  # coordinates may have been rounded to float32
    regular = float(away.max()) <= abs(step) * REGULAR_TOLERANCE + rounding and rounding < abs(step) / 4
    return (step, first) if regular else None


# ---- elements


def _values(written: Written, known: Values) -> Values:
    dtype, attributes = written.metadata.dtype.numpy, written.attributes
    unit = known.unit or _unit(attributes, written.x_first)
    known = replace(known, calendar=known.calendar or text(single(attributes.get(CALENDAR))))
    if dtype is None or dtype.kind not in "iuf":
        return replace(known, unit=unit)
    packing, greatest = known.packing or packing_of(attributes, *PACKED), known.greatest
    signed = _is_signed(attributes, dtype)
    listed = [number(each, dtype.kind == "f") for name in (FILL_VALUE, MISSING_VALUE) for each in _each(attributes, name)]
    missing = _fitting((*known.missing, *(n for n in listed if n is not None)), dtype, signed)
    if greatest is None and packing is None and not missing and dtype.kind != "f":
        greatest = _greatest(attributes)
    return replace(known, missing=missing, packing=packing, unit=unit, signed=signed, greatest=greatest)


def _is_signed(attributes: Attributes, dtype: np.dtype[Any]) -> bool | None:
    """Return whether integers are signed if `_Unsigned` contradicts their type, as in netCDF-3; None if it does not."""
    written = str(single(attributes.get("_Unsigned"))).casefold()
    signed = {"true": False, "false": True}.get(written)
    return None if dtype.kind == "f" or signed == (dtype.kind == "i") else signed


def _each(attributes: Attributes, name: str) -> Sequence[JSON]:
    value = attributes.get(name)
    return value if isinstance(value, list) else [value]


def _fitting(numbers: Sequence[int | float], dtype: np.dtype[Any], signed: bool | None) -> tuple[int | float, ...]:
    """Return those numbers that elements can have as values, each once.

    If integers are meant to be signed, or unsigned, unlike their type, the numbers are converted.
    """
    if dtype.kind == "f":
        most = float(np.finfo(dtype).max)
        return tuple(dict.fromkeys(n for n in numbers if not math.isfinite(n) or abs(n) <= most))
    count = 1 << 8 * dtype.itemsize
    least = -count // 2 if (dtype.kind == "i" if signed is None else signed) else 0
    if signed is not None:
        numbers = [n if least <= n < least + count else n - count if signed else n + count for n in numbers]
    return tuple(dict.fromkeys(n for n in numbers if least <= n < least + count))


def packing_of(attributes: Attributes, factor_name: str, offset_name: str) -> tuple[float, float] | None:
    """Return the factor and the offset with these names; None if nothing is packed, or if one is no finite number."""
    factor, offset = finite(single(attributes.get(factor_name, 1.0))), finite(single(attributes.get(offset_name, 0.0)))
    return None if factor is None or offset is None or not factor or (factor, offset) == (1.0, 0.0) else (factor, offset)


def _unit(attributes: Attributes, x_first: bool) -> str | None:
    written = attributes.get(UNITS)
    return unit_of(None if x_first and isinstance(written, list) else written)  # N5 lists the units of its axes


def unit_of(written: JSON) -> str | None:
    """Return the unit of the elements as the source spells it; None if it is no printable text."""
    unit = text(single(written))
    return unit if unit is not None and unit.isprintable() else None


def _greatest(attributes: Attributes) -> int | None:
    """Return the upper end of `actual_range`, or None. It holds for stored numbers only if nothing is packed or missing."""
    written = attributes.get(_RANGE)
    ends = [number(end, False) for end in written] if isinstance(written, list) and len(written) == 2 else []
    if len(ends) == 2 and isinstance(ends[0], int) and isinstance(ends[1], int) and 0 <= ends[0] <= ends[1]:
        return ends[1]
    return None


def typed(attributes: Attributes, packed: bool = False) -> list[str]:
    """Return the names of the attributes in which numbers must have the type of the elements (CF conventions, 2.5.1)."""
    return [name for name in attributes if name in _TYPED or (name == _RANGE and not packed)]


# ---- bounds

_SUFFIXES = ("_bnds", "_bounds", "_bnd")


def can_be_bounds(metadata: ArrayMetadata) -> bool:
    """True if an array may be the bounds of a coordinate, which then says more about it. Only the array's name tells."""
    dtype, shape = metadata.dtype.numpy, metadata.shape
    is_number = dtype is not None and dtype.kind in "iuf"
    return is_number and len(shape) in (1, 2) and shape[-1] == 2 and not {UNITS, CALENDAR} <= metadata.attributes.keys()


def _bounding(written: Written, known: Values) -> Values:
    """Return what is known of an array of bounds, with the unit and calendar of its times, which it need not repeat.

    The times lie beside it, and name it as their bounds. They are called like its first dimension, or as it is without
    "_bnds".
    """
    if not written.names or not can_be_bounds(written.metadata):
        return known
    own = written.names[-1]
    first = next((axis for axis in written.metadata.dimension_names or ()), None)
    for name in dict.fromkeys((first, *(own.removesuffix(suffix) for suffix in _SUFFIXES))):
        beside = None if name is None or name == own else written.coordinate(name)
        said = {} if beside is None else beside[1]
        unit = unit_of(said.get(UNITS))
        if is_since(unit) and own in [single(said.get(word)) for word in BOUNDS]:
            calendar = known.calendar or text(single(said.get(CALENDAR)))
            return replace(known, unit=known.unit or unit, calendar=calendar)
    return known


# ---- other arrays

_NAMING = ("coordinates", *BOUNDS, "ancillary_variables", "cell_measures", "formula_terms")
"""Attributes that name other arrays, some of them with a word and a colon before each."""
_MAPPING = "grid_mapping"


def named(attributes: Attributes) -> list[str]:
    """Return the names of the other arrays that an array's attributes mention as belonging to it."""
    words = [word for name in _NAMING for word in (text(attributes.get(name)) or "").split() if not word.endswith(":")]
    # "crs: x y" names coordinates as well.
    return [*words, *(word.rstrip(":") for word in (text(attributes.get(_MAPPING)) or "").split())]


def renamed(attributes: Attributes, names: Mapping[str, str]) -> dict[str, JSON]:
    """Return the attributes that mention other arrays by name, with their new names. Unchanged attributes are left out."""
    changes: dict[str, JSON] = {}
    for attribute in (*_NAMING, _MAPPING):
        written = text(attributes.get(attribute)) or ""
        words = [_rename(word, names, attribute == _MAPPING) for word in written.split()]
        if words != written.split():
            changes[attribute] = " ".join(words)
    return changes


def _rename(word: str, names: Mapping[str, str], mapping: bool) -> str:
    if mapping and word.endswith(":"):
        return f"{names.get(word[:-1], word[:-1])}:"
    return names.get(word, word)


# ---- grid mappings


def _mapping(written: Written, mapping: JSON) -> Attributes | None:
    """Return the attributes of a grid mapping's variable; None if there is none."""
    variable = (text(mapping) or "").partition(":")[0].split()
    beside = written.coordinate(variable[0]) if variable else None
    return None if beside is None else beside[1]


def _transform(known: Meaning, mapping: Attributes) -> Meaning:
    """Return what is known, with the places that GDAL's `GeoTransform` gives. It starts at the corner of the first pixel."""
    words = (text(mapping.get("GeoTransform")) or "").split()
    six = numbers([_float(word) for word in words], 6) if len(words) == 6 else None
    names = [axis.name for axis in known.axes]
    if six is None or names.count("y") != 1 or names.count("x") != 1:
        return known
    x, a, b, y, d, e = six
    return place_on_map(known, names.index("y"), names.index("x"), (a, b, x + (a + b) / 2, d, e, y + (d + e) / 2))


def _float(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def system_of_mapping(attributes: Attributes) -> System:
    """Return the coordinate system of a grid mapping: by a code, else by well-known text, else by its parameters."""
    kind, codes = attributes.get("grid_mapping_name"), (epsg_code(attributes.get(name)) for name in ("epsg_code", "epsg"))
    code = next((code for code in codes if code is not None), None)
    systems = (system_of_wkt(attributes.get(name)) for name in ("crs_wkt", "spatial_ref"))
    if code is None and (known := next((system for system in systems if system is not None), None)) is not None:
        unnamed = known.code is None and known.geographic is False
        return known._replace(projection=projection_of_mapping(attributes)) if unnamed else known
    if not isinstance(kind, str):
        return System(code, None)
    if kind != "latitude_longitude":
        return System(code or code_of_mapping(attributes), False, None if code else projection_of_mapping(attributes))
    earth = [attributes.get(name) for name in ("semi_major_axis", "inverse_flattening", "earth_radius")]
    return System(code or (WGS84 if earth in ([None] * 3, _EARTH) else None), True)


CF = Convention("CF and netCDF", _array)
