"""Which arrays of a group are the levels of one pyramid, finest first, and which of them a preview is made of. Pure.

OME-NGFF and COSEM list them in `multiscales`; N5 and BigDataViewer call them `s0`, `s1`, ... Not here: pyramids as files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from fsbridge.layouts.files.extents import View
from fsbridge.layouts.files.previews.picture import Preview
from fsbridge.layouts.files.previews.roles import plane
from fsbridge.layouts.files.previews.sampling import PIXELS
from fsbridge.metadata import JSON

_MOST_LEVELS = 32
"""Levels that are looked at: each is half as large as the one before."""


def levels(attributes: Mapping[str, JSON], members: Callable[[], Iterable[str]] = tuple) -> list[str]:
    """Return the names of a group's members that are the levels of its first pyramid, finest first; none if it is none.

    `members`: all names, which are asked for where attributes tell that there are levels, but not which.
    """
    ome = attributes.get("ome")
    holder = ome if isinstance(ome, dict) else attributes
    scales = holder.get("multiscales")
    for scale in scales if isinstance(scales, list) else ():
        datasets = scale.get("datasets") if isinstance(scale, dict) else None
        paths = [one.get("path") for one in datasets if isinstance(one, dict)] if isinstance(datasets, list) else []
        return [path for path in paths[:_MOST_LEVELS] if isinstance(path, str) and path and "/" not in path]
    if any(key in attributes for key in ("downsamplingFactors", "scales", "multiScale", "pixelResolution", "resolution")):
        numbered = [name for name in members() if re.fullmatch(r"s(0|[1-9][0-9]{0,2})", name)]
        found = sorted(numbered, key=lambda name: int(name[1:]))[:_MOST_LEVELS]
        return found if found == [f"s{number}" for number in range(len(found))] and len(found) > 1 else []
    return []


def sufficient(names: Sequence[str], view: Callable[[str], View], preview: Callable[[View], Preview]) -> str:
    """Return the coarsest level that fills a preview, or a coarser one where that would show its middle only.

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
