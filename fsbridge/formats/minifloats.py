"""Small floating point types: the bit patterns of numbers, for fill values. Not here: conversion of array data.

The formats are those of ml_dtypes and of the OCP "Microscaling formats" specification 1.0, under the names that
zarr-extensions registers; TensorStore 0.1.86 writes bfloat16, float8_* and float4_e2m1fn.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal


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


FORMATS: Mapping[str, MiniFloat] = {
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


def decode(code: int, form: MiniFloat) -> float:
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


def encode(value: float, name: str) -> bytes:
    """Return the nearest number of the type `name` (ties to even) as little-endian bytes. Raises ValueError if it has none.

    bfloat16 is the upper half of a float32.
    """
    if name == "bfloat16":
        return _bfloat16(value)
    codes = _codes(name)
    if math.isnan(value):
        wanted = [code for code, number in codes if math.isnan(number)]
        if not wanted:
            raise ValueError(f"{name} has no NaN")
        form = FORMATS[name]
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


@cache
def _codes(name: str) -> tuple[tuple[int, float], ...]:
    form = FORMATS[name]
    return tuple((code, decode(code, form)) for code in range(1 << form.bits))


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
