"""HDF5 datatypes as the model shows them. Not here: the child's descriptions (`child/h5types.py`), fill values.

    | HDF5 | shown as |
    | --- | --- |
    | integer, IEEE float of 2, 4, 8 bytes, either order | the same |
    | bool (h5py's enum FALSE, TRUE) | bool |
    | enum | its base type; names in attribute `_ENUM` |
    | complex (compound r, i; HDF5 2.0's own) of float32, float64 | complex64, complex128 |
    | complex of float16; bfloat16 and FP8 E5M2 of HDF5 2.0 | complex_float16, bfloat16, float8_e5m2 |
    | fixed string | null_terminated_bytes of the same size |
    | opaque `NUMPY:<M8[us]` (h5py) | numpy.datetime64, timedelta64 |
    | compound | structured; gaps are fields `_gapN` of raw bytes, so the item size stays |
    | array type | more dimensions; inside a compound an array, whose bytes alone Zarr v3 knows |
    | array type whose fill value differs within one element | raw_bytes |
    | bitfield | unsigned integer |
    | integer or bitfield with unused bits, anywhere in a type | its value, in all bits |
    | variable-length string that is not UTF-8 | variable_length_bytes |
    | variable-length string; reference (its path, or empty) | string; `_DTYPE` names the kind of reference |
    | variable-length sequence | variable_length_bytes: the elements' bytes, their type in `_VLEN` |
    | compound, array or sequence with pointers inside | string: one JSON text per element, marked by `_JSON` |
    | long double, other floats, opaque, time | raw_bytes |

The true type is always in the native metadata (`--xattrs`, `fsbridge info`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fsbridge.codecs import Decoder
from fsbridge.errors import CorruptData
from fsbridge.formats import dtypes
from fsbridge.metadata import JSON, MAX_RANK, DataType

Described = Mapping[str, Any]

_NUMPY_TIME = re.compile(r"NUMPY:([<>]?[mM]8\[\d{0,9}(?:Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])")
_ORDERS = {"little": "<", "big": ">"}
SMALL = {"bfloat16": 2, "float8_e5m2": 1}
"""Floats that numpy lacks, by Zarr v3's names, and their bytes."""

_SUFFIX = {"little": "LE", "big": "BE"}


@dataclass(frozen=True, slots=True)
class ShownType:
    """How elements are shown: type, dimensions of an array type, last decoding step, extra attributes."""

    dtype: DataType
    dims: tuple[int, ...]
    normaliser: Decoder | None
    attributes: Mapping[str, JSON]


def show_type(described: Described, form: str, fill: bytes | None) -> ShownType:
    """Return how a dataset with fill value bytes `fill` is shown. Raises CorruptData for contradictions."""
    try:
        return _show_type(described, form, fill)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise CorruptData(f"the datatype is impossible: {error!r}") from None


def _show_type(described: Described, form: str, fill: bytes | None) -> ShownType:
    dims: tuple[int, ...] = ()
    native = spell(described)
    if form == "raw" and described["class"] == "array" and fill is not None and not _all_equal(fill, numpy_type(described)):
        # No other format has a fill value with different parts, so each array is shown as one element of raw bytes.
        return ShownType(dtypes.data_type(np.dtype(f"V{described['size']}"), native, True), (), None, {})
    if form in ("raw", "converted"):
        while described["class"] == "array":
            dims += tuple(described["dims"])
            described = described["base"]
        if not _is_possible(dims):
            raise CorruptData(f"the datatype has the impossible array type {list(dims)}")
        element = numpy_type(described)
        small = _find_small(described)
        if small is not None:
            order = described.get("order", described.get("base", {}).get("order")) if element.itemsize > 1 else None
            return ShownType(DataType(small, element.itemsize, order, native, element), dims, None, {})
        names = dict(described["members"]) if described["class"] == "enum" else {}
        attributes = {"_ENUM": names} if names else {}
        return ShownType(dtypes.data_type(element, native, True), dims, dtypes.normaliser(element, True), attributes)
    if form == "sequences":
        element = numpy_type(described["base"])
        return ShownType(_with_native_name(dtypes.BYTES, native), (), None, {"_VLEN": dtypes.spell(element)})
    if form == "bytes":
        return ShownType(_with_native_name(dtypes.BYTES, native), (), None, {})
    if described["class"] == "reference":
        return ShownType(_with_native_name(dtypes.STRING, native), (), None, {"_DTYPE": f"{described['kind']}_reference"})
    return ShownType(_with_native_name(dtypes.STRING, native), (), None, {"_JSON": native} if form == "json" else {})


def _find_small(described: Described) -> str | None:
    """Return Zarr v3's name of floats that numpy lacks, None for any other type."""
    if described["class"] == "float" and "small" in described:
        name = described["small"]
        if SMALL.get(name) != described["size"] or described["order"] not in _ORDERS:
            raise CorruptData(f"a datatype {str(name)[:40]!r} cannot have {described['size']} bytes")
        return str(name)
    base = described.get("base", {})
    is_half = described["class"] == "complex" and base.get("ieee") and base.get("size") == 2
    return "complex_float16" if is_half and base["order"] in _ORDERS else None


def spell_fill(dtype: DataType, fill: bytes | None) -> JSON:
    """Return the fill value of floats that numpy lacks as Zarr v3 spells it, None for any other type."""
    raw = (bytes(dtype.itemsize) if fill is None else fill)[:: -1 if dtype.endian == "big" else 1]
    if dtype.name == "bfloat16":
        return dtypes.spell_float(float(np.frombuffer(bytes(2) + raw, "<f4")[0]))
    if dtype.name == "complex_float16":
        parts = [dtypes.spell_float(float(part)) for part in np.frombuffer(raw, "<f2")]
        return parts[::-1] if dtype.endian == "big" else parts
    if dtype.name == "float8_e5m2":
        return dtypes.spell_float(dtypes.decode_minifloat(raw[0], dtypes.MINIFLOATS["float8_e5m2"]))
    return None


