"""FlatBuffers and FlexBuffers, read without trust.

FlatBuffers are read as tables, vectors and strings by field number, and as columns of thousands of tables at a time
(https://flatbuffers.dev/internals). FlexBuffers hold a commit's metadata in version 2 of Icechunk; they describe themselves,
beginning with the root's type and width in the last two bytes. Offsets are relative to their own position. Every position is
checked before use, so a bad buffer is only ever CorruptData. Not here: what the fields mean (`records.py`).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fsbridge.errors import CorruptData, TooLarge
from fsbridge.metadata import JSON

Positions = npt.NDArray[np.int64]

MAX_TABLES = 1_000_000
"""Most tables of a vector that become objects: nodes of a snapshot, commits of a repository.

Each takes some hundred bytes.
"""

BLOCK_TABLES = 65536
"""Number of tables that are read at a time, so that intermediate numbers take only some MiB."""

_U16, _U32, _U64, _I32 = (struct.Struct(f"<{code}") for code in "HIQi")


class Table(NamedTuple):
    """The table at `position` of `data`. Fields are numbered in the order of the schema; a union takes two numbers."""

    data: memoryview
    position: int

    @classmethod
    def root(cls, data: memoryview) -> Table:
        """Return the table that the buffer's first bytes refer to."""
        return cls(data, _number(data, 0, _U32))

    def at(self, field: int) -> int | None:
        """Return where the field's value is, or None if the field has its default."""
        vtable = self.position - _number(self.data, self.position, _I32)
        size = _number(self.data, vtable, _U16)
        entry = 4 + 2 * field
        if entry + 2 > size:
            return None
        offset = _number(self.data, vtable + entry, _U16)
        return self.position + offset if offset else None

    def u8(self, field: int) -> int:
        """Return an unsigned byte. 0 is the default of all numbers."""
        position = self.at(field)
        return 0 if position is None else self.data[_inside(self.data, position, 1)]

    def u32(self, field: int) -> int:
        """Return an unsigned number of four bytes."""
        position = self.at(field)
        return 0 if position is None else _number(self.data, position, _U32)

    def i32(self, field: int) -> int:
        """Return a signed number of four bytes."""
        position = self.at(field)
        return 0 if position is None else _number(self.data, position, _I32)

    def u64(self, field: int) -> int:
        """Return an unsigned number of eight bytes."""
        position = self.at(field)
        return 0 if position is None else _number(self.data, position, _U64)

    def struct(self, field: int, size: int) -> bytes | None:
        """Return `size` bytes that are in the table itself."""
        position = self.at(field)
        if position is None:
            return None
        _inside(self.data, position, size)
        return bytes(self.data[position : position + size])

    def table(self, field: int) -> Table | None:
        """Return the table that the field refers to."""
        position = self.at(field)
        return None if position is None else Table(self.data, position + _number(self.data, position, _U32))

    def span(self, field: int, width: int = 1) -> tuple[int, int] | None:
        """Return where the first element of the field's vector is, and the number of elements, of `width` bytes each."""
        position = self.at(field)
        if position is None:
            return None
        start = position + _number(self.data, position, _U32)
        count = _number(self.data, start, _U32)
        _inside(self.data, start + 4, count * width)
        return start + 4, count

    def blob(self, field: int) -> bytes | None:
        """Return the field's vector of bytes, or None if the field has its default."""
        span = self.span(field)
        return None if span is None else bytes(self.data[span[0] : span[0] + span[1]])

    def text(self, field: int) -> str | None:
        """Return the field's string, or None if the field has its default."""
        raw = self.blob(field)
        try:
            return None if raw is None else raw.decode()
        except UnicodeDecodeError:
            raise CorruptData("a string is not UTF-8") from None

    def vector(self, field: int) -> Tables:
        """Return the tables of a vector of references, none if there is no vector. Raises TooLarge for too many."""
        start, count = self.span(field, 4) or (0, 0)
        if count > MAX_TABLES:
            raise TooLarge(f"a vector has {count} tables, the limit is {MAX_TABLES}")
        return Tables(self.data, start, count)

    def columns(self, field: int) -> Iterator[TableColumns]:
        """Yield the tables of a vector of references as columns, some thousands at a time."""
        start, count = self.span(field, 4) or (0, 0)
        data = np.frombuffer(self.data, np.uint8)
        for first in range(0, count, BLOCK_TABLES):
            positions = start + 4 * np.arange(first, min(first + BLOCK_TABLES, count), dtype=np.int64)
            yield TableColumns(data, positions + _gather(data, positions, "<u4"))


class Tables:
    """The tables that the `count` references at `start` of `data` lead to."""

    def __init__(self, data: memoryview, start: int, count: int) -> None:
        self._data, self._start, self._count = data, start, count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Table]:
        return map(self.__getitem__, range(self._count))

    def __getitem__(self, number: int) -> Table:
        """Return one table. `number` is one of `range(len(self))`."""
        position = self._start + 4 * number
        return Table(self._data, position + _number(self._data, position, _U32))


