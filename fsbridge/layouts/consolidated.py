"""The documents of a group and of all members below it, as a layout shows them: what consolidated metadata are made of.

They are complete or an error, because readers take a member that consolidated metadata do not name for absent. Not here: how
a layout spells them, and what it does with the error (`zarr2.py`, `zarr3.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import cast

from fsbridge.errors import FsbridgeError, NotFound, TooDeep, TooLarge
from fsbridge.layouts.directories import ArrayDirectory, PathDirectory
from fsbridge.layouts.members import SourceMember, openers
from fsbridge.layouts.nodes import Documents, file_name
from fsbridge.links import MAX_LINKS, follow
from fsbridge.model import Group, Link, Node, as_array


class Descendants:
    """Yields everything below one group, with links followed. The `prefix` of a path is empty or ends with `/`."""

    def __init__(self, limit: int, document: str, advice: str = "") -> None:
        """`limit`: the most groups and arrays.

        For messages: `document` describes them, `advice` says what helps above the limit.
        """
        self.limit = limit
        self.document = document
        self.advice = advice
        self.members = 0

    def documents(self, path: PathDirectory, prefix: str = "", links: int = 0) -> Iterator[tuple[str, Documents]]:
        """Yield the documents of `path`, and of everything below it, each with its prefix.

        `prefix`: of `path`; `links`: how many links were followed to it. Raises the error of any member that cannot be
        described, and TooLarge if there are too many.
        """
        self.members += 1
        if self.members > self.limit:
            raise TooLarge(f"there are more than {self.limit} groups and arrays{self.advice}")
        layout, member = path.layout, path.member
        if prefix.count("/") > member.context.config.limits.depth:
            raise TooDeep(f"{prefix}: groups are nested too deeply")
        shown = path.refresh()
        if isinstance(shown, ArrayDirectory):
            shown.array.metadata.shown_attributes()  # raises the reason why the document cannot be made
            yield prefix, shown.documents()
            return
        yield prefix, shown.own_documents()
        group = shown.group
        for child, opener in openers(group, group.children(), member.context.config.is_remote):
            name = os.fsdecode(file_name(child.name, layout.documents))
            try:
                destination, followed = _resolve(member, child.name, opener(), links)
                array = None if destination is None else as_array(destination.refresh_node())
            except FsbridgeError as error:
                raise type(error)(f"{prefix}{name} is missing in {self.document}: {error}") from None
            if destination is not None and (array is None or layout.refusal(array.metadata) is None):
                yield from self.documents(PathDirectory(layout, destination), f"{prefix}{name}/", followed)


def _resolve(member: SourceMember, name: str, node: Node, links: int) -> tuple[SourceMember | None, int]:
    """Return a member of a group, and how many links were followed to it; None in its place if a link leads nowhere.

    `links`: how many were followed to the group.
    """
    if not isinstance(node, Link):
        return member.child(name, node), links
    if links >= MAX_LINKS:  # counted over the whole path, as Linux does, because links may form a circle
        raise TooDeep(f"{member}/{name}: more than {MAX_LINKS} links must be followed")
    try:
        target = follow(cast(Group, member.root.refresh_node()), member.names, node.target)
    except (NotFound, TooDeep):
        return None, links
    destination = member.root
    for part, opened in target.trail:
        destination = destination.child(part, opened)
    return destination, links + 1 + target.links
