"""Chunks compressed with LZF or szip, perhaps after shuffling: decoded by HDF5's own libraries, refused if too short.

HDF5 does not check how many bytes these filters decoded and would show whatever was in memory behind them. Part of the
HDF5 child. Not here: chunks with a checksum, and all other filters, which HDF5 decodes by itself (`data.py`).
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
"""HDF5 stores the decoded length in 4 bytes before szip's own (H5Zszip.c)."""
MAX_BLOCK, MAX_LINE = 32, 4096
"""Most pixels of a block and of a line (szlib.h). HDF5 never writes a line that is shorter than a block."""

Bytes = npt.NDArray[np.uint8]
Decode = Callable[[bytes, int, tuple[int, ...]], Bytes | None]
"""(stored bytes, decoded size, filter values) -> at most `size` decoded bytes, or None if HDF5 must decode them."""


def chunk(dataset: Any, plist: Any, start: tuple[int, ...]) -> Any:
    """Return the filtered chunk at `start` as `(*shape, element size)` uint8, or None if HDF5 must read it."""
    filters = [plist.get_filter(i) for i in range(plist.get_nfilters())]
    size, edges = dataset.get_type().get_size(), plist.get_chunk()
    number, _, settings, _ = filters[-1]
    shuffled = len(filters) == 2 and filters[0][0] == h5z.FILTER_SHUFFLE and filters[0][2] == (size,)
    if number not in DECODERS or not (shuffled or len(filters) == 1):
        return None
    try:
        mask, stored = dataset.read_direct_chunk(start)
    except H5_ERRORS:  # It is not stored, or HDF5 will report the error. `get_chunk_info_by_coord` would search all chunks.
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
    return data[: decompress(stored, len(stored), data.ctypes.data, size)]  # 0 bytes: too many, or not LZF


class _Szip(ctypes.Structure):
    """`SZ_com_t` (szlib.h)."""

    _fields_ = (
        ("options_mask", ctypes.c_int),
        ("bits_per_pixel", ctypes.c_int),
        ("pixels_per_block", ctypes.c_int),
        ("pixels_per_scanline", ctypes.c_int),
    )


def _szip(stored: bytes, size: int, settings: tuple[int, ...]) -> Bytes | None:
    """Decode szip.

    Each line of pixels is stored as whole blocks. The library leaves the missing pixels of a short line unset, so it is
    asked for whole blocks. Pixels of 32 and 64 bits are stored as bytes: first the first byte of every pixel, then the
    second, ...
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
    """Return a function of the libraries that h5py has loaded, or None if it is missing."""
    try:
        found = getattr(ctypes.CDLL(h5z.__file__), name)
    except (AttributeError, OSError):
        return None
    found.argtypes, found.restype = arguments, ctypes.c_uint
    return found  # type: ignore[no-any-return]
