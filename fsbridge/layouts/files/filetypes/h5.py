"""HDF5 (`.h5`, and `.nc` for programs that choose their reader by the file's name): the record of the file type.

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


H5 = FileType(
    "h5",
    plan=None,
    limits=(
        Limit(_texts, MAX_TEXTS, f"the array has more than {MAX_TEXTS} elements of variable length"),
        Limit(nbytes, 2**61 - 1, "the array is too large for an HDF5 file"),
    ),
    aliases=("nc",),  # GDAL, QGIS, ncview and Panoply choose their netCDF reader by it
)
