"""`NAME.json`: what an array is, which files there are of it, and how to read the raw one. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fsbridge.layouts.files.arrays.extents import View
from fsbridge.layouts.files.filetypes import FILE_TYPES, Alike, reasons
from fsbridge.layouts.json_text import encode, spelled_fill
from fsbridge.metadata import JSON, Axis

_C_TYPES = {"i1": "int8_t", "i2": "int16_t", "i4": "int32_t", "i8": "int64_t", "u1": "uint8_t", "u2": "uint16_t",
            "u4": "uint32_t", "u8": "uint64_t", "f4": "float", "f8": "double", "b1": "uint8_t"}  # fmt: skip
_MATLAB_TYPES = {"i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64", "u1": "uint8", "u2": "uint16",
                 "u4": "uint32", "u8": "uint64", "f4": "single", "f8": "double", "b1": "uint8"}  # fmt: skip
_R_TYPES = {"i1": "integer", "i2": "integer", "i4": "integer", "u1": "integer", "u2": "integer", "f4": "double",
            "f8": "double"}  # fmt: skip
_IMAGEJ_TYPES = {"u1": "8-bit", "i2": "16-bit Signed", "u2": "16-bit Unsigned", "i4": "32-bit Signed",
                 "u4": "32-bit Unsigned", "f4": "32-bit Real", "f8": "64-bit Real"}  # fmt: skip


_PLAIN = re.compile(r"[A-Za-z0-9_.-]+")
"""Names that are spelled alike in JSON, Python and C."""

_PLACEHOLDER = "\ua66e".encode()
"""Placeholder for a plain name in cached text. It is spelled the same way in JSON, Python and C, too."""

_NAMING = frozenset(("name", "files", "h5", "region", "raw"))
"""JSON members that contain the array's name. Their other text, such as field names, is also in members without it."""


def description(view: View, collisions: Sequence[str]) -> bytes:
    """The document. `collisions`: one sentence for each file name that something else has taken.

    Everything but the name, the axes and the attributes is made only once for similar arrays.
    """
    parts = None if collisions else _parts(Described(view))
    if parts is None:
        return _text(_document(view, collisions))
    around, axes, attributes = parts
    begin, between, end = (text.replace(_PLACEHOLDER, view.name.encode()) for text in around.texts)
    return b"".join((begin, axes, between, attributes, end))


class Length(NamedTuple):
    """Size of a description in bytes: `fixed` plus `named` times the length of the array's name."""

    fixed: int
    named: int

    def of(self, name: str) -> int:
        """Return the length for an array of that plain name."""
        return self.fixed + self.named * len(name)


def length(alike: Described) -> Length | None:
    """Return the length of the descriptions of all arrays that differ only in their names; None if it is not known."""
    parts = _parts(alike)
    if parts is None:
        return None
    around, axes, attributes = parts
    return Length(around.fixed + len(axes) + len(attributes), around.named)


def is_plain(name: str) -> bool:
    """True if the name is spelled the same way everywhere in an array's description, and every file type accepts it."""
    return _PLAIN.fullmatch(name) is not None and not name.startswith("LIST")


def _parts(alike: Described) -> tuple[_Around, bytes, bytes] | None:
    """Return the text around axes and attributes, and the text of both; None if the description must be made as a whole."""
    view = alike.view
    if not is_plain(view.name):
        return None
    try:
        return _around(alike), _compact(_axes(view)).encode(), _compact(dict(view.attributes)).encode()
    except (ValueError, TypeError):  # NaN is no JSON, lone surrogates are no UTF-8, some values cannot be compared
        return None


class _Around(NamedTuple):
    """The text before, between and behind axes and attributes in a description. `fixed`, `named`: see `Length`."""

    texts: tuple[bytes, bytes, bytes]
    fixed: int
    named: int


class Described(Alike):
    """A key for a view: equal keys differ at most in the name, in the axes' spacing and units, and in attributes."""

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.beside = (*self.beside, tuple([axis.name for axis in view.axes]), view.selection, view.metadata.fill)

    def _facts(self) -> tuple[object, ...]:
        metadata, dtype = self.view.metadata, self.view.metadata.dtype
        return (*super()._facts(), repr(metadata.fill_spelling), metadata.grid.edges, metadata.codec,
                metadata.refused, metadata.grid.shape, dtype.name, dtype.endian)  # fmt: skip


@lru_cache(maxsize=256)
def _around(key: Described) -> _Around:
    """Return the text that arrays equal to `key` share. ValueError if the description contains the placeholder."""
    view = key.view
    named_axes = tuple(Axis(axis.name) for axis in view.axes)
    bare = replace(view, name=_PLACEHOLDER.decode(), axes=named_axes, metadata=replace(view.metadata, attributes={}))
    members = _members(_document(bare, ()))
    if any(_PLACEHOLDER.decode() in text for name, text in members.items() if name not in _NAMING):
        raise ValueError("the description contains the placeholder")
    begin, axes, rest = _lines(members).encode().partition(b'\n  "axes": ')
    between, attributes, end = rest[rest.index(b",\n") :].partition(b'\n  "attributes": ')
    texts = begin + axes, between + attributes, end.removeprefix(b"{}")
    text = b"".join(texts)
    named = text.count(_PLACEHOLDER)
    return _Around(texts, len(text) - named * len(_PLACEHOLDER), named)


