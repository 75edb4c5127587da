"""`Convention`: what one convention says of arrays and groups; and `Written`, all that conventions are read from.

Not here: the conventions themselves (`conventions/`), their order (`reading.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fsbridge.meaning import Attributes, Axes, Axis, Coordinate, GroupMeaning, Kind, Meaning, no_coordinate
from fsbridge.metadata import JSON, ArrayMetadata

LEAST, MOST = 1e-20, 1e20
"""Least and greatest magnitude of a scale or an offset: 32-bit floats can hold these in every unit that a header uses."""


@dataclass(frozen=True, slots=True)
class Written:
    """An array and what is written around it.

    `groups`: attributes of the groups above the array, the nearest first; `names`: the array's path below the last of
    them; `x_first`: true if the source is N5, which writes attributes in its own order; `coordinate`: finds arrays beside
    it.
    """

    metadata: ArrayMetadata
    groups: Sequence[Attributes] = ()
    names: Sequence[str] = ()
    x_first: bool = False
    coordinate: Coordinate = no_coordinate

    @property
    def attributes(self) -> Mapping[str, JSON]:
        return self.metadata.attributes

    @property
    def rank(self) -> int:
        return len(self.metadata.shape)


@dataclass(frozen=True, slots=True)
class Convention:
    """A convention. A new one is a module that exports a record like this, and a line in `CONVENTIONS`.

    `array`, `group`: return what is known of an array or a group, with what this convention adds to what earlier ones have
    said; what is known already stays. They recognise by themselves whether the convention is in use.
    `particular`: attributes of a group that describe its members one by one. All others hold for every member alike.
    """

    name: str
    array: Callable[[Written, Meaning], Meaning] | None = None
    group: Callable[[Attributes, GroupMeaning], GroupMeaning] | None = None
    particular: frozenset[str] = frozenset()


def unknown(axes: Axes) -> bool:
    """True if nothing is known about any axis."""
    return all(axis == Axis() for axis in axes)


def stepped(axis: Axis, step: float, first: float, kind: Kind | None = None) -> Axis:
    """Return an axis with a step and its first element's position, if no step is known; `kind`: what it then counts."""
    return axis if axis.scale is not None else axis._replace(scale=step, offset=first, kind=axis.kind or kind)


def sensible(axes: Axes) -> Axes:
    """Return axes without a scale or an offset that is beyond `LEAST` or `MOST`: a scale of zero, for example."""
    return tuple([_sensible(axis) for axis in axes])


def _sensible(axis: Axis) -> Axis:
    scale = axis.scale if axis.scale is not None and LEAST <= abs(axis.scale) <= MOST else None
    offset = axis.offset if abs(axis.offset) <= MOST else 0.0
    return axis if scale == axis.scale and offset == axis.offset else axis._replace(scale=scale, offset=offset)
