"""Documents as text: strict JSON, laid out for people. Not here: what any document says (the layouts)."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import TypeAlias, TypeGuard

from fsbridge.metadata import JSON

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
        return _encoded(document, _UNICODE)
    except UnicodeEncodeError:  # lone surrogates are legal in JSON only as escapes
        return _encoded(document, _ASCII)


def is_finite(value: JSON) -> TypeGuard[float]:
    """True if a value is a finite number that a double can hold. Integers in JSON may be too large for one."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _encoded(value: JSON, scalars: _Scalars) -> bytes:
    text, pieces = bytearray(), list[str]()
    _write(value, "\n", scalars, pieces, text)
    pieces.append("\n")
    text += "".join(pieces).encode()
    return bytes(text)


def _write(value: JSON, newline: str, scalars: _Scalars, pieces: list[str], text: bytearray) -> None:
    """Indented JSON with innermost lists and objects on one line, as a person would write a shape."""
    write = scalars.get(type(value))
    if write is not None:
        pieces.append(write(value))
        return
    line = _one_line(value, scalars) if isinstance(value, list | tuple | Mapping) else _derived(value, scalars)
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


def _derived(value: JSON, scalars: _Scalars) -> str:
    """Write a value with a type derived from one of JSON's types, such as numpy's float64. TypeError for all others."""
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
