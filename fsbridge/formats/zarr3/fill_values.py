"""Zarr v3 fill values: what a `fill_value` member means for an element of some type. Not here: the types (`types.py`)."""

from __future__ import annotations

import base64
import binascii
import math
import re
from typing import Any, NoReturn

import numpy as np

from fsbridge.errors import CorruptData
from fsbridge.formats import dtypes
from fsbridge.formats.zarr3.types import MINI, TINY, ZarrType
from fsbridge.metadata import JSON

HEX = re.compile(r"0x[0-9a-fA-F]+")


def fill_bytes(value: JSON, of: ZarrType, place: str) -> bytes | str | None:
    """Read a `fill_value` member: the little-endian packed bytes of one element, or text or bytes of variable length.

    `null` (GDAL writes it) is None. Raises CorruptData for a value that the type cannot hold, TooLarge.
    """
    if value is None:
        return None
    if of.element is not None:
        if not isinstance(value, list) or len(value) != 1:
            _bad(value, of, place)
        fill_bytes(value[0], of.element, place)
        return None
    if of.numpy is None:
        if of.name == "string":
            return value if isinstance(value, str) else _bad(value, of, place)
        return _raw(value, of, place)
    if of.itemsize <= dtypes.MAX_FILL_BYTES:
        return _element(value, of, place)
    return dtypes.padded_fill(b"\1" if _says_more_than_zero(value, of, place) else b"", of.itemsize, place)


def fill_spelling(value: JSON, of: ZarrType) -> JSON:
    """Return a valid `fill_value` member as the source spells it, for types that need the spelling; else None.

    `null` stands for the type's zero.
    """
    if of.name == "struct" or (of.element is None and not of.narrow and (of.numpy is None or of.numpy.kind != "V")):
        return None
    if value is None and (of.narrow or of.name.endswith(TINY)):
        return 0 if of.narrow else [0.0, 0.0] if of.name.startswith("complex_") else 0.0
    if of.name.removeprefix("complex_") in MINI:
        return [_respell(part) for part in value] if isinstance(value, list) else _respell(value)
    return value


def _respell(value: JSON) -> JSON:
    """Return a number with Zarr's own spelling of NaN and infinities."""
    named = dtypes.named_float(value) if isinstance(value, str) else None
    return value if named is None else dtypes.spell_float(named)


def _element(value: JSON, of: ZarrType, place: str) -> bytes:
    assert of.numpy is not None
    if of.fields:
        return _struct_fill(value, of, place)
    base = of.name.removeprefix("complex_")
    if base in MINI or of.name == "complex_float16":
        return _read_minifloat(value, of, place)
    match of.numpy.kind:
        case "b":
            number = _integer(value, 0, 1, of, place) if not isinstance(value, bool) else int(value)
            return bytes([number])
        case "i" | "u":
            bits = of.narrow or 8 * of.itemsize
            least = -(1 << (bits - 1)) if of.numpy.kind == "i" else 0
            number = _integer(value, least, least + (1 << bits) - 1, of, place)
            return number.to_bytes(of.itemsize, "little", signed=of.numpy.kind == "i")
        case "f":
            return _float(value, of.numpy, of, place)
        case "c":
            half = np.dtype(f"<f{of.itemsize // 2}")
            real, imaginary = value if isinstance(value, list) and len(value) == 2 else (value, 0.0)
            return _float(real, half, of, place) + _float(imaginary, half, of, place)
        case "M" | "m":
            number = -(2**63) if value == "NaT" else _integer(value, -(2**63), 2**63 - 1, of, place)
            return number.to_bytes(8, "little", signed=True)
        case "U":
            if not isinstance(value, str):
                _bad(value, of, place)
            return _pad(value.encode("utf-32-le", "surrogatepass"), of, value, place)
        case "S":
            return _pad(_raw(value, of, place), of, value, place)
    raw = _raw(value, of, place)
    return raw if len(raw) == of.itemsize else _bad(value, of, place)


