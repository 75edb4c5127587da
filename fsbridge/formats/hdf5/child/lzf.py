"""Chunks that LZF compressed, perhaps after shuffling, decoded by h5py's own copy of liblzf, and refused if too short.

Part of the HDF5 child. HDF5 does not ask how long they are, and shows what was in memory behind shorter ones. Not here:
chunks with a checksum, and all other filters, which are HDF5's own affair (`data.py`).
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from h5py import h5z

from fsbridge.formats.hdf5.child.opened import Refusal

LZF = 32000
"""The filter's registered number."""


def chunk(dataset: Any, plist: Any, start: tuple[int, ...]) -> Any:
    """The filtered chunk that begins at `start`, as `(*shape, element size)` uint8; None where HDF5 must read it."""
    filters = [plist.get_filter(i) for i in range(plist.get_nfilters())]
    size, edges = dataset.get_type().get_size(), plist.get_chunk()
    decompress = _decompress()
    shuffled = len(filters) == 2 and filters[0][0] == h5z.FILTER_SHUFFLE and filters[0][2] == (size,)
    if decompress is None or filters[-1][0] != LZF or not (shuffled or len(filters) == 1):
        return None
    if dataset.get_chunk_info_by_coord(start).byte_offset is None:
        return None  # not stored: the fill value
    mask, stored = dataset.read_direct_chunk(start)
    if mask:
        return None
    count = math.prod(edges)
    data = np.empty(count * size, np.uint8)
    length = decompress(stored, len(stored), data.ctypes.data, len(data))
    if length != len(data):
        raise Refusal("corrupt", f"LZF data of {length or 'no known number of'} bytes where {len(data)} are expected")
    return (data.reshape(size, count).T if shuffled else data).reshape(*edges, size)


@functools.cache
def _decompress() -> Callable[..., int] | None:
    """`lzf_decompress(in, length, out, length)`: how many bytes, 0 for too many and for no LZF. None: not to be had."""
    try:
        found = ctypes.CDLL(h5z.__file__).lzf_decompress
    except (AttributeError, OSError):
        return None
    found.argtypes = (ctypes.c_char_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_uint)
    found.restype = ctypes.c_uint
    return found
