"""The records of `GROUP.h5` and `GROUP.nc`.

Not here: the file in the tree (`nodes.py`, `stored_file.py`), what is in it (`walk.py`).
"""

from __future__ import annotations

from functools import partial

from fsbridge.layouts.files.filetypes.filetype import FileType
from fsbridge.layouts.files.filetypes.h5 import H5, NC
from fsbridge.layouts.files.groups.group_file import GroupFile
from fsbridge.layouts.files.groups.surroundings import OpenGroup
from fsbridge.layouts.files.h5.making import Making
from fsbridge.layouts.files.h5.nodes import H5Files, H5Group
from fsbridge.layouts.files.h5.walk import Walk
from fsbridge.layouts.stored_file import StoredFileNode


def make_whole_group(shown: OpenGroup, kind: FileType) -> H5Group | StoredFileNode:
    """Return a group as an HDF5 file: the source's own file if the group is its root, else a virtual one that is made."""
    stored = shown.group.whole_file()
    if stored is not None:
        return StoredFileNode(stored)
    names, depth = shown.path.member.names, shown.path.member.context.config.limits.depth
    files, name = shown.part(H5Files), shown.path_of(kind.suffix)

    def begin() -> Making:
        walk = Walk(names, kind is NC)
        return Making(name, partial(walk.make_file, shown, depth), files.room, walk.count_objects)

    return files.find((kind.suffix, names), begin)


WHOLE_GROUPS = tuple(GroupFile(kind.suffix, partial(make_whole_group, kind=kind), wanted=kind.suffix) for kind in (H5, NC))
