"""numcodecs' filters: delta, fixedscaleoffset, quantize, bitround, astype, packbits, base64.

Not here: checksums, shuffle.

Each computes what numcodecs 0.16 computes, with the same numpy operations in the same types. Independent elements are
computed piece by piece, so that temporaries stay small.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fsbridge.codecs.chain import Buffer, CodecAbilities, Decoder
from fsbridge.errors import CorruptData, Unsupported

PIECE_ELEMENTS = 1 << 16
"""Elements converted at a time."""
NUMBERS = "biufcmM"


@dataclass(frozen=True, slots=True)
class Elementwise(CodecAbilities):
    """Turns elements of `stored` into elements of `result` by `convert` (None: by a cast)."""

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
        with np.errstate(all="ignore"):
            for start in range(0, len(source), PIECE_ELEMENTS):
                piece = source[start : start + PIECE_ELEMENTS]
                converted = piece if self.convert is None else self.convert(piece)
                result[start : start + PIECE_ELEMENTS] = converted.astype(self.result)
        return target


@dataclass(frozen=True, slots=True)
class Delta(CodecAbilities):
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
class PackBits(CodecAbilities):
    """Decodes booleans from bits, most significant first, after one byte that counts the unused bits of the last byte."""

    name: str = "packbits"

    def encoded_size(self, decoded: int) -> int | None:
        return 1 + -(-decoded // 8)

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        packed = np.frombuffer(data, "u1")
        unused = int(packed[0]) if len(packed) else 8
        count = 8 * (len(packed) - 1) - unused
        if unused > 7 or count < 0:
            raise CorruptData(f"{len(packed)} bytes with {unused} unused bits are no packed bits")
        if count > limit or (size is not None and count != size):
            raise CorruptData(f"{count} bits where {limit if size is None else size} were expected")
        return np.unpackbits(packed[1:], count=count).data


@dataclass(frozen=True, slots=True)
class Base64(CodecAbilities):
    """Decodes bytes that are stored as Base64 text."""

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
        if len(result) > limit or (size is not None and len(result) != size):
            raise CorruptData(f"decodes to {len(result)} bytes, not {limit if size is None else size}")
        return result


@dataclass(frozen=True, slots=True)
class Verbatim(CodecAbilities):
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
    probe(lambda: np.cumsum(np.zeros(1, stored), out=np.zeros(1, result)), f"delta of {result} stored as {stored}")
    return Delta(stored, result)


def fixed_scale_offset(offset: Any, scale: Any, dtype: Any, astype: Any = None) -> Decoder:
    """Return the decoder of numcodecs' `fixedscaleoffset`: value / scale + offset."""
    result = number(dtype)
    stored = result if astype is None else number(astype)
    if not isinstance(scale, (int, float)) or not isinstance(offset, (int, float)):
        raise Unsupported(f"fixedscaleoffset with scale {scale!r} and offset {offset!r}")
    probe(lambda: np.zeros(1, stored) / scale + offset, f"fixedscaleoffset of {stored} with {scale} and {offset}")
    return Elementwise("fixedscaleoffset", stored, result, lambda values: (values / scale) + offset)


def astype(encode_dtype: Any, decode_dtype: Any) -> Decoder:
    """Return the decoder of numcodecs' `astype`."""
    stored, result = number(encode_dtype), number(decode_dtype)
    probe(lambda: np.zeros(1, stored).astype(result), f"astype from {stored} to {result}")
    return Elementwise("astype", stored, result)


def quantize(dtype: Any, astype: Any = None) -> Decoder:
    """Return the decoder of numcodecs' `quantize`. Rounding is done when writing, so only the type is restored."""
    result = number(dtype)
    stored = result if astype is None else number(astype)
    if result.kind != "f" or stored.kind != "f":
        raise Unsupported(f"quantize from {stored} to {result}")
    return Elementwise("quantize", stored, result)


def packbits() -> Decoder:
    """Return the decoder of numcodecs' `packbits`."""
    return PackBits()


def bitround() -> Decoder:
    """Return the decoder of numcodecs' `bitround`, which rounds when writing."""
    return Verbatim("bitround")


def base64() -> Decoder:
    """Return the decoder of numcodecs' `base64`: the standard alphabet, padded, nothing in between."""
    return Base64()


def number(spelling: Any) -> np.dtype[Any]:
    """Return the numpy type of numbers that a filter's configuration names. Raises Unsupported for anything else."""
    try:
        dtype = np.dtype(spelling) if isinstance(spelling, (str, np.dtype)) else None
    except (TypeError, ValueError):
        dtype = None
    if dtype is None or dtype.kind not in NUMBERS or not dtype.itemsize:
        raise Unsupported(f"filter of data type {spelling!r}")
    return dtype


def elements(data: Buffer, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return `data` as elements. Raises CorruptData if the last one is incomplete."""
    if len(data) % dtype.itemsize:
        raise CorruptData(f"{len(data)} bytes are no whole elements of {dtype.itemsize}")
    return np.frombuffer(data, dtype)


def prepare(
    count: int, dtype: np.dtype[Any], size: int | None, limit: int, out: memoryview | None
) -> tuple[bytearray | memoryview, np.ndarray[Any, Any]]:
    """Return memory for `count` decoded elements, and an array over it.

    Raises CorruptData if their bytes differ from `size` or exceed `limit`.
    """
    total = count * dtype.itemsize
    if total > limit or (size is not None and total != size):
        raise CorruptData(f"{total} bytes where {limit if size is None else size} were expected")
    target = bytearray(total) if out is None else out
    return target, np.frombuffer(target, dtype)


def probe(operation: Callable[[], object], what: str) -> None:
    """Try a conversion on one element, so that an impossible one is Unsupported before any chunk is read."""
    try:
        with np.errstate(all="ignore"):
            operation()
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        raise Unsupported(what) from None
