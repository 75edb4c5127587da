"""Attributes in HDF5 files, for facts that HDF5 itself has no place for. Not here: dimension scales (`files/h5`)."""

from __future__ import annotations

from collections.abc import Sequence

from fsbridge.meaning import Axis
from fsbridge.meaning.conventions import ilastik, netcdf, xarray
from fsbridge.meaning.conventions.cf import FILL_VALUE
from fsbridge.metadata import JSON, ArrayMetadata


def attributes(metadata: ArrayMetadata, axes: Sequence[Axis]) -> dict[str, JSON]:
    """Return an array's attributes, with the missing value, the sizes and the type of dates. `axes`: slowest first."""
    shown = netcdf.without_notes(metadata.shown_attributes())
    from_hdf5, dtype = "hdf5" in metadata.native, metadata.dtype.numpy
    if not from_hdf5:
        shown.pop(xarray.DIMENSIONS, None)  # the scales have the names
    if dtype is not None and dtype.kind in "mM":
        shown.setdefault("numpy_dtype", dtype.str)
    missing = xarray.missing_value(metadata)
    # Zarr v2 writers put a fill value of 0 there without meaning anything, and netCDF's readers would show zeros as missing.
    has_fill = FILL_VALUE in shown or missing
    if has_fill and missing is not None and not isinstance(shown.get(FILL_VALUE), list | int | float):
        shown[FILL_VALUE] = missing
    if not from_hdf5:
        ilastik.write(axes, shown)
    return shown
