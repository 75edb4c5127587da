"""`GROUP.json`, and `store.json` for the root: path, format and attributes of a group, and the levels of an image."""

from __future__ import annotations

from functools import partial

from fsbridge.layouts.directories import PathDirectory
from fsbridge.layouts.files.groups.group_file import GroupFile
from fsbridge.layouts.files.groups.pyramids import describe_pyramid
from fsbridge.layouts.files.groups.surroundings import OpenGroup
from fsbridge.layouts.json_text import encode
from fsbridge.layouts.nodes import DocumentFile
from fsbridge.metadata import JSON


def group_document(shown: OpenGroup) -> DocumentFile:
    """Return the JSON file of a group."""
    return DocumentFile(partial(_describe_now, shown.path), _describe(shown), shown.group.mtime_ns)


def _describe_now(path: PathDirectory) -> bytes | None:
    shown = path.present()
    return _describe(shown) if isinstance(shown, OpenGroup) else None


def _describe(shown: OpenGroup) -> bytes:
    member, pyramid = shown.path.member, describe_pyramid(shown)
    document: dict[str, JSON] = {
        "name": member.names[-1] if member.names else "",
        "path": "/" + "/".join(member.names),
        "kind": "group",
        "format": member.context.format_at(member.names).name,
        "attributes": dict(shown.group.attributes()),
    }
    return encode(document if pyramid is None else {**document, "pyramid": pyramid})


DOCUMENT = GroupFile("json", group_document, wanted="", root_name="store.json")
