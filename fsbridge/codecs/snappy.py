"""Snappy's raw format, of which Blosc frames of TensorStore, PyTables and old numcodecs may have streams. Not here: framing.

In Python, since neither numcodecs nor a library that we have anyway knows it: some 10 MB/s, for data that are rare. Source:
`format_description.txt` of Snappy. A stream is its decoded length (a varint), then literals and copies of what was decoded.
"""

from __future__ import annotations

from fsbridge.errors import CorruptData

LONGEST_VARINT = 5
"""Bytes of a length below 2**35."""


def decompress(data: memoryview, size: int) -> bytearray:
    """The `size` bytes that `data` is decoded to; CorruptData for anything else."""
    found = bytearray()
    position = _after_length(data, size)
    end = len(data)
    while position < end:
        tag = data[position]
        kind, position = tag & 3, position + 1
        if not kind:
            length = tag >> 2
            if length >= 60:
                extra = length - 59
                length = int.from_bytes(data[position : position + extra], "little")
                position += extra
            length += 1
            if position + length > end:
                raise CorruptData("a literal beyond the end of the snappy data")
            found += data[position : position + length]
            position += length
        else:
            width = (1, 2, 4)[kind - 1]
            offset = int.from_bytes(data[position : position + width], "little")
            position += width
            length = (tag >> 2) + 1
            if kind == 1:
                offset |= (tag >> 5) << 8
                length = (tag >> 2 & 7) + 4
            if not 0 < offset <= len(found) or position > end:
                raise CorruptData("a copy from outside of the snappy data")
            start = len(found) - offset
            piece = found[start : start + length]
            found += piece if offset >= length else (piece * (length // offset + 1))[:length]
        if len(found) > size:
            raise CorruptData(f"snappy data of more than {size} bytes")
    if len(found) != size:
        raise CorruptData(f"snappy data of {len(found)} bytes where {size} were expected")
    return found


def _after_length(data: memoryview, size: int) -> int:
    """Where the stream goes on behind its decoded length, which must be `size`."""
    length = 0
    for position, byte in enumerate(data[:LONGEST_VARINT]):
        length |= (byte & 0x7F) << 7 * position
        if byte < 0x80:
            if length != size:
                raise CorruptData(f"snappy data of {length} bytes where {size} were expected")
            return position + 1
    raise CorruptData("snappy data without a length")