class TableColumns(NamedTuple):
    """Many tables of one kind."""

    data: npt.NDArray[np.uint8]
    positions: Positions

    def vectors(self, field: int, length: int) -> npt.NDArray[np.uint32]:
        """Return vectors (n, length) of unsigned numbers of four bytes.

        Raises CorruptData if one is missing or has another length.
        """
        vtables = self.positions - _gather(self.data, self.positions, "<i4")
        entry = 4 + 2 * field
        there = _gather(self.data, vtables, "<u2") >= entry + 2
        offsets = _gather(self.data, vtables[there] + entry, "<u2")
        if not there.all() or not offsets.all():
            raise CorruptData("a table lacks one of its vectors")
        starts = self.positions + offsets
        starts += _gather(self.data, starts, "<u4")
        if (_gather(self.data, starts, "<u4") != length).any():
            raise CorruptData(f"a vector does not have {length} elements")
        vectors = np.empty((len(starts), length), np.uint32)
        for number in range(length):
            vectors[:, number] = _gather(self.data, starts + 4 * (number + 1), "<u4")
        return vectors


def _inside(data: memoryview, position: int, size: int) -> int:
    if position < 0 or position + size > len(data):
        raise CorruptData(f"a reference leads to byte {position + size} of {len(data)}")
    return position


def _number(data: memoryview, position: int, form: struct.Struct) -> int:
    number: int = form.unpack_from(data, _inside(data, position, form.size))[0]
    return number


def _gather(data: npt.NDArray[np.uint8], positions: Positions, dtype: str) -> Positions:
    """Return the number of type `dtype` at each position."""
    width = np.dtype(dtype).itemsize
    if len(positions) and (positions.min() < 0 or positions.max() + width > len(data)):
        raise CorruptData(f"a reference leads beyond the {len(data)} bytes")
    if (positions % width).any():  # FlatBuffers are usually aligned, but need not be
        stored = data[positions[:, None] + np.arange(width)].view(dtype).reshape(len(positions))
    else:
        stored = data[: len(data) // width * width].view(dtype)[positions // width]
    numbers: Positions = stored.astype(np.int64)
    return numbers


MAX_VALUES = 10_000
"""Most values in one buffer. References may share values, so a few bytes can stand for very many."""

MAX_DEPTH = 64

_NULL, _INT, _UINT, _FLOAT, _KEY, _STRING = range(6)
_INDIRECT_INT, _INDIRECT_UINT, _INDIRECT_FLOAT, _MAP, _VECTOR = range(6, 11)
_TYPED = {11: _INT, 12: _UINT, 13: _FLOAT, 14: _KEY}
_BOOL, _BOOLS = 26, 36
_FLOATS = {2: "<e", 4: "<f", 8: "<d"}


def loads(data: bytes) -> JSON:
    """Return the JSON value in the FlexBuffer `data`. Raises CorruptData for anything else."""
    return _Reader(data).root()


@dataclass(slots=True)
class _Reader:
    data: bytes
    count: int = 0

    def root(self) -> JSON:
        if len(self.data) < 3:
            raise CorruptData("a FlexBuffer has fewer than three bytes")
        width, kind = self.data[-1], self.data[-2]
        if width not in (1, 2, 4, 8):
            raise CorruptData(f"a FlexBuffer's root has {width} bytes")
        return self._value(len(self.data) - 2 - width, width, kind, 0)

    def _value(self, position: int, width: int, packed: int, depth: int) -> JSON:
        """Return the value of `width` bytes at `position`. `packed`: its type, and the width of what it may refer to."""
        self.count += 1
        if self.count > MAX_VALUES or depth > MAX_DEPTH:
            raise CorruptData("a FlexBuffer has too many values")
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
        raise CorruptData(f"a FlexBuffer value of type {kind} cannot be shown as JSON")

    def _map(self, target: int, width: int, depth: int) -> dict[str, JSON]:
        keys_at = target - 3 * width
        keys = keys_at - self._number(keys_at, width)
        key_width = self._number(keys_at + width, width)
        if key_width not in (1, 2, 4, 8):
            raise CorruptData(f"a FlexBuffer's keys have {key_width} bytes")
        names = self._vector(keys, key_width, 14, depth)
        values = self._vector(target, width, _VECTOR, depth)
        if len(names) != len(values):
            raise CorruptData(f"a FlexBuffer's map has {len(names)} keys and {len(values)} values")
        return dict(zip(names, values, strict=True))

    def _vector(self, target: int, width: int, kind: int, depth: int) -> list[JSON]:
        length = self._length(target, width)
        self._bytes(target, length * width)
        if self.count + length > MAX_VALUES:
            raise CorruptData("a FlexBuffer has too many values")
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
            raise CorruptData("a FlexBuffer's float has one byte")
        number: float = struct.unpack(_FLOATS[width], self._bytes(position, width))[0]
        return number if math.isfinite(number) else None

    def _key(self, target: int) -> str:
        self._bytes(target, 1)
        end = self.data.find(b"\0", target)
        if end < 0:
            raise CorruptData("a FlexBuffer's key has no end")
        return self._text(self.data[target:end])

    def _text(self, raw: bytes) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise CorruptData("a FlexBuffer's string is not UTF-8") from None

    def _number(self, position: int, width: int) -> int:
        return int.from_bytes(self._bytes(position, width), "little")

    def _bytes(self, position: int, size: int) -> bytes:
        if position < 0 or position + size > len(self.data):
            raise CorruptData(f"a FlexBuffer's reference leads to byte {position + size} of {len(self.data)}")
        return self.data[position : position + size]
