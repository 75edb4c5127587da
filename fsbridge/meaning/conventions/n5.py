"""N5: `axes`, `units`, `resolution` (Neuroglancer), `pixelResolution` (n5-viewer, BigDataViewer), and Paintera's `maxId`.

N5's lists begin with the fastest axis, x. Levels of an image are called `s0`, `s1` and so on; `downsamplingFactors`, or
`scales` of the group, say how much smaller each is. `write` says the same for arrays of other formats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fsbridge.meaning import Attributes, Axes, Axis, GroupMeaning, Meaning
from fsbridge.meaning.attributes import number, numbers, one_each, text
from fsbridge.meaning.convention import Convention, Written, sensible, unknown
from fsbridge.meaning.conventions import cosem, xarray
from fsbridge.meaning.units import fold
from fsbridge.metadata import JSON

_GREATEST = "maxId"

_LEVEL_LISTS = ("scales", "downsamplingFactors")

_MARKS = frozenset(("downsamplingFactors", "scales", "multiScale", "pixelResolution", "resolution"))
"""Attributes that mark a group as one of levels."""


def dimension_names(attributes: Attributes, rank: int) -> tuple[str | None, ...] | None:
    """Return names of dimensions in N5's order, from `axes`, COSEM's `transform` or xarray's attribute.

    `axes` is used by TensorStore and n5-viewer. The other two are written slowest dimension first.
    """
    spelled = ((attributes.get("axes"), 1), (cosem.axis_names(attributes), -1), (attributes.get(xarray.DIMENSIONS), -1))
    for names, step in spelled:
        if isinstance(names, list) and len(names) == rank and rank and all(isinstance(name, str) for name in names):
            return tuple(name or None for name in names[::step])
    return None


def _array(written: Written, known: Meaning) -> Meaning:
    axes = _axes(written) if written.x_first and unknown(known.axes) else None
    greatest = _greatest(written) if known.values.greatest is None else None
    if axes is not None:
        known = replace(known, axes=sensible(axes))
    return known if greatest is None else replace(known, values=replace(known.values, greatest=greatest))


def _greatest(written: Written) -> int | None:
    """Return the greatest label as the array says it, or one of the two groups above: Paintera has levels between them."""
    dtype = written.metadata.dtype.numpy
    if dtype is None or dtype.kind != "u":
        return None
    named = (number(holder.get(_GREATEST), False) for holder in (written.attributes, *written.groups[:2]))
    return next((one for one in named if isinstance(one, int) and one >= 0), None)


def _axes(written: Written) -> Axes | None:
    """Return the axes by the attributes of the array, or of a group above it with the resolution of the full size."""
    own, rank, names = written.attributes, written.rank, written.names
    factors = numbers(own.get("downsamplingFactors"), rank)
    for above, attributes in enumerate((own, *written.groups)):
        scale, units = _resolution(attributes, rank)
        labels = one_each(attributes.get("axes"), rank)
        if scale is None and not any(isinstance(said, str) for said in (*labels, *units)):
            continue
        level = _level(attributes, names[-1] if names else "", rank) if above else None
        reduced = factors or level
        if scale is not None and reduced and not (above == 0 and _of_its_level(scale, reduced, written.groups)):
            scale = [a * b for a, b in zip(scale, reduced, strict=True)]
        offset = numbers(attributes.get("offset"), rank) if above == 0 else None
        steps: Sequence[float | None] = [None] * rank if scale is None else scale
        return tuple(
            Axis(text(label), fold(unit), step, start)
            for label, unit, step, start in zip(labels, units, steps, offset or [0.0] * rank, strict=True)
        )
    return None


def _of_its_level(scale: Sequence[float], factors: Sequence[float], groups: Sequence[Attributes]) -> bool:
    """True if a level's own resolution already includes its downsampling factors.

    That is so if it equals the resolution of a group above times the factors.

    If no group above has a resolution, the answer is False: the level's own resolution then counts as that of the full size.
    n5-viewer (`N5SingleScaleMetadata`) does the same, and so does Neuroglancer for an array that is opened by itself.
    """
    full = next((resolution for above in groups if (resolution := _resolution(above, len(scale))[0]) is not None), None)
    return full is not None and np.allclose(scale, np.multiply(full, factors), rtol=1e-6, atol=0)


def _resolution(attributes: Attributes, rank: int) -> tuple[list[float] | None, Sequence[JSON]]:
    """Return the scale and the units that the attributes of one group or array give. The scale is None if there is none."""
    units = one_each(attributes.get("units"), rank)
    scale = numbers(attributes.get("resolution"), rank)
    if scale is not None:
        return scale, units
    written = attributes.get("pixelResolution")
    if isinstance(written, dict):
        return numbers(written.get("dimensions"), rank), [written.get("unit")] * rank
    scale = numbers(written, rank)
    return scale, units if scale is None else ["um"] * rank  # as n5-viewer defines a list without a unit


def _level(attributes: Attributes, name: str, rank: int) -> list[float] | None:
    """Return the downsampling factors that a group's attributes list for its level `sN`."""
    if not (name.startswith("s") and name[1:].isascii() and name[1:].isdigit()):
        return None
    for key in _LEVEL_LISTS:
        levels = attributes.get(key)
        if isinstance(levels, list) and int(name[1:]) < len(levels):
            return numbers(levels[int(name[1:])], rank)
    return None


def _group(attributes: Attributes, known: GroupMeaning) -> GroupMeaning:
    return known if _MARKS.isdisjoint(attributes) else replace(known, numbered=True)


N5 = Convention("N5", _array, _group, frozenset((*_LEVEL_LISTS, _GREATEST)))
