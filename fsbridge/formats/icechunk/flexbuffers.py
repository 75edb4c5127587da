"""FlexBuffers as JSON values: what version 2 of Icechunk writes of a commit's metadata (https://flatbuffers.dev/internals).

Not here: FlatBuffers with a schema (`flatbuffers.py`).
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

from fsbridge.errors import CorruptData
from fsbridge.metadata import JSON

MAX_VALUES = 10_000
"""Values in one buffer: references may meet, so that few bytes can stand for very many values."""

MAX_DEPTH = 64

_NULL, _INT, _UINT, _FLOAT, _KEY, _STRING = range(6)
_INDIRECT_INT, _INDIRECT_UINT, _INDIRECT_FLOAT, _MAP, _VECTOR = range(6, 11)
_TYPED = {11: _INT, 12: _UINT, 13: _FLOAT, 14: _KEY}
_BOOL, _BOOLS = 26, 36
_FLOATS = {2: "<e", 4: "<f", 8: "<d"}


def loads(data: bytes) -> JSON:
    """The JSON value that `data` holds; CorruptData for anything else."""
    return _Reader(data).root()


@dataclass(slots=True)
class _Reader:
    data: bytes
    count: int = 0

    def root(self) -> JSON:
        if len(self.data) < 3:
            raise CorruptData("a FlexBuffer of fewer than three bytes")
        width, kind = self.data[-1], self.data[-2]
        if width not in (1, 2, 4, 8):
            raise CorruptData(f"a FlexBuffer's root of {width} bytes")
        return self._value(len(self.data) - 2 - width, width, kind, 0)

    def _value(self, position: int, width: int, packed: int, depth: int) -> JSON:
        """The value whose `width` bytes stand at `position`; what they refer to has the width that `packed` says."""
        self.count += 1
        if self.count > MAX_VALUES or depth > MAX_DEPTH:
            raise CorruptData("a FlexBuffer of too many values")
        kind, below = packed >> 2, 1 << (packed & 3)
        if kind == _NULL:
            return None
        if kind == _BOOL:
            return bool(self._number(position, width))
        if kind in (_INT, _UINT, _FLOAT):
            return self._scalar(position, width, kind)
        target = position - self._number(position, width)
        if kind in (_INDIRECT_INT, _INDIRECT_UINT, _INDIRECT_FLOAT):
            return self._scalar(target, below, kind - _INDIRECT_INT + _INT)
        if kind == _KEY:
            return self._key(target)
        if kind == _STRING:
            return self._text(self._bytes(target, self._length(target, below)))
        if kind == _MAP:
            return self._map(target, below, depth)
        if kind in (_VECTOR, _BOOLS, *_TYPED):
            return self._vector(target, below, kind, depth)
        raise CorruptData(f"a FlexBuffer value of type {kind}, which is no JSON")

    def _map(self, target: int, width: int, depth: int) -> dict[str, JSON]:
        keys_at = target - 3 * width
        keys = keys_at - self._number(keys_at, width)
        key_width = self._number(keys_at + width, width)
        if key_width not in (1, 2, 4, 8):
            raise CorruptData(f"a FlexBuffer's keys of {key_width} bytes")
        names = self._vector(keys, key_width, 14, depth)
        values = self._vector(target, width, _VECTOR, depth)
        if len(names) != len(values):
            raise CorruptData(f"a FlexBuffer's map of {len(names)} keys and {len(values)} values")
        return dict(zip(names, values, strict=True))

    def _vector(self, target: int, width: int, kind: int, depth: int) -> list[JSON]:
        length = self._length(target, width)
        self._bytes(target, length * width)
        if self.count + length > MAX_VALUES:
            raise CorruptData("a FlexBuffer of too many values")
        element = _BOOL if kind == _BOOLS else _TYPED.get(kind)
        if element is not None:
            return [self._value(target + i * width, width, element << 2, depth + 1) for i in range(length)]
        kinds = self._bytes(target + length * width, length)
        return [self._value(target + i * width, width, kinds[i], depth + 1) for i in range(length)]

    def _length(self, target: int, width: int) -> int:
        return self._number(target - width, width)

    def _scalar(self, position: int, width: int, kind: int) -> int | float | None:
        if kind != _FLOAT:
            return int.from_bytes(self._bytes(position, width), "little", signed=kind == _INT)
        if width not in _FLOATS:
            raise CorruptData("a FlexBuffer's float of one byte")
        found: float = struct.unpack(_FLOATS[width], self._bytes(position, width))[0]
        return found if math.isfinite(found) else None

    def _key(self, target: int) -> str:
        self._bytes(target, 1)
        end = self.data.find(b"\0", target)
        if end < 0:
            raise CorruptData("a FlexBuffer's key without an end")
        return self._text(self.data[target:end])

    def _text(self, raw: bytes) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise CorruptData("a FlexBuffer's string that is no UTF-8") from None

    def _number(self, position: int, width: int) -> int:
        return int.from_bytes(self._bytes(position, width), "little")

    def _bytes(self, position: int, size: int) -> bytes:
        if position < 0 or position + size > len(self.data):
            raise CorruptData(f"a FlexBuffer's reference to byte {position + size} of {len(self.data)}")
        return self.data[position : position + size]
