"""Groups as their arrays need them: what stands around an array, and where in the source links lead.

Not here: which files groups and arrays are shown as (`layout.py`).
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, cast

from fsbridge.errors import PASSING, AccessDenied, CorruptData, FsbridgeError, NotFound, Stale, TooDeep, Unsupported
from fsbridge.layouts.directories import GroupDirectory, PathDirectory
from fsbridge.layouts.files.arrays import GroupAbove, OpenArray, Shared, Surroundings
from fsbridge.layouts.files.names import Neighbours
from fsbridge.model import Array, Child, Group, Link, Node, as_array

_GROUPS_ABOVE = 3
"""Groups above an array whose attributes may describe its axes: OME's multi-scales have paths of up to three names."""

_MAX_HOPS = 40
"""Links followed from one to the next, as the kernel does."""

_NO_GROUP = GroupAbove({}, None)


class SourceTree:
    """The source's groups and arrays by their paths. `root`: the directory at the empty one, once there is one."""

    def __init__(self) -> None:
        self.root: PathDirectory | None = None

    def resolve(self, names: Sequence[str], link: Link) -> Node | None:
        """What a link in the group at `names` leads to; None if to nothing that can be opened."""
        here, target = list(names), link.target
        try:
            for _ in range(_MAX_HOPS):
                for part in target.split("/"):
                    here = here[:-1] if part == ".." else here if part in (".", "") else [*here, part]
                node = self.at(here)
                if not isinstance(node, Link):
                    return node
                here, target = here[:-1], node.target
        except FsbridgeError:
            return None
        return None

    def at(self, names: Sequence[str]) -> Node:
        """What is at a path."""
        assert self.root is not None
        node: Node = self.root.member.present()
        for name in names:
            if isinstance(node, Link) or as_array(node) is not None:
                raise NotFound(name)  # a link in the middle of a link's path: the kernel follows those, we need not
            node = cast(Group, node).child(name)
        return node

    def groups_above(self, names: Sequence[str]) -> list[GroupAbove]:
        """The groups that lead to `names`, the nearest first."""
        found: list[GroupAbove] = []
        for level in range(len(names), max(-1, len(names) - 1 - _GROUPS_ABOVE), -1):
            try:
                node = self.at(names[:level])
                group = None if isinstance(node, Link) or as_array(node) else cast(Group, node)
                found.append(_NO_GROUP if group is None else GroupAbove(group.attributes(), group))
            except PASSING:
                raise  # a header that does not tell what they say would stay
            except FsbridgeError:
                found.append(_NO_GROUP)  # damaged attributes are an error where they are shown
        return found


class Around(NamedTuple):
    """What stands around the arrays of a group, as of the time `asked` (`time.monotonic`)."""

    asked: float
    surroundings: Surroundings
    neighbours: Neighbours


class OpenGroup(GroupDirectory):
    """A group whose arrays are opened with what stands around them."""

    def __init__(self, path: PathDirectory, group: Group, shared: Shared, tree: SourceTree) -> None:
        super().__init__(path, group)
        self._shared = shared
        self._tree = tree
        self._around: Around | None = None

    def opened(self, name: str, array: Array, around: Around | None = None) -> OpenArray:
        """An array of the group; `around`: as of then, else as of now."""
        member = self.path.member
        if len(member.names) >= member.context.config.limits.depth:
            raise TooDeep(f"{member}/{name}: too many nested groups")
        return self._shared.array(
            member.context, (*member.names, name), name.replace("/", "%2F"), array, (around or self.fresh()).surroundings
        )

    def reopened(self, name: str, version: Hashable) -> OpenArray:
        """An array of the group that its virtual file shows; Stale when it is another one by now."""
        array = self.member_array(name)
        if array.version != version:
            raise Stale(f"{name!r} has changed since the group's file was made")
        return self.opened(name, array)

    def fresh(self) -> Around:
        """What stands around the arrays of this group, looked at once within the time in which `stat` may be late anyway."""
        config, around = self.path.member.context.config, self._around
        if around is not None and (config.immutable or time.monotonic() - around.asked < config.metadata_ttl):
            return around
        try:
            return self.look_around(self.group.children())
        except (AccessDenied, CorruptData, Unsupported):  # nothing tells which names are taken; files are found by theirs
            return self.look_around(())

    def look_around(self, members: Iterable[Child]) -> Around:
        """The same among all `members` of the group, which are being listed."""
        around = self.surroundings()
        self._around = around = around._replace(neighbours=Neighbours.among(child.name for child in members))
        return around

    def surroundings(self) -> Around:
        """The same for who does not ask which names are taken: nothing is listed for it."""
        above = partial(self._tree.groups_above, self.path.member.names)
        return Around(time.monotonic(), Surroundings(above, self.member_array, self.path.member.context), Neighbours())

    def member_array(self, name: str) -> Array:
        """The array of that name; NotFound if there is none."""
        node = self.group.child(name)
        array = None if isinstance(node, Link) else as_array(node)
        if array is None:
            raise NotFound(f"{name!r} is no array")
        return array
