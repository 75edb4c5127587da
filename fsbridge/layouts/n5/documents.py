"""`attributes.json`: what N5 says of a group, and of an array with uncompressed blocks, including its axes.

N5's first dimension is the fastest. A source in C order therefore appears with reversed axes, as z5py and n5-zarr show it,
and lists about axes are reversed with them; one with its first dimension fastest already (N5 itself, Zarr v2's order F)
keeps its axes. An N5 source keeps its own document, compression aside.

Axes (`Spacing`) come from the attributes of groups above the array and from the coordinates beside it. N5 readers multiply
an array's `resolution` by its `downsamplingFactors`, so with factors `resolution` is that of the first level.

Documents are pure functions. Not here: the blocks (the package's face), what attributes mean (`meaning/`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from fsbridge.layouts.json_text import encode
from fsbridge.layouts.surroundings import Surroundings
from fsbridge.meaning import Axes
from fsbridge.meaning.attributes import is_finite
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

_AXES = ("axes", "units", "resolution")
"""Attributes for which TensorStore refuses an array unless they are lists with one text, text or number for each axis."""

_ALONG_AXES = frozenset(
    (*_AXES, "offset", "scale", "scales", "translation", "voxel_size", "downsamplingFactors", "pixelResolution")
)
"""Attributes with one entry per axis, N5's first dimension first."""

_SPACING = ("units", "resolution", "pixelResolution", "downsamplingFactors")
"""Attributes that are only meaningful together. If the array has any of them, none is added."""

_SLOWEST_FIRST = "_ARRAY_DIMENSIONS"
"""xarray's names of dimensions: zarr-python 2, which reverses N5's dimensions, leaves them as they are."""


def refusal(metadata: ArrayMetadata) -> str | None:
    """Why N5 cannot hold the array; None if it can."""
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
    """Return the `dataType` member: that of an N5 source, or one of N5's ten number types; None for other types."""
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
    """True if the array appears with its axes reversed: unless its first dimension is the fastest already."""
    order = metadata.order if metadata.order is not None else tuple(range(len(metadata.shape)))
    return len(order) > 1 and list(order) != sorted(order, reverse=True)


def native(documents: Mapping[str, JSON]) -> Mapping[str, JSON] | None:
    """The source's own `attributes.json`, if it is N5."""
    return cast(Mapping[str, JSON] | None, documents.get(DOCUMENT.decode()))


def group_document(attributes: Mapping[str, JSON], own: Mapping[str, JSON] | None, root: bool) -> bytes:
    """Return `attributes.json` of a group. `own`: the document of that name in an N5 source; None: another format."""
    version = {"n5": VERSION} if root else {}
    if own is not None:
        return encode({**version, **own})
    return encode({**version, **_renamed(attributes, _STRUCTURAL)})


def array_document(metadata: ArrayMetadata, root: bool, spacing: Spacing | None = None) -> bytes:
    """Return `attributes.json` of an array for which `refusal` is None."""
    own = native(metadata.native)
    if own is not None:
        instead = ("compression",) if "compression" in own else ("compressionType", "codecs")
        return encode({**{name: value for name, value in own.items() if name not in instead}, "compression": _RAW})
    turned = reversed_axes(metadata)
    return encode(
        {
            **({"n5": VERSION} if root else {}),
            "dimensions": _turned(metadata.shape, turned),
            "blockSize": _turned(cast(Sequence[JSON], metadata.grid.edges), turned),
            "dataType": data_type(metadata),
            "compression": _RAW,
            **_array_attributes(metadata, spacing or Spacing(), turned),
        }
    )


