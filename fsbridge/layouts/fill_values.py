"""An array's fill value in JSON, as Zarr v3 spells it: numbers as numbers, bytes and compounds in base64.

Pure. Spellings beyond those of the Zarr v3 core specification are the ones that zarr-python 3.1 and later open.
"""

from __future__ import annotations

import base64
import math
import re
from typing import Any

import numpy as np

from fsbridge.errors import CorruptData
from fsbridge.metadata import JSON, ArrayMetadata, DataType

_RAW_BITS = re.compile(r"r[1-9][0-9]*")


def spelled_fill(metadata: ArrayMetadata) -> JSON:
    """The `fill_value` member; what fills an array without one is spelled, too."""
    return fill_value(metadata.dtype, metadata.fill) if metadata.fill_spelling is None else metadata.fill_spelling


def fill_value(dtype: DataType, fill: bytes | str | None) -> JSON:
    """The `fill_value` member for `fill` (one element's bytes, or the element itself for variable length)."""
    if dtype.serializer == "optional":
        return None
    if dtype.serializer == "vlen-utf8":
        return "" if fill is None else _text(fill)
    if dtype.serializer == "vlen-bytes":
        return _base64(_raw(fill, b""))
    raw = _raw(fill, bytes(dtype.itemsize))
    name = dtype.name if isinstance(dtype.name, str) else dtype.name["name"]
    if _RAW_BITS.fullmatch(name):
        return list(raw)
    if dtype.numpy is None or dtype.numpy.kind in "SV" or dtype.numpy.names is not None:
        return _base64(raw)
    return _scalar(np.frombuffer(raw, dtype.numpy)[0], raw, dtype)


def _scalar(value: Any, raw: bytes, dtype: DataType) -> JSON:
    kind = value.dtype.kind
    if kind == "b":
        return bool(value)
    if kind in "iu":
        return int(value)
    if kind in "mM":
        return int(value.astype(np.int64))
    if kind == "f":
        return _float(value, raw, dtype.endian)
    if kind == "c":
        half = len(raw) // 2
        return [_float(value.real, raw[:half], dtype.endian), _float(value.imag, raw[half:], dtype.endian)]
    if kind == "U":
        return str(value)
    raise CorruptData(f"a fill value of data type {dtype.native} has no JSON form")


def _float(value: Any, raw: bytes, endian: str | None) -> JSON:
    number = float(value)
    if not math.isnan(number):
        return number if math.isfinite(number) else ("Infinity" if number > 0 else "-Infinity")
    bits = raw if endian == "big" else raw[::-1]
    quiet = np.array(np.nan, value.dtype.newbyteorder(">")).tobytes()
    return "NaN" if bits == quiet else "0x" + bits.hex()  # other NaNs keep their payload, most significant digit first


def _raw(fill: bytes | str | None, default: bytes) -> bytes:
    if isinstance(fill, str):
        raise CorruptData(f"a text {fill[:40]!r} as fill value of elements that are no text")
    return default if fill is None else fill


def _text(fill: bytes | str) -> str:
    return fill if isinstance(fill, str) else fill.decode("utf-8", "replace")


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")
