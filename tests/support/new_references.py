"""References of HDF5 1.12's type, written and read by the C library, because h5py has no such type. Not here: tests."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5p, h5s

ID, MEMORY, TEXT = ctypes.c_int64, ctypes.c_void_p, ctypes.c_char_p
SIZE = 64
"""Bytes of one in memory: H5R_REF_BUF_SIZE (H5Rpublic.h)."""
WRITTEN = [(2, "/group/target", None), (3, "/group/target", ((0, 1), (1, 2))), (4, "/group/target", "unit"), None]
"""An object, a region with its bounds, an attribute, and nothing."""


def call(name: str, *arguments: Any, result: Any = ctypes.c_int64) -> int:
    """Return the result of a function of the library; it must not fail."""
    function = getattr(ctypes.CDLL(h5p.__file__), name)
    function.restype = result
    found: int = function(*(ID(argument) if isinstance(argument, int) else argument for argument in arguments))
    assert found >= 0, name
    return found


def kind() -> Any:
    """H5T_STD_REF."""
    return ID.in_dll(ctypes.CDLL(h5p.__file__), "H5T_STD_REF_g")


def write(path: Path, elsewhere: Path | None = None) -> None:
    """A dataset `refs` and an attribute `ref` of the root, both of `WRITTEN`; `away` refers to an object `elsewhere`."""
    with h5py.File(path, "w", libver="latest") as file:
        file["group/target"] = np.arange(6).reshape(2, 3)
        file["group/target"].attrs["unit"] = "nm"
        references, where = ctypes.create_string_buffer(SIZE * len(WRITTEN)), file.id.id
        region = h5s.create_simple((2, 3))
        region.select_hyperslab((0, 1), (2, 2))
        places = [ctypes.byref(references, SIZE * i) for i in range(len(WRITTEN))]
        call("H5Rcreate_object", where, b"group/target", 0, places[0], result=ctypes.c_int)
        call("H5Rcreate_region", where, b"group/target", region.id, 0, places[1], result=ctypes.c_int)
        call("H5Rcreate_attr", where, b"group/target", b"unit", 0, places[2], result=ctypes.c_int)
        put(file, "refs", references, len(WRITTEN))
        space = h5s.create_simple((len(WRITTEN),))
        attribute = call("H5Acreate2", where, b"ref", kind(), space.id, 0, 0)
        call("H5Awrite", attribute, kind(), references, result=ctypes.c_int)
        call("H5Aclose", attribute, result=ctypes.c_int)
        if elsewhere is not None:
            with h5py.File(elsewhere, "w") as other:
                other["x"] = 1
                call("H5Rcreate_object", other.id.id, b"x", 0, references, result=ctypes.c_int)
                put(file, "away", references, 1)
                call("H5Rdestroy", references, result=ctypes.c_int)


def put(file: h5py.File, name: str, references: Any, count: int) -> None:
    """A dataset of references."""
    space = h5s.create_simple((count,))
    dataset = call("H5Dcreate2", file.id.id, name.encode(), kind(), space.id, 0, 0, 0)
    call("H5Dwrite", dataset, kind(), 0, 0, 0, references, result=ctypes.c_int)
    call("H5Dclose", dataset, result=ctypes.c_int)


def read(file: h5py.File, dataset: str | None = None) -> list[Any]:
    """Return the targets of a dataset's references, or of those in the root's attribute, as in `WRITTEN`."""
    references = ctypes.create_string_buffer(SIZE * len(WRITTEN))
    if dataset is None:
        opened = call("H5Aopen", file.id.id, b"ref", 0)
        call("H5Aread", opened, kind(), references, result=ctypes.c_int)
        call("H5Aclose", opened, result=ctypes.c_int)
    else:
        opened = call("H5Dopen2", file.id.id, dataset.encode(), 0)
        call("H5Dread", opened, kind(), 0, 0, 0, references, result=ctypes.c_int)
        call("H5Dclose", opened, result=ctypes.c_int)
    found: list[Any] = []
    for start in range(0, len(references) - SIZE + 1, SIZE):
        place = ctypes.byref(references, start)
        if not any(references.raw[start : start + SIZE]):
            found.append(None)
            continue
        number, detail, text = call("H5Rget_type", place, result=ctypes.c_int), None, ctypes.create_string_buffer(100)
        if number == 3:
            detail = h5s.SpaceID(call("H5Ropen_region", place, 0, 0)).get_select_bounds()
        elif number == 4:
            call("H5Rget_attr_name", place, text, ctypes.c_size_t(100), result=ctypes.c_ssize_t)
            detail = text.value.decode()
        call("H5Rget_obj_name", place, 0, text, ctypes.c_size_t(100), result=ctypes.c_ssize_t)
        found.append((number, text.value.decode(), detail))
        call("H5Rdestroy", place, result=ctypes.c_int)
    return found
