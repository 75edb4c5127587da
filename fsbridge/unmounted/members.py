"""The groups and arrays of a source, by their paths in a mount.

Not here: files (`virtual.py`), elements (`ordered.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from fsbridge.errors import FsbridgeError, NotFound, TooDeep
from fsbridge.model import Array, Child, Group, Link, Node, as_array
from fsbridge.tree import escape, unescape
from fsbridge.unmounted.virtual import VirtualTree, split


@dataclass(frozen=True, slots=True)
class OrderedMember:
    """A group or an array, or the error of what cannot be opened. `path` is that of the mount, from `/`."""

    path: str
    node: Group | Array | None
    error: Exception | None = None


def members(tree: VirtualTree, path: str = "") -> Iterator[OrderedMember]:
    """The group or array at `path` and all below it, in the order of their names; links are not followed."""
    node = find_member(tree, path)
    yield from _below("/" + "/".join(os.fsdecode(name) for name in split(path)), node, tree.config.limits.depth)


def find_member(tree: VirtualTree, path: str) -> Group | Array:
    """The group or array at `path`, as `members` names it; NotFound if there is none."""
    node: Node = tree.source.root
    for name in split(path):
        model = unescape(name)
        if model is None or as_array(node) is not None:
            raise NotFound("no such group or array")
        node = cast(Group, node).child(model)
    if isinstance(node, Link):
        raise NotFound(f"a link to {node.target}: name that")
    return node


def _below(path: str, node: Group | Array, depth: int) -> Iterator[OrderedMember]:
    if (array := as_array(node)) is not None:
        yield OrderedMember(path, array)
        return
    group = cast(Group, node)
    yield OrderedMember(path, group)
    try:
        if depth < 0:
            raise TooDeep("too many nested groups")
        children = sorted(group.children(), key=_shown)
    except (FsbridgeError, OSError) as error:
        yield OrderedMember(path, None, error)
        return
    for child in children:
        below = f"{path.rstrip('/')}/{child.name!a}"
        try:
            below = f"{path.rstrip('/')}/{os.fsdecode(escape(child.name))}"
            found = Link(child.link) if child.link is not None else group.child(child.name)
        except (FsbridgeError, OSError) as error:
            yield OrderedMember(below, None, error)
            continue
        if not isinstance(found, Link):
            yield from _below(below, found, depth - 1)


def _shown(child: Child) -> bytes:
    """Return the key that sorts members: the file name, if the member can have one."""
    try:
        return escape(child.name)
    except FsbridgeError:
        return child.name.encode("utf-8", "backslashreplace")