def numpy_type(described: Described) -> np.dtype[Any]:
    """Return the numpy type of stored elements: void if numpy has none, compounds with their gaps as fields."""
    size = described["size"]
    if type(size) is not int or not 1 <= size <= dtypes.MAX_ITEMSIZE:
        raise CorruptData(f"a datatype cannot have {size} bytes")
    dtype = _numpy_type(described, described["class"], size)
    if dtype is not None and dtype.itemsize != size:
        raise CorruptData(f"datatype {spell(described)} cannot have {size} bytes")
    return dtype if dtype is not None else np.dtype(f"V{size}")


def _numpy_type(described: Described, name: str, size: int) -> np.dtype[Any] | None:
    order = _ORDERS.get(described.get("order", "little"))
    if name == "integer" and size in (1, 2, 4, 8) and order is not None:
        return np.dtype(f"{order}{'i' if described['signed'] else 'u'}{size}")
    if name == "bitfield" and size in (1, 2, 4, 8) and order is not None:
        return np.dtype(f"{order}u{size}")
    if name == "float" and described["ieee"]:
        return np.dtype(f"{order}f{size}")
    if name == "bool":
        return np.dtype(np.bool_)
    if name == "enum":
        return numpy_type(described["base"])
    if name == "complex":
        base = numpy_type(described["base"])
        return np.dtype(f"{base.str[0]}c{size}") if base.kind == "f" and base.itemsize in (4, 8) else None
    if name == "string":
        return np.dtype(f"S{size}")
    if name == "opaque":
        match = _NUMPY_TIME.fullmatch(described["tag"])
        return np.dtype(match[1]) if match else None
    if name == "compound":
        return _make_compound(described["fields"], size)
    if name == "array":
        dims, base = tuple(described["dims"]), numpy_type(described["base"])
        if not _is_possible(dims) or math.prod(dims) * base.itemsize != size:
            raise CorruptData(f"the datatype has the impossible array type {list(dims)} of {size} bytes")
        return np.dtype((base, dims))
    return None


def _all_equal(fill: bytes, dtype: np.dtype[Any]) -> bool:
    """Tell whether all elements of an array are equal."""
    return fill == fill[: dtype.base.itemsize] * math.prod(dtype.shape)


def _is_possible(dims: tuple[Any, ...]) -> bool:
    return len(dims) <= MAX_RANK and all(type(extent) is int and extent >= 1 for extent in dims)


def _make_compound(fields: list[Any], size: int) -> np.dtype[Any] | None:
    """Return fields in the order of their offsets, with gaps between them as raw bytes."""
    elements: list[tuple[str, np.dtype[Any]]] = []
    taken = {_clean(name) for name, _, _ in fields}
    position = gaps = 0

    def gap(until: int) -> None:
        nonlocal position, gaps
        if until > position:
            while f"_gap{gaps}" in taken:
                gaps += 1
            taken.add(f"_gap{gaps}")
            elements.append((f"_gap{gaps}", np.dtype(f"V{until - position}")))
            position = until

    for name, offset, described in sorted(fields, key=lambda field: int(field[1])):
        gap(offset)
        element = numpy_type(described)
        if offset != position or offset + element.itemsize > size:
            raise CorruptData(f"field {name!r} of a compound overlaps another or its end")
        elements.append((_clean(name), element))
        position += element.itemsize
    gap(size)
    names = [name for name, _ in elements]
    if len(set(names)) != len(names) or "" in names:
        return None  # shown as raw bytes, because numpy and Zarr tell fields apart by name
    return np.dtype(elements)


def _clean(name: str) -> str:
    """Return a field's name for JSON. Bytes that are not UTF-8 are escaped."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _with_native_name(dtype: DataType, native: str) -> DataType:
    return DataType(dtype.name, dtype.itemsize, dtype.endian, native, dtype.numpy, dtype.serializer)


def spell(described: Described) -> str:
    """Return the type in HDF5's own words, as h5dump prints it: `H5T_STD_I32LE`, `H5T_COMPOUND{a: H5T_IEEE_F64BE}`."""
    name, size = described["class"], described["size"]
    suffix = _SUFFIX.get(described.get("order", ""), "")
    if name == "integer" and "precision" not in described:
        return f"H5T_STD_{'I' if described['signed'] else 'U'}{8 * size}{suffix}"
    if name == "float" and described["ieee"]:
        return f"H5T_IEEE_F{8 * size}{suffix}"
    if name == "bitfield" and "precision" not in described:
        return f"H5T_STD_B{8 * size}{suffix}"
    if name == "string":
        length = "variable" if described["variable"] else size
        return f"H5T_STRING({length}, {described['charset']}, {described['padding']})"
    if name == "compound":
        fields = ", ".join(f"{_clean(field)}: {spell(inner)}" for field, _, inner in described["fields"])
        return f"H5T_COMPOUND{{{fields}}}"
    if name == "reference":
        return {"object": "H5T_STD_REF_OBJ", "region": "H5T_STD_REF_DSETREG"}.get(described["kind"], "H5T_STD_REF")
    if name == "array":
        return f"H5T_ARRAY({'x'.join(str(extent) for extent in described['dims'])} {spell(described['base'])})"
    if name == "bool":
        return "H5T_ENUM(FALSE, TRUE)"
    if "base" in described:
        return f"H5T_{name.upper()}({spell(described['base'])})"
    return f"H5T_{str(name).upper()}({size} bytes)"