def _array_attributes(metadata: ArrayMetadata, spacing: Spacing, turned: bool) -> dict[str, JSON]:
    rank = len(metadata.shape)
    attributes = metadata.shown_attributes()
    unfit = {name for name in _AXES if name in attributes and not _describes_axes(name, attributes[name], rank)}
    found = {
        name: _along_axes(value, rank) if turned and name in _ALONG_AXES else value
        for name, value in _renamed(attributes, _STRUCTURAL | unfit).items()
    }
    names = found.get(_SLOWEST_FIRST)
    if not turned and rank > 1 and isinstance(names, list):
        found[_SLOWEST_FIRST] = _along_axes(names, rank)
    axes = [name or "" for name in spacing.names or metadata.dimension_names or ()]
    if "axes" not in found and any(axes) and _describes_axes("axes", axes, rank):
        found["axes"] = _turned(axes, turned)
    if found.keys().isdisjoint(_SPACING):
        added = {"units": spacing.units, "resolution": spacing.resolution, "downsamplingFactors": spacing.factors}
        found |= {name: _turned(values, turned) for name, values in added.items() if values}
    return found


def _describes_axes(name: str, value: JSON, rank: int) -> bool:
    """True if N5 readers accept the value of an attribute in `_AXES`. In `axes`, only empty labels may be repeated."""
    if not isinstance(value, list | tuple) or len(value) != rank:
        return False
    if name == "resolution":
        return all(map(is_finite, value))
    labels = [part for part in value if part != ""]
    return all(isinstance(part, str) for part in labels) and (name != "axes" or len(set(labels)) == len(labels))


def _along_axes(value: JSON, rank: int) -> JSON:
    """Reverse a list with an entry per axis, also inside a list of such lists, or in the `dimensions` of an object."""
    if isinstance(value, Mapping):
        return {**value, "dimensions": _along_axes(value["dimensions"], rank)} if "dimensions" in value else value
    if not isinstance(value, list | tuple):
        return value
    if value and all(isinstance(part, list | tuple) and len(part) == rank for part in value):
        return [list(reversed(part)) for part in value]
    return list(reversed(value)) if len(value) == rank else value


def _turned(values: Sequence[JSON], turned: bool) -> list[JSON]:
    return list(reversed(values)) if turned else list(values)


def _renamed(attributes: Mapping[str, JSON], unfit: frozenset[str] | set[str]) -> dict[str, JSON]:
    """Return the attributes. To each name in `unfit`, `_` is appended until it differs from all other names."""
    return {_free(name, attributes, unfit) if name in unfit else name: value for name, value in attributes.items()}


def _free(name: str, attributes: Mapping[str, JSON], unfit: frozenset[str] | set[str]) -> str:
    while name in attributes or name in unfit:
        name += "_"
    return name


_TOLERANCE = 1e-6
"""Relative tolerance with which the ratio of two scales is an integer, because scales are rounded decimals."""


class Spacing(NamedTuple):
    """Attributes of the axes, in the array's own order. A list is empty unless the source has an entry for every axis."""

    names: tuple[str | None, ...] = ()
    units: tuple[str, ...] = ()
    resolution: tuple[float, ...] = ()
    factors: tuple[int, ...] = ()


def spacing(metadata: ArrayMetadata, names: Sequence[str], around: Surroundings) -> Spacing:
    """Return the axes of the array at the path `names`, with what stands `around` it."""
    groups, rank = around.groups, len(metadata.shape)
    axes = around.meaning(metadata, names, False).axes
    labels = tuple(axis.name for axis in axes)
    scales = tuple(axis.scale for axis in axes if axis.scale is not None and axis.scale > 0)
    if not rank or len(scales) < rank:
        return Spacing(labels)
    units = tuple(axis.unit or "" for axis in axes)
    full, factors = _factors(scales, first_level(groups, names, rank))
    return Spacing(labels, units if any(units) else (), full, factors)


def _factors(scales: tuple[float, ...], first: Axes | None) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Return `resolution` and `downsamplingFactors` of a level; its own scales and no factors if these are no integers."""
    full = tuple(axis.scale for axis in first or () if axis.scale is not None and axis.scale > 0)
    if len(full) < len(scales):
        return scales, ()
    ratios = [scale / of for scale, of in zip(scales, full, strict=True)]
    factors = tuple(round(ratio) for ratio in ratios)
    if any(n < 1 or abs(ratio - n) > _TOLERANCE * n for n, ratio in zip(factors, ratios, strict=True)):
        return scales, ()
    return full, factors
