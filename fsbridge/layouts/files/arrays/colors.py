"""Which axis holds the colours of a picture.

Pure. Imports no library, because `fsbridge --help` names the file types. Not here: what an axis counts (`meaning/kinds.py`),
where a picture lies in space (`filetypes/geometry.py`).
"""

from __future__ import annotations

from fsbridge.layouts.files.arrays.extents import View
from fsbridge.meaning.kinds import is_channel

_PRIMARIES = ((255, 0, 0), (0, 255, 0), (0, 0, 255))
_COLOR_NAMES = (("r", "g", "b"), ("red", "green", "blue"))
_LEAST_PICTURE = 5
"""Least width and height of a picture for an unnamed last axis of length 3 or 4 to count as colours."""


def find_color_axis(view: View) -> int | None:
    """Return the dimension that holds red, green, blue (and alpha) in a picture of bytes; None if there is none.

    It has 3 or 4 elements, and is an axis that is named as channels, or the last of three axes without names. If channels
    are described, they must be called red, green and blue, or have these colours and no names, because three microscope
    channels are not a colour picture. Stacks are no colour pictures either. Axes of length 1 are ignored.
    """
    dtype, places = view.dtype, _find_long_dimensions(view)
    if dtype is None or dtype != "u1" or len(places) != 3:
        return None
    named = [i for i in places if is_channel(view.axes[i])]
    if not named and not view.x_first and len(view.shape) == 3 and all(axis.name is None for axis in view.axes):
        named = [2] if min(view.shape[:2]) >= _LEAST_PICTURE else []
    if len(named) != 1 or view.shape[named[0]] not in (3, 4):
        return None
    channels = view.image.channels if view.image is not None else ()
    if channels:
        labels = tuple((channel.label or "").casefold() for channel in channels)
        colors = tuple(channel.color for channel in channels)
        if len(channels) != 3 or not (labels in _COLOR_NAMES or (not any(labels) and colors == _PRIMARIES)):
            return None
    return named[0]


def order_colors(view: View, axis: int) -> tuple[int, ...]:
    """Return the dimensions of a colour picture, slowest first: axes of length 1, then rows, columns, colours (`axis`)."""
    places = _find_long_dimensions(view)
    ones = [i for i in view.picture if i not in places]
    return (*ones, *(i for i in view.picture if i in places and i != axis), axis)


def _find_long_dimensions(view: View) -> list[int]:
    """Return the dimensions longer than one element; all dimensions if there are at most three."""
    every = list(range(len(view.shape)))
    return every if len(every) <= 3 else [i for i in every if view.shape[i] != 1]
