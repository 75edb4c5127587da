"""What netCDF's conventions say by an array's attributes, as xarray reads it in Zarr: missing elements, packed ones. Pure.

`_FillValue` stands for missing elements. In Zarr v3 xarray takes whole numbers as they are and others as the base64 of a
double, and opens nothing of a group where it finds something else; in Zarr v2 it takes the array's `fill_value`, as netCDF-C
and GDAL do; netCDF and HDF5 have a number, mostly in a list of one. Not here: what fills chunks that are not stored
(`fill_values.py`).
"""

from __future__ import annotations

import base64
import math
import struct

import numpy as np

from fsbridge.layouts.fill_values import in_base64
from fsbridge.metadata import JSON, ArrayMetadata

FILL_VALUE = "_FillValue"

_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""Numbers that JSON lacks, as attributes have them."""

_PACKED = ("scale_factor", "add_offset")
"""Numbers: of lists of one, as netCDF's files have them, xarray makes elements that are Python objects."""


def zarr2_attributes(metadata: ArrayMetadata) -> dict[str, JSON]:
    """The source's attributes, with numbers where xarray wants numbers."""
    return {name: _single(value) if name in _PACKED else value for name, value in metadata.attributes.items()}


def zarr3_attributes(metadata: ArrayMetadata) -> dict[str, JSON]:
    """The same for Zarr v3, with what stands for missing elements; a source that is Zarr v3 has its own."""
    if "zarr.json" in metadata.native:
        return dict(metadata.attributes)
    missing = missing_value(metadata)
    return zarr2_attributes(metadata) | ({} if missing is None else {FILL_VALUE: _in_zarr3(missing)})


def missing_value(metadata: ArrayMetadata) -> int | float | None:
    """That number; None where the source tells none, or its elements are no real numbers."""
    dtype = metadata.dtype.numpy
    if dtype is None or dtype.kind not in "iuf":
        return None
    if ".zarray" in metadata.native and metadata.dimension_names is not None and isinstance(metadata.fill, bytes):
        told = np.frombuffer(metadata.fill, dtype)[0]  # of arrays with such names: others xarray does not open
        if told == told:  # else it is missing anyway
            return float(told) if dtype.kind == "f" else int(told)
    return _number(metadata.attributes.get(FILL_VALUE), dtype.kind == "f")


def _number(told: JSON, real: bool) -> int | float | None:
    """What an attribute tells; None if that is no such number."""
    value = _single(told)
    if real and isinstance(value, str):
        value = _WORDS.get(value, _from_zarr3(value))
    if isinstance(value, bool) or not isinstance(value, int | float) or (not real and value != value // 1):
        return None
    try:
        return float(value) if real else int(value)
    except OverflowError:
        return None


def _single(value: JSON) -> JSON:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _in_zarr3(missing: int | float) -> JSON:
    return missing if isinstance(missing, int) else in_base64(struct.pack("<d", missing))


def _from_zarr3(text: str) -> float | None:
    try:
        return float(struct.unpack("<d", base64.b64decode(text, validate=True))[0])
    except (ValueError, struct.error):
        return None
