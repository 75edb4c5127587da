"""`Convention`: what one convention says of arrays and groups; and `Written`, all that conventions are read from.

Not here: the conventions themselves (`conventions/`), their order (`reading.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fsbridge.meaning import (
    Affine,
    Attributes,
    Axes,
    Axis,
    Coordinate,
    Distant,
    GroupMeaning,
    Kind,
    Meaning,
    no_coordinate,
    no_group,
)
from fsbridge.metadata import JSON, ArrayMetadata

LEAST, MOST = 1e-20, 1e20
"""Least and greatest magnitude of a scale or an offset: 32-bit floats can hold these in every unit that a header uses."""


_FLAT = 1e-9
"""Least volume that steps of length 1 along the dimensions may span. Below it, they do not differ in direction."""


@dataclass(frozen=True, slots=True)
class Written:
    """An array and what is written about it.

    `groups`: attributes of the groups above the array, the nearest first; `names`: the array's path below the last of
    them; `x_first`: true if the source is N5, which writes attributes in its own order; `coordinate`: finds arrays beside
    it; `distant`: finds groups that are not above it; `members`: names of everything in its group, with its own.
    """

    metadata: ArrayMetadata
    groups: Sequence[Attributes] = ()
    names: Sequence[str] = ()
    x_first: bool = False
    coordinate: Coordinate = no_coordinate
    distant: Distant = no_group
    members: Callable[[], Sequence[str]] = tuple

    @property
    def attributes(self) -> Mapping[str, JSON]:
        return self.metadata.attributes

    @property
    def rank(self) -> int:
        return len(self.metadata.shape)


@dataclass(frozen=True, slots=True)
class Convention:
    """A convention. A new one is a module that exports a record like this, and a line in `CONVENTIONS`.

    `array`, `group`: return what is known of an array or a group, with what this convention adds. What earlier conventions
    have said stays. These functions recognise by themselves whether the convention is in use.

    `particular`: attributes of a group that describe its members one by one. All others hold for every member alike.
    """

    name: str
    array: Callable[[Written, Meaning], Meaning] | None = None
    group: Callable[[Attributes, GroupMeaning], GroupMeaning] | None = None
    particular: frozenset[str] = frozenset()


def unknown(axes: Axes) -> bool:
    """True if nothing is known about any axis."""
    return all(axis == Axis() for axis in axes)


def set_step(axis: Axis, step: float, first: float, kind: Kind | None = None) -> Axis:
    """Return an axis with this step and the first element's position, if it had no step.

    `kind`: what the axis then counts.
    """
    return axis if axis.scale is not None else axis._replace(scale=step, offset=first, kind=axis.kind or kind)


def sensible_affine(affine: Affine) -> Affine | None:
    """Return the transformation; None if a number is beyond `MOST`, or if it puts different elements at the same place."""
    if any(abs(number) > MOST for row in (*affine.matrix, affine.offset) for number in row):
        return None
    steps = np.array(affine.matrix)
    lengths = np.linalg.norm(steps, axis=0)
    if lengths.min() < LEAST or abs(np.linalg.det(steps / lengths)) < _FLAT:
        return None
    return affine


def place_on_map(known: Meaning, row: int, column: int, six: Sequence[float], of_map: bool = False) -> Meaning:
    """Return what is known, with the places of a map's elements along its dimensions `row` and `column`.

    `six`: the middle of an element lies at x = six[0] * column + six[1] * row + six[2], y = six[3] * column + six[4] * row +
    six[5]. What already has a place keeps it. `of_map`: axes that get a place here count as a map's, whatever they are
    called.
    """
    y: Kind | None = "northing" if of_map else None
    x: Kind | None = "easting" if of_map else None
    axes = list(known.axes)
    if known.affine is not None and not {row, column}.isdisjoint(known.affine.dimensions):
        return known
    if not six[1] and not six[3]:
        axes[row], axes[column] = set_step(axes[row], six[4], six[5], y), set_step(axes[column], six[0], six[2], x)
        return replace(known, axes=sensible(tuple(axes)))
    if known.affine is not None or axes[row].scale is not None or axes[column].scale is not None:
        return known
    axes[row], axes[column] = (axes[i]._replace(kind=axes[i].kind or kind) for i, kind in ((row, y), (column, x)))
    lines = {row: {column: six[3], row: six[4]}, column: {column: six[0], row: six[1]}}
    offsets, places = {row: six[5], column: six[2]}, sorted((row, column))
    matrix = tuple(tuple(lines[target][place] for place in places) for target in places)
    affine = sensible_affine(Affine(tuple(places), matrix, tuple(offsets[place] for place in places)))
    return known if affine is None else replace(known, axes=tuple(axes), affine=affine)


def sensible(axes: Axes) -> Axes:
    """Return axes without any scale or offset that is beyond `LEAST` or `MOST`, such as a scale of zero."""
    return tuple([_sensible(axis) for axis in axes])


def _sensible(axis: Axis) -> Axis:
    scale = axis.scale if axis.scale is not None and LEAST <= abs(axis.scale) <= MOST else None
    offset = axis.offset if abs(axis.offset) <= MOST else 0.0
    return axis if scale == axis.scale and offset == axis.offset else axis._replace(scale=scale, offset=offset)
