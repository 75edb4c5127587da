"""Filters by numpy: those of numcodecs (delta, fixedscaleoffset, quantize ...), byte shuffle, memory order and byte order.

Not here: checksums, shuffles inside Blosc, casts of Zarr v3 (`zarr3.py`), bit shuffle (`hdf5.py`).

numcodecs' filters compute what numcodecs 0.16 computes, with the same numpy operations in the same types. Independent
elements are computed piece by piece, so that temporaries stay small.

The fields of a struct become little-endian, the only order that Zarr v3's `structured` has. The byte order of simple
types is described and not changed.
"""

from __future__ import annotations

import binascii
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fsbridge.codecs import Buffer, Decoder, check_size
from fsbridge.errors import CorruptData, Unsupported

PIECE_ELEMENTS = 1 << 16
"""Elements converted at a time."""
NUMBERS = "biufcmM"


@dataclass(frozen=True, slots=True)
class Elementwise(Decoder):
    """Turns elements of `stored` into elements of `result` by `convert` (None: by a cast).

    `convert` gets numbers in the processor's byte order, and raises CorruptData for values that do not fit.
    """

    name: str
    stored: np.dtype[Any]
    result: np.dtype[Any]
    convert: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]] | None = None

    def encoded_size(self, decoded: int) -> int | None:
        return decoded // self.result.itemsize * self.stored.itemsize

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        source = elements(data, self.stored)
        if self.convert is None and self.stored == self.result:
            return data
        target, result = prepare(len(source), self.result, size, limit, out)
        native = self.stored.newbyteorder("=")
        with np.errstate(all="ignore"):
            for start in range(0, len(source), PIECE_ELEMENTS):
                piece = source[start : start + PIECE_ELEMENTS]
                converted = piece if self.convert is None else self.convert(piece.astype(native, copy=False))
                result[start : start + PIECE_ELEMENTS] = converted.astype(self.result)
        return target


@dataclass(frozen=True, slots=True)
class Delta(Decoder):
    """Decodes differences between neighbours, stored as `stored`, by adding them up to elements of `result`."""

    stored: np.dtype[Any]
    result: np.dtype[Any]
    name: str = "delta"

    def encoded_size(self, decoded: int) -> int | None:
        return decoded // self.result.itemsize * self.stored.itemsize

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        source = elements(data, self.stored)
        target, result = prepare(len(source), self.result, size, limit, out)
        with np.errstate(all="ignore"):
            np.cumsum(source, out=result)
        return target


