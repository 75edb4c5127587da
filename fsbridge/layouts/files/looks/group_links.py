"""Which files of a group as a whole a page links: of the group that it shows, and of the groups in its rows.

Not here: what these files are (`groups/`, `h5/`, `plates.py`), the page (`group_page.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fsbridge.layouts.files.arrays.names import parse_name
from fsbridge.layouts.files.groups.group_file import GroupFile
from fsbridge.layouts.files.groups.levels import PREVIEW
from fsbridge.layouts.files.groups.surroundings import OpenGroup
from fsbridge.layouts.files.looks.page import make_link, make_link_above
from fsbridge.layouts.files.looks.plates import PICTURE as PLATE
from fsbridge.model import Group
from fsbridge.tree import escape

IMAGE = PREVIEW.suffix
"""Suffix of the picture of a group that is an image."""

PICTURES = (PLATE.suffix, f".{IMAGE}")
"""How the names of files with a picture of all of a group end."""

_PAGE, _DESCRIPTION = "index.html", "json"
_FIRST = (PLATE.suffix, IMAGE, "companion.ome", "ome.tif", "csv")
"""Suffixes of files in the order in which they are linked. All others follow, and the description is the last one."""


def _order(kinds: Sequence[GroupFile]) -> list[GroupFile]:
    """Return the kinds of files in the order in which a page links them, without the page itself."""
    places = {suffix: place for place, suffix in enumerate(_FIRST)} | {_DESCRIPTION: len(_FIRST) + 1}
    return sorted((kind for kind in kinds if kind.suffix != _PAGE), key=lambda kind: places.get(kind.suffix, len(_FIRST)))


def find_suffixes(group: Group, kinds: Sequence[GroupFile]) -> list[str]:
    """Return the suffixes of the files beside a group that its row links, as far as the group's attributes tell."""
    beside = [kind for kind in _order(kinds) if not kind.inside and kind.suffix != _DESCRIPTION]
    applies = {kind.applies: kind.applies(group) for kind in beside}  # each question is asked once
    return [suffix for kind in beside if applies[kind.applies] for suffix in (kind.suffix, *kind.aliases)]


def find_own_files(shown: OpenGroup, has: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """Yield the name of each of a group's own files, with a link to it.

    Those of the root lie in it, most others beside a group.

    `has` tells whether the group has a member. Whether the group above has a member called like one of these files is not
    looked up, because that takes six requests for each page of a store on a server; the link then leads to that member.
    """
    called, is_root = shown.listed_as, shown.path.member.above is None
    for kind in _order(shown.kinds):
        inside = is_root or kind.inside
        if not kind.applies(shown.group):
            continue
        for name in (kind.make_name(called, is_root), *(f"{called}.{alias}" for alias in kind.aliases)):
            arrays = [reading.array for reading in parse_name(name) if reading.region is None and reading.array != called]
            if not inside:
                yield name, make_link_above(escape(name))
            elif not any(map(has, (name, *arrays))):
                yield name, make_link(escape(name))
