"""Attributes in HDF5 files, for facts that HDF5 itself has no place for. Not here: dimension scales (`files/h5`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fsbridge.meaning import Attributes, Axis
from fsbridge.meaning.attributes import number
from fsbridge.meaning.conventions import ilastik, xarray
from fsbridge.meaning.conventions.cf import CALENDAR, FILL_VALUE, UNITS
from fsbridge.meaning.conventions.netcdf import without_notes
from fsbridge.metadata import JSON, ArrayMetadata


def attributes(metadata: ArrayMetadata, axes: Sequence[Axis], netcdf: bool = False) -> dict[str, JSON]:
    """Return an array's attributes for an HDF5 file, with the missing value, the sizes of elements, and the type of dates.

    `axes`: slowest first. `netcdf`: as xarray writes netCDF files, which have no sizes, but mark truth values.
    """
    shown = without_notes(metadata.shown_attributes())
    from_hdf5, dtype = "hdf5" in metadata.native, metadata.dtype.numpy
    if not from_hdf5:
        shown.pop(xarray.DIMENSIONS, None)  # the scales have the names
    if dtype is not None and dtype.kind in "mM":
        times = {} if UNITS in shown else _times(dtype)
        if not (netcdf and times):
            shown.setdefault("numpy_dtype", dtype.str)
        shown |= times
    if netcdf and dtype is not None and dtype.kind == "b":
        shown.setdefault(xarray.TYPE, "bool")
    missing = xarray.missing_value(metadata)
    if netcdf and missing is None and xarray.fills_with_nan(metadata):
        missing = math.nan
    # Zarr v2 writers put a fill value of 0 there without meaning anything, and netCDF's readers would show zeros as missing.
    has_fill = FILL_VALUE in shown or missing
    if has_fill and missing is not None and not isinstance(shown.get(FILL_VALUE), list | int | float):
        shown[FILL_VALUE] = missing
    if not from_hdf5 and not netcdf:
        ilastik.write(axes, shown)
    return shown


def fill_in_netcdf(dtype: np.dtype[Any], said: Attributes) -> bytes | None:
    """Return the bytes of a netCDF file's fill value, which the attribute `_FillValue` in `said` gives; None without it."""
    missing = number(said.get(FILL_VALUE), dtype.kind == "f") if dtype.kind in "iufmM" else None
    if missing is None:
        return None
    if dtype.kind in "mM":
        dtype = np.dtype("i8").newbyteorder(dtype.byteorder)
    try:
        return np.array(missing, dtype).tobytes()
    except OverflowError:
        return None


def _times(dtype: np.dtype[Any]) -> dict[str, JSON]:
    """Return the attributes by which CF describes dates and durations of a type; none if CF has no word for its unit."""
    unit, count = np.datetime_data(dtype)
    word = _TIMES.get(unit) if count == 1 else None
    if word is None:
        return {}
    said = {UNITS: f"{word} since 1970-01-01", CALENDAR: "proleptic_gregorian"} if dtype.kind == "M" else {UNITS: word}
    return {**said, FILL_VALUE: int(np.iinfo(np.int64).min)}  # NaT


_TIMES = {"D": "days", "h": "hours", "m": "minutes", "s": "seconds", "ms": "milliseconds", "us": "microseconds",
          "ns": "nanoseconds"}  # fmt: skip
"""Units that CF can say, by numpy's name."""


def is_marker(metadata: ArrayMetadata) -> bool:
    """True if the array's fill value may also be HDF5's, where programs of netCDF take it for missing elements.

    The fill value of an HDF5 file may be. Any other may be a mere default of the store: only if it marks missing elements.
    """
    dtype = metadata.dtype.numpy
    if "hdf5" in metadata.native or dtype is None or dtype.kind not in "biufc" or not isinstance(metadata.fill, bytes):
        return True
    filled, missing = np.frombuffer(metadata.fill, dtype)[0], xarray.missing_value(metadata)
    if missing is None or (not missing and FILL_VALUE not in metadata.attributes):
        return False
    return bool(filled == np.array(missing).astype(dtype) or (filled != filled and missing != missing))
