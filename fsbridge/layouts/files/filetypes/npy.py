"""NPY, numpy's own format, with the source's axis, byte and memory order; and raw files of nothing but the elements."""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING

from fsbridge.layouts.files.arrays.extents import FileMap, Unfit, View, make_whole_file
from fsbridge.layouts.files.filetypes.filetype import FileType

if TYPE_CHECKING:
    from typing import Any

    import numpy as np


def npy(view: View) -> FileMap:
    """Return the plan of a file that `np.load` reads without pickle, also with `mmap_mode`."""
    assert view.dtype is not None
    return make_whole_file(view, header(view.shape, view.dtype, view.fortran), view.natural, view.dtype)


def _check_loadable(view: View) -> None:
    if view.dtype is None:
        raise Unfit(f"numpy has no type for {view.metadata.dtype.native}, except with pickle")


def header(shape: tuple[int, ...], dtype: np.dtype[Any], fortran: bool) -> bytes:
    """Return a header in the oldest version of the format that suffices."""
    import numpy as np

    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": fortran, "shape": shape}
    stream = io.BytesIO()
    try:
        np.lib.format.write_array_header_1_0(stream, described)
    except (ValueError, UnicodeEncodeError):  # the header has more than 64 KiB, or names beyond Latin-1
        text = repr(described).encode("utf-8")
        text += b" " * (-(len(text) + 13) % 64) + b"\n"
        return b"\x93NUMPY\x03\x00" + struct.pack("<I", len(text)) + text
    return stream.getvalue()


def raw(view: View) -> FileMap:
    """Return the plan of a file with the elements alone; `NAME.json` tells how to read them."""
    import numpy as np

    return make_whole_file(view, b"", view.natural, view.dtype or np.dtype((np.void, view.metadata.dtype.itemsize)))


def _same_size(view: View) -> None:
    if not view.metadata.dtype.itemsize:
        raise Unfit("a raw file cannot hold elements of different sizes")


NPY = FileType("npy", npy, check=_check_loadable, quick=True, bare=True, instead=("txt", "csv"))
RAW = FileType("raw", raw, check=_same_size, quick=True, bare=True)
