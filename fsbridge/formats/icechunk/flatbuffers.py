"""FlatBuffers, read without trust: tables, vectors and strings by field number, and columns of thousands of tables at once.

Every position is checked before it is used: what a buffer says can be CorruptData, and nothing else. Offsets are relative
to where they stand (https://flatbuffers.dev/internals). Not here: what the fields mean (`records.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fsbridge.errors import CorruptData, TooLarge

Positions = npt.NDArray[np.int64]

MAX_TABLES = 1_000_000
"""Of a vector whose tables become objects: nodes of a snapshot, commits of a repository; each takes some hundred bytes."""

BLOCK_TABLES = 65536
"""Tables whose columns are read at a time: the numbers in between take some MiB."""

_U16, _U32, _U64, _I32 = (struct.Struct(f"<{code}") for code in "HIQi")


class Table(NamedTuple):
    """The table at `position` of `data`. Fields are numbered as the schema lists them; a union takes two numbers."""

    data: memoryview
    position: int

    @classmethod
    def root(cls, data: memoryview) -> Table:
        """The table that the buffer begins with a reference to."""
        return cls(data, _number(data, 0, _U32))

    def at(self, field: int) -> int | None:
        """Where the field's value stands; None when it is left at its default."""
        vtable = self.position - _number(self.data, self.position, _I32)
        size = _number(self.data, vtable, _U16)
        entry = 4 + 2 * field
        if entry + 2 > size:
            return None
        offset = _number(self.data, vtable + entry, _U16)
        return self.position + offset if offset else None

    def u8(self, field: int) -> int:
        """An unsigned byte; 0 is the default of all numbers."""
        found = self.at(field)
        return 0 if found is None else self.data[_inside(self.data, found, 1)]

    def u32(self, field: int) -> int:
        """An unsigned number of four bytes."""
        found = self.at(field)
        return 0 if found is None else _number(self.data, found, _U32)

    def i32(self, field: int) -> int:
        """A signed number of four bytes."""
        found = self.at(field)
        return 0 if found is None else _number(self.data, found, _I32)

    def u64(self, field: int) -> int:
        """An unsigned number of eight bytes."""
        found = self.at(field)
        return 0 if found is None else _number(self.data, found, _U64)

    def struct(self, field: int, size: int) -> bytes | None:
        """`size` bytes that stand in the table itself."""
        found = self.at(field)
        if found is None:
            return None
        _inside(self.data, found, size)
        return bytes(self.data[found : found + size])

    def table(self, field: int) -> Table | None:
        """A table that the field refers to."""
        found = self.at(field)
        return None if found is None else Table(self.data, found + _number(self.data, found, _U32))

    def span(self, field: int, width: int = 1) -> tuple[int, int] | None:
        """Where a vector's first element stands, and how many of `width` bytes there are."""
        found = self.at(field)
        if found is None:
            return None
        start = found + _number(self.data, found, _U32)
        count = _number(self.data, start, _U32)
        _inside(self.data, start + 4, count * width)
        return start + 4, count

    def blob(self, field: int) -> bytes | None:
        """A vector of bytes."""
        found = self.span(field)
        return None if found is None else bytes(self.data[found[0] : found[0] + found[1]])

    def text(self, field: int) -> str | None:
        """A string."""
        found = self.blob(field)
        try:
            return None if found is None else found.decode()
        except UnicodeDecodeError:
            raise CorruptData("a string that is no UTF-8") from None

    def vector(self, field: int) -> Tables:
        """The tables of a vector of references; none when there is none. TooLarge for more than are taken one by one."""
        start, count = self.span(field, 4) or (0, 0)
        if count > MAX_TABLES:
            raise TooLarge(f"{count} tables in one vector; fsbridge takes {MAX_TABLES}")
        return Tables(self.data, start, count)

    def columns(self, field: int) -> Iterator[Columns]:
        """The tables of a vector of references, field by field, some thousands at a time."""
        start, count = self.span(field, 4) or (0, 0)
        data = np.frombuffer(self.data, np.uint8)
        for first in range(0, count, BLOCK_TABLES):
            positions = start + 4 * np.arange(first, min(first + BLOCK_TABLES, count), dtype=np.int64)
            yield Columns(data, positions + _gather(data, positions, "<u4"))


class Tables:
    """The tables that the `count` references at `start` of `data` lead to."""

    def __init__(self, data: memoryview, start: int, count: int) -> None:
        self._data, self._start, self._count = data, start, count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Table]:
        return map(self.__getitem__, range(self._count))

    def __getitem__(self, number: int) -> Table:
        """`number` is one of `range(len(self))`."""
        position = self._start + 4 * number
        return Table(self._data, position + _number(self._data, position, _U32))


class Columns(NamedTuple):
    """Many tables of one kind."""

    data: npt.NDArray[np.uint8]
    positions: Positions

    def vectors(self, field: int, length: int) -> npt.NDArray[np.uint32]:
        """Vectors (n, length) of unsigned numbers of four bytes; CorruptData where one is missing or has another length."""
        vtables = self.positions - _gather(self.data, self.positions, "<i4")
        entry = 4 + 2 * field
        there = _gather(self.data, vtables, "<u2") >= entry + 2
        offsets = _gather(self.data, vtables[there] + entry, "<u2")
        if not there.all() or not offsets.all():
            raise CorruptData("a table without one of its vectors")
        starts = self.positions + offsets
        starts += _gather(self.data, starts, "<u4")
        if (_gather(self.data, starts, "<u4") != length).any():
            raise CorruptData(f"a vector that has not {length} elements")
        found = np.empty((len(starts), length), np.uint32)
        for number in range(length):
            found[:, number] = _gather(self.data, starts + 4 * (number + 1), "<u4")
        return found


def _inside(data: memoryview, position: int, size: int) -> int:
    if position < 0 or position + size > len(data):
        raise CorruptData(f"a reference to byte {position + size} of {len(data)}")
    return position


def _number(data: memoryview, position: int, form: struct.Struct) -> int:
    found: int = form.unpack_from(data, _inside(data, position, form.size))[0]
    return found


def _gather(data: npt.NDArray[np.uint8], positions: Positions, dtype: str) -> Positions:
    """The number of that type at each position."""
    width = np.dtype(dtype).itemsize
    if len(positions) and (positions.min() < 0 or positions.max() + width > len(data)):
        raise CorruptData(f"a reference beyond the {len(data)} bytes")
    if (positions % width).any():  # FlatBuffers are aligned, but need not be
        found = data[positions[:, None] + np.arange(width)].view(dtype).reshape(len(positions))
    else:
        found = data[: len(data) // width * width].view(dtype)[positions // width]
    numbers: Positions = found.astype(np.int64)
    return numbers
