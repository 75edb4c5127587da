"""Decodes elements of variable length from chunks in the encodings `vlen-utf8` and `vlen-bytes`."""

from __future__ import annotations

import struct

from fsbridge.errors import CorruptData

_LENGTH = struct.Struct("<I")


def decode_items(kind: str, data: memoryview, count: int) -> list[str | bytes]:
    """Return the first `count` items of a chunk, invalid UTF-8 as surrogate escapes. CorruptData if there are fewer."""
    if len(data) < _LENGTH.size or _LENGTH.unpack_from(data)[0] < count:
        raise CorruptData(f"a chunk of {len(data)} bytes does not hold {count} items")
    items: list[str | bytes] = []
    position = _LENGTH.size
    for _ in range(count):
        if position + _LENGTH.size > len(data):
            raise CorruptData(f"a chunk of {len(data)} bytes ends after {len(items)} of {count} items")
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        if position + length > len(data):
            raise CorruptData(f"item {len(items)} of a chunk is longer than the chunk")
        raw = bytes(data[position : position + length])
        items.append(raw.decode("utf-8", "surrogateescape") if kind == "vlen-utf8" else raw)
        position += length
    return items


def fill_item(kind: str, fill: bytes | str | None) -> str | bytes:
    """Return the value of an element that is not stored."""
    if kind == "vlen-utf8":
        return fill if isinstance(fill, str) else (fill or b"").decode("utf-8", "replace")
    return fill if isinstance(fill, bytes) else b""
