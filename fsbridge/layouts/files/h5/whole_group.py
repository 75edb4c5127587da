"""The record of `GROUP.h5`. Not here: the file in the tree (`nodes.py`), what is in it (`walk.py`)."""

from __future__ import annotations

from functools import partial

from fsbridge.layouts.files.filetypes.h5 import H5
from fsbridge.layouts.files.groups.group_file import GroupFile
from fsbridge.layouts.files.groups.surroundings import OpenGroup
from fsbridge.layouts.files.h5.making import Making
from fsbridge.layouts.files.h5.nodes import H5Files, H5Group
from fsbridge.layouts.files.h5.walk import group_file


def whole_group(shown: OpenGroup) -> H5Group:
    """Return the HDF5 file of a group and all below it."""
    names, depth = shown.path.member.names, shown.path.member.context.config.limits.depth
    files, name = shown.part(H5Files), shown.path_of(H5.suffix)
    return files.find(names, lambda: Making(name, partial(group_file, shown, names, depth), files.room))


WHOLE_GROUP = GroupFile(H5.suffix, whole_group, wanted=H5.suffix, aliases=H5.aliases)
