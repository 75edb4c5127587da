"""An HDF5 dataset's description as model metadata: grid, fill value, attributes, dimension names. No I/O here."""

from __future__ import annotations

import math
from collections.abc import Mapping

from fsbridge.codecs import CodecChain
from fsbridge.errors import CorruptData, Unsupported
from fsbridge.formats.hdf5.answers import Dataset
from fsbridge.formats.hdf5.pipeline import FilterPipeline
from fsbridge.formats.hdf5.types import Shown, spell
from fsbridge.metadata import JSON, ArrayMetadata, ChunkGrid

SLAB_BYTES = 4 << 20
"""Bytes of one chunk of data that the file itself does not cut: large enough to read fast, small enough to cache."""
SLAB_ITEMS = 1 << 16
"""Elements of such a chunk when each is a Python object on its way through the child."""


def array_metadata(found: Dataset, kind: Shown) -> ArrayMetadata:
    """What readers need to know of a dataset; CorruptData or Unsupported when its description makes no sense."""
    shape = (0,) if found.null else found.shape
    attributes: dict[str, JSON] = {**kind.attributes, **({"_EMPTY": True} if found.null else {}), **_own(found.attributes)}
    named = any(name is not None for name in found.dimension_names)
    inner: tuple[str | None, ...] = (None,) * len(kind.dims)
    return ArrayMetadata(
        grid=ChunkGrid(shape + kind.dims, _edges(found, shape) + kind.dims),
        dtype=kind.dtype,
        fill=_fill(found, kind),
        attributes=attributes,
        dimension_names=found.dimension_names + inner if named else None,
        native={"hdf5": _native(found)},
        codec="+".join(entry.name or str(entry.number) for entry in found.filters) or "none",
        refused=_refusal(found),
    )


def _refusal(found: Dataset) -> str | None:
    """Why elements, or chunks that went through all filters, cannot be read."""
    if found.unreadable is not None:
        return found.unreadable
    try:
        FilterPipeline(found.filters, None).chain(0)
    except (CorruptData, Unsupported) as error:
        return str(error)
    return None


def _edges(found: Dataset, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The file's chunk shape, or slabs: cut the slowest axes to one, the next evenly, none of the rest."""
    if found.chunks is not None and not found.null:
        return found.chunks
    size = found.dtype["size"]
    items = max(1, min(SLAB_BYTES // size, SLAB_ITEMS if found.form not in ("raw", "converted") else SLAB_BYTES))
    edges: list[int] = []
    rest = math.prod(shape)
    for extent in shape:
        rest = rest // extent if extent else 0
        rows = max(1, items // rest) if rest else max(1, extent)
        if any(edge > 1 for edge in edges) or rows >= extent:
            edges.append(max(1, extent))
        else:
            edges.append(-(-extent // -(-extent // rows)))
    return tuple(edges)


def _fill(found: Dataset, kind: Shown) -> bytes | str | None:
    """The fill value of one shown element."""
    if found.fill is None:
        return None
    if kind.dtype.serializer == "vlen-utf8":
        try:
            return found.fill.decode("utf-8")
        except UnicodeDecodeError:
            raise Unsupported("fill value that is no UTF-8") from None
    if kind.dtype.serializer == "vlen-bytes":
        return found.fill
    size = kind.dtype.itemsize
    if len(found.fill) != size * math.prod(kind.dims):
        raise CorruptData(f"fill value of {len(found.fill)} bytes")
    element = found.fill[:size]
    if element * math.prod(kind.dims) != found.fill:
        raise Unsupported("fill value of an array type whose elements differ")
    steps = () if kind.normaliser is None else (kind.normaliser,)
    return bytes(CodecChain(steps).decode(element, size, size))


_SCALE_ATTRIBUTES = ("DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS")


def _own(attributes: Mapping[str, JSON]) -> dict[str, JSON]:
    """Attributes without the bookkeeping of dimension scales, which `dimension_names` and the native metadata hold."""
    dropped = set(_SCALE_ATTRIBUTES)
    if attributes.get("CLASS") == "DIMENSION_SCALE":
        dropped |= {"CLASS", "NAME"}
    return {name: value for name, value in attributes.items() if name not in dropped}


def _native(found: Dataset) -> JSON:
    scales = {name: value for name, value in found.attributes.items() if name in (*_SCALE_ATTRIBUTES, "CLASS", "NAME")}
    return {
        "type": spell(found.dtype),
        "datatype": dict(found.dtype),
        "layout": found.layout,
        "chunks": None if found.chunks is None else list(found.chunks),
        "filters": [{"id": f.number, "name": f.name, "values": list(f.values)} for f in found.filters],
        **({} if found.storage is None else {"storage": found.storage}),
        "attribute_bytes": found.attribute_bytes,
        **({"sources": list(found.sources)} if found.sources else {}),
        **({"scales": scales} if scales else {}),
    }
