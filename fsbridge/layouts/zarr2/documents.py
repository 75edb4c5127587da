"""`.zgroup`, `.zarray` and `.zattrs`: the Zarr v2 documents of a group, and of an array with uncompressed chunks.

Pure functions. Not here: which chunk files there are (`layout.py`), `.zmetadata` (`layout.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fsbridge.layouts.conventions import zarr2_attributes, zarr2_fill, zarr2_text
from fsbridge.layouts.json_text import SPELLED_BYTES, encode, in_base64, number, scalar, text
from fsbridge.metadata import JSON, ArrayMetadata, DataType

GROUP, ARRAY, ATTRIBUTES = b".zgroup", b".zarray", b".zattrs"

_DIMENSIONS = "_ARRAY_DIMENSIONS"
"""xarray's attribute for the names of dimensions; netCDF-C and GDAL read it, too."""


def group_documents(attributes: Mapping[str, JSON]) -> dict[bytes, bytes]:
    """The documents of a group, by file name."""
    return {GROUP: encode({"zarr_format": 2}), ATTRIBUTES: encode(dict(attributes))}


def array_documents(metadata: ArrayMetadata, separator: str) -> dict[bytes, bytes]:
    """Return the documents of an array, by file name. `separator`: between the coordinates of a chunk key."""
    return {ARRAY: encode(array_document(metadata, separator)), ATTRIBUTES: encode(array_attributes(metadata))}


def array_document(metadata: ArrayMetadata, separator: str) -> dict[str, JSON]:
    """Return `.zarray` of an array, which must have a regular grid."""
    serializer = metadata.dtype.serializer
    return {
        "zarr_format": 2,
        "shape": list(metadata.shape),
        "chunks": list(metadata.grid.edges),
        "dtype": dtype(metadata.dtype),
        "fill_value": fill_value(metadata),
        "order": "F" if fortran(metadata) else "C",
        "compressor": None,
        "filters": None if serializer == "bytes" else [{"id": serializer}],
        "dimension_separator": separator,
    }


def array_attributes(metadata: ArrayMetadata) -> dict[str, JSON]:
    """Return `.zattrs`: the source's attributes. Names of dimensions are added if all have one and no attribute has them."""
    scalar = not metadata.shape and ".zarray" not in metadata.native  # xarray needs an empty list, too
    names = () if scalar else metadata.dimension_names
    if names is None or _DIMENSIONS in metadata.attributes or any(name is None for name in names):
        return zarr2_attributes(metadata)
    return {_DIMENSIONS: list(names), **zarr2_attributes(metadata)}


def fortran(metadata: ArrayMetadata) -> bool:
    """True if decoded chunks have their first dimension fastest, which `.zarray` states as order F."""
    order = metadata.order
    return order is not None and len(order) > 1 and list(order) == sorted(order, reverse=True)


def transposed(metadata: ArrayMetadata) -> bool:
    """True if decoded chunks have a memory order that `.zarray` cannot state: neither C nor F."""
    order = metadata.order
    return order is not None and list(order) != sorted(order) and not fortran(metadata)


def dtype(of: DataType) -> JSON:
    """Return the `dtype` member: numpy's spelling, a packed struct's fields, or `|V` for types that Zarr v2 lacks."""
    if of.serializer != "bytes":
        return "|O"
    named = of.name if isinstance(of.name, str) else of.name.get("name")
    if of.numpy is None or named in ("raw_bytes", None) or of.numpy.subdtype is not None:
        return f"|V{of.itemsize}"
    return _fields(of.numpy) if of.numpy.names is not None else of.numpy.str


def _fields(of: np.dtype[Any]) -> JSON:
    """A packed struct as a list of `[name, type]` and `[name, type, shape]`."""
    found: list[JSON] = []
    fields: Any = of.fields
    for name in of.names or ():
        inner, shape = fields[name][0], []
        if inner.subdtype is not None:
            inner, shape = inner.subdtype[0], [list(inner.subdtype[1])]
        found.append([name, _fields(inner) if inner.names is not None else inner.str, *shape])
    return found


def fill_value(metadata: ArrayMetadata) -> JSON:
    """Return the `fill_value` member. It is null only if the source's is, or if all chunks are shown (`zarr2_fill`).

    If it is null, zarr-python 2 fills absent chunks with whatever is in memory.
    """
    if zarr2_text(metadata) or (metadata.fill is None and _says_null(metadata.native)):
        return None
    of = metadata.dtype
    if of.serializer == "vlen-utf8":
        return text(metadata.fill)
    if of.serializer == "vlen-bytes":
        return in_base64(metadata.fill if isinstance(metadata.fill, bytes) else b"")
    if not isinstance(metadata.fill, bytes) and of.itemsize > SPELLED_BYTES:
        return ""
    raw = zarr2_fill(metadata)
    if raw is None:
        return None
    shown = dtype(of)
    if of.numpy is None or not isinstance(shown, str) or shown[1] in "SV":  # also long double, shown as bytes
        return in_base64(raw)
    return scalar(raw, of.numpy, lambda value, _: number(float(value)))  # Zarr v2 cannot write a NaN's payload


def _says_null(native: Mapping[str, JSON]) -> bool:
    """True if the source is a Zarr array with a null or missing fill value in its own document."""
    document = native.get(".zarray") or native.get("zarr.json")
    return isinstance(document, Mapping) and document.get("fill_value") is None
