"""NPY, numpy's own format: axis, byte and memory order are the source's own. And raw: nothing but the elements."""

from __future__ import annotations

import io
import struct
from functools import lru_cache
from typing import Any

import numpy as np

from fsbridge.layouts.files.extents import FileMap, Unfit, View, whole_file


def npy(view: View) -> FileMap:
    """What `np.load` reads without pickle, also with `mmap_mode`."""
    dtype = view.dtype
    if dtype is None:
        raise Unfit(f"numpy has no type for {view.metadata.dtype.native} without pickle")
    return whole_file(view, header(view.shape, dtype, view.fortran), view.natural, dtype)


@lru_cache(maxsize=1024)
def header(shape: tuple[int, ...], dtype: np.dtype[Any], fortran: bool) -> bytes:
    """The header of the oldest version of the format that can say it."""
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": fortran, "shape": shape}
    stream = io.BytesIO()
    try:
        np.lib.format.write_array_header_1_0(stream, described)
    except (ValueError, UnicodeEncodeError):  # more than 64 KiB, or names beyond latin1
        text = repr(described).encode("utf-8")
        text += b" " * (-(len(text) + 13) % 64) + b"\n"
        return b"\x93NUMPY\x03\x00" + struct.pack("<I", len(text)) + text
    return stream.getvalue()


def raw(view: View) -> FileMap:
    """The elements alone; `NAME.json` tells how to read them."""
    size = view.metadata.dtype.itemsize
    if not size:
        raise Unfit("elements of different sizes are no raw file")
    return whole_file(view, b"", view.natural, view.dtype or np.dtype((np.void, size)))
