"""Chunks that LZF or szip compressed, perhaps after shuffling, decoded by HDF5's own libraries and refused if too short.

Part of the HDF5 child. HDF5 does not ask how much they decoded, and shows what was in memory behind it. Not here: chunks
with a checksum, and all other filters, which are HDF5's own affair (`data.py`).
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from h5py import h5z

from fsbridge.formats.hdf5.child.objects import H5_ERRORS
from fsbridge.formats.hdf5.child.opened import Refusal

LZF = 32000
"""The filter's registered number."""
SZIP_HEADER = 4
"""Bytes before szip's own, the decoded length (H5Zszip.c)."""
MAX_BLOCK, MAX_LINE = 32, 4096
"""Pixels of a block and of a line (szlib.h); HDF5 writes no line that is shorter than a block."""

Bytes = npt.NDArray[np.uint8]
Decode = Callable[[bytes, int, tuple[int, ...]], Bytes | None]
"""What of `stored` is decoded, as many bytes as it gives up to `size`, by the filter's values; None: HDF5 must do it."""


def chunk(dataset: Any, plist: Any, start: tuple[int, ...]) -> Any:
    """The filtered chunk that begins at `start`, as `(*shape, element size)` uint8; None where HDF5 must read it."""
    filters = [plist.get_filter(i) for i in range(plist.get_nfilters())]
    size, edges = dataset.get_type().get_size(), plist.get_chunk()
    number, _, settings, _ = filters[-1]
    shuffled = len(filters) == 2 and filters[0][0] == h5z.FILTER_SHUFFLE and filters[0][2] == (size,)
    if number not in DECODERS or not (shuffled or len(filters) == 1):
        return None
    try:
        mask, stored = dataset.read_direct_chunk(start)
    except H5_ERRORS:  # not stored, which `get_chunk_info_by_coord` would look for among all chunks, or HDF5 tells why
        return None
    count = math.prod(edges)
    data = None if mask else DECODERS[number](stored, count * size, settings)
    if data is None:
        return None
    if len(data) != count * size:
        name = "LZF" if number == LZF else "szip"
        raise Refusal(
            "corrupt", f"{name} data of {len(data) or 'no known number of'} bytes where {count * size} are expected"
        )
    return (data.reshape(size, count).T if shuffled else data).reshape(*edges, size)


def _lzf(stored: bytes, size: int, settings: tuple[int, ...]) -> Bytes | None:
    decompress = _function("lzf_decompress", ctypes.c_char_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_uint)
    if decompress is None:
        return None
    data = np.empty(size, np.uint8)
    return data[: decompress(stored, len(stored), data.ctypes.data, size)]  # 0: too many, or no LZF


class _Szip(ctypes.Structure):
    """`SZ_com_t` (szlib.h)."""

    _fields_ = (
        ("options_mask", ctypes.c_int),
        ("bits_per_pixel", ctypes.c_int),
        ("pixels_per_block", ctypes.c_int),
        ("pixels_per_scanline", ctypes.c_int),
    )


def _szip(stored: bytes, size: int, settings: tuple[int, ...]) -> Bytes | None:
    """Lines of pixels are stored as whole blocks. The library fills what is missing of lines that are none with whatever was
    in memory, so it is asked for whole blocks. Pixels of 32 and 64 bits are stored as bytes, all first ones first.
    """
    decompress = _function(
        "SZ_BufftoBuffDecompress",
        *(ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t), ctypes.c_char_p, ctypes.c_size_t, ctypes.POINTER(_Szip)),
    )
    if decompress is None or len(settings) < 4:
        return None
    mask, block, bits, line = settings[:4]
    if bits not in (8, 16, 32, 64) or size % (bits // 8):
        return None
    possible = 2 <= block <= MAX_BLOCK and block <= line <= MAX_LINE  # so that whole blocks take less than twice the size
    if not possible or len(stored) < SZIP_HEADER or int.from_bytes(stored[:SZIP_HEADER], "little") != size:
        return np.empty(0, np.uint8)
    pixel = 2 if bits == 16 else 1
    pixels, whole = size // pixel, -(-line // block) * block
    lines = -(-pixels // line)
    padded = np.zeros(lines * whole * pixel, np.uint8)
    length = ctypes.c_size_t(len(padded))
    form = _Szip(mask, 8 * pixel, block, whole)
    if decompress(padded.ctypes.data, length, stored[SZIP_HEADER:], len(stored) - SZIP_HEADER, form):
        return np.empty(0, np.uint8)
    needed = ((lines - 1) * whole + pixels - (lines - 1) * line) * pixel
    if length.value < needed:
        return padded[: min(length.value, size - 1)]
    data = padded.reshape(lines, whole * pixel)[:, : line * pixel].reshape(-1)[:size]
    return data if bits <= 16 else data.reshape(bits // 8, -1).T.reshape(-1)


DECODERS: Mapping[int, Decode] = {LZF: _lzf, h5z.FILTER_SZIP: _szip}


@functools.cache
def _function(name: str, *arguments: Any) -> Callable[..., int] | None:
    """A function of the libraries that h5py has loaded; None if it is not to be had."""
    try:
        found = getattr(ctypes.CDLL(h5z.__file__), name)
    except (AttributeError, OSError):
        return None
    found.argtypes, found.restype = arguments, ctypes.c_uint
    return found  # type: ignore[no-any-return]
