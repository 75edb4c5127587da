"""Documents as text: strict JSON, laid out for people. Not here: what any document says (the layouts)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from itertools import islice

from fsbridge.model import JSON

_PIECES = 10_000

_ONE_LINE = 16
"""Members of a list or object that stay together on one line."""


def encode(document: JSON) -> bytes:
    """Strict JSON: NaN and infinities as the strings that Zarr uses for them; text as UTF-8 where it is text."""
    plain = strict(document)
    try:
        return _joined(_pieces(plain, "\n", ascii_only=False))
    except UnicodeEncodeError:  # lone surrogates are legal in JSON only as escapes
        return _joined(_pieces(plain, "\n", ascii_only=True))


def _joined(pieces: Iterator[str]) -> bytes:
    """Joined by and by: a million pieces at once would take more memory than the document."""
    text = bytearray()
    while some := "".join(islice(pieces, _PIECES)):
        text += some.encode()
    return bytes(text + b"\n")


def _pieces(value: JSON, newline: str, ascii_only: bool) -> Iterator[str]:
    """Indented JSON with innermost lists and objects on one line, as a person would write a shape."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if len(inner) > _ONE_LINE or any(isinstance(member, dict | list) for member in inner):
        deeper = newline + "  "
        opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
        for number, member in enumerate(value):
            yield (opening if number == 0 else ",") + deeper
            if isinstance(value, dict):
                yield json.dumps(member, ensure_ascii=ascii_only) + ": "
                member = value[member]
            yield from _pieces(member, deeper, ascii_only)
        yield newline + closing
    else:
        yield json.dumps(value, ensure_ascii=ascii_only, allow_nan=False)


def strict(value: JSON) -> JSON:
    """The same value with NaN and infinities as strings, mappings as dictionaries and tuples as lists."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(key): strict(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [strict(member) for member in value]
    return value
