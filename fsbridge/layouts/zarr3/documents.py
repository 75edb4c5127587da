"""`zarr.json`: the Zarr v3 documents that describe a group, and an array as its decoded chunks hold it.

Pure functions. Not here: which directories and chunk files there are (`directories.py`, `chunks.py`). Facts are those of the
Zarr v3 core specification; spellings beyond it are the ones that zarr-python 3.1 and later open.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from fsbridge.errors import CorruptData
from fsbridge.layouts.json_text import encode
from fsbridge.metadata import JSON, ArrayMetadata, DataType

DOCUMENT = "zarr.json"

_RAW_BITS = re.compile(r"r[1-9][0-9]*")


def group_document(attributes: Mapping[str, JSON]) -> bytes:
    """`zarr.json` of a group."""
    return encode({"zarr_format": 3, "node_type": "group", "attributes": dict(attributes)})


def array_document(metadata: ArrayMetadata) -> bytes:
    """`zarr.json` of an array whose chunk files hold decoded chunks."""
    document: dict[str, JSON] = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(metadata.shape),
        "data_type": metadata.dtype.name,
        "chunk_grid": chunk_grid(metadata),
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": metadata.fill_spelling,
        "codecs": codecs(metadata),
        "attributes": dict(metadata.attributes),
    }
    if metadata.fill_spelling is None:
        document["fill_value"] = fill_value(metadata.dtype, metadata.fill)
    if metadata.dimension_names is not None:
        document["dimension_names"] = list(metadata.dimension_names)
    return encode(document)


def chunk_grid(metadata: ArrayMetadata) -> JSON:
    """The `chunk_grid` member: `regular`, or `rectilinear` as zarr-python 3.4 spells it."""
    edges = [list(edge) if isinstance(edge, tuple) else edge for edge in metadata.grid.edges]
    if metadata.grid.regular:
        return {"name": "regular", "configuration": {"chunk_shape": edges}}
    return {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": edges}}


def codecs(metadata: ArrayMetadata) -> list[JSON]:
    """The shortest codec list that describes the decoded bytes."""
    listed: list[JSON] = []
    if metadata.order is not None and list(metadata.order) != sorted(metadata.order):
        listed.append({"name": "transpose", "configuration": {"order": list(metadata.order)}})
    return [*listed, _serializer(metadata.dtype)]


def _serializer(dtype: DataType) -> JSON:
    if dtype.element is not None:  # the mask is one byte an element
        parts = {"mask_codecs": [{"name": "bytes"}], "data_codecs": [_serializer(dtype.element)]}
        return {"name": "optional", "configuration": parts}
    if dtype.serializer == "bytes" and dtype.endian is not None:
        return {"name": "bytes", "configuration": {"endian": dtype.endian}}
    return {"name": dtype.serializer}


def fill_value(dtype: DataType, fill: bytes | str | None) -> JSON:
    """The `fill_value` member for `fill` (one element's bytes, or the element itself for variable length)."""
    if dtype.serializer == "optional":
        return None
    if dtype.serializer == "vlen-utf8":
        return "" if fill is None else _text(fill)
    if dtype.serializer == "vlen-bytes":
        return _base64(_raw(fill, b""))
    raw = _raw(fill, bytes(dtype.itemsize))
    name = dtype.name if isinstance(dtype.name, str) else dtype.name["name"]
    if _RAW_BITS.fullmatch(name):
        return list(raw)
    if dtype.numpy is None or dtype.numpy.kind in "SV" or dtype.numpy.names is not None:
        return _base64(raw)
    return _scalar(np.frombuffer(raw, dtype.numpy)[0], raw, dtype)


def _scalar(value: Any, raw: bytes, dtype: DataType) -> JSON:
    kind = value.dtype.kind
    if kind == "b":
        return bool(value)
    if kind in "iu":
        return int(value)
    if kind in "mM":
        return int(value.astype(np.int64))
    if kind == "f":
        return _float(value, raw, dtype.endian)
    if kind == "c":
        half = len(raw) // 2
        return [_float(value.real, raw[:half], dtype.endian), _float(value.imag, raw[half:], dtype.endian)]
    if kind == "U":
        return str(value)
    raise CorruptData(f"a fill value of data type {dtype.native} has no JSON form")


def _float(value: Any, raw: bytes, endian: str | None) -> JSON:
    number = float(value)
    if not math.isnan(number):
        return number if math.isfinite(number) else ("Infinity" if number > 0 else "-Infinity")
    bits = raw if endian == "big" else raw[::-1]
    quiet = np.array(np.nan, value.dtype.newbyteorder(">")).tobytes()
    return "NaN" if bits == quiet else "0x" + bits.hex()  # other NaNs keep their payload, most significant digit first


def _raw(fill: bytes | str | None, default: bytes) -> bytes:
    if isinstance(fill, str):
        raise CorruptData(f"a text {fill[:40]!r} as fill value of elements that are no text")
    return default if fill is None else fill


def _text(fill: bytes | str) -> str:
    return fill if isinstance(fill, str) else fill.decode("utf-8", "replace")


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")
