"""Values of attributes and of elements with pointers, as JSON or in Zarr's variable-length encoding.

Works on numpy arrays as h5py reads them and on the description of their type (`h5types.describe`). What JSON cannot
express is described instead: `{"_TYPE": {...}, "_BASE64": "..."}`, for text that is not UTF-8 with a legible `_TEXT`.
Part of the HDF5 child. Not here: h5py.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from fsbridge.formats.hdf5.child.h5types import decode_name

_U32 = struct.Struct("<I")

Resolve = Callable[[Any], Any]
"""Turns an h5py reference into JSON."""


def nest(elements: Any, rank: int, described: dict[str, Any], resolve: Resolve) -> Any:
    """Return an array of elements as lists, `rank` deep. Anything deeper belongs to the element."""
    if not rank:
        is_scalar = isinstance(elements, np.ndarray) and not elements.ndim
        return to_json(elements[()] if is_scalar else elements, described, resolve)
    if elements.ndim == rank and _is_plain(elements.dtype):
        return elements.tolist()
    return [nest(item, rank - 1, described, resolve) for item in elements]


def to_json(value: Any, described: dict[str, Any], resolve: Resolve) -> Any:
    """Return one element as JSON."""
    return _CONVERTERS.get(described["class"], _opaque)(value, described, resolve)


def _is_plain(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biu" or (dtype.kind == "f" and dtype.itemsize <= 8)


def _number(value: Any, described: dict[str, Any], resolve: Resolve) -> Any:
    if isinstance(value, np.floating) and value.dtype.itemsize > 8:  # long double
        return float(value) if np.isnan(value) or np.longdouble(float(value)) == value else str(value)
    if isinstance(value, np.void):
        return _opaque(value, described, resolve)
    return value.item() if isinstance(value, np.generic) else value


def _complex(value: Any, described: dict[str, Any], resolve: Resolve) -> Any:
    if isinstance(value, np.complexfloating):
        return [float(value.real), float(value.imag)]
    return _opaque(value, described, resolve)


def _string(value: Any, described: dict[str, Any], resolve: Resolve) -> Any:
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogateescape")
    raw = bytes(value)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return {
            "_TYPE": described,
            "_BASE64": base64.b64encode(raw).decode(),
            "_TEXT": raw.decode("utf-8", "backslashreplace"),
        }


def _opaque(value: Any, described: dict[str, Any], resolve: Resolve) -> Any:
    raw = value.tobytes() if isinstance(value, np.generic | np.ndarray) else bytes(value)
    return {"_TYPE": described, "_BASE64": base64.b64encode(raw).decode()}


def _compound(value: Any, described: dict[str, Any], resolve: Resolve) -> Any:
    names = value.dtype.names or ()
    fields = described["fields"]
    return {field[0]: to_json(value[name], field[2], resolve) for name, field in zip(names, fields, strict=True)}


def _array(value: Any, described: dict[str, Any], resolve: Resolve) -> Any:
    return nest(value, len(described["dims"]), described["base"], resolve)


def _sequence(value: Any, described: dict[str, Any], resolve: Resolve) -> Any:
    return nest(value, 1, described["base"], resolve)


def _reference(value: Any, described: dict[str, Any], resolve: Resolve) -> Any:
    return resolve(value)


_CONVERTERS: dict[str, Callable[[Any, dict[str, Any], Resolve], Any]] = {
    "integer": _number,
    "float": _number,
    "bitfield": _number,
    "bool": _number,
    "enum": _number,
    "complex": _complex,
    "string": _string,
    "compound": _compound,
    "array": _array,
    "vlen": _sequence,
    "reference": _reference,
}


def encode_items(values: Iterable[Any], described: dict[str, Any], form: str, resolve: Resolve) -> list[bytes]:
    """Return elements with pointers as the bytes that their `form` shows."""
    if form == "json":
        return [json.dumps(_strict(to_json(value, described, resolve))).encode() for value in values]
    if described["class"] == "reference":
        return [_path(resolve(value)).encode("utf-8", "surrogateescape") for value in values]
    return [value if isinstance(value, bytes) else decode_name(value).encode("utf-8", "surrogateescape") for value in values]


def count_vlen_bytes(parts: list[bytes]) -> int:
    """Return the length of what `encode_vlen` makes of `parts`."""
    return _U32.size * (1 + len(parts)) + sum(map(len, parts))


def encode_vlen(parts: list[bytes]) -> bytearray:
    """Encode as Zarr's vlen-utf8 and vlen-bytes (numcodecs): u32 LE count, then u32 LE length and bytes for each item."""
    out = bytearray(_U32.pack(len(parts)))
    for part in parts:
        out += _U32.pack(len(part))
        out += part
    return out


def _path(reference: Any) -> str:
    return str(reference["_REFERENCE"]["path"]) if reference else ""


def _strict(value: Any) -> Any:
    """Return JSON in which NaN and Infinity are strings, spelled as in Zarr."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, list):
        return [_strict(item) for item in value]
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    return value
