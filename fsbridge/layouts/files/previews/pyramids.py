"""Chooses the level of a pyramid from which a preview is made.

Not here: which arrays are levels (`levels.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

from fsbridge.asking import before_waiting
from fsbridge.errors import NotFound
from fsbridge.layouts.files.arrays import OpenArray
from fsbridge.layouts.files.extents import Unfit, View
from fsbridge.layouts.files.groups import OpenGroup
from fsbridge.layouts.files.levels import members as levels
from fsbridge.layouts.files.nodes import ArrayFile
from fsbridge.layouts.files.previews.picture import Preview, picture
from fsbridge.layouts.files.previews.roles import plane
from fsbridge.layouts.files.previews.sampling import PIXELS

SUFFIX = "preview.png"

_MOST_MEMBERS = 1000
"""Members of a group among which levels are looked for."""


def level_of(shown: OpenGroup, array: OpenArray) -> OpenArray:
    """Return the level of the array's pyramid that its preview is made of: the array itself if it is in none."""
    found = _levels(shown)
    return _chosen(shown, found[found.index(array.name) :], array) if array.name in found else array


def pyramid_preview(shown: OpenGroup, name: str) -> ArrayFile | None:
    """Return the preview of a group, called `name`, that is a pyramid; None if it is not one."""
    found = _levels(shown)
    if not found:
        return None
    first = shown.opened(found[0], shown.member_array(found[0]))
    return ArrayFile(_chosen(shown, found, first), SUFFIX, None, name)


def _levels(shown: OpenGroup) -> list[str]:
    members = islice(shown.group.children(), _MOST_MEMBERS)
    return levels(shown.group.attributes(), lambda: (child.name for child in members))


def _chosen(shown: OpenGroup, names: list[str], finest: OpenArray) -> OpenArray:
    """Return the level to show. `finest` is the first of the levels."""
    before_waiting()
    opened = {names[0]: finest}
    around = shown.fresh()
    for name in names[1:]:
        try:
            level = shown.opened(name, shown.member_array(name), around)
        except NotFound:
            continue
        if not _is_level(level.view(), finest.view()):
            return finest
        opened[name] = level
    try:
        return opened[sufficient(list(opened), lambda name: opened[name].view(), picture)]
    except Unfit:
        return finest


def sufficient(names: Sequence[str], view: Callable[[str], View], preview: Callable[[View], Preview]) -> str:
    """Return the coarsest level that fills a preview, or a coarser one if that level could only show its middle.

    `names` are levels, finest first; at least one.
    """
    chosen = names[-1]
    for name in reversed(names):
        shown = view(name)
        if len(shown.shape) < 2 or (preview(shown).middle and name != names[-1]):
            return chosen
        chosen, parts = name, plane(shown)
        if max(shown.shape[parts.rows], shown.shape[parts.columns]) >= PIXELS:
            return chosen
    return chosen


def _is_level(coarse: View, fine: View) -> bool:
    """True if an array can be a level of another: of the same elements, and smaller."""
    if coarse.dtype != fine.dtype or len(coarse.shape) != len(fine.shape):
        return False
    return all(less <= more for less, more in zip(coarse.shape, fine.shape, strict=True))
