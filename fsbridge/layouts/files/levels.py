"""Which arrays below a group are the levels of an image: OME-NGFF, COSEM, N5 and BigDataViewer's N5 and HDF5.

OME-NGFF and COSEM list them in `multiscales`; N5 and BigDataViewer call them `s0`, `s1`, ... Not here: the file of a pyramid
(`pyramids.py`), which level suffices for a preview (`previews/pyramids.py`), what tells of axes (`axes.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import TypeVar

from fsbridge.errors import NotFound
from fsbridge.layouts.units import text
from fsbridge.metadata import JSON

A = TypeVar("A")
Path = tuple[str, ...]

_ENOUGH = 64
"""Most levels of an image. This is more than enough, because each level halves the one before."""

_HINTS = ("downsamplingFactors", "scales", "multiScale", "pixelResolution", "resolution")
"""Attributes that mark an N5 group as one of levels."""


def images(attributes: Mapping[str, JSON], opened: Callable[[Path], A]) -> list[list[A]]:
    """The levels of each image of a group, the first level first; empty if the group is no pyramid.

    `opened` opens the array at a path below the group; NotFound if there is none.
    """
    told = listed(attributes)
    if told:
        return [[opened(path) for path in paths] for paths in told]
    for prefix, rest in (("s", ()), ("", ("cells",))):  # N5, and BigDataViewer's HDF5
        found: list[A] = []
        try:
            for number in count():
                found.append(opened((f"{prefix}{number}", *rest)))
        except NotFound:
            pass
        if len(found) > 1:
            return [found]
    return []


def listed(attributes: Mapping[str, JSON]) -> list[list[Path]]:
    """Return the paths of the levels of each of OME-NGFF's images (0.1 to 0.6)."""
    ome, found = attributes.get("ome"), []
    told = (ome if isinstance(ome, dict) else attributes).get("multiscales")
    for scales in told if isinstance(told, list) else ():
        datasets = scales.get("datasets") if isinstance(scales, dict) else None
        paths = [text(one.get("path")) for one in datasets if isinstance(one, dict)] if isinstance(datasets, list) else []
        split = [tuple(path.strip("/").split("/")) for path in paths if path is not None]
        if split and len(split) <= _ENOUGH and all(part not in ("", ".", "..") for path in split for part in path):
            found.append(split)
    return found


def members(attributes: Mapping[str, JSON], names: Callable[[], Iterable[str]] = tuple) -> list[str]:
    """Return the names of members that are the levels of a group's first image, finest first; empty if it is no image.

    Nothing is opened. `names` returns all members; it is called if attributes tell that there are levels, but not which.
    """
    told = listed(attributes)
    if told:
        return [path[0] for path in told[0] if len(path) == 1]
    if any(key in attributes for key in _HINTS):
        numbered = [name for name in names() if re.fullmatch(r"s(0|[1-9][0-9]{0,2})", name)]
        found = sorted(numbered, key=lambda name: int(name[1:]))[:_ENOUGH]
        return found if found == [f"s{number}" for number in range(len(found))] and len(found) > 1 else []
    return []
