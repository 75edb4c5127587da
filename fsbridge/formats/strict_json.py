"""The only parser of stored JSON: strict, within limits, with typed getters. Not here: the meaning of any field.

Strict: one UTF-8 text, no duplicate keys, limited depth and size. Tolerated because real writers do it: the bare tokens
`NaN`, `Infinity` and `-Infinity` (zarr-python 2 and 3 in user attributes), a byte order mark.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import NamedTuple, NoReturn

import numpy as np

from fsbridge.config import MIB, Limits
from fsbridge.errors import CorruptData, TooLarge
from fsbridge.metadata import JSON, MAX_RANK
from fsbridge.threads.forking import make_lock

MAX_INTEGER = 2**64 - 1
"""The largest integer that any field of any format holds (a uint64 fill value)."""

EXACT_FLOAT = 2**53
"""The largest number up to which each integer is a double of its own, so that `7.0` can only mean 7."""

FEW_VALUES = 10_000
"""A document with at most this many separators and brackets is not measured exactly.

It is measured all the same if it has more opening brackets than may be nested.
"""

LARGE_VALUES = 100_000
"""Documents with more values than this are parsed one at a time, to limit the memory."""

_large = make_lock()


class Fields:
    """The members of a JSON object. Its methods return a value of the type asked for, or raise CorruptData."""

    __slots__ = ("place", "values")

    def __init__(self, values: Mapping[str, JSON], place: str) -> None:
        self.values = values
        self.place = place

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def fail(self, name: str, reason: str) -> NoReturn:
        """Raise CorruptData that names the field `name` and says the `reason`."""
        raise CorruptData(f"{self.place}: {name!r} {reason}")

    def value(self, name: str) -> JSON:
        """Return the field unchecked. Raises CorruptData if it is missing."""
        try:
            return self.values[name]
        except KeyError:
            self.fail(name, "is missing")

    def integer(self, name: str, least: int = 0, most: int = MAX_INTEGER) -> int:
        """Return an integer in [least, most]. `7.0` counts as one, because JavaScript and Lua write so; `true` does not."""
        return self._integer(name, self.value(name), least, most)

    def integers(self, name: str, least: int = 0, most: int = 2**63 - 1, length: int | None = None) -> tuple[int, ...]:
        """Return a list of at most MAX_RANK integers in [least, most], or of exactly `length` if given."""
        values = self.sequence(name)
        if len(values) > MAX_RANK:
            self.fail(name, f"has {len(values)} entries, the limit is {MAX_RANK}")
        if length is not None and len(values) != length:
            self.fail(name, f"has {len(values)} entries where {length} are needed")
        return tuple(self._integer(name, value, least, most) for value in values)

    def string(self, name: str) -> str:
        value = self.value(name)
        if not isinstance(value, str):
            self.fail(name, f"is {kind(value)}, not a string")
        return value

    def choice(self, name: str, choices: Sequence[str], default: str | None = None) -> str:
        """Return a string that is one of `choices`, or `default` if the field is missing."""
        if default is not None and name not in self.values:
            return default
        value = self.string(name)
        if value not in choices:
            self.fail(name, f"is {value[:60]!r}, not one of {', '.join(map(repr, choices))}")
        return value

    def sequence(self, name: str) -> list[JSON]:
        value = self.value(name)
        if not isinstance(value, list):
            self.fail(name, f"is {kind(value)}, not a list")
        return value

    def mapping(self, name: str) -> dict[str, JSON]:
        """Return the field as a plain JSON object with unchecked members."""
        value = self.value(name)
        if not isinstance(value, dict):
            self.fail(name, f"is {kind(value)}, not an object")
        return value

    def fields(self, name: str) -> Fields:
        """Return the field as a JSON object for further parsing."""
        return Fields(self.mapping(name), f"{self.place}: {name}")

    def _integer(self, name: str, value: JSON, least: int, most: int) -> int:
        if isinstance(value, float) and value.is_integer() and abs(value) <= EXACT_FLOAT:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(name, f"holds {kind(value)} where an integer is needed")
        if not least <= value <= most:
            wanted = f"outside [{least}, {most}]" if least < most else f"and not {least}"
            self.fail(name, f"holds {value if abs(value) < 2**70 else 'a number'} {wanted}")
        return value


def parse(data: bytes, place: str, limits: Limits) -> JSON:
    """Parse one JSON value. Raises CorruptData if it is not strict, too long or too deep, TooLarge for too many values."""
    if len(data) > limits.document:
        raise CorruptData(f"{place}: the document has {len(data)} bytes, the limit is {limits.document}")
    size = measure(data, limits)
    if size.depth > limits.json_depth:
        raise CorruptData(f"{place}: the JSON is nested deeper than {limits.json_depth}")
    if size.values > limits.json_values:
        raise TooLarge(f"{place}: the JSON has {size.values} values, the limit is {limits.json_values}")
    try:
        with _large if size.values > LARGE_VALUES else nullcontext():
            value: JSON = _DECODER.decode(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        if bytes(data[:2]) == b"\x1f\x8b":  # S3 sends what was stored with "Content-Encoding: gzip" as it was stored
            raise CorruptData(f"{place}: it is compressed with gzip, and so no JSON: store it as it is") from None
        raise CorruptData(f"{place}: it is not UTF-8 text (byte {error.start})") from None
    except RecursionError:
        raise CorruptData(f"{place}: the JSON is nested deeper than {limits.json_depth}") from None
    except ValueError as error:  # JSONDecodeError, duplicate keys, integers of thousands of digits
        raise CorruptData(f"{place}: it is no valid JSON: {str(error)[:200]}") from None
    return value


def parse_object(data: bytes, place: str, limits: Limits) -> dict[str, JSON]:
    """Parse a document that must be a JSON object. Raises the errors of `parse`."""
    value = parse(data, place, limits)
    if not isinstance(value, dict):
        raise CorruptData(f"{place}: the document is {kind(value)}, not an object")
    return value


def parse_again(data: bytes) -> dict[str, JSON]:
    """Parse an object that `parse_object` has accepted before."""
    value: dict[str, JSON] = _DECODER.decode(data.decode("utf-8-sig"))
    return value


def kind(value: JSON) -> str:
    """Return the type of a JSON value, for messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    names = {int: "an integer", float: "a number", str: "a string", list: "a list", dict: "an object"}
    return names.get(type(value), type(value).__name__)


