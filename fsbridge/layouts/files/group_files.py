"""The table of all files of groups in the layout `files`. Each is a record (`groups/group_file.py`).

A new one is a module and a line of the table. Not here: files of arrays (`filetypes/__init__.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fsbridge.layouts.files.arrays.names import ENDINGS
from fsbridge.layouts.files.groups.documents import DOCUMENT
from fsbridge.layouts.files.groups.group_file import GroupFile
from fsbridge.layouts.files.groups.levels import PREVIEW
from fsbridge.layouts.files.groups.matrices import COLUMN_NAMES, MATRIX, ROW_NAMES
from fsbridge.layouts.files.groups.pyramids import PYRAMID
from fsbridge.layouts.files.groups.tables import TABLE
from fsbridge.layouts.files.h5.whole_group import WHOLE_GROUPS
from fsbridge.layouts.files.looks.companion import COMPANION
from fsbridge.layouts.files.looks.group_page import PAGE
from fsbridge.layouts.files.looks.plates import PICTURE
from fsbridge.model import Group

GROUP_FILES: Sequence[GroupFile] = (
    PAGE,
    DOCUMENT,
    *WHOLE_GROUPS,
    TABLE,
    *(MATRIX, ROW_NAMES, COLUMN_NAMES),
    PREVIEW,
    PYRAMID,
    PICTURE,
    COMPANION,
)
"""All kinds of files, in the order of a listing."""


def find_beside(kinds: Sequence[GroupFile]) -> Mapping[str, GroupFile]:
    """Return the kinds of files that lie beside a group, by suffix."""
    return {suffix: one for one in kinds if not one.inside for suffix in (one.suffix, *one.aliases)}


def list_endings(kinds: Sequence[GroupFile] = GROUP_FILES) -> tuple[str, ...]:
    """Return all that can follow the name of an array or of a group, and a dot."""
    return tuple(sorted({*ENDINGS, *find_beside(kinds)}, key=len))


def file_names(
    kinds: Sequence[GroupFile], name: str, store: str, group: Group, wanted: Sequence[str]
) -> dict[str, list[str]]:
    """Return a group's files, as far as its attributes and the names of its members tell: see `directories.Layout`.

    `store`: what the files of the root, which has no `name`, are called.
    """
    listed, others, aliases = list[str](), list[str](), list[str]()
    for one in kinds:
        if one.applies(group):
            folder = f"{name}/" if name and one.inside else ""
            (listed if one.is_listed(wanted) else others).append(folder + one.make_name(name or store, not name))
            aliases += [f"{folder}{name or store}.{alias}" for alias in one.aliases]
    return {"files": listed, "by name": [*others, *aliases]}
