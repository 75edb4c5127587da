"""An array's fill value in JSON, as Zarr v3 spells it: numbers as numbers, bytes and compounds in base64.

Pure. Spellings beyond those of the Zarr v3 core specification are the ones that zarr-python 3.1 and later open. Here, too:
what Zarr v2 spells in the same way. Not here: where it does not (`zarr2/documents.py`).
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from fsbridge.errors import CorruptData, TooLarge
from fsbridge.metadata import JSON, ArrayMetadata, DataType

_RAW_BITS = re.compile(r"r[1-9][0-9]*")

SPELLED_BYTES = 16 << 20
"""Largest element, in bytes, for which a fill value of zeros is written in full.

For larger texts and opaque elements the empty text is written, which readers pad. Other types are refused.
"""


def spelled_fill(metadata: ArrayMetadata) -> JSON:
    """Return the `fill_value` member. An array without a fill value gets the zeros or the empty text that fill it."""
    return fill_value(metadata.dtype, metadata.fill) if metadata.fill_spelling is None else metadata.fill_spelling


def fill_value(dtype: DataType, fill: bytes | str | None) -> JSON:
    """The `fill_value` member for `fill` (one element's bytes, or the element itself for variable length)."""
    if dtype.serializer == "optional":
        return None
    if dtype.serializer == "vlen-utf8":
        return text(fill)
    if dtype.serializer == "vlen-bytes":
        return in_base64(_raw(fill, b""))
    name = dtype.name if isinstance(dtype.name, str) else dtype.name["name"]
    if fill is None and dtype.itemsize > SPELLED_BYTES:
        if name in ("raw_bytes", "null_terminated_bytes", "fixed_length_utf32"):
            return ""
        raise TooLarge(f"elements of {dtype.itemsize} bytes of data type {name}, whose fill value would be as large")
    raw = _raw(fill, bytes(dtype.itemsize))
    if _RAW_BITS.fullmatch(name):
        return list(raw)
    if dtype.numpy is None or dtype.numpy.kind in "SV" or dtype.numpy.names is not None:
        return in_base64(raw)
    return scalar(raw, dtype.numpy, partial(_with_payload, dtype.endian))


def scalar(raw: bytes, dtype: np.dtype[Any], real: Callable[[Any, bytes], JSON]) -> JSON:
    """Spell one element from its bytes `raw`. `real` spells a floating-point number; a complex number has two."""
    value = np.frombuffer(raw, dtype)[0]
    kind = dtype.kind
    if kind == "b":
        return bool(value)
    if kind in "iu":
        return int(value)
    if kind in "mM":
        return int(value.astype(np.int64))
    if kind == "f":
        return real(value, raw)
    if kind == "c":
        half = len(raw) // 2
        return [real(value.real, raw[:half]), real(value.imag, raw[half:])]
    if kind == "U":
        return str(value)
    raise CorruptData(f"a fill value of data type {dtype} has no JSON form")


def number(value: float) -> JSON:
    """A floating-point number; JSON has no others than finite ones."""
    if math.isnan(value):
        return "NaN"
    return value if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"


def _with_payload(endian: str | None, value: Any, raw: bytes) -> JSON:
    if not math.isnan(float(value)):
        return number(float(value))
    bits = raw if endian == "big" else raw[::-1]
    quiet = np.array(np.nan, value.dtype.newbyteorder(">")).tobytes()
    return "NaN" if bits == quiet else "0x" + bits.hex()  # other NaNs keep their payload, most significant digit first


def _raw(fill: bytes | str | None, default: bytes) -> bytes:
    if isinstance(fill, str):
        raise CorruptData(f"a text {fill[:40]!r} as fill value of elements that are no text")
    return default if fill is None else fill


def text(fill: bytes | str | None) -> str:
    """An element of text; none at all: the empty one."""
    return fill if isinstance(fill, str) else (fill or b"").decode("utf-8", "replace")


def in_base64(raw: bytes) -> str:
    """Bytes in base64."""
    return base64.b64encode(raw).decode("ascii")
