"""Serialisation of elements of an HDF5 type, including what they point at, for another process.

The child that reads a file sends them to the child that writes its twin, a copy as an HDF5 file. Works on h5py's `TypeID`
objects without importing h5py.

    N * size bytes      the elements as they are in memory; what is in the places of pointers means nothing
    for each element, for each of its pointers in the order of their offsets:
        text of variable length     u32 bytes + 1, the bytes; 0: no text at all
        sequence                    u32 count, that many elements of the base type, in this very form
        object reference            u64 address of the object; 0: refers to nothing
        region reference            u64 the same, u32 bytes, the selection as H5Sencode has it
        reference of HDF5 1.12      u8 its H5R_type_t (0: refers to nothing), u64 and u32 as above; for an attribute its name

`function` gives functions of the HDF5 library that h5py is linked with, and that h5py lacks or offers for numpy's types
only. Each use declares a function's arguments.

Not here: questions about a file.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

ID, MEMORY, SIZE, TEXT = ctypes.c_int64, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
"""`hid_t`, a pointer to elements, `size_t`, a zero-terminated text."""

ALL, DEFAULT = 0, 0
"""H5S_ALL and H5P_DEFAULT, as numbers."""


def function(module: Any, name: str, *arguments: Any, result: Any = ctypes.c_int) -> Any:
    """Return the function `name` of the HDF5 that a module of h5py is linked with. Raises AttributeError if it has none."""
    found = getattr(ctypes.CDLL(module.__file__), name)
    found.argtypes, found.restype = arguments, result
    return found


Kind = Literal["text", "sequence", "object", "region", "reference"]

MAX_POINTERS = 1 << 16
"""Most pointers in one element. Real types have at most a few dozen."""

_REFERENCE, _VLEN, _STRING, _COMPOUND, _ARRAY = 7, 9, 3, 6, 10
"""H5T_class_t (H5Tpublic.h)."""
_KINDS: dict[int, Kind] = {8: "object", 12: "region", 64: "reference"}
"""Kinds of references by size in bytes: hobj_ref_t, hdset_reg_ref_t and, since HDF5 1.12, H5R_ref_t."""
_U8, _U32, _U64, _SEQUENCE = struct.Struct("<B"), struct.Struct("<I"), struct.Struct("<Q"), struct.Struct("@QQ")


class Target(NamedTuple):
    """What a reference refers to: an object, or a `part` of it, which is a selection in H5Sencode's encoding.

    `kind` is the H5R_type_t of a reference of HDF5 1.12; its `part` may also be an attribute's name; 0: it refers to
    nothing.
    """

    address: int
    part: bytes
    kind: int = 0


@dataclass(frozen=True, slots=True)
class Form:
    """The layout of one element in memory: `size` bytes, some of them pointers.

    Each pointer is (offset, kind, form of a sequence's elements).
    """

    size: int
    pointers: tuple[tuple[int, Kind, Form | None], ...]


_OBJECT = Form(8, ((0, "object", None),))


def form(tid: Any) -> Form:
    """Return the form of elements of an h5py TypeID. Raises ValueError for references of an unknown kind."""
    size, number = int(tid.get_size()), tid.get_class()
    if number == _REFERENCE:
        if size not in _KINDS:
            raise ValueError(f"references of {size} bytes")
        return Form(size, ((0, _KINDS[size], None),))
    if number == _VLEN:
        return Form(size, ((0, "sequence", form(tid.get_super())),))
    if number == _STRING and tid.is_variable_str():
        return Form(size, ((0, "text", None),))
    found: list[tuple[int, Kind, Form | None]] = []
    if number == _COMPOUND:
        for i in range(tid.get_nmembers()):
            start = tid.get_member_offset(i)
            found += [(start + offset, kind, base) for offset, kind, base in form(tid.get_member_type(i)).pointers]
    elif number == _ARRAY:
        inner = form(tid.get_super())
        count = math.prod(tid.get_array_dims())
        if count * len(inner.pointers) > MAX_POINTERS:
            raise ValueError(f"elements with more than {MAX_POINTERS} pointers")
        found = [(i * inner.size + at, kind, base) for i in range(count) for at, kind, base in inner.pointers]
    return Form(size, tuple(sorted(found, key=lambda pointer: pointer[0])))


Ask = Callable[[bytes], Target]


def pack(form: Form, memory: bytes, target: Ask) -> bytes:
    """Return elements in memory as a stream.

    `target` tells what a region reference, or a reference of HDF5 1.12, refers to.
    """
    parts = [memory]
    if form.pointers:
        for start in range(0, len(memory), form.size):
            for offset, kind, base in form.pointers:
                parts.append(_packed(kind, base, memory, start + offset, target))
    return b"".join(parts)


def _packed(kind: Kind, base: Form | None, memory: bytes, start: int, target: Ask) -> bytes:
    if kind == "text":
        (pointer,) = _U64.unpack_from(memory, start)
        text = ctypes.string_at(pointer) if pointer else b""
        return _U32.pack(len(text) + 1 if pointer else 0) + text
    if kind == "sequence":
        assert base is not None
        count, pointer = _SEQUENCE.unpack_from(memory, start)
        return _U32.pack(count) + pack(base, ctypes.string_at(pointer, count * base.size) if count else b"", target)
    if kind == "object":
        return memory[start : start + 8]
    found = target(memory[start : start + (12 if kind == "region" else 64)])
    of_kind = _U8.pack(found.kind) if kind == "reference" else b""
    return of_kind + _U64.pack(found.address) + _U32.pack(len(found.part)) + found.part


class References(Protocol):
    """Makes references in the new file. A reference that refers to nothing there is zeros."""

    def old(self, address: int, selection: bytes | None) -> bytes:
        """Return an object reference, or with a selection a region reference."""

    def new(self, target: Target) -> bytes:
        """Return a reference of the type that HDF5 1.12 introduced. The implementation decides how long it stays valid."""


class Unpacker:
    """Turns a stream into elements in memory. What they point at lives as long as this object.

    `dense`: leave references that refer to nothing in the new file out of sequences of object references.
    """

    def __init__(self, stream: bytes, references: References, dense: bool = False) -> None:
        self._stream = stream
        self._references = references
        self._dense = dense
        self._position = 0
        self._kept: list[Any] = []

    def elements(self, form: Form, count: int) -> Any:
        """Return the next `count` elements as a ctypes array of bytes. Raises ValueError if the stream is too short."""
        memory = bytearray(self._take(count * form.size))
        if form.pointers:
            for start in range(0, len(memory), form.size):
                for offset, kind, base in form.pointers:
                    found = self._pointer(kind, base)
                    memory[start + offset : start + offset + len(found)] = found
        buffer = (ctypes.c_char * len(memory)).from_buffer(memory)
        self._kept.append(buffer)
        return buffer

    def _pointer(self, kind: Kind, base: Form | None) -> bytes:
        if kind == "text":
            length = _U32.unpack(self._take(4))[0]
            if not length:
                return bytes(8)
            text = ctypes.create_string_buffer(self._take(length - 1))
            self._kept.append(text)
            return _U64.pack(ctypes.addressof(text))
        if kind == "sequence":
            assert base is not None
            count = _U32.unpack(self._take(4))[0]
            elements = self.elements(base, count)
            if self._dense and base == _OBJECT:
                references = [elements.raw[i : i + 8] for i in range(0, len(elements), 8)]
                elements = ctypes.create_string_buffer(b"".join(found for found in references if any(found)))
                count = (len(elements) - 1) // 8
                self._kept.append(elements)
            return _SEQUENCE.pack(count, ctypes.addressof(elements) if count else 0)
        number = _U8.unpack(self._take(1))[0] if kind == "reference" else 0
        address = _U64.unpack(self._take(8))[0]
        part = None if kind == "object" else self._take(_U32.unpack(self._take(4))[0])
        if kind == "reference":
            return self._references.new(Target(address, part or b"", number))
        return self._references.old(address, part)

    def _take(self, count: int) -> bytes:
        if not 0 <= count <= len(self._stream) - self._position:
            raise ValueError("elements that end too early")
        self._position += count
        return self._stream[self._position - count : self._position]