def _says_more_than_zero(value: JSON, of: ZarrType, place: str) -> bool:
    """True if a fill value is not all zeros. Does not make the element. Raises what `_element` raises."""
    if isinstance(value, dict) and of.fields:
        return any(_says_more_than_zero(value[label], member, place) for label, member in _members(value, of, place))
    if of.itemsize <= dtypes.MAX_FILL_BYTES:
        return any(_element(value, of, place))
    if of.numpy is not None and of.numpy.kind == "U":
        return bool(value.strip("\0") if isinstance(value, str) else _bad(value, of, place))
    return any(_raw(value, of, place))


def _struct_fill(value: JSON, of: ZarrType, place: str) -> bytes:
    """Read the fill value of a `struct` (an object by field name) or `structured` (base64 of packed little-endian bytes)."""
    if isinstance(value, str):
        raw = _raw(value, of, place)
        return raw if len(raw) == of.itemsize else _bad(value, of, place)
    members = _members(value, of, place)
    return b"".join(_element(value[label], member, f"{place} field {label!r}") for label, member in members)


def _members(value: JSON, of: ZarrType, place: str) -> tuple[tuple[str, ZarrType], ...]:
    """Return the fields of a struct. Raises CorruptData unless `value` is an object with exactly their names."""
    if not isinstance(value, dict) or set(value) != {label for label, _ in of.fields}:
        _bad(value, of, place)
    return of.fields


def _read_minifloat(value: JSON, of: ZarrType, place: str) -> bytes:
    if of.name.startswith("complex_"):
        part = of.name.removeprefix("complex_")
        half = ZarrType(part, part, np.dtype(f"V{of.itemsize // 2}"))
        real, imaginary = value if isinstance(value, list) and len(value) == 2 else (value, 0.0)
        if part == "float16":
            return _float(real, np.dtype("<f2"), of, place) + _float(imaginary, np.dtype("<f2"), of, place)
        return _read_minifloat(real, half, place) + _read_minifloat(imaginary, half, place)
    bits = _read_hex(value, of.itemsize)
    if bits is not None:
        return bits
    try:
        return dtypes.encode_minifloat(_number(value, of, place), of.name)
    except ValueError:
        return _bad(value, of, place)


def _integer(value: JSON, least: int, most: int, of: ZarrType, place: str) -> int:
    """Read an integer, which some writers spell `0.0`."""
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        _bad(value, of, place)
    return value


def _number(value: JSON, of: ZarrType, place: str) -> float:
    named = dtypes.named_float(value) if isinstance(value, str) else None
    if named is not None:
        return named
    if isinstance(value, bool) or not isinstance(value, int | float):
        _bad(value, of, place)
    try:
        return float(value)
    except OverflowError:
        return _bad(value, of, place)


def _float(value: JSON, stored: np.dtype[Any], of: ZarrType, place: str) -> bytes:
    bits = _read_hex(value, stored.itemsize)
    if bits is not None:
        return bits
    with np.errstate(over="ignore"):
        return np.array(_number(value, of, place)).astype(stored).tobytes()


def _read_hex(value: JSON, size: int) -> bytes | None:
    """Read `"0x7fc00001"`: bits, most significant digit first, as little-endian bytes. Returns None for anything else."""
    if not isinstance(value, str) or HEX.fullmatch(value) is None or len(value) > 2 + 2 * size:
        return None
    return int(value, 16).to_bytes(size, "little")


def _raw(value: JSON, of: ZarrType, place: str) -> bytes:
    """Read base64 text, or a list of byte values."""
    if isinstance(value, list):
        if not all(isinstance(item, int) and not isinstance(item, bool) and 0 <= item <= 255 for item in value):
            _bad(value, of, place)
        return bytes(value)
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            _bad(value, of, place)
    return _bad(value, of, place)


def _pad(raw: bytes, of: ZarrType, value: JSON, place: str) -> bytes:
    return raw.ljust(of.itemsize, b"\0") if len(raw) <= of.itemsize else _bad(value, of, place)


def _bad(value: JSON, of: ZarrType, place: str) -> NoReturn:
    raise CorruptData(f"{place}: {str(value)[:80]!r} is not a fill_value of data type {of.native[:80]}")
