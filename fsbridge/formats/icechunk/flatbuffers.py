"""FlatBuffers, read without trust: tables, vectors and strings by field number, and columns of a million tables at once.

Every position is checked before it is used: what a buffer says can be CorruptData, and nothing else. Offsets are relative
to where they stand (https://flatbuffers.dev/internals). Not here: what the fields mean (`records.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fsbridge.errors import CorruptData

Positions = npt.NDArray[np.int64]

_U16, _U32, _U64, _I32 = (struct.Struct(f"<{code}") for code in "HIQi")


class Table(NamedTuple):
    """The table at `position` of `data`. Fields are numbered as the schema lists them; a union takes two numbers."""

    data: bytes
    position: int

    @classmethod
    def root(cls, data: bytes) -> Table:
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
        return self.data[found : found + size]

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
        return None if found is None else self.data[found[0] : found[0] + found[1]]

    def text(self, field: int) -> str | None:
        """A string."""
        found = self.blob(field)
        try:
            return None if found is None else found.decode()
        except UnicodeDecodeError:
            raise CorruptData("a string that is no UTF-8") from None

    def tables(self, field: int) -> Iterator[Table]:
        """The tables of a vector of references; none when there is no vector."""
        found = self.span(field, 4)
        start, count = found or (0, 0)
        for position in range(start, start + 4 * count, 4):
            yield Table(self.data, position + _number(self.data, position, _U32))

    def columns(self, field: int) -> Columns:
        """The tables of a vector of references, field by field."""
        found = self.span(field, 4)
        start, count = found or (0, 0)
        data = np.frombuffer(self.data, np.uint8)
        positions = start + 4 * np.arange(count, dtype=np.int64)
        return Columns(data, positions + _gather(data, positions, "<u4"))


class Columns(NamedTuple):
    """Many tables of one kind. Where a table has no such field, its position is 0, where no field can stand."""

    data: npt.NDArray[np.uint8]
    positions: Positions

    def at(self, field: int) -> Positions:
        """Where the field's value stands in each table, or 0."""
        vtables = self.positions - _gather(self.data, self.positions, "<i4")
        entry = 4 + 2 * field
        there = _gather(self.data, vtables, "<u2") >= entry + 2
        offsets = np.zeros(len(vtables), np.int64)
        offsets[there] = _gather(self.data, vtables[there] + entry, "<u2")
        return np.where(offsets > 0, self.positions + offsets, 0)

    def numbers(self, field: int) -> npt.NDArray[np.uint64]:
        """Unsigned numbers of eight bytes; 0 where there is none."""
        positions = self.at(field)
        found = np.zeros(len(positions), np.uint64)
        found[positions > 0] = _gather(self.data, positions[positions > 0], "<u8")
        return found

    def structs(self, field: int, size: int) -> npt.NDArray[np.uint8]:
        """Bytes (n, size) that stand in the tables themselves; zeros where there are none."""
        positions = self.at(field)
        found = np.zeros((len(positions), size), np.uint8)
        found[positions > 0] = _bytes(self.data, positions[positions > 0], size)
        return found

    def spans(self, field: int) -> tuple[Positions, Positions]:
        """Where each vector's first element stands (0: no vector), and how many elements it has."""
        positions = self.at(field)
        starts, counts = np.zeros(len(positions), np.int64), np.zeros(len(positions), np.int64)
        there = positions > 0
        vectors = positions[there] + _gather(self.data, positions[there], "<u4")
        starts[there], counts[there] = vectors + 4, _gather(self.data, vectors, "<u4")
        return starts, counts

    def vectors(self, field: int, length: int) -> npt.NDArray[np.uint32]:
        """Vectors (n, length) of unsigned numbers of four bytes; CorruptData where one has another length."""
        starts, counts = self.spans(field)
        if not (starts > 0).all() or (counts != length).any():
            raise CorruptData(f"a vector that has not {length} elements")
        found = _bytes(self.data, starts, 4 * length)
        return np.ascontiguousarray(found).view("<u4").reshape(len(starts), length)


def _inside(data: bytes, position: int, size: int) -> int:
    if position < 0 or position + size > len(data):
        raise CorruptData(f"a reference to byte {position + size} of {len(data)}")
    return position


def _number(data: bytes, position: int, form: struct.Struct) -> int:
    found: int = form.unpack_from(data, _inside(data, position, form.size))[0]
    return found


def _bytes(data: npt.NDArray[np.uint8], positions: Positions, size: int) -> npt.NDArray[np.uint8]:
    """`size` bytes at each position, which need not be aligned."""
    if len(positions) and (positions.min() < 0 or positions.max() + size > len(data)):
        raise CorruptData(f"a reference beyond the {len(data)} bytes")
    found: npt.NDArray[np.uint8] = data[positions[:, None] + np.arange(size)]
    return found


def _gather(data: npt.NDArray[np.uint8], positions: Positions, dtype: str) -> Positions:
    width = np.dtype(dtype).itemsize
    found = np.ascontiguousarray(_bytes(data, positions, width)).view(dtype).reshape(len(positions))
    return found if dtype == "<u8" else found.astype(np.int64)
