"""`Spacing`: an array's axes in N5's terms, from the attributes of groups above it and the coordinates beside it.

N5 readers multiply an array's `resolution` by its `downsamplingFactors`, so with factors `resolution` is that of the first
level. Not here: what attributes mean (`axes.py`), N5's order of axes and the array's own attributes (`documents.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fsbridge.errors import PASSING, FsbridgeError, Stale
from fsbridge.layouts.axes import Attributes, axes_of, first_level
from fsbridge.layouts.members import SourceMember
from fsbridge.metadata import ArrayMetadata, Axes
from fsbridge.model import Array, Group, as_array

_GROUPS_ABOVE = 3
"""Number of groups above an array with attributes that may describe its axes: OME's multi-scales have paths of up to three
names.
"""

_COORDINATE_VALUES, _COORDINATE_CHUNKS = 65536, 64
"""Most elements and chunks of a coordinate that is read. A larger coordinate gives no spacing."""

_TOLERANCE = 1e-6
"""Relative tolerance with which the ratio of two scales is an integer, because scales are rounded decimals."""


class Spacing(NamedTuple):
    """Facts for each axis, in the array's own order. Each list is empty unless the source has the fact for every axis."""

    names: tuple[str | None, ...] = ()
    units: tuple[str, ...] = ()
    resolution: tuple[float, ...] = ()
    factors: tuple[int, ...] = ()


def spacing(member: SourceMember, metadata: ArrayMetadata) -> Spacing:
    """Return the axes of the array at `member` as of now; none for an N5 source, because its own document has them."""
    names, rank = member.names, len(metadata.shape)
    if member.context.format_at(names).first_axis_fastest:
        return Spacing()
    groups = _groups_above(member)
    axes = axes_of(metadata, groups, names, False, lambda name: _coordinate(member, name))
    labels = tuple(axis.name for axis in axes)
    scales = tuple(axis.scale for axis in axes if axis.scale is not None and axis.scale > 0)
    if not rank or len(scales) < rank:
        return Spacing(labels)
    units = tuple(axis.unit or "" for axis in axes)
    full, factors = _factors(scales, first_level(groups, names, rank))
    return Spacing(labels, units if any(units) else (), full, factors)


def _factors(scales: tuple[float, ...], first: Axes | None) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Return `resolution` and `downsamplingFactors` of a level. Without integer factors: its own scales, and no factors."""
    full = tuple(axis.scale for axis in first or () if axis.scale is not None and axis.scale > 0)
    if len(full) < len(scales):
        return scales, ()
    ratios = [scale / of for scale, of in zip(scales, full, strict=True)]
    factors = tuple(round(ratio) for ratio in ratios)
    if any(n < 1 or abs(ratio - n) > _TOLERANCE * n for n, ratio in zip(factors, ratios, strict=True)):
        return scales, ()
    return full, factors


def _groups_above(member: SourceMember) -> Sequence[Attributes]:
    """Attributes of the groups above, the nearest first. A damaged group counts as empty: only showing it is an error."""
    found: list[Attributes] = []
    above = member.above
    while above is not None and len(found) < _GROUPS_ABOVE:
        try:
            found.append(_group(above).attributes())
        except PASSING:
            raise
        except FsbridgeError:
            found.append({})
        above = above.above
    return found


def _group(member: SourceMember) -> Group:
    node = member.present()
    if as_array(node) is not None:
        raise Stale(f"{member} is no group any more")
    return cast(Group, node)


def _coordinate(member: SourceMember, name: str) -> tuple[NDArray[np.float64] | None, Attributes] | None:
    """Find a coordinate, see `axes.Coordinate`. An unreadable one counts as missing: only opening it is an error."""
    if member.above is None:
        return None
    try:
        array = as_array(_group(member.above).child(name))
        if array is None or len(array.metadata.shape) > 1:
            return None
        return _values(member, array), array.metadata.attributes
    except PASSING:
        raise
    except FsbridgeError:
        return None


def _values(member: SourceMember, array: Array) -> NDArray[np.float64] | None:
    """Return all elements of a coordinate; None if they are no numbers or too many to read. NotFound for an absent chunk."""
    metadata = array.metadata
    dtype, chunks = metadata.dtype.numpy, member.context.decoded(array)
    if dtype is None or dtype.kind not in "iuf" or metadata.varlength or len(metadata.shape) != 1:
        return None
    if metadata.shape[0] > _COORDINATE_VALUES or metadata.grid.counts[0] > _COORDINATE_CHUNKS:
        return None
    parts: list[NDArray[np.float64]] = []
    for number in range(metadata.grid.counts[0]):
        chunk = chunks.open((number,))
        try:
            parts.append(np.frombuffer(chunk.decoded(), dtype).astype(np.float64))
        finally:
            chunk.close()
    return np.concatenate(parts)[: metadata.shape[0]] if parts else None
