"""hdmf-zarr's datasets of references in Zarr v2, as plain types: each reference becomes the path that it leads to.

An array of references (`|O`) becomes an array of strings. A struct with reference fields keeps its other fields, and each
reference field becomes text of fixed width: `PATH_CHARACTERS` UTF-32 characters, as hdmf-zarr >= 0.14 itself writes (its
COMPOUND_DTYPE_MIN_STRING_LENGTH). A longer path is Unsupported and never cut.

Source: files written by hdmf-zarr 0.13, with filter `pickle`, or with `json2` on request. Zarr v3 files (>= 0.14) hold
paths already. Not here: reading the pickle language (`unpickle.py`), links and groups (the package's face).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fsbridge.codecs import Buffer, Decoder, objects
from fsbridge.errors import CorruptData, TooLarge, Unsupported
from fsbridge.formats import dtypes
from fsbridge.metadata import DataType

PATH_CHARACTERS = 512
"""Characters of a reference field in a struct."""


def make_pickled(stored: np.dtype[Any], items: int, native: str) -> tuple[DataType, Decoder]:
    """Return the type that is shown for elements of type `stored`, and the decoder of their pickled chunk.

    Elements are objects, or structs with objects. `items` is the number of elements of a chunk, `native`
    the source's name of the type.
    """
    if stored.fields is None:
        return replace(dtypes.STRING, native=native), PickledPaths(items)
    shown = _replace_references(stored)
    references = tuple(field.hasobject for field, *_ in stored.fields.values())
    return dtypes.data_type(shown, native), PickledStructs(items, shown, references)


def make_json(native: str, json2: Decoder) -> tuple[DataType, Decoder]:
    """Return the type that is shown for references in JSON, and the decoder that makes paths of the texts of `json2`."""
    return replace(dtypes.STRING, native=native), JSONPaths(json2)


def _replace_references(stored: np.dtype[Any]) -> np.dtype[Any]:
    """Return the struct with text in place of references, little-endian."""
    described: list[tuple[str, Any]] = []
    for name in stored.names or ():
        field = stored[name]
        if field.kind not in "biufcSUmMO":
            raise Unsupported(f"fields of {field} in a pickled struct are not read")
        described.append((name, f"<U{PATH_CHARACTERS}" if field.hasobject else field.newbyteorder("<")))
    return np.dtype(described)


@dataclass(frozen=True, slots=True)
class PickledPaths(Decoder):
    """Decodes a pickled array of references to `vlen-utf8`."""

    items: int
    name: str = "pickle"

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        return objects.encode((_encode(_read_path(element)) for element in _read_elements(data, self.items)), None, limit)


@dataclass(frozen=True, slots=True)
class PickledStructs(Decoder):
    """Decodes a pickled array of structs with references to packed structs of type `stored`."""

    items: int
    stored: np.dtype[Any]
    references: tuple[bool, ...]
    name: str = "pickle"

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        elements = _read_elements(data, self.items)
        if len(elements) * self.stored.itemsize > limit:
            raise TooLarge(f"{len(elements)} structs of {self.stored.itemsize} bytes, the limit is {limit}")
        rows = [self._row(element) for element in elements]
        try:
            return np.array(rows, self.stored).tobytes()
        except (TypeError, ValueError, OverflowError):
            raise CorruptData(f"pickled structs do not fit the data type {self.stored}") from None

    def _row(self, element: Any) -> tuple[Any, ...]:
        if not isinstance(element, tuple) or len(element) != len(self.references):
            raise CorruptData(f"an element is not a struct of {len(self.references)} fields")
        return tuple(
            _read_fixed_path(value) if reference else value
            for value, reference in zip(element, self.references, strict=True)
        )


@dataclass(frozen=True, slots=True)
class JSONPaths(Decoder):
    """Decodes JSON documents of references to their paths (`vlen-utf8`)."""

    json2: Decoder
    name: str = "json2"

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        texts = (str(item, "utf-8") for item in objects.split(self.json2.decode(data, None, limit, None)))
        return objects.encode((_encode(_read_path(_parse(text))) for text in texts), None, limit)


def _parse(text: str) -> Any:
    if not text.startswith("{"):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise CorruptData(f"{text[:60]!r} is not a reference") from None


def _read_elements(data: Buffer, items: int) -> Sequence[Any]:
    from fsbridge.formats.hdmf.unpickle import read_object_array  # not at the top: no other store needs it

    array = read_object_array(data)
    if len(array.elements) != items:
        raise CorruptData(f"a pickle of {len(array.elements)} elements where the chunk has {items}")
    return array.elements


def _read_path(element: Any) -> str:
    """Return the path of a reference. Text is a path already; None, and 0 (Zarr's fill value), are the empty path."""
    if isinstance(element, dict):
        element = element.get("path")
        if not isinstance(element, str):
            raise Unsupported("a dictionary is not a reference: it has no path")
        return element
    if isinstance(element, str):
        return element
    if element is None or (type(element) is int and element == 0):
        return ""
    raise Unsupported(f"a {type(element).__name__} is in place of a reference")


def _read_fixed_path(element: Any) -> str:
    path = _read_path(element)
    if len(path) > PATH_CHARACTERS or path.endswith("\0"):
        raise Unsupported(f"a reference to a path of {len(path)} characters; a struct's field has {PATH_CHARACTERS}")
    return path


def _encode(path: str) -> bytes:
    try:
        return path.encode()
    except UnicodeEncodeError:
        raise CorruptData(f"{path[:60]!r} is not valid text") from None
