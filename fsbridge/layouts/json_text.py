"""Documents as text: strict JSON, laid out for people; and an array's fill value in JSON.

Zarr v3 spells fill values as numbers, bytes and compounds in base64. Spellings beyond those of its core specification are
the ones that zarr-python 3.1 and later open. Here, too: what Zarr v2 spells in the same way. Pure. Not here: where Zarr v2
differs (`zarr2.py`), what any document says (the layouts).
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any, TypeAlias

import numpy as np

from fsbridge.errors import CorruptData, TooLarge
from fsbridge.metadata import JSON, ArrayMetadata, DataType

_JOINED_PIECES = 10_000
"""Number of text pieces joined in one step, because a list of a million pieces takes more memory than the document."""

_ONE_LINE = 16
"""Members of a list or object that stay together on one line."""

_Scalars: TypeAlias = Mapping[type, Callable[[JSON], str]]
"""Functions that write values other than lists and objects, by the value's type."""


def encode(document: JSON) -> bytes:
    """Return strict JSON in UTF-8. NaN and infinities become the strings that Zarr uses for them.

    If any text contains lone surrogates, which UTF-8 cannot encode, the whole document is ASCII with escapes.
    """
    try:
        return _encode(document, _UNICODE)
    except UnicodeEncodeError:  # JSON allows lone surrogates only as escapes
        return _encode(document, _ASCII)


def _encode(value: JSON, scalars: _Scalars) -> bytes:
    text, pieces = bytearray(), list[str]()
    _write(value, "\n", scalars, pieces, text)
    pieces.append("\n")
    text += "".join(pieces).encode()
    return bytes(text)


def _write(value: JSON, newline: str, scalars: _Scalars, pieces: list[str], text: bytearray) -> None:
    """Write indented JSON. The innermost lists and objects are on one line each, as a person would write a shape."""
    write = scalars.get(type(value))
    if write is not None:
        pieces.append(write(value))
        return
    line = _one_line(value, scalars) if isinstance(value, list | tuple | Mapping) else _write_derived(value, scalars)
    if line is not None:
        pieces.append(line)
        return
    named, deeper = isinstance(value, Mapping), f"{newline}  "
    before = "{" if named else "["
    for member in value:
        start = f"{before}{deeper}{scalars[str](str(member))}: " if named else before + deeper
        if named:
            member = value[member]
        write = scalars.get(type(member))
        if write is not None:
            pieces.append(start + write(member))
        else:
            pieces.append(start)
            _write(member, deeper, scalars, pieces, text)
        before = ","
        if len(pieces) > _JOINED_PIECES:
            text += "".join(pieces).encode()
            pieces.clear()
    pieces.append(newline + ("}" if named else "]"))


def _one_line(value: JSON, scalars: _Scalars) -> str | None:
    """Return the text of a list or object if it fits on one line; else None."""
    if isinstance(value, Mapping):
        if len(value) > _ONE_LINE or not all(type(member) in scalars for member in value.values()):
            return None
        quote = scalars[str]
        return (
            "{" + ", ".join([f"{quote(str(key))}: {scalars[type(member)](member)}" for key, member in value.items()]) + "}"
        )
    if len(value) > _ONE_LINE or not all(type(member) in scalars for member in value):
        return None
    return "[" + ", ".join([scalars[type(member)](member) for member in value]) + "]"


def _write_derived(value: JSON, scalars: _Scalars) -> str:
    """Write a value of a class derived from one of JSON's types, such as numpy's float64. TypeError for any other value."""
    for kind in (str, int, float):
        if isinstance(value, kind):
            return scalars[kind](value)
    raise TypeError(f"{type(value).__name__} is no JSON")


def _float(value: float) -> str:
    if math.isfinite(value):
        return float.__repr__(value)
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


_UNICODE: _Scalars = {
    str: encode_basestring,
    int: int.__repr__,
    float: _float,
    bool: {True: "true", False: "false"}.__getitem__,
    type(None): {None: "null"}.__getitem__,
}
_ASCII: _Scalars = {**_UNICODE, str: encode_basestring_ascii}


_RAW_BITS = re.compile(r"r[1-9][0-9]*")

SPELLED_BYTES = 16 << 20
"""Largest element, in bytes, for which a fill value of zeros is written in full.

For larger texts and opaque elements the empty text is written, which readers pad. Other types are refused.
"""


def spell_fill(metadata: ArrayMetadata) -> JSON:
    """Return the `fill_value` member.

    For an array without a fill value it is the zeros or the empty text that it is filled with.
    """
    return fill_value(metadata.dtype, metadata.fill) if metadata.fill_spelling is None else metadata.fill_spelling


def fill_value(dtype: DataType, fill: bytes | str | None) -> JSON:
    """Return the `fill_value` member. `fill`: one element's bytes, or the element itself if it has a variable length."""
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
        raise TooLarge(f"the document would have a fill value of {dtype.itemsize} bytes (data type {name})")
    raw = _raw(fill, bytes(dtype.itemsize))
    if _RAW_BITS.fullmatch(name):
        return list(raw)
    if dtype.numpy is None or dtype.numpy.kind in "SV" or dtype.numpy.names is not None:
        return in_base64(raw)
    return scalar(raw, dtype.numpy, partial(_with_payload, dtype.endian))


def scalar(raw: bytes, dtype: np.dtype[Any], real: Callable[[Any, bytes], JSON]) -> JSON:
    """Spell one element from its bytes `raw`. `real` spells one floating-point number; a complex element has two."""
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
    """Return a floating-point number for JSON: the number if it is finite, else its name, such as `NaN`."""
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
        raise CorruptData(f"the fill value is the text {fill[:40]!r}, but the elements are no text")
    return default if fill is None else fill


def text(fill: bytes | str | None) -> str:
    """Return a fill value of text; the empty text if there is none."""
    return fill if isinstance(fill, str) else (fill or b"").decode("utf-8", "replace")


def in_base64(raw: bytes) -> str:
    """Return bytes in base64."""
    return base64.b64encode(raw).decode("ascii")
