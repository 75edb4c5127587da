"""Which arrays are the levels of a group's images. Only the function `open_levels` opens any.

Not here: what attributes say of them (`meaning/conventions/`), the file of a pyramid (`pyramids.py`), which level suffices
for a preview (`levels.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import count
from typing import TypeVar

from fsbridge.errors import NotFound
from fsbridge.meaning import GroupMeaning, Path

A = TypeVar("A")


def open_levels(meaning: GroupMeaning, open_array: Callable[[Path], A]) -> list[list[A]]:
    """Open the levels of each image of a group, the first level first; empty if the group is no pyramid.

    `open_array` opens the array at a path below the group; NotFound if there is none.
    """
    if meaning.images:
        return [[open_array(path) for path in paths] for paths in meaning.images]
    for prefix, rest in (("s", ()), ("", ("cells",))):  # N5, and BigDataViewer's HDF5
        levels: list[A] = []
        try:
            for number in count():
                levels.append(open_array((f"{prefix}{number}", *rest)))
        except NotFound:
            pass
        if len(levels) > 1:
            return [levels]
    return []


def level_names(meaning: GroupMeaning, names: Callable[[], Iterable[str]] = tuple) -> list[str]:
    """Return the names of members that are the levels of a group's first image, finest first; empty if it is no image.

    Nothing is opened. `names` returns all members; it is called if attributes tell that there are levels, but not which.
    """
    if meaning.images:
        return [path[0] for path in meaning.images[0] if len(path) == 1]
    if meaning.numbered:
        numbered = [name for name in names() if re.fullmatch(r"s(0|[1-9][0-9]{0,2})", name)]
        levels = sorted(numbered, key=lambda name: int(name[1:]))[:64]  # enough, as each level halves
        return levels if levels == [f"s{number}" for number in range(len(levels))] and len(levels) > 1 else []
    return []
