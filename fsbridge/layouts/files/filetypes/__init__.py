"""The file types of the layout `files` in one table; all that is known of one is in its record (`filetype.py`).

A new file type is a module here and a line of the table. "Format" always means N5, Zarr and the like.
"""

from __future__ import annotations

from collections.abc import Mapping

from fsbridge.layouts.files.filetypes import envi, h5, meta, mrc, nii, npy, nrrd, pictures, previews, text, tiff
from fsbridge.layouts.files.filetypes.filetype import FileType

FILE_TYPES: Mapping[str, FileType] = {
    one.suffix: one
    for one in (
        *(npy.NPY, npy.RAW),
        *(nrrd.NHDR, nrrd.NRRD, meta.MHD, meta.MHA, nii.NII, mrc.MRC),
        *(tiff.TIF, tiff.LABELS, tiff.OME, h5.H5, envi.ENVI, envi.HEADER),
        *(pictures.PGM, pictures.PNG, text.CSV, text.TXT),
        *(previews.PICTURE, previews.CURVES),
    )
}
"""File types by suffix, in the order of a listing and of `NAME.json`."""

SEVERAL = {"preview": (previews.PICTURE.suffix, previews.CURVES.suffix), "html": ()}
"""What `--files` can name that is no suffix of an array's files: several of them, and the page of a group."""

CHOICES = (*(suffix for suffix, one in FILE_TYPES.items() if one.chosen), *SEVERAL)
"""What `--files` can name."""

ALIASES = {alias: suffix for suffix, one in FILE_TYPES.items() for alias in one.aliases}
"""Other suffixes of the same file, each with the one that it stands for."""

SUFFIXES = tuple(sorted([*FILE_TYPES, *ALIASES, "json"], key=len, reverse=True))
"""All that follows an array's name and a dot, the longest first."""
