"""Element types: from numpy's description of stored elements to `metadata.DataType`, in spellings that Zarr v3 readers open.

Not here: parsing of any format's own type names, fill values, conversion of small floats.

| numpy | Zarr v3 `data_type` | zarr-python 3.1.6 | TensorStore 0.1.86 |
| --- | --- | --- | --- |
| bool, (u)int8..64, float16..64, complex64/128 | the same name | opens | opens |
| `M8[10us]`, `m8[D]` | `numpy.datetime64`, `numpy.timedelta64` {unit, scale_factor} | opens | - |
| `S5` | `null_terminated_bytes` {length_bytes} | opens | - |
| `U4` | `fixed_length_utf32` {length_bytes} | opens | - |
| `V3`, and anything without a better name | `raw_bytes` {length_bytes} | opens | opens, as one more dimension of bytes |
| packed struct, nested too | `structured` {fields} | opens, always little-endian | - |
| str, bytes of any length | `string`, `variable_length_bytes` | opens | - |

(`r24` of the core specification is opened by TensorStore only, so it is not used.)

Small floats (`MINIFLOATS`), whose bit patterns fill values need, are those of ml_dtypes and of the OCP "Microscaling
formats" specification 1.0, under the names that zarr-extensions registers; TensorStore 0.1.86 writes bfloat16, float8_*
and float4_e2m1fn.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fsbridge.codecs import Decoder
from fsbridge.errors import CorruptData, TooLarge, Unsupported
from fsbridge.metadata import JSON, DataType

STRING = DataType("string", 0, None, "string", serializer="vlen-utf8")
"""Text of any length."""

BYTES = DataType("variable_length_bytes", 0, None, "bytes", serializer="vlen-bytes")
"""Bytes of any length."""

MAX_ITEMSIZE = 2**31 - 1
"""numpy's limit for the bytes of one element."""

MAX_FILL_BYTES = 64 * 1024
"""Largest element, in bytes, with a fill value other than zeros; else a short document could ask for gigabytes."""

_WORD = re.compile(r"-?nan|[-+]?inf(inity)?", re.IGNORECASE)

_CORE: Mapping[tuple[str, int], str] = {
    ("b", 1): "bool",
    **{("i", size): f"int{8 * size}" for size in (1, 2, 4, 8)},
    **{("u", size): f"uint{8 * size}" for size in (1, 2, 4, 8)},
    **{("f", size): f"float{8 * size}" for size in (2, 4, 8)},
    **{("c", size): f"complex{8 * size}" for size in (8, 16)},
}


def data_type(stored: np.dtype[Any], native: str | None = None, keep_arrays: bool = False) -> DataType:
    """Return the shown type of elements with the stored type `stored`.

    `native` is the source's own spelling (default: numpy's). A packed struct is described little-endian, because Zarr's
    `structured` knows nothing else: a chain that decodes it must end with `normaliser(stored, keep_arrays)`. `keep_arrays`:
    array fields, which Zarr sees as raw bytes, keep the stored bytes unchanged. A struct with gaps, a
    subarray and long double are shown as raw bytes, unchanged. Raises Unsupported for Python objects and zero-byte elements.
    """
    spelling = native if native is not None else spell(stored)
    if stored.hasobject:
        raise Unsupported(f"data type {spelling} holds Python objects")
    if not stored.itemsize:
        raise Unsupported(f"data type {spelling} has elements of zero bytes")
    if stored.fields is not None:
        if not is_packed(stored):
            return raw(stored.itemsize, spelling, stored)
        from fsbridge.codecs.filters import little

        return DataType(_name(stored), stored.itemsize, None, spelling, little(stored, keep_arrays))
    name = _name(stored)
    if isinstance(name, dict) and name["name"] == "raw_bytes":
        return raw(stored.itemsize, spelling, stored)
    return DataType(name, stored.itemsize, endian(stored), spelling, stored)


def raw(itemsize: int, native: str, stored: np.dtype[Any] | None = None) -> DataType:
    """Return the raw-bytes type for elements that Zarr has no type for. `native`: how the source calls their type."""
    if not 1 <= itemsize <= MAX_ITEMSIZE:
        raise CorruptData(f"data type {native} cannot have elements of {itemsize} bytes")
    return DataType(_raw(itemsize), itemsize, None, native, stored if stored is not None else np.dtype(f"V{itemsize}"))


