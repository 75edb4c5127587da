"""`GROUP.json`, and `store.json` for the root: path, format and attributes of a group, and the levels of an image."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fsbridge.errors import PASSING, FsbridgeError
from fsbridge.layouts.directories import PathDirectory
from fsbridge.layouts.files.arrays.extents import Unfit
from fsbridge.layouts.files.arrays.open_array import OpenArray
from fsbridge.layouts.files.groups.group_file import GroupFile
from fsbridge.layouts.files.groups.images import open_levels
from fsbridge.layouts.files.groups.pyramids import pyramid_of
from fsbridge.layouts.files.groups.surroundings import OpenGroup, is_pyramid
from fsbridge.layouts.files.groups.tables import columns_of, has_order
from fsbridge.layouts.json_text import encode
from fsbridge.layouts.nodes import DocumentFile
from fsbridge.meaning.conventions.netcdf import without_notes
from fsbridge.meaning.reading import read_group
from fsbridge.metadata import JSON


def group_document(shown: OpenGroup) -> DocumentFile:
    """Return the file `GROUP.json`, which describes a group."""
    return DocumentFile(partial(_describe_now, shown.path), _describe(shown), shown.group.mtime_ns)


def _describe_now(path: PathDirectory) -> bytes | None:
    shown = path.refresh()
    return _describe(shown) if isinstance(shown, OpenGroup) else None


def _describe(shown: OpenGroup) -> bytes:
    member, pyramid = shown.path.member, _describe_pyramid(shown)
    document: dict[str, JSON] = {
        "name": member.names[-1] if member.names else "",
        "path": "/" + "/".join(member.names),
        "kind": "group",
        "format": member.context.format_at(member.names).name,
        "attributes": without_notes(shown.group.attributes()),
    }
    table = _describe_table(shown)
    sections = {name: about for name, about in (("pyramid", pyramid), ("table", table)) if about is not None}
    return encode({**document, **sections})


def _describe_table(shown: OpenGroup) -> JSON:
    """Describe which columns `GROUP.csv` has, and why others are left out; None if the group names no columns."""
    if not has_order(shown.group):
        return None
    try:
        columns, left_out = columns_of(shown)
    except PASSING:
        raise
    except FsbridgeError as error:  # the error of one column must not hide the group's description
        return {"not_possible": str(error)}
    return {"columns": [column.name for column in columns], "left_out": left_out}


def _describe_pyramid(shown: OpenGroup) -> JSON:
    """Describe what `GROUP.ome.tif` consists of; None if no attributes or names say that the group is a pyramid."""
    if not is_pyramid(shown.group):
        return None
    try:
        return _describe_levels(open_levels(read_group(shown.group.attributes()), shown.array_at), shown.path.member.names)
    except PASSING:
        raise
    except FsbridgeError as error:  # the error of one level must not hide the group's description
        return {"not_possible": str(error)}


def _describe_levels(images: Sequence[Sequence[OpenArray]], group: Sequence[str]) -> JSON:
    """Describe for `GROUP.json` what `GROUP.ome.tif` shows: the levels of each image, or why there is no such file."""
    try:
        plan = pyramid_of(images)
    except Unfit as error:
        return {"not_possible": str(error)}
    paths = ("/".join(array.names[len(group) :]) for levels in images for array in levels)
    return {
        "images": [
            {
                "name": levels[0].view.title,
                "levels": [{"path": next(paths), "shape": list(level.view.shape)} for level in levels],
            }
            for levels in plan.images
        ]
    }


DOCUMENT = GroupFile("json", group_document, wanted="", root_name="store.json")
