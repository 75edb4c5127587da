"""Values of attributes, as they are found: numbers, lists and texts that make sense, and None for all else. Pure."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeGuard

from fsbridge.metadata import JSON


def is_finite(value: JSON) -> TypeGuard[float]:
    """True if a value is a finite number that a double can hold. Integers in JSON may be too large for one."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def text(value: object) -> str | None:
    """Return a JSON value if it is text; None if it is something else, empty, or contains lone surrogates."""
    if not isinstance(value, str):
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return None
    return value or None


def single(value: JSON) -> JSON:
    """Return the only element of a list of one, else the value itself: netCDF writes a number as such a list."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def finite(value: JSON) -> float | None:
    """Return a finite number as a float; None for any other value."""
    return float(value) if is_finite(value) else None


def numbers(value: JSON, rank: int) -> list[float] | None:
    """Return a list of `rank` finite numbers; None for any other value."""
    if not isinstance(value, list) or len(value) != rank or not rank or not all(map(is_finite, value)):
        return None
    return [float(item) for item in value]


def one_each(value: JSON, rank: int) -> Sequence[JSON]:
    """Return a list with one entry for each axis: the value, if it is such a list, else `rank` times None."""
    return value if isinstance(value, list) and len(value) == rank else [None] * rank


def dicts(holder: JSON, name: str) -> Iterator[Mapping[str, JSON]]:
    """Yield the objects in the list `name` of an object; nothing if there is no such list."""
    values = holder.get(name) if isinstance(holder, Mapping) else None
    yield from (value for value in values if isinstance(value, dict)) if isinstance(values, list) else ()


WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""Numbers that JSON cannot write, by the text that stands for them in attributes."""


def number(written: JSON, real: bool) -> int | float | None:
    """Return the number that an attribute contains, as elements have it; None if it contains none of that kind.

    `real`: the elements are real numbers; else they are whole numbers.
    """
    value = single(written)
    if real and isinstance(value, str):
        value = WORDS.get(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or (not real and value != value // 1):
        return None
    try:
        return float(value) if real else _element(int(value))
    except OverflowError:
        return None


def _element(value: int) -> int | None:
    """Return a whole number if some element type can hold it, else None. Numbers in JSON may have hundreds of digits."""
    return value if -(2**63) <= value < 2**64 else None


def place(value: JSON) -> tuple[bool, tuple[str, ...]] | None:
    """Return where a reference, or a text that is a path, leads; None if the value is neither.

    The result tells whether the path begins at the root, and has the names on it. References are objects with a path, as the
    HDF5 format and hdmf-zarr write them.
    """
    for name in ("_REFERENCE", "value"):
        value = value.get(name, value) if isinstance(value, Mapping) else value
    written = text(value.get("path")) if isinstance(value, Mapping) else text(value)
    names = tuple([name for name in (written or "").split("/") if name])
    if written is None or not names or ".." in names:
        return None
    return written.startswith("/"), names