def _unique(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    values = dict(pairs)
    if len(values) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"the key {name[:60]!r} occurs twice")
            seen.add(name)
    return values


_DECODER = json.JSONDecoder(object_pairs_hook=_unique)
"""One decoder for all documents, because `json.loads` would make one for each."""


class Measure(NamedTuple):
    """Upper bounds for a document: `values` is the number of values and names, `depth` the depth of nesting."""

    values: int
    depth: int


def measure(data: bytes, limits: Limits) -> Measure:
    """Count the values that parsing `data` would make, without parsing it.

    In invalid JSON, only the part before the error counts.
    """
    opening = data.count(b"[") + data.count(b"{")
    most = data.count(b",") + data.count(b":") + opening + 1
    if opening <= limits.json_depth and most <= FEW_VALUES:
        return Measure(most, opening)
    # Without escapes every quote begins or ends a string.
    text = np.frombuffer(data.replace(b"\\\\", b"").replace(b'\\"', b""), np.uint8)
    values = deepest = 1
    inside = depth = 0
    for start in range(0, len(text), MIB):
        part = text[start : start + MIB]
        quoted = np.bitwise_xor.accumulate(part == ord('"')) ^ bool(inside)
        part = np.where(quoted, 0, part)
        opened, closed = (part == ord("[")) | (part == ord("{")), (part == ord("]")) | (part == ord("}"))
        nesting = depth + np.cumsum(opened.astype(np.int32) - closed)
        values += int(np.count_nonzero(opened | (part == ord(",")) | (part == ord(":"))))
        deepest = max(deepest, int(nesting.max()))
        inside, depth = int(quoted[-1]), int(nesting[-1])
    return Measure(values, deepest)
