"""Elements of fewer bits than their bytes hold, as in HDF5's nbit and scaleoffset filters, and HDF5's bit shuffle.

Not here: the filters' parameters and headers (`hdf5.py`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fsbridge.codecs import blosc
from fsbridge.codecs.chain import Buffer
from fsbridge.errors import CorruptData

BATCH_ELEMENTS = 1 << 20
"""Bytes that are bit-unshuffled at a time, because a copy of them is needed meanwhile."""
PIECE_ELEMENTS = 1 << 13
"""Elements that are unpacked at a time (a multiple of 8), because one byte for each bit is needed meanwhile."""


def unpack(packed: Buffer, count: int, bits: int, itemsize: int) -> np.ndarray[Any, Any]:
    """Return `count` numbers of `bits` bits as little-endian unsigned integers of `itemsize`.

    The most significant bit is first.

    `packed` may have one byte more than needed, because HDF5 counts a last byte even when it is empty (H5Znbit.c,
    H5Zscaleoffset.c).
    """
    needed = math.ceil(count * bits / 8)
    if len(packed) not in (needed, count * bits // 8 + 1):
        raise CorruptData(f"{len(packed)} bytes where {count} numbers of {bits} bits take {needed}")
    result = np.zeros(count, f"<u{itemsize}")
    source = np.frombuffer(packed, "u1")
    for start in range(0, count, PIECE_ELEMENTS) if bits else ():
        some = min(PIECE_ELEMENTS, count - start)
        first = start * bits // 8
        field = np.zeros((some, 8 * itemsize), "u1")
        field[:, 8 * itemsize - bits :] = np.unpackbits(source[first:], count=some * bits).reshape(some, bits)
        result[start : start + some] = np.packbits(field).view(f">u{itemsize}")
    return result


def bit_unshuffle(shuffled: Buffer, element: int, block: int, out: memoryview | None) -> Buffer:
    """Undo bitshuffle (kiyo-masui) block by block. `block`: bytes of a full block, a multiple of 8 elements.

    A shorter block of whole groups of 8 elements follows the full ones, then up to 7 elements that are not shuffled.
    """
    view = memoryview(shuffled).cast("B")
    whole = len(view) // (8 * element) * 8 * element
    target = bytearray(len(view)) if out is None else out
    result = memoryview(target).cast("B")
    step = max(block, BATCH_ELEMENTS // block * block) if element <= blosc.MAX_TYPE_BYTES else block
    for start in range(0, whole, step):
        stop = min(start + step, whole)
        if element <= blosc.MAX_TYPE_BYTES:
            blosc.bit_unshuffle(view[start:stop], element, min(block, stop - start), result[start:stop])
        else:
            _unshuffle_wide(view[start:stop], element, result[start:stop])
    result[whole:] = view[whole:]
    return target


def _unshuffle_wide(block: memoryview, element: int, out: memoryview) -> None:
    """Unshuffle one block of elements too wide for Blosc: row `r` holds bit `r` of all elements, 8 elements a byte."""
    rows = np.frombuffer(block, "u1").reshape(8 * element, -1)
    bits = np.unpackbits(rows, axis=1, bitorder="little")
    np.frombuffer(out, "u1")[:] = np.packbits(bits.T.ravel(), bitorder="little")
