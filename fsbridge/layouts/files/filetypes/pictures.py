"""Single pictures of integers: PGM (big-endian), and PNG without compression, so that its size is known."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from fsbridge.errors import TooLarge
from fsbridge.layouts.files.arrays.colors import find_color_axis, order_colors
from fsbridge.layouts.files.arrays.extents import FileMap, Generated, View, make_whole_file
from fsbridge.layouts.files.filetypes.filetype import FileType, Limit, check_dtype, check_rank, extent

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from fsbridge.tree import Buffer

_STORED_BYTES = 65535
"""Bytes of one stored block of a deflate stream."""
_BAND_ROWS = 256
"""Number of rows that are converted to big-endian at a time."""
_IDAT_BYTES = 1 << 30
"""Most bytes of one IDAT chunk. The format's own limit is twice that."""
MAX_BYTES = _IDAT_BYTES // 2
"""Most bytes of all rows of a PNG, with the one byte that each row begins with."""
MAX_EXTENT = 2**31 - 1
_COLOR_TYPES = {1: 0, 3: 2, 4: 6}
"""Colour types by the number of samples of a pixel (PNG, 11.2.2)."""


def pgm(view: View) -> FileMap:
    """Return the plan of a binary PGM of 8 or 16 bits."""
    dtype = check_dtype(view, "u1", "u2")
    height, width = view.picture_shape
    header = f"P5\n{width} {height}\n{255 if dtype.itemsize == 1 else 65535}\n".encode()
    return make_whole_file(view, header, view.picture, dtype.newbyteorder(">"))


def png(view: View) -> Generated:
    """Return the plan of a PNG: grey with 8 or 16 bits, or colour with 8. Its checksums need every element at once."""
    color, raw = find_color_axis(view), _raw_bytes(view)
    order = view.picture if color is None else order_colors(view, color)
    stream = 2 + raw + 5 * max(1, -(-raw // _STORED_BYTES)) + 4
    return Generated(lambda elements, _, limit: _png(elements, limit), order, 8 + 25 + 12 + stream + 12)


def _raw_bytes(view: View) -> int:
    """Return the bytes of all rows of a PNG. Each row begins with a filter byte."""
    color = find_color_axis(view)
    order = view.picture if color is None else order_colors(view, color)
    rows = order[-3:-2] if color is not None else order[-2:-1]
    return view.selection.size * view.metadata.dtype.itemsize + math.prod(view.shape[i] for i in rows)


def _check_picture(view: View) -> None:
    if find_color_axis(view) is None:
        check_rank(view, 2, 2)


def _png(elements: NDArray[Any], limit: int) -> bytes:
    import numpy as np

    elements = elements if elements.ndim == 2 else elements.reshape(elements.shape[-3:])
    height, width, samples = (*elements.shape, 1)[:3]
    size, shown = elements.dtype.itemsize, elements.dtype.newbyteorder(">")
    if elements.nbytes + height > limit:
        raise TooLarge(f"the PNG would have {elements.nbytes} bytes of pixels, and the limit is {limit}; take a region")
    rows = np.zeros((height, 1 + width * samples * size), np.uint8)  # each row begins with a 0: no filter
    for first in range(0, height, _BAND_ROWS):
        band = elements[first : first + _BAND_ROWS]
        shown_band = np.ascontiguousarray(band.astype(shown, copy=False))
        rows[first : first + _BAND_ROWS, 1:] = shown_band.view(np.uint8).reshape(len(band), -1)
    del elements, band, shown_band  # they take as much memory as the rows
    data = rows.reshape(-1).data
    stream: list[Buffer] = [b"\x78\x01"]
    for start in range(0, len(data), _STORED_BYTES):
        block = data[start : start + _STORED_BYTES]
        stream += [struct.pack("<BHH", start + _STORED_BYTES >= len(data), len(block), len(block) ^ 0xFFFF), block]
    stream.append(struct.pack(">I", zlib.adler32(data)))
    head = struct.pack(">IIBBBBB", width, height, 8 * size, _COLOR_TYPES[samples], 0, 0, 0)
    return b"".join([b"\x89PNG\r\n\x1a\n", *_chunk(b"IHDR", [head]), *_chunk(b"IDAT", stream), *_chunk(b"IEND", [])])


def _chunk(kind: bytes, content: Sequence[Buffer]) -> Iterator[Buffer]:
    yield struct.pack(">I", sum(map(len, content))) + kind
    yield from content
    yield struct.pack(">I", reduce(lambda crc, part: zlib.crc32(part, crc), content, zlib.crc32(kind)))


_TYPES = ("u1", "u2")
PGM = FileType("pgm", pgm, types=_TYPES, ranks=(2, 2))
PNG = FileType(
    "png",
    png,
    types=_TYPES,
    limits=(
        Limit(extent, MAX_EXTENT, f"PNG has at most {MAX_EXTENT} rows and columns"),
        Limit(_raw_bytes, MAX_BYTES, "the PNG is too large to be made in memory; take a region"),
    ),
    check=_check_picture,
)
