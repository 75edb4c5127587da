"""The attributes of an array of another format as N5 has them: lists about axes begin with the fastest axis. Pure.

N5's readers multiply an array's `resolution` by its `downsamplingFactors`, so with factors `resolution` is that of the first
level. Not here: what N5's attributes mean (`n5.py`), N5's own members of the document (`layouts/n5`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fsbridge.meaning import Attributes, Axes
from fsbridge.meaning.attributes import is_finite
from fsbridge.meaning.conventions import xarray
from fsbridge.metadata import JSON

_AXES = ("axes", "units", "resolution")
"""Attributes for which TensorStore refuses an array unless they are lists with one text, text or number for each axis."""

_ALONG_AXES = frozenset(
    (*_AXES, "offset", "scale", "scales", "translation", "voxel_size", "downsamplingFactors", "pixelResolution")
)
"""Attributes with one entry per axis, N5's first dimension first."""

_SPACING = ("units", "resolution", "pixelResolution", "downsamplingFactors")
"""Attributes that are only meaningful together. If the array has any of them, none is added."""

_TOLERANCE = 1e-6
"""Relative tolerance with which the ratio of two scales is an integer, because scales are rounded decimals."""


class Spacing(NamedTuple):
    """The attributes by which N5 describes axes, in the array's own order.

    A list is empty unless the source has an entry for every axis.
    """

    names: tuple[str | None, ...] = ()
    units: tuple[str, ...] = ()
    resolution: tuple[float, ...] = ()
    factors: tuple[int, ...] = ()


def spacing_of(axes: Axes, first: Axes | None) -> Spacing:
    """Return how N5 describes axes. `first`: the axes of the first level of the array's image, if it is a level of one."""
    labels = tuple(axis.name for axis in axes)
    scales = tuple(axis.scale for axis in axes if axis.scale is not None and axis.scale > 0)
    if not axes or len(scales) < len(axes):
        return Spacing(labels)
    units = tuple(axis.unit or "" for axis in axes)
    full, factors = _factors(scales, first)
    return Spacing(labels, units if any(units) else (), full, factors)


def _factors(scales: tuple[float, ...], first: Axes | None) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Return `resolution` (of the first level) and `downsamplingFactors` of a level.

    If the factors are no integers, return the level's own scales and no factors.
    """
    full = tuple(axis.scale for axis in first or () if axis.scale is not None and axis.scale > 0)
    if len(full) < len(scales):
        return scales, ()
    ratios = [scale / of for scale, of in zip(scales, full, strict=True)]
    factors = tuple(round(ratio) for ratio in ratios)
    if any(n < 1 or abs(ratio - n) > _TOLERANCE * n for n, ratio in zip(factors, ratios, strict=True)):
        return scales, ()
    return full, factors


def array_attributes(
    attributes: Attributes, names: Sequence[str | None], spacing: Spacing, turned: bool, taken: frozenset[str]
) -> dict[str, JSON]:
    """Return an array's attributes. `names`: of its dimensions; `turned`: the array appears with its axes reversed.

    `taken`: names that N5 itself defines. An attribute with such a name gets another one.
    """
    rank = len(names)
    unfit = {name for name in _AXES if name in attributes and not _describes_axes(name, attributes[name], rank)}
    shown = {
        name: _along_axes(value, rank) if turned and name in _ALONG_AXES else value
        for name, value in renamed(attributes, taken | unfit).items()
    }
    slowest_first = shown.get(xarray.DIMENSIONS)  # zarr-python 2, which reverses N5's dimensions, leaves it as it is
    if not turned and rank > 1 and isinstance(slowest_first, list):
        shown[xarray.DIMENSIONS] = _along_axes(slowest_first, rank)
    axes = [name or "" for name in spacing.names or names]
    if "axes" not in shown and any(axes) and _describes_axes("axes", axes, rank):
        shown["axes"] = reversed_list(axes, turned)
    if shown.keys().isdisjoint(_SPACING):
        added = {"units": spacing.units, "resolution": spacing.resolution, "downsamplingFactors": spacing.factors}
        shown |= {name: reversed_list(values, turned) for name, values in added.items() if values}
    return shown


def _describes_axes(name: str, value: JSON, rank: int) -> bool:
    """True if N5 readers accept `value` for the attribute `name`, one of `_AXES`.

    In `axes`, only empty labels may repeat.
    """
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


def reversed_list(values: Sequence[JSON], turned: bool) -> list[JSON]:
    """Return a list with an entry for each axis, reversed if the array's axes are `turned`."""
    return list(reversed(values)) if turned else list(values)


def renamed(attributes: Attributes, unfit: frozenset[str] | set[str]) -> dict[str, JSON]:
    """Return the attributes. To each name in `unfit`, `_` is appended until it differs from all other names."""
    return {_free(name, attributes, unfit) if name in unfit else name: value for name, value in attributes.items()}


def _free(name: str, attributes: Attributes, unfit: frozenset[str] | set[str]) -> str:
    while name in attributes or name in unfit:
        name += "_"
    return name
