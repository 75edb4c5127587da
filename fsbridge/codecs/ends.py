"""Where stored data of imagecodecs end. It is checked before decoding, if the library would make up what is missing.

Some formats end with a mark, others say how long they are. Not here: libraries that notice by themselves that data end
early; the decoder (`images.py`).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any

from fsbridge.errors import CorruptData

PICTURE_END = b"\xff\xd9"
"""Ends a JPEG picture, and a codestream of JPEG 2000."""
END_MARKS: Mapping[str, bytes] = {
    **dict.fromkeys(("jpeg", "ljpeg", "htj2k"), PICTURE_END),
    "qoi": bytes(7) + b"\1",
}


def check_end(codec: str, raw: memoryview, options: Mapping[str, Any]) -> None:
    """Raise CorruptData if stored data do not end where their format says. `options`: the codec's configuration."""
    mark = END_MARKS.get(codec)
    if mark is not None and raw[-len(mark) :] != mark:
        raise CorruptData(f"the {codec} data have no end mark")
    try:
        if codec == "jpegxr" and len(raw) < (needed := measure_jpegxr(raw)):
            raise CorruptData(f"the JPEG XR data have {needed} bytes or more, of which {len(raw)} are there")
        if codec == "sperr" and len(raw) != (needed := measure_sperr(raw, options)):
            raise CorruptData(f"the SPERR data have {needed} bytes, and {len(raw)} are there")
        if codec == "lz4f" and len(raw) != (needed := measure_lz4f(raw)):
            raise CorruptData(f"the LZ4 frame has {needed} bytes, and {len(raw)} are there")
    except struct.error:
        raise CorruptData(f"the {codec} data end before their length is known") from None


JPEGXR_ENTRY = struct.Struct("<H6xI")
"""An entry of the directory of a JPEG XR file: its tag and its value."""
IMAGE_AT, IMAGE_BYTES, ALPHA_AT, ALPHA_BYTES = range(0xBCC0, 0xBCC4)


def measure_jpegxr(raw: memoryview) -> int:
    """Return the least length of a JPEG XR file: with the image and its alpha plane. Writers may put more after them."""
    (start,) = struct.unpack_from("<I", raw, 4)
    (entries,) = struct.unpack_from("<H", raw, start)
    found: dict[int, int] = dict(JPEGXR_ENTRY.unpack_from(raw, start + 2 + 12 * number) for number in range(entries))
    image = found.get(IMAGE_AT, 0) + found.get(IMAGE_BYTES, 0)
    alpha, size = found.get(ALPHA_AT, 0), found.get(ALPHA_BYTES, 0)
    return max(image, size if size > alpha else alpha + size)  # jxrlib writes where the plane ends, not its length


SPERR_3D, SPERR_PARTS, SPERR_CONSTANT = 0x40, 0x10, 0x01
"""Flags of SPERR: a volume; one in several parts, each encoded for itself; all numbers are the same."""
SPERR_PICTURE_HEADER, SPERR_CONDITIONER, SPECK_HEADER = 10, 17, 9
"""Bytes of the header of a picture; of what comes first in a picture or part; before the bits of a bit stream."""


def measure_sperr(raw: memoryview, options: Mapping[str, Any]) -> int:
    """Return the length of SPERR data. A volume says how long each of its parts is, and a picture how many bits it has.

    A picture of so many bits per number is cut to them, though it says how many it had. One within an error may have a
    second bit stream, with what the first lacks. Nothing tells that the second is missing altogether.
    """
    start, shape = 0, options.get("shape") or ()
    if options.get("header", True) or sum(extent != 1 for extent in shape) > 2:  # a volume always has a header
        flags, *shape = struct.unpack_from("<B2I", raw, 1)
        if flags & SPERR_3D:
            return _measure_volume(raw)
        start = SPERR_PICTURE_HEADER
    bits = start + SPERR_CONDITIONER
    if struct.unpack_from("<B", raw, start)[0] & SPERR_CONSTANT:
        return bits
    length = bits + _measure_bit_stream(raw, bits)
    if options["mode"] in ("bpp", 1):
        length = min(length, bits + SPECK_HEADER + -(-int(float(options["level"]) * math.prod(shape)) // 8))
    if options["mode"] in ("pwe", 3) and length < len(raw):
        length += _measure_bit_stream(raw, length)
    return length


def _measure_bit_stream(raw: memoryview, start: int) -> int:
    _, bits = struct.unpack_from("<BQ", raw, start)
    return SPECK_HEADER + -(-int(bits) // 8)


def _measure_volume(raw: memoryview) -> int:
    flags, *shape = struct.unpack_from("<B3I", raw, 1)
    start, parts = 14, 1
    if flags & SPERR_PARTS:
        extents = struct.unpack_from("<3H", raw, start)
        start += 6
        for extent, most in zip(shape, extents, strict=True):
            if not most:
                raise CorruptData("the SPERR data have parts without extent")
            parts *= max(1, extent // most + (extent % most > most // 2))  # a small rest belongs to the part before it
    if 4 * parts > len(raw):
        raise CorruptData(f"the SPERR data have {len(raw)} bytes for {parts} parts")
    lengths: tuple[int, ...] = struct.unpack_from(f"<{parts}I", raw, start)
    return start + 4 * parts + sum(lengths)


LZ4_DICTIONARY, LZ4_CHECKSUM, LZ4_SIZE, LZ4_BLOCK_CHECKSUMS = 0x01, 0x04, 0x08, 0x10
"""Flags of an LZ4 frame, each for a field: 4 bytes, or the 8 of the size."""
LZ4_STORED = 1 << 31
"""Marks the length of a block that is not compressed."""


def measure_lz4f(raw: memoryview) -> int:
    """Return the length of an LZ4 frame: a header, blocks with their lengths, and a length of zero."""
    (flags,) = struct.unpack_from("<B", raw, 4)
    at = 7 + (8 if flags & LZ4_SIZE else 0) + (4 if flags & LZ4_DICTIONARY else 0)
    while length := struct.unpack_from("<I", raw, at)[0]:
        at += 4 + (length & ~LZ4_STORED) + (4 if flags & LZ4_BLOCK_CHECKSUMS else 0)
    return at + 4 + (4 if flags & LZ4_CHECKSUM else 0)
