"""`NAME.json`: what an array is, which files there are of it, and how to read the raw one. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from fsbridge.layouts.files.arrays.extents import View
from fsbridge.layouts.files.filetypes import FILE_TYPES, reasons
from fsbridge.layouts.json_text import encode, spell_fill
from fsbridge.meaning import Axis
from fsbridge.meaning.conventions.xarray import legible
from fsbridge.metadata import JSON

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


def make_description(view: View, collisions: Sequence[str]) -> bytes:
    """Return the bytes of `NAME.json`. `collisions`: one sentence for each file name that something else has taken."""
    document = _make_document(view, collisions)
    try:
        return _encode(document)
    except (ValueError, TypeError):  # NaN is no JSON, lone surrogates are no UTF-8, some values cannot be compared
        return encode(document)


def measure_without_attributes(view: View) -> int | None:
    """Return the size of `NAME.json` in bytes, not counting the text of the attributes; None if it is not compact JSON."""
    try:
        return len(_encode({**_make_document(view, ()), "attributes": {}})) - len("{}")
    except (ValueError, TypeError):
        return None


def measure_with_attributes(view: View, without: int | None) -> int:
    """Return the size of `NAME.json` in bytes.

    `without`: what `measure_without_attributes` returned for this view, or for one that differs only in its attributes.
    """
    if without is not None:
        with suppress(ValueError, TypeError):
            return without + len(_compact(legible(view.metadata)).encode())
    return len(make_description(view, ()))


def is_plain(name: str) -> bool:
    """True if the name is spelled the same way everywhere in an array's description, and every file type accepts it."""
    return _PLAIN.fullmatch(name) is not None and not name.startswith("LIST")


def _make_document(view: View, collisions: Sequence[str]) -> dict[str, JSON]:
    metadata, fits, file = view.metadata, reasons(view), view.file_name
    dtype = metadata.dtype
    document: dict[str, JSON] = {
        "name": view.name,
        "shape": list(view.shape),
        "dtype": spell_dtype(view.dtype) if dtype.serializer == "bytes" else "|O",
        "data_type": dtype.native if view.meaning.values.padding else dtype.name,  # Zarr v3 has no gaps
        "byte_order": dtype.endian,
        "order": "F" if view.fortran else "C",
        "axes": [_describe_axis(axis) for axis in view.axes],
        **(
            {}
            if view.affine is None
            else {"affine": {name: _make_lists(part) for name, part in view.affine._asdict().items()}}
        ),
        "fill_value": None if metadata.fill is None is metadata.fill_spelling else spell_fill(metadata),
        "chunks": [list(edge) if isinstance(edge, tuple) else edge for edge in metadata.grid.edges],
        "codec": metadata.codec,
        "attributes": legible(metadata),
        "files": {suffix: f"{file}.{suffix}" for suffix in FILE_TYPES if fits[suffix] is None},
        "not_possible": {suffix: reason for suffix, reason in fits.items() if reason is not None},
        "pictures": _spell_picture_order(view),
        "h5": {"dataset": f"/{view.name}", "axes": "reversed" if view.fortran and view.x_first else "as in shape"},
        "region": f"'{file}[{','.join('0:1' for _ in view.shape)}].npy'" if view.shape else None,
        "raw": make_reading_lines(view) if fits["raw"] is None else {},
    }
    if metadata.refused:
        document["refused"] = metadata.refused
    if collisions:
        document["collisions"] = list(collisions)
    return document


def _encode(document: dict[str, JSON]) -> bytes:
    """Encode the document with one line per member. Uses the standard library, which is fast.

    Raises ValueError or TypeError.
    """
    lines = [f'  "{name}": {_compact(value)}' for name, value in document.items()]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


_compact = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def spell_dtype(dtype: np.dtype[Any] | None) -> JSON:
    """Return the dtype as numpy spells it: `<u2`, or a list of fields; None if numpy has no such type."""
    if dtype is None:
        return None
    return _make_lists(_describe_dtype(dtype))


def _describe_dtype(dtype: np.dtype[Any]) -> Any:
    """Convert a dtype to what `np.dtype` takes: a text, a list of fields, or an object if there are gaps between fields."""
    if dtype.subdtype is not None:
        return _describe_dtype(dtype.base), dtype.shape
    if dtype.names is None or dtype.fields is None:
        return np.lib.format.dtype_to_descr(dtype)
    formats = [_describe_dtype(dtype[name]) for name in dtype.names]
    if sum(dtype[name].itemsize for name in dtype.names) == dtype.itemsize:
        return [(name, *(one if dtype[name].subdtype else (one,))) for name, one in zip(dtype.names, formats, strict=True)]
    offsets = [dtype.fields[name][1] for name in dtype.names]
    return {"names": [*dtype.names], "formats": formats, "offsets": offsets, "itemsize": dtype.itemsize}


def _make_lists(value: Any) -> JSON:
    if isinstance(value, Mapping):
        return {name: _make_lists(item) for name, item in value.items()}
    return [_make_lists(item) for item in value] if isinstance(value, list | tuple) else value


def _describe_axis(axis: Axis) -> JSON:
    said: dict[str, JSON] = {"name": axis.name, "unit": axis.unit, "scale": axis.scale, "offset": axis.offset}
    return said if axis.orientation is None else {**said, "orientation": axis.orientation}


def _spell_picture_order(view: View) -> str:
    names = [axis.name or f"axis {i}" for i, axis in enumerate(view.axes)]
    return "slowest first: " + ", ".join(names[i] for i in view.picture) if names else "none"


def _spell_python(view: View, name: str, kind: object) -> str:
    """Return a line of Python that maps the raw file. An empty file cannot be mapped, so it is read."""
    if not view.selection.size:
        return f"np.fromfile({name!r}, {kind!r}).reshape({tuple(view.shape)})"
    return f"np.memmap({name!r}, {kind!r}, 'r', shape={tuple(view.shape)}, order={_spell_order(view)!r})"


def make_reading_lines(view: View) -> Mapping[str, JSON]:
    """Return code that reads the raw file, by language. If the name needs quoting, only Python's is returned."""
    name, dtype = f"{view.file_name}.raw", view.dtype
    if dtype is None or dtype.names is not None:  # np.dtype takes fields as tuples
        kind = f"V{view.metadata.dtype.itemsize}" if dtype is None else _describe_dtype(dtype)
        return {"python": _spell_python(view, name, kind)}
    code = f"{dtype.kind}{dtype.itemsize}"
    fast_first = [str(view.shape[i]) for i in reversed(view.natural)] or ["1"]
    slow_first = "".join(f"[{view.shape[i]}]" for i in view.natural)
    big = dtype.byteorder == ">"
    lines: dict[str, JSON] = {"python": _spell_python(view, name, dtype.str)}
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


def _spell_order(view: View) -> str:
    return "F" if view.fortran else "C"
