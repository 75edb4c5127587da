"""netCDF-C: what it notes in the HDF5 files that it writes, and which names it cannot read there."""

from __future__ import annotations

from fsbridge.meaning import Attributes
from fsbridge.metadata import JSON

DIMENSION, COORDINATES = "_Netcdf4Dimid", "_Netcdf4Coordinates"
"""A dimension's number, and the numbers of the dimensions of a coordinate that has several."""

_NOTES = frozenset((DIMENSION, COORDINATES, "_nc3_strict", "_NCProperties"))
"""Attributes in which netCDF-C notes numbers of dimensions, the data model, and its own version.

netCDF's own programs do not show them, and they are wrong for another file, where dimensions have other numbers.
"""


def without_notes(attributes: Attributes) -> dict[str, JSON]:
    """Return an object's attributes without those that netCDF-C writes for itself."""
    return {name: value for name, value in attributes.items() if name not in _NOTES}


_RESERVED = frozenset(("CLASS", "NAME", "REFERENCE_LIST", "DIMENSION_LIST", "DIMENSION_LABELS"))
"""Attributes of dimension scales. netCDF-C never shows them, and crashes if they are anything else."""

NAME_BYTES = 256
"""Most bytes of a name (NC_MAX_NAME). netCDF-C refuses the whole file if any is longer."""


def refusal(name: str) -> str | None:
    """Return why netCDF cannot have an attribute of that name; None if it can."""
    return "netCDF reserves the name" if name in _RESERVED else too_long(name)


def too_long(name: str) -> str | None:
    """Return why netCDF cannot have a name, which is only about its length; None if it can."""
    long = len(name.encode("utf-8", "surrogateescape")) > NAME_BYTES
    return f"netCDF has no names of more than {NAME_BYTES} bytes" if long else None


def characters_name(length: int) -> str:
    """Return the name of the dimension that texts of a fixed length get, as xarray calls it."""
    return f"string{length}"
