"""`attributes.json`: what N5 says of a group, and of an array with uncompressed blocks, including its axes.

N5's first dimension is the fastest. A source in C order therefore appears with reversed axes, as z5py and n5-zarr show it,
and lists about axes are reversed with them; one with its first dimension fastest already (N5 itself, Zarr v2's order F)
keeps its axes. An N5 source keeps its own document, compression aside.

Axes (`Spacing`) come from the attributes of groups above the array and from the coordinates beside it.

Documents are pure functions. Not here: the blocks (the package's face), how attributes are translated
(`meaning/conventions/n5_attributes.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from fsbridge.layouts.json_text import encode
from fsbridge.layouts.surroundings import Surroundings
from fsbridge.meaning.conventions.n5_attributes import Spacing, array_attributes, renamed, reversed_list, spacing_of
from fsbridge.meaning.conventions.ome import first_level
from fsbridge.metadata import JSON, ArrayMetadata

DOCUMENT = b"attributes.json"

VERSION = "2.0.0"
"""The N5 version that z5 and zarr-python write. Nothing here needs a newer one, which older readers refuse."""

MAX_EDGE = 2**31 - 1
"""Elements of a block along one dimension: N5's Java code has signed 32-bit integers for them."""

_RAW: Mapping[str, JSON] = {"type": "raw"}

_STRUCTURAL = frozenset(("n5", "dimensions", "blockSize", "dataType", "compression", "compressionType", "codecs"))
"""Attributes that N5 itself defines for an array or for the container."""


def refusal(metadata: ArrayMetadata) -> str | None:
    """Return why N5 cannot hold the array; None if it can."""
    kind = data_type(metadata)
    if kind is None:
        return f"N5 has no data type {metadata.dtype.native}"
    if metadata.varlength or not metadata.dtype.itemsize:
        return f"the layout has no blocks of variable length (data type {metadata.dtype.native})"
    if not metadata.grid.regular:
        return "N5 has no blocks of several shapes"
    if any(cast(int, edge) > MAX_EDGE for edge in metadata.grid.edges):
        return f"N5 has no blocks of more than {MAX_EDGE} elements along one dimension"
    return None


def data_type(metadata: ArrayMetadata) -> str | None:
    """Return the `dataType` member: an N5 source's own, or one of N5's ten number types; None for other types."""
    own = native(metadata.native)
    if own is not None:
        return cast(str, own["dataType"])
    of = metadata.dtype
    if of.numpy is None or of.serializer != "bytes" or of.itemsize not in (1, 2, 4, 8):
        return None
    if of.numpy.kind not in "iuf" or (of.numpy.kind == "f" and of.itemsize < 4):
        return None
    return of.numpy.name


def reversed_axes(metadata: ArrayMetadata) -> bool:
    """True if the array appears with its axes reversed, which it does unless its first dimension is the fastest."""
    order = metadata.order if metadata.order is not None else tuple(range(len(metadata.shape)))
    return len(order) > 1 and list(order) != sorted(order, reverse=True)


def native(documents: Mapping[str, JSON]) -> Mapping[str, JSON] | None:
    """Return the source's own `attributes.json`; None if it is not N5."""
    return cast(Mapping[str, JSON] | None, documents.get(DOCUMENT.decode()))


def group_document(attributes: Mapping[str, JSON], own: Mapping[str, JSON] | None, root: bool) -> bytes:
    """Return `attributes.json` of a group. `own`: the source's own document, if the source is N5; else None."""
    version = {"n5": VERSION} if root else {}
    if own is not None:
        return encode({**version, **own})
    return encode({**version, **renamed(attributes, _STRUCTURAL)})


def array_document(metadata: ArrayMetadata, root: bool, spacing: Spacing | None = None) -> bytes:
    """Return `attributes.json` of an array. `refusal` must be None for it."""
    own = native(metadata.native)
    if own is not None:
        instead = ("compression",) if "compression" in own else ("compressionType", "codecs")
        return encode({**{name: value for name, value in own.items() if name not in instead}, "compression": _RAW})
    turned, names = reversed_axes(metadata), metadata.dimension_names or (None,) * len(metadata.shape)
    return encode(
        {
            **({"n5": VERSION} if root else {}),
            "dimensions": reversed_list(metadata.shape, turned),
            "blockSize": reversed_list(cast(Sequence[JSON], metadata.grid.edges), turned),
            "dataType": data_type(metadata),
            "compression": _RAW,
            **array_attributes(metadata.shown_attributes(), names, spacing or Spacing(), turned, _STRUCTURAL),
        }
    )


def spacing(metadata: ArrayMetadata, names: Sequence[str], around: Surroundings) -> Spacing:
    """Return the spacing of the array at the path `names`, with its surroundings `around`."""
    axes = around.meaning(metadata, names, False).axes
    return spacing_of(axes, first_level(around.groups, names, len(axes)))
