"""`zarr.json`: the Zarr v3 documents that describe a group, and an array as its decoded chunks hold it.

Pure functions. Not here: which directories and chunk files there are (`directories.py`, `chunks.py`). Facts are those of the
Zarr v3 core specification; spellings beyond it are the ones that zarr-python 3.1 and later open.
"""

from __future__ import annotations

from collections.abc import Mapping

from fsbridge.layouts.conventions import zarr3_attributes
from fsbridge.layouts.fill_values import spelled_fill
from fsbridge.layouts.json_text import encode
from fsbridge.metadata import JSON, ArrayMetadata, DataType

DOCUMENT = "zarr.json"


def group_document(attributes: Mapping[str, JSON]) -> bytes:
    """`zarr.json` of a group."""
    return encode({"zarr_format": 3, "node_type": "group", "attributes": dict(attributes)})


def array_document(metadata: ArrayMetadata) -> bytes:
    """Return `zarr.json` of an array with decoded chunks in its chunk files."""
    document: dict[str, JSON] = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(metadata.shape),
        "data_type": metadata.dtype.name,
        "chunk_grid": chunk_grid(metadata),
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": spelled_fill(metadata),
        "codecs": codecs(metadata),
        "attributes": zarr3_attributes(metadata),
    }
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
