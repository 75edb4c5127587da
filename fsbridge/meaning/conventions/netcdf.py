"""netCDF-C: what it notes in the HDF5 files that it writes."""

from __future__ import annotations

from fsbridge.meaning import Attributes
from fsbridge.metadata import JSON

_NOTES = frozenset(("_Netcdf4Coordinates", "_Netcdf4Dimid", "_nc3_strict", "_NCProperties"))
"""Attributes in which netCDF-C notes numbers of dimensions, the data model, and its own version.

netCDF's own programs do not show them, and they are wrong for another file, where dimensions have other numbers.
"""


def without_notes(attributes: Attributes) -> dict[str, JSON]:
    """Return an object's attributes without netCDF's notes."""
    return {name: value for name, value in attributes.items() if name not in _NOTES}
