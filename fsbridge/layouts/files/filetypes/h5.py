"""HDF5 (`.h5`) and netCDF-4 (`.nc`): the records of the file types. A netCDF-4 file is an HDF5 file, too.

Not here: how the file is made (`layouts/files/h5/`).
"""

from __future__ import annotations

from fsbridge.layouts.files.arrays.extents import View
from fsbridge.layouts.files.filetypes.filetype import FileType, Limit, nbytes
from fsbridge.layouts.files.filetypes.text import MAX_TEXTS


def _texts(view: View) -> int:
    """Return the number of elements that HDF5 stores as texts of variable length."""
    varying = view.metadata.dtype.serializer != "bytes" or (view.dtype is not None and view.dtype.kind == "U")
    return view.selection.size if varying else 0


_LIMITS = (
    Limit(_texts, MAX_TEXTS, f"the array has more than {MAX_TEXTS} elements of variable length"),
    Limit(nbytes, 2**61 - 1, "the array is too large for an HDF5 file"),
)

H5 = FileType("h5", plan=None, limits=_LIMITS)
"""`NAME.h5`: an array, a group or a whole store as one virtual HDF5 file, as users of h5py expect it."""

NC = FileType("nc", plan=None, limits=_LIMITS)
"""`NAME.nc`: the same as netCDF-4's own writer would write it: its readers want other texts, truth values and types."""
