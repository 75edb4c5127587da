"""Which files of a group as a whole a page links: of the group that it shows, and of the groups in its rows.

Not here: what these files are (`groups/`, `h5/`, `plates.py`), the page (`group_page.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from fsbridge.errors import FsbridgeError, is_lasting
from fsbridge.layouts.files.arrays.names import readings
from fsbridge.layouts.files.groups.documents import DOCUMENT
from fsbridge.layouts.files.groups.levels import PREVIEW
from fsbridge.layouts.files.groups.pyramids import PYRAMID
from fsbridge.layouts.files.groups.surroundings import OpenGroup
from fsbridge.layouts.files.groups.tables import TABLE
from fsbridge.layouts.files.h5.whole_group import WHOLE_GROUPS
from fsbridge.layouts.files.looks.companion import COMPANION
from fsbridge.layouts.files.looks.page import link, link_above
from fsbridge.layouts.files.looks.plates import PICTURE as PLATE
from fsbridge.layouts.members import has_child
from fsbridge.model import Group
from fsbridge.tree import escape

IMAGE = PREVIEW.suffix
"""Suffix of the picture of a group that is an image."""

PICTURES = (PLATE.suffix, f".{IMAGE}")
"""How the names of files with a picture of all of a group end."""

_OWN = (PLATE, PREVIEW, COMPANION, PYRAMID, TABLE, *WHOLE_GROUPS, DOCUMENT)
_OF_ROWS = (PREVIEW, PYRAMID, TABLE, *WHOLE_GROUPS)
"""Kinds of files in the order in which they are linked, the picture first."""


def suffixes_of(group: Group) -> list[str]:
    """Return the suffixes of the files beside a group that its row links, as far as its attributes tell."""
    applies = {kind.applies: kind.applies(group) for kind in _OF_ROWS}  # each question is asked once
    return [suffix for kind in _OF_ROWS if applies[kind.applies] for suffix in (kind.suffix, *kind.aliases)]


def own_files(shown: OpenGroup, has: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """Yield the names of a group's own files, and links to them: those of the root lie in it, most others beside a group.

    `has` tells whether the group has a member. No files beside a group on a server, where such questions are requests.
    """
    above, called = shown.path.member.above, shown.listed_as
    try:
        beside = None if above is None or shown.path.member.context.config.is_remote else partial(has_child, above.group())
    except FsbridgeError as error:
        if not is_lasting(error):
            raise
        beside = None
    for kind in _OWN:
        inside = above is None or kind.inside
        taken = has if inside else beside
        if taken is None or not kind.applies(shown.group):
            continue
        for name in (kind.called(called, above is None), *(f"{called}.{alias}" for alias in kind.aliases)):
            arrays = [reading.array for reading in readings(name) if reading.region is None and reading.array != called]
            if not any(map(taken, (name, *arrays))):
                yield name, link(escape(name)) if inside else link_above(escape(name))