def _document(view: View, collisions: Sequence[str]) -> dict[str, JSON]:
    metadata, fits, file = view.metadata, reasons(view), view.file_name
    dtype = metadata.dtype
    document: dict[str, JSON] = {
        "name": view.name,
        "shape": list(view.shape),
        "dtype": spelled(view.dtype) if dtype.serializer == "bytes" else "|O",
        "data_type": dtype.name,
        "byte_order": dtype.endian,
        "order": "F" if view.fortran else "C",
        "axes": _axes(view),
        "fill_value": None if metadata.fill is None is metadata.fill_spelling else spelled_fill(metadata),
        "chunks": [list(edge) if isinstance(edge, tuple) else edge for edge in metadata.grid.edges],
        "codec": metadata.codec,
        "attributes": dict(metadata.shown_attributes()),
        "files": {suffix: f"{file}.{suffix}" for suffix in FILE_TYPES if fits[suffix] is None},
        "not_possible": {suffix: reason for suffix, reason in fits.items() if reason is not None},
        "pictures": _pictures(view),
        "h5": {"dataset": f"/{view.name}", "axes": "reversed" if view.fortran and view.x_first else "as in shape"},
        "region": f"'{file}[{','.join('0:1' for _ in view.shape)}].npy'" if view.shape else None,
        "raw": reading_lines(view) if fits["raw"] is None else {},
    }
    if metadata.refused:
        document["refused"] = metadata.refused
    if collisions:
        document["collisions"] = list(collisions)
    return document


def _axes(view: View) -> list[JSON]:
    return [{"name": axis.name, "unit": axis.unit, "scale": axis.scale, "offset": axis.offset} for axis in view.axes]


def _text(document: dict[str, JSON]) -> bytes:
    """Encode one line per member with the standard library, because it is fast and a listing encodes every array."""
    try:
        return _lines(_members(document)).encode()
    except (ValueError, TypeError):  # NaN is no JSON, and lone surrogates are no UTF-8
        return encode(document)


def _members(document: dict[str, JSON]) -> dict[str, str]:
    return {name: _compact(value) for name, value in document.items()}


def _lines(members: Mapping[str, str]) -> str:
    return "{\n" + ",\n".join([f'  "{name}": {text}' for name, text in members.items()]) + "\n}\n"


_compact = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def spelled(dtype: np.dtype[Any] | None) -> JSON:
    """Return the dtype as numpy spells it: `<u2`, or a list of fields; None if numpy has no such type."""
    if dtype is None:
        return None
    descr = np.lib.format.dtype_to_descr(dtype)
    return descr if isinstance(descr, str) else _listed(descr)


def _listed(value: Any) -> JSON:
    return [_listed(item) for item in value] if isinstance(value, list | tuple) else value


def _pictures(view: View) -> str:
    names = [axis.name or f"axis {i}" for i, axis in enumerate(view.axes)]
    return "slowest first: " + ", ".join(names[i] for i in view.picture) if names else "none"


def reading_lines(view: View) -> Mapping[str, JSON]:
    """Return code that reads the raw file, by language; only Python's if the name must be quoted in the others."""
    name, dtype = f"{view.file_name}.raw", view.dtype
    if dtype is None or dtype.names is not None:  # np.dtype takes fields as tuples
        kind = f"V{view.metadata.dtype.itemsize}" if dtype is None else np.lib.format.dtype_to_descr(dtype)
        return {"python": f"np.memmap({name!r}, {kind!r}, 'r', shape={tuple(view.shape)}, order={_order(view)!r})"}
    code = f"{dtype.kind}{dtype.itemsize}"
    fast_first = [str(view.shape[i]) for i in reversed(view.natural)] or ["1"]
    slow_first = "".join(f"[{view.shape[i]}]" for i in view.natural)
    big = dtype.byteorder == ">"
    lines: dict[str, JSON] = {
        "python": f"np.memmap({name!r}, {dtype.str!r}, 'r', shape={tuple(view.shape)}, order={_order(view)!r})"
    }
    if not view.file_name.isprintable() or any(char in view.file_name for char in "'\"\\"):
        return lines
    if code in _C_TYPES:
        swap = " /* big-endian */" if big else ""
        call = f'fread({"a" if slow_first else "&a"}, {dtype.itemsize}, {view.selection.size}, fopen("{name}", "rb"));'
        lines["c"] = f"{_C_TYPES[code]} a{slow_first}{swap}; {call}"
    if code in _MATLAB_TYPES:
        kind = _MATLAB_TYPES[code]
        sizes = ", ".join(fast_first if len(fast_first) > 1 else [*fast_first, "1"])
        lines["matlab"] = f"a = reshape(fread(fopen('{name}', 'r', '{'b' if big else 'l'}'), Inf, '*{kind}'), {sizes});"
    if code in _R_TYPES:
        what = (
            f"'{_R_TYPES[code]}', {view.selection.size}, {dtype.itemsize}{', signed=FALSE' if code in ('u1', 'u2') else ''}"
        )
        end = "big" if big else "little"
        lines["r"] = f'a <- array(readBin("{name}", {what}, endian="{end}"), c({", ".join(fast_first)}))'
    if code in _IMAGEJ_TYPES and len(view.shape) >= 2:
        count = int(np.prod([view.shape[i] for i in view.natural[:-2]], dtype=object))
        lines["imagej"] = (
            f"File > Import > Raw: {_IMAGEJ_TYPES[code]}, width {fast_first[0]}, height {fast_first[1]}, offset 0,"
            f" {count} images{'' if big else ', little-endian'}, virtual stack"
        )
    return lines


def _order(view: View) -> str:
    return "F" if view.fortran else "C"
