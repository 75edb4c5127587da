"""The formats' names and properties, in the order of detection.

Light, because `--help` names them. Not here: how each is recognised and opened (`registry.py`).
"""

from __future__ import annotations

from fsbridge.metadata import Format

ZARR3 = Format("zarr3")  # a broken `.zarr` is taken for Zarr v2
ZARR2 = Format("zarr2", (".zarr",), uniform_chunks=True)
N5 = Format("n5", (".n5",), first_axis_fastest=True, uniform_chunks=True)
HANGAR = Format("hangar", access="path", remote=False, uniform_chunks=True)  # LMDB maps its files
ICECHUNK = Format("icechunk", access="store")
HDF5 = Format("hdf5", (".h5", ".hdf5", ".nwb"), kind="file", access="path", uniform_chunks=True)
KEYED_SUFFIXES = (*ZARR2.suffixes, *N5.suffixes)
ZIP = Format("zip", (".zip", ".ozx", *KEYED_SUFFIXES), kind="file", access="path")  # .ozx: a zipped OME-Zarr
COLLECTION = Format("collection", access="store")
"""Several stores of any formats in one directory."""

NAMES = ("auto", *(form.name for form in (ZARR3, ZARR2, N5, HANGAR, ICECHUNK, HDF5, ZIP, COLLECTION)))
"""Values of `--format`. For a zip file a keyed format names the format of its contents."""
