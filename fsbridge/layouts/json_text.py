"""Documents as text: strict JSON, laid out for people. Not here: what any document says (the layouts)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping

from fsbridge.model import JSON

_PIECES = 10_000
"""Pieces of text that are joined at a time: a million at once would take more memory than the document."""

_ONE_LINE = 16
"""Members of a list or object that stay together on one line."""


_PLAIN = frozenset((str, int, bool, type(None)))
"""Types whose values are strict JSON as they are: most values of a document."""

_ENCODERS = {ascii_only: json.JSONEncoder(ensure_ascii=ascii_only, allow_nan=False).encode for ascii_only in (False, True)}
"""Made once: `json.dumps` makes an encoder for every value."""


def encode(document: JSON) -> bytes:
    """Strict JSON: NaN and infinities as the strings that Zarr uses for them; text as UTF-8 where it is text."""
    plain = strict(document)
    try:
        return _encoded(plain, _ENCODERS[False])
    except UnicodeEncodeError:  # lone surrogates are legal in JSON only as escapes
        return _encoded(plain, _ENCODERS[True])


def _encoded(value: JSON, encoder: Callable[[JSON], str]) -> bytes:
    text, pieces = bytearray(), list[str]()
    _write(value, "\n", encoder, pieces, text)
    pieces.append("\n")
    text += "".join(pieces).encode()
    return bytes(text)


def _write(value: JSON, newline: str, encoder: Callable[[JSON], str], pieces: list[str], text: bytearray) -> None:
    """Indented JSON with innermost lists and objects on one line, as a person would write a shape."""
    if not isinstance(value, dict | list) or not value or not _spreads(value.values() if isinstance(value, dict) else value):
        pieces.append(encoder(value))
        return
    deeper = f"{newline}  "
    before = "{" if isinstance(value, dict) else "["
    for member in value:
        if isinstance(value, dict):
            pieces.append(f"{before}{deeper}{encoder(member)}: ")
            _write(value[member], deeper, encoder, pieces, text)
        else:
            pieces.append(before + deeper)
            _write(member, deeper, encoder, pieces, text)
        before = ","
        if len(pieces) > _PIECES:
            text += "".join(pieces).encode()
            pieces.clear()
    pieces.append(newline + ("}" if isinstance(value, dict) else "]"))


def _spreads(members: Collection[JSON]) -> bool:
    """Whether a list or object of these members takes several lines."""
    return len(members) > _ONE_LINE or not all(type(member) in _PLAIN or isinstance(member, float) for member in members)


def strict(value: JSON) -> JSON:
    """The same value with NaN and infinities as strings, mappings as dictionaries and tuples as lists."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {str(key): strict(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [strict(member) for member in value]
    if isinstance(value, Mapping):
        return {str(key): strict(member) for key, member in value.items()}
    return value