@dataclass(frozen=True, slots=True)
class PackBits(Decoder):
    """Decodes booleans from bits, most significant first, after one byte that counts the unused bits of the last byte."""

    name: str = "packbits"

    def encoded_size(self, decoded: int) -> int | None:
        return 1 + -(-decoded // 8)

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        packed = np.frombuffer(data, "u1")
        unused = int(packed[0]) if len(packed) else 8
        count = 8 * (len(packed) - 1) - unused
        if unused > 7 or count < 0:
            raise CorruptData(f"packed bits of {len(packed)} bytes cannot have {unused} unused bits")
        check_size(count, size, limit)
        return np.unpackbits(packed[1:], count=count).data


@dataclass(frozen=True, slots=True)
class Base64(Decoder):
    """Decodes bytes that are stored as Base64 text: the standard alphabet, padded, nothing in between."""

    name: str = "base64"

    def encoded_size(self, decoded: int) -> int | None:
        return -(-decoded // 3) * 4

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        if len(data) // 4 * 3 > (limit if size is None else size) + 2:
            raise CorruptData(f"{len(data)} characters decode to more than {limit if size is None else size} bytes")
        try:
            result = binascii.a2b_base64(data, strict_mode=True)
        except ValueError as error:
            raise CorruptData(str(error)) from None
        check_size(len(result), size, limit)
        return result


@dataclass(frozen=True, slots=True)
class Verbatim(Decoder):
    """A filter that decoding need not undo: it changes only what is written, or had nothing to do."""

    name: str

    def encoded_size(self, decoded: int) -> int | None:
        return decoded

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        return data


def delta(dtype: Any, astype: Any = None) -> Decoder:
    """Return the decoder of numcodecs' `delta`."""
    result = number(dtype)
    stored = result if astype is None else number(astype)
    probe(lambda: np.cumsum(np.zeros(1, stored), out=np.zeros(1, result)), f"delta cannot decode {stored} to {result}")
    return Delta(stored, result)


def fixed_scale_offset(offset: Any, scale: Any, dtype: Any, astype: Any = None) -> Decoder:
    """Return the decoder of numcodecs' `fixedscaleoffset`: value / scale + offset."""
    result = number(dtype)
    stored = result if astype is None else number(astype)
    if not isinstance(scale, (int, float)) or not isinstance(offset, (int, float)):
        raise Unsupported(f"fixedscaleoffset needs numbers, not scale {scale!r} and offset {offset!r}")
    probe(lambda: np.zeros(1, stored) / scale + offset, f"fixedscaleoffset cannot decode {stored} with {scale} and {offset}")
    return Elementwise("fixedscaleoffset", stored, result, lambda values: (values / scale) + offset)


def astype(encode_dtype: Any, decode_dtype: Any) -> Decoder:
    """Return the decoder of numcodecs' `astype`."""
    stored, result = number(encode_dtype), number(decode_dtype)
    probe(lambda: np.zeros(1, stored).astype(result), f"astype cannot decode {stored} to {result}")
    return Elementwise("astype", stored, result)


def quantize(dtype: Any, astype: Any = None) -> Decoder:
    """Return the decoder of numcodecs' `quantize`. Rounding is done when writing, so only the type is restored."""
    result = number(dtype)
    stored = result if astype is None else number(astype)
    if result.kind != "f" or stored.kind != "f":
        raise Unsupported(f"quantize cannot decode {stored} to {result}")
    return Elementwise("quantize", stored, result)


def number(spelling: Any) -> np.dtype[Any]:
    """Return the numpy type of numbers that a filter's configuration names. Raises Unsupported for anything else."""
    try:
        dtype = np.dtype(spelling) if isinstance(spelling, (str, np.dtype)) else None
    except (TypeError, ValueError):
        dtype = None
    if dtype is None or dtype.kind not in NUMBERS or not dtype.itemsize:
        raise Unsupported(f"a filter names {spelling!r}, which is not a data type of numbers")
    return dtype


def elements(data: Buffer, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return `data` as elements. Raises CorruptData if the last one is incomplete."""
    if len(data) % dtype.itemsize:
        raise CorruptData(f"{len(data)} bytes are not a multiple of the element size of {dtype.itemsize}")
    return np.frombuffer(data, dtype)


def prepare(
    count: int, dtype: np.dtype[Any], size: int | None, limit: int, out: memoryview | None
) -> tuple[bytearray | memoryview, np.ndarray[Any, Any]]:
    """Return memory for `count` decoded elements, and an array over it. Raises what `check_size` does."""
    total = count * dtype.itemsize
    check_size(total, size, limit)
    target = bytearray(total) if out is None else out
    return target, np.frombuffer(target, dtype)


def probe(operation: Callable[[], object], what: str) -> None:
    """Try a conversion on one element, so that an impossible one is Unsupported before any chunk is read."""
    try:
        with np.errstate(all="ignore"):
            operation()
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        raise Unsupported(what) from None


WIDE_BYTES = 256
"""Wider elements are copied one by one instead of byte plane by byte plane."""


@dataclass(frozen=True, slots=True)
class Shuffle(Decoder):
    """Undoes the byte shuffle.

    `leftover`: an incomplete last element is allowed, and is not shuffled (HDF5). Without it, such data is CorruptData, as
    in numcodecs.
    """

    element: int
    leftover: bool
    name: str = "shuffle"

    def encoded_size(self, decoded: int) -> int | None:
        return decoded

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        check_size(len(data), size, limit)
        if len(data) % self.element and not self.leftover:
            raise CorruptData(f"{len(data)} bytes are not a multiple of the element size of {self.element}")
        count = len(data) // self.element
        if self.element == 1 or count <= 1:
            return data
        target = bytearray(len(data)) if out is None else out
        source = np.frombuffer(data, "u1")
        result = np.frombuffer(target, "u1")
        whole = count * self.element
        planes = source[:whole].reshape(self.element, count)
        elements = result[:whole].reshape(count, self.element)
        # Plane by plane is five times faster than one transposed copy, unless there are few elements and many planes. For
        # elements of two bytes, arithmetic is twice as fast again.
        if self.element == 2:
            pairs = result[:whole].view("<u2")
            np.left_shift(planes[1], 8, out=pairs, dtype="<u2")
            pairs |= planes[0]
        elif self.element <= WIDE_BYTES:
            for i in range(self.element):
                elements[:, i] = planes[i]
        else:
            np.copyto(elements, planes.T)
        result[whole:] = source[whole:]
        return target


def shuffle(element: int = 4) -> Decoder:
    """Return the decoder of numcodecs' `shuffle` (its default element size is 4; with 1 or 0 nothing is shuffled)."""
    return Shuffle(_element(element), leftover=False)


def hdf5_shuffle(element: int) -> Decoder:
    """Return the decoder of HDF5 filter 2."""
    return Shuffle(_element(element), leftover=True)


def _element(element: int) -> int:
    if not 0 <= element < 1 << 31:
        raise Unsupported(f"shuffle cannot have elements of {element} bytes")
    return max(element, 1)


@dataclass(frozen=True, slots=True)
class Untranspose(Decoder):
    """Undoes a transpose by `order`. `shape` is that of the transposed array, which is decoded to the original one."""

    shape: tuple[int, ...]
    order: tuple[int, ...]
    itemsize: int
    name: str = "transpose"

    def encoded_size(self, decoded: int) -> int | None:
        return decoded

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        if len(data) != math.prod(self.shape) * self.itemsize:
            raise CorruptData(f"{len(data)} bytes do not fit an array of shape {list(self.shape)}")
        stored = np.frombuffer(data, f"V{self.itemsize}").reshape(self.shape)
        return stored.transpose(np.argsort(self.order)).tobytes()


@dataclass(frozen=True, slots=True)
class Swap(Decoder):
    """Turns elements of `stored` into those of `shown`, which has other byte orders. Bytes between fields are kept."""

    stored: np.dtype[Any]
    shown: np.dtype[Any]
    name: str = "byteswap"

    def encoded_size(self, decoded: int) -> int | None:
        return decoded

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        source = elements(data, self.stored)
        target, result = prepare(len(source), self.shown, size, limit, out)
        target[:] = data  # numpy copies fields only
        np.copyto(result, source)
        return target


def little_endian(stored: np.dtype[Any], keep_arrays: bool = False) -> Decoder | None:
    """Return the decoder from elements of `stored` to those of `little(stored, keep_arrays)`.

    None if both are the same.
    """
    shown = little(stored, keep_arrays)
    return None if shown == stored else Swap(stored, shown)


def little(stored: np.dtype[Any], keep_arrays: bool = False) -> np.dtype[Any]:
    """Return `stored` with every field little-endian; with `keep_arrays` except fields that are arrays."""
    if not keep_arrays:
        return stored.newbyteorder("<")
    if stored.subdtype is not None:
        return stored
    if stored.names is None or stored.fields is None:
        return stored.newbyteorder("<")
    fields = [stored.fields[name] for name in stored.names]
    formats, offsets = [little(field[0], True) for field in fields], [field[1] for field in fields]
    return np.dtype({"names": stored.names, "formats": formats, "offsets": offsets, "itemsize": stored.itemsize})
