"""The table of all file types of the layout `files`. Each type is one record (`filetype.py`).

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
"""Values of `--files` that are no file suffix: `preview` for several types, and `html` for the pages of groups."""

CHOICES = (*(suffix for suffix, one in FILE_TYPES.items() if one.chosen), *SEVERAL)
"""All values that `--files` accepts."""

ALIASES = {alias: suffix for suffix, one in FILE_TYPES.items() for alias in one.aliases}
"""Alternative suffixes, each with the suffix that it stands for."""

SUFFIXES = tuple(sorted([*FILE_TYPES, *ALIASES, "json"], key=len, reverse=True))
"""Everything that can follow an array's name and a dot, the longest first."""