def padded_fill(raw: bytes, itemsize: int, place: str) -> bytes | None:
    """Return `raw` padded with zeros to `itemsize` bytes.

    For an element above MAX_FILL_BYTES: None (all zeros) if `raw` is only zeros, else raises TooLarge.
    """
    if itemsize <= MAX_FILL_BYTES:
        return raw.ljust(itemsize, b"\0")
    if raw.strip(b"\0"):
        raise TooLarge(f"{place}: the fill value has {itemsize} bytes, the limit is {MAX_FILL_BYTES}")
    return None


def endian(stored: np.dtype[Any]) -> Literal["little", "big"] | None:
    """Return the byte order of an unstructured type, or None if it has none."""
    order = stored.str[0]
    return "little" if order == "<" else "big" if order == ">" else None


def is_packed(stored: np.dtype[Any]) -> bool:
    """True if the fields of a struct follow each other without gap or overlap, and also the fields of the structs in it."""
    position = 0
    for name in stored.names or ():
        field, offset = _fields(stored)[name][:2]
        if offset != position or (field.fields is not None and not is_packed(field)):
            return False
        if field.subdtype is not None and field.subdtype[0].fields is not None and not is_packed(field.subdtype[0]):
            return False
        position += field.itemsize
    return position == stored.itemsize


def spell(stored: np.dtype[Any]) -> str:
    """Return numpy's own spelling: `>f8`, `[('a', '<i4'), ('b', '<f4', (3,))]`."""
    if stored.fields is None:
        return stored.str if stored.subdtype is None else str(stored)
    return str(stored.descr) if is_packed(stored) else str(stored)


def normaliser(stored: np.dtype[Any], keep_arrays: bool = False) -> Decoder | None:
    """Return the decoding step that makes a packed struct little-endian, as `data_type` says; None for other types."""
    if stored.fields is None or not is_packed(stored):
        return None
    from fsbridge.codecs.filters import little_endian

    return little_endian(stored, keep_arrays)


def _name(stored: np.dtype[Any]) -> JSON:
    """Return Zarr v3's `data_type`, which is `raw_bytes` if no other type fits."""
    core = _CORE.get((stored.kind, stored.itemsize))
    if core is not None:
        return core
    if stored.kind in "mM":
        unit, factor = np.datetime_data(stored)
        name = "numpy.datetime64" if stored.kind == "M" else "numpy.timedelta64"
        return {"name": name, "configuration": {"unit": unit, "scale_factor": factor}}
    if stored.kind == "S":
        return {"name": "null_terminated_bytes", "configuration": {"length_bytes": stored.itemsize}}
    if stored.kind == "U":
        return {"name": "fixed_length_utf32", "configuration": {"length_bytes": stored.itemsize}}
    if stored.fields is not None and all(_fields(stored)[name][0].itemsize for name in stored.names or ()):
        fields = [[name, _name(_fields(stored)[name][0])] for name in stored.names or ()]
        return {"name": "structured", "configuration": {"fields": fields}}
    return _raw(stored.itemsize)


def _raw(itemsize: int) -> JSON:
    return {"name": "raw_bytes", "configuration": {"length_bytes": itemsize}}


def _fields(stored: np.dtype[Any]) -> Mapping[str, Any]:
    fields: Mapping[str, Any] | None = stored.fields
    return fields if fields is not None else {}


@dataclass(frozen=True, slots=True)
class MiniFloat:
    """A floating point type with `bits` bits: `exponent` and `mantissa` bits, and a sign bit if one is left.

    `specials`: `ieee` has infinities and NaNs at the largest exponent, `fn` only one NaN (all ones), `fnuz` one NaN where -0
    would be, `finite` none; `scale` is an unsigned power of two with all ones as its NaN.
    """

    bits: int
    exponent: int
    mantissa: int
    bias: int
    specials: Literal["ieee", "fn", "fnuz", "finite", "scale"]


