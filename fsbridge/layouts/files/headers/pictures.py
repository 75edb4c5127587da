"""Single pictures of whole numbers: PGM, whose elements are big-endian, and PNG without compression, of a known size."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fsbridge.errors import TooLarge
from fsbridge.layouts.files.extents import FileMap, Generated, Unfit, View, plain, ranked, whole_file
from fsbridge.tree import Buffer

_STORED_BYTES = 65535
"""Bytes of one stored block of a deflate stream."""
_BAND_ROWS = 256
"""Rows that change their byte order together."""
_IDAT_BYTES = 1 << 30
"""Bytes of one IDAT chunk at most; the format's own limit is twice that."""
MAX_BYTES = _IDAT_BYTES // 2
"""Bytes of all rows of a PNG, each of which begins with one of its own."""
MAX_EXTENT = 2**31 - 1


def pgm(view: View) -> FileMap:
    """8 or 16 bit, binary."""
    dtype = plain(view, "u1", "u2")
    ranked(view, 2, 2)
    height, width = view.picture_shape
    header = f"P5\n{width} {height}\n{255 if dtype.itemsize == 1 else 65535}\n".encode()
    return whole_file(view, header, view.picture, dtype.newbyteorder(">"))


def png(view: View) -> Generated:
    """8 or 16 bit grey; its checksums need every element, so it is made as a whole."""
    dtype = plain(view, "u1", "u2")
    ranked(view, 2, 2)
    height, width = view.picture_shape
    if max(height, width) > MAX_EXTENT:
        raise Unfit(f"PNG has no dimension above {MAX_EXTENT}")
    raw = height * (1 + width * dtype.itemsize)
    if raw > MAX_BYTES:
        raise Unfit("a PNG of that size is not made in memory; take a region")
    stream = 2 + raw + 5 * max(1, -(-raw // _STORED_BYTES)) + 4
    return Generated(_png, view.picture, 8 + 25 + 12 + stream + 12)


def _png(elements: NDArray[Any], limit: int) -> bytes:
    height, width = elements.shape
    size, shown = elements.dtype.itemsize, elements.dtype.newbyteorder(">")
    if elements.nbytes + height > limit:
        raise TooLarge(f"a PNG of {elements.nbytes} bytes, the limit is {limit}; take a region")
    rows = np.zeros((height, 1 + width * size), np.uint8)  # each row begins with its filter: none
    for first in range(0, height, _BAND_ROWS):
        band = elements[first : first + _BAND_ROWS]
        rows[first : first + _BAND_ROWS, 1:] = band.astype(shown, copy=False).view(np.uint8).reshape(len(band), -1)
    del elements, band  # as large as the rows
    data = rows.reshape(-1).data
    stream: list[Buffer] = [b"\x78\x01"]
    for start in range(0, len(data), _STORED_BYTES):
        block = data[start : start + _STORED_BYTES]
        stream += [struct.pack("<BHH", start + _STORED_BYTES >= len(data), len(block), len(block) ^ 0xFFFF), block]
    stream.append(struct.pack(">I", zlib.adler32(data)))
    head = struct.pack(">IIBBBBB", width, height, 8 * size, 0, 0, 0, 0)
    return b"".join([b"\x89PNG\r\n\x1a\n", *_chunk(b"IHDR", [head]), *_chunk(b"IDAT", stream), *_chunk(b"IEND", [])])


def _chunk(kind: bytes, content: Sequence[Buffer]) -> Iterator[Buffer]:
    yield struct.pack(">I", sum(map(len, content))) + kind
    yield from content
    yield struct.pack(">I", reduce(lambda crc, part: zlib.crc32(part, crc), content, zlib.crc32(kind)))
