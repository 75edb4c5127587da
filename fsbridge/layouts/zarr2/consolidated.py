"""`.zmetadata`: all documents of a hierarchy in one. It is complete, or an error that says why it cannot be.

Readers rely on it: zarr-python 3 opens it by default and treats a member that it does not name as absent. So a member
that cannot be read makes the file an error. Not here: when it is made (`layout.py`), the documents (`documents.py`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import cast

from fsbridge.errors import FsbridgeError, NotFound, TooDeep, TooLarge
from fsbridge.layouts.directories import Layout
from fsbridge.layouts.json_text import encode
from fsbridge.layouts.member_names import file_name
from fsbridge.layouts.members import SourceMember
from fsbridge.metadata import JSON
from fsbridge.model import Group, Link, as_array

CONSOLIDATED = b".zmetadata"

MAX_MEMBERS = 10_000
"""Groups and arrays that are described in one document: a few seconds' work, and some ten megabytes."""

MAX_LINKS = 40
"""Most links followed to reach one member, the same limit as in Linux."""


def consolidated_document(root: SourceMember, layout: Layout) -> bytes:
    """The document of the hierarchy below `root`; TooLarge above `MAX_MEMBERS`, and the error of any unreadable member."""
    walk = _Consolidation(root, layout)
    walk.visit(root, "")
    return encode({"zarr_consolidated_format": 1, "metadata": walk.documents})


class _Consolidation:
    def __init__(self, root: SourceMember, layout: Layout) -> None:
        self.root = root
        self.layout = layout
        self.documents: dict[str, JSON] = {}
        self.members = 0

    def visit(self, member: SourceMember, prefix: str, links: int = 0) -> None:
        """Add the documents of `member`, at the path `prefix`, and of all below it. `links`: how many links led here."""
        self.members += 1
        if self.members > MAX_MEMBERS:
            raise TooLarge(f"more than {MAX_MEMBERS} groups and arrays: mount without --consolidated")
        if prefix.count("/") > member.context.config.limits.depth:
            raise TooDeep(f"{prefix}: too many nested groups")
        node = member.present()
        array = as_array(node)
        if array is not None:
            self._add(prefix, self.layout.array_documents(array.metadata, not member.names))
            return
        group = cast(Group, node)
        self._add(prefix, self.layout.group_documents(self.layout.describe(group), member.names))
        for child in group.children():
            name = os.fsdecode(file_name(child.name, self.layout.documents))
            try:
                found, followed = self.find(member, child.name, links)
                array = None if found is None else as_array(found.present())
            except FsbridgeError as error:
                raise type(error)(f"{prefix}{name} is missing in {CONSOLIDATED.decode()}: {error}") from None
            if found is not None and (array is None or self.layout.refusal(array.metadata) is None):
                self.visit(found, f"{prefix}{name}/", followed)

    def find(self, member: SourceMember, name: str, links: int) -> tuple[SourceMember | None, int]:
        """Return a member of a group (None for a link to nothing), and the number of links followed to it.

        `links`: how many led to the group.
        """
        before, parts = links, [name]
        while parts:
            part, *parts = parts
            try:
                node = member.present()
                if as_array(node) is not None:
                    return None, links
                found = cast(Group, node).child(part)
            except NotFound:
                if links == before:
                    raise
                return None, links
            if not isinstance(found, Link):
                member = member.child(part, found)
                continue
            links += 1
            if links > MAX_LINKS:  # of the whole path, as Linux counts: links to links to links could be followed for ever
                raise TooDeep(f"{member}/{part}: more than {MAX_LINKS} links on the way")
            member, parts = self.root, [*_followed(member.names, found.target), *parts]
        return member, links

    def _add(self, prefix: str, documents: Mapping[bytes, bytes]) -> None:
        for name, content in documents.items():
            self.documents[prefix + name.decode()] = json.loads(content)


def _followed(names: tuple[str, ...], target: str) -> tuple[str, ...]:
    """The path that a link in the group at `names` leads to."""
    path = list(names)
    for part in target.split("/"):
        if part == "..":
            del path[-1:]
        elif part not in (".", ""):
            path.append(part)
    return tuple(path)