MINIFLOATS: Mapping[str, MiniFloat] = {
    "float4_e2m1fn": MiniFloat(4, 2, 1, 1, "finite"),
    "float6_e2m3fn": MiniFloat(6, 2, 3, 1, "finite"),
    "float6_e3m2fn": MiniFloat(6, 3, 2, 3, "finite"),
    "float8_e3m4": MiniFloat(8, 3, 4, 3, "ieee"),
    "float8_e4m3": MiniFloat(8, 4, 3, 7, "ieee"),
    "float8_e4m3b11fnuz": MiniFloat(8, 4, 3, 11, "fnuz"),
    "float8_e4m3fn": MiniFloat(8, 4, 3, 7, "fn"),
    "float8_e4m3fnuz": MiniFloat(8, 4, 3, 8, "fnuz"),
    "float8_e5m2": MiniFloat(8, 5, 2, 15, "ieee"),
    "float8_e5m2fnuz": MiniFloat(8, 5, 2, 16, "fnuz"),
    "float8_e8m0fnu": MiniFloat(8, 8, 0, 127, "scale"),
}


def named_float(word: str) -> float | None:
    """Return the number for a word of JSON's writers or of Python's (`NaN`, `-Infinity`, `inf`); None for any other text."""
    return float(word.lstrip("-") if word.casefold() == "-nan" else word) if _WORD.fullmatch(word) is not None else None


def spell_float(value: float) -> JSON:
    """Return a number as Zarr spells it in JSON."""
    return value if math.isfinite(value) else "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def decode_minifloat(code: int, form: MiniFloat) -> float:
    """Return the number that a bit pattern stands for."""
    magnitude = code & ((1 << (form.exponent + form.mantissa)) - 1)
    exponent, mantissa = magnitude >> form.mantissa, magnitude & ((1 << form.mantissa) - 1)
    top = (1 << form.exponent) - 1
    if form.specials == "scale":
        return math.nan if code == top else math.ldexp(1.0, exponent - form.bias)
    negative = bool(code >> (form.exponent + form.mantissa))
    if form.specials == "fnuz" and negative and not magnitude:
        return math.nan
    if form.specials == "ieee" and exponent == top:
        return math.nan if mantissa else -math.inf if negative else math.inf
    if form.specials == "fn" and magnitude == (1 << (form.exponent + form.mantissa)) - 1:
        return math.nan
    significand = mantissa / (1 << form.mantissa) + (1 if exponent else 0)
    value = math.ldexp(significand, max(exponent, 1) - form.bias)
    return -value if negative else value


def encode_minifloat(value: float, name: str) -> bytes:
    """Return the nearest number of the type `name` (ties to even) as little-endian bytes.

    Raises ValueError if the type has no such number. bfloat16 is the upper half of a float32.
    """
    if name == "bfloat16":
        return _bfloat16(value)
    codes = _codes(name)
    if math.isnan(value):
        wanted = [code for code, number in codes if math.isnan(number)]
        if not wanted:
            raise ValueError(f"{name} has no NaN")
        form = MINIFLOATS[name]
        quiet = ((1 << form.exponent) - 1) << form.mantissa | 1 << max(form.mantissa - 1, 0)
        return bytes([quiet if quiet in wanted else wanted[0]])
    if math.isinf(value):
        for code, number in codes:
            if number == value:
                return bytes([code])
        raise ValueError(f"{name} has no infinity")
    near = [
        (abs(number - value), code & 1, _sign(number) != _sign(value), code)
        for code, number in codes
        if math.isfinite(number)
    ]
    return bytes([min(near)[3]])


def _codes(name: str) -> tuple[tuple[int, float], ...]:
    form = MINIFLOATS[name]
    return tuple((code, decode_minifloat(code, form)) for code in range(1 << form.bits))


def _sign(value: float) -> bool:
    return math.copysign(1.0, value) < 0


def _bfloat16(value: float) -> bytes:
    try:
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
    except OverflowError:
        raise ValueError(f"{value} is too large for bfloat16") from None
    if math.isnan(value):
        return struct.pack("<H", 0x7FC0)
    return struct.pack("<H", min(bits + 0x7FFF + (bits >> 16 & 1), 0xFFFFFFFF) >> 16)
