"""Previews of pyramids, `GROUP.preview.png`, and of the arrays in them: which of the levels they are made of.

Not here: how a preview is made (`looks/previews/`), which arrays are levels (`images.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fsbridge.asking import before_waiting
from fsbridge.errors import NotFound
from fsbridge.layouts.files.arrays.extents import Unfit, View
from fsbridge.layouts.files.arrays.nodes import ArrayFile
from fsbridge.layouts.files.arrays.open_array import OpenArray
from fsbridge.layouts.files.filetypes.previews import PICTURE
from fsbridge.layouts.files.groups.group_file import GroupFile
from fsbridge.layouts.files.groups.surroundings import OpenGroup, is_pyramid, names_of_levels
from fsbridge.layouts.files.looks.previews.picture import Preview, plan_picture
from fsbridge.layouts.files.looks.previews.sampling import PIXELS, choose_plane


def array_preview(shown: OpenGroup, array: OpenArray) -> ArrayFile:
    """Return the preview of an array of the group.

    A level of a pyramid is shown by the coarsest level that fills the preview.
    """
    levels = names_of_levels(shown.group)
    chosen = _choose_level(shown, levels[levels.index(array.name) :], array) if array.name in levels else array
    return ArrayFile(chosen, PICTURE.suffix, None, array.name)


def group_preview(shown: OpenGroup) -> ArrayFile:
    """Return the preview of a group that is a pyramid; NotFound if it is none."""
    levels = names_of_levels(shown.group)
    if not levels:
        raise NotFound(f"{shown.path_of(PICTURE.suffix)}: the group is no image of several levels")
    first = shown.open_array(levels[0], shown.member_array(levels[0]))
    return ArrayFile(_choose_level(shown, levels, first), PICTURE.suffix, None, shown.called)


def _choose_level(shown: OpenGroup, names: list[str], finest: OpenArray) -> OpenArray:
    """Return the level that the preview is made of: `finest`, or a coarser one of the levels `names`."""
    before_waiting()
    opened = {names[0]: finest}
    look = shown.look()
    for name in names[1:]:
        try:
            level = shown.open_array(name, shown.member_array(name), look)
        except NotFound:
            continue
        if not _is_level(level.make_view(), finest.make_view()):
            return finest
        opened[name] = level
    try:
        return opened[choose_sufficient(list(opened), lambda name: opened[name].make_view(), plan_picture)]
    except Unfit:
        return finest


def choose_sufficient(names: Sequence[str], view: Callable[[str], View], preview: Callable[[View], Preview]) -> str:
    """Return the name of the coarsest level that fills a preview. `names`: of the levels, finest first; at least one.

    If a preview could show only the middle of that level, return the next coarser one.
    """
    chosen = names[-1]
    for name in reversed(names):
        shown = view(name)
        if len(shown.shape) < 2 or (preview(shown).middle and name != names[-1]):
            return chosen
        chosen, parts = name, choose_plane(shown)
        if max(shown.shape[parts.rows], shown.shape[parts.columns]) >= PIXELS:
            return chosen
    return chosen


def _is_level(coarse: View, fine: View) -> bool:
    """True if `coarse` can be a level of `fine`: it has the same type and as many dimensions, none of them longer."""
    if coarse.dtype != fine.dtype or len(coarse.shape) != len(fine.shape):
        return False
    return all(less <= more for less, more in zip(coarse.shape, fine.shape, strict=True))


PREVIEW = GroupFile(PICTURE.suffix, group_preview, is_pyramid, wanted="preview", opened=True)
