"""PNG with 8 bits a sample, and texts; and letters of 5 by 7 pixels, for the numbers and units in a picture. Pure.

Viewers do not draw text stored in a PNG, and a drawing library is too large for a dozen digits. Not here: pictures of exact
values (`filetypes/pictures.py`).
"""

from __future__ import annotations

import struct
import unicodedata
import zlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

_COLOR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}
"""Colour types by the number of samples of a pixel: grey, grey and alpha, colour, colour and alpha (PNG, 11.2.2)."""


def make_png(pixels: NDArray[np.uint8], texts: Mapping[str, str]) -> bytes:
    """Encode a PNG. `pixels`: rows, columns, 1 to 4 samples; `texts`: by keyword, which is Latin-1."""
    height, width, samples = pixels.shape
    rows = np.zeros((height, 1 + width * samples), np.uint8)  # each row begins with a 0: no filter
    rows[:, 1:] = pixels.reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, _COLOR_TYPES[samples], 0, 0, 0)
    chunks = [_make_chunk(b"IHDR", head), *(_make_text_chunk(keyword, text) for keyword, text in texts.items())]
    chunks += [_make_chunk(b"IDAT", zlib.compress(rows.tobytes())), _make_chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _make_text_chunk(keyword: str, text: str) -> bytes:
    """Return a `tEXt` chunk if Latin-1 has all characters, else an `iTXt` chunk without compression (PNG, 11.3.3)."""
    name = keyword.encode("latin-1")
    try:
        return _make_chunk(b"tEXt", name + b"\0" + text.encode("latin-1"))
    except UnicodeEncodeError:
        return _make_chunk(b"iTXt", name + b"\0\0\0\0\0" + text.encode("utf-8", "replace"))


def _make_chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(content, zlib.crc32(kind)))


WIDTH, HEIGHT = 6, 8
"""Pixels from one letter to the next, and from one line to the next."""

_FIRST = 0x20
_GLYPHS = bytes.fromhex(
    "0000000000" "00005f0000" "0007000700" "147f147f14" "242a7f2a12" "2313086462" "3649562050" "0008070300"
    "001c224100" "0041221c00" "2a1c7f1c2a" "08083e0808" "0080703000" "0808080808" "0000606000" "2010080402"
    "3e5149453e" "00427f4000" "7249494946" "2141494d33" "1814127f10" "2745454539" "3c4a494931" "4121110907"
    "3649494936" "464949291e" "0000140000" "0040340000" "0008142241" "1414141414" "0041221408" "0201590906"
    "3e415d594e" "7c1211127c" "7f49494936" "3e41414122" "7f4141413e" "7f49494941" "7f09090901" "3e41415173"
    "7f0808087f" "00417f4100" "2040413f01" "7f08142241" "7f40404040" "7f021c027f" "7f0408107f" "3e4141413e"
    "7f09090906" "3e4151215e" "7f09192946" "2649494932" "03017f0103" "3f4040403f" "1f2040201f" "3f4038403f"
    "6314081463" "0304780403" "6159494d43" "007f414141" "0204081020" "004141417f" "0402010204" "4040404040"
    "0003070800" "2054547840" "7f28444438" "3844444428" "384444287f" "3854545418" "00087e0902" "18a4a49c78"
    "7f08040478" "00447d4000" "2040403d00" "7f10284400" "00417f4000" "7c04780478" "7c08040478" "3844444438"
    "fc18242418" "18242418fc" "7c08040408" "4854545424" "04043f4424" "3c4040207c" "1c2040201c" "3c4030403c"
    "4428102844" "4c9090907c" "4464544c44" "0008364100" "0000770000" "0041360800" "0201020402"
    "0006090600" "fc4040207c"
)  # fmt: skip
"""Five columns of each letter, left to right, lowest bit at the top: ASCII from the space on, then degree and micro."""

_BEYOND = {"°": 95, "µ": 96, "μ": 96}


def draw_letters(text: str) -> NDArray[np.bool_]:
    """Return the pixels of one line: 8 rows, 6 columns for each letter. Letters without a glyph become `?`."""
    parts = (char if char in _BEYOND else unicodedata.normalize("NFKC", char) for char in text)
    places = [_BEYOND.get(char, ord(char) - _FIRST if " " <= char <= "~" else ord("?") - _FIRST) for char in "".join(parts)]
    columns = np.zeros((len(places), WIDTH), np.uint8)
    glyphs = np.frombuffer(_GLYPHS, np.uint8).reshape(-1, 5)
    columns[:, :5] = glyphs[places]
    return (columns.reshape(-1) >> np.arange(HEIGHT, dtype=np.uint8)[:, None] & 1).astype(np.bool_)
