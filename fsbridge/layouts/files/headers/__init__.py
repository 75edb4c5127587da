"""The formats of the layout `files`: by the suffix of their files, who makes their headers. Libraries come later."""

from __future__ import annotations

from collections.abc import Callable

from fsbridge.layouts.files.extents import Plan, View
from fsbridge.layouts.files.headers import envi, meta, mrc, nii, npy, nrrd, pictures, text, tiff

Maker = Callable[[View], Plan]

MAKERS: dict[str, Maker] = {
    "npy": npy.npy,
    "raw": npy.raw,
    "nhdr": nrrd.nhdr,
    "nrrd": nrrd.nrrd,
    "mhd": meta.mhd,
    "mha": meta.mha,
    "nii": nii.nii,
    "mrc": mrc.mrc,
    "tif": tiff.tif,
    "ome.tif": tiff.ome,
    "envi": envi.envi,
    "envi.hdr": envi.envi_header,
    "pgm": pictures.pgm,
    "png": pictures.png,
    "csv": text.csv_table,
    "txt": text.txt_lines,
}
"""By suffix. Each raises Unfit, before it imports anything, where its format cannot hold the array."""

SUFFIXES = tuple(sorted([*MAKERS, "json", "h5"], key=len, reverse=True))
"""All that follows an array's name and a dot, the longest first."""

BESIDE = {"nhdr": ("raw",), "mhd": ("raw",), "envi": ("envi.hdr",)}
"""What is listed with a format, because its files come in twos."""
