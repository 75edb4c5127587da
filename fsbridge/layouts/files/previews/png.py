"""PNG with 8 bits a sample, and texts. Pure. Not here: pictures of exact values (`filetypes/pictures.py`)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

_COLOR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}
"""Colour types by the number of samples of a pixel: grey, grey and alpha, colour, colour and alpha (PNG, 11.2.2)."""


def png(pixels: NDArray[np.uint8], texts: Mapping[str, str]) -> bytes:
    """Return the file. `pixels`: rows, columns, 1 to 4 samples; `texts`: by keyword, which is Latin-1."""
    height, width, samples = pixels.shape
    rows = np.zeros((height, 1 + width * samples), np.uint8)  # each row begins with its filter: none
    rows[:, 1:] = pixels.reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, _COLOR_TYPES[samples], 0, 0, 0)
    chunks = [_chunk(b"IHDR", head), *(_text(keyword, text) for keyword, text in texts.items())]
    chunks += [_chunk(b"IDAT", zlib.compress(rows.tobytes())), _chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def samples(content: bytes) -> NDArray[np.uint8]:
    """Return the pixels of a file that `png` has made."""
    width, height, _, kind = struct.unpack(">IIBB", content[16:26])
    place, parts = 8, []
    while place < len(content):
        (length,) = struct.unpack(">I", content[place : place + 4])
        if content[place + 4 : place + 8] == b"IDAT":
            parts.append(content[place + 8 : place + 8 + length])
        place += 12 + length
    rows = np.frombuffer(zlib.decompress(b"".join(parts)), np.uint8).reshape(height, -1)
    count = next(count for count, color in _COLOR_TYPES.items() if color == kind)
    return rows[:, 1:].reshape(height, width, count)


def _text(keyword: str, text: str) -> bytes:
    """`tEXt` where Latin-1 has all characters, else `iTXt` without compression (PNG, 11.3.3)."""
    name = keyword.encode("latin-1")
    try:
        return _chunk(b"tEXt", name + b"\0" + text.encode("latin-1"))
    except UnicodeEncodeError:
        return _chunk(b"iTXt", name + b"\0\0\0\0\0" + text.encode("utf-8", "replace"))


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(content, zlib.crc32(kind)))
