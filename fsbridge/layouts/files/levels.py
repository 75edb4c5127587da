"""Which arrays below a group are the levels of an image: OME-NGFF, N5 and BigDataViewer's N5 and HDF5.

Not here: the file of a pyramid (`pyramids.py`), what tells of axes (`axes.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import TypeVar

from fsbridge.errors import NotFound
from fsbridge.layouts.units import text
from fsbridge.metadata import JSON

A = TypeVar("A")
Path = tuple[str, ...]

_ENOUGH = 64
"""Levels of an image: each is half of the one before."""


def images(attributes: Mapping[str, JSON], opened: Callable[[Path], A]) -> list[list[A]]:
    """The levels of each image of a group, the first level first; none where it is no pyramid.

    `opened` opens the array at a path below the group; NotFound where there is none.
    """
    told = list(_multiscales(attributes))
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


def _multiscales(attributes: Mapping[str, JSON]) -> Iterator[list[Path]]:
    """Paths of the levels of each of OME-NGFF's images (0.1 to 0.6)."""
    ome = attributes.get("ome")
    listed = (ome if isinstance(ome, dict) else attributes).get("multiscales")
    for scales in listed if isinstance(listed, list) else ():
        datasets = scales.get("datasets") if isinstance(scales, dict) else None
        paths = [text(one.get("path")) for one in datasets if isinstance(one, dict)] if isinstance(datasets, list) else []
        split = [tuple(path.strip("/").split("/")) for path in paths if path is not None]
        if split and len(split) <= _ENOUGH and all(part not in ("", ".", "..") for path in split for part in path):
            yield split
