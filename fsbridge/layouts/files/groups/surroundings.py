"""Groups as the context of their arrays (attributes above, neighbours), and where links in the source lead.

Not here: which files groups and arrays are shown as (`layout.py`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple, cast

from fsbridge.asking import Kept
from fsbridge.errors import (
    PASSING,
    AccessDenied,
    CorruptData,
    FsbridgeError,
    NotFound,
    Stale,
    TooDeep,
    Unsupported,
    is_lasting,
)
from fsbridge.layouts.axes import Attributes
from fsbridge.layouts.directories import GroupDirectory, PathDirectory
from fsbridge.layouts.files.arrays.names import Neighbours
from fsbridge.layouts.files.arrays.open_array import OpenArray, Shared, Surroundings
from fsbridge.layouts.files.groups.images import images, level_names, listed_levels
from fsbridge.layouts.files.groups.pyramids import described
from fsbridge.layouts.json_text import encode
from fsbridge.layouts.members import GROUPS_ABOVE
from fsbridge.layouts.nodes import DocumentFile
from fsbridge.links import follow
from fsbridge.metadata import JSON
from fsbridge.model import Array, Child, Group, Link, Node, as_array

_MOST_MEMBERS = 1000
"""Members of a group among which levels are looked for."""

STORE_DOCUMENT = "store.json"
"""File of the root group's attributes. For any other group it is `GROUP.json`."""


class SourceTree:
    """Finds the source's groups and arrays by path. `root`: the directory of the root, once it has been made."""

    def __init__(self) -> None:
        self.root: PathDirectory | None = None

    def resolve(self, names: Sequence[str], link: Link) -> Group | Array | None:
        """Return the target of a link in the group at `names`; None if it cannot be opened."""
        assert self.root is not None
        try:
            return follow(self.root.member.present(), names, link.target).node
        except FsbridgeError:
            return None

    def at(self, names: Sequence[str]) -> Node:
        """Open the group, array or link at a path."""
        assert self.root is not None
        node: Node = self.root.member.present()
        for name in names:
            if isinstance(node, Link) or as_array(node) is not None:
                raise NotFound(name)
            node = cast(Group, node).child(name)
        return node

    def groups_above(self, names: Sequence[str]) -> list[Attributes]:
        """Return the attributes of the group at `names` and of those above it, the nearest first."""
        found: list[Attributes] = []
        for level in range(len(names), max(-1, len(names) - 1 - GROUPS_ABOVE), -1):
            try:
                node = self.at(names[:level])
                found.append({} if isinstance(node, Link) or as_array(node) else cast(Group, node).attributes())
            except PASSING:
                raise  # else a header would lack what the attributes say for good
            except FsbridgeError:
                found.append({})  # damaged attributes are an error only where they are shown themselves
        return found


class Around(NamedTuple):
    """The context of a group's arrays: attributes and coordinates around them, and names that could be their files'."""

    surroundings: Surroundings
    neighbours: Neighbours


class OpenGroup(GroupDirectory):
    """A group that opens its arrays together with their context (`Around`)."""

    def __init__(self, path: PathDirectory, group: Group, shared: Shared, tree: SourceTree) -> None:
        super().__init__(path, group)
        self._shared = shared
        self._tree = tree
        self._kept = Kept[Around]()

    def opened(self, name: str, array: Array, around: Around | None = None) -> OpenArray:
        """Open an array of the group. `around`: its context, if known already; else it is looked up."""
        member = self.path.member
        if len(member.names) >= member.context.config.limits.depth:
            raise TooDeep(f"{member}/{name}: too many nested groups")
        return self._shared.array(
            member.context, (*member.names, name), name.replace("/", "%2F"), array, (around or self.fresh()).surroundings
        )

    def reopened(self, name: str, version: Hashable) -> OpenArray:
        """Open again an array that the group's virtual file shows; Stale if its version is not `version` any more."""
        array = self.member_array(name)
        if array.version != version:
            raise Stale(f"{name!r} has changed since the group's file was made")
        return self.opened(name, array)

    def resolved(self, link: Link) -> Group | Array | None:
        """Return the target of a link in this group; None if it cannot be opened."""
        return self._tree.resolve(self.path.member.names, link)

    def below(self, path: tuple[str, ...]) -> OpenArray:
        """The array at a path below the group; NotFound if there is none."""
        here = self.at(path[:-1])
        return here.opened(path[-1], here.member_array(path[-1]))

    def at(self, path: Sequence[str]) -> OpenGroup:
        """The group at a path below this one; NotFound if there is none."""
        here = self
        for name in path:
            node = here.group.child(name)
            if isinstance(node, Link) or as_array(node) is not None:
                raise NotFound(f"{name!r} is no group")
            here = cast(OpenGroup, here.directory(name, cast(Group, node)).present())
        return here

    def pyramid(self) -> JSON:
        """Describe what `GROUP.ome.tif` consists of; None if no attributes or names say that the group is a pyramid."""
        if not is_pyramid(self.group):
            return None
        try:
            return described(images(self.group.attributes(), self.below), self.path.member.names)
        except PASSING:
            raise
        except FsbridgeError as error:  # the error of one level must not hide the group's description
            return {"not_possible": str(error)}

    def fresh(self) -> Around:
        """Return the context of this group's arrays. The group is listed unless the last listing is recent enough."""
        return self._kept.get(self._look_around, listing=True)

    def _look_around(self) -> Around:
        try:
            return self.around(self.group.children())
        except (AccessDenied, CorruptData, Unsupported):  # without a listing no name counts as taken
            return self.around(())

    def last_around(self) -> Around:
        """Return the context found last, however old it is; a new one if there was none."""
        return self._kept.last or self.fresh()

    def look_around(self, members: Iterable[Child]) -> Around:
        """Return and keep the context of the group's arrays, given all its `members` from a listing."""
        return self._kept.put(self.around(members))

    def around(self, members: Iterable[Child]) -> Around:
        """Return the context of the group's arrays. `members`: members that may have names of files; empty if irrelevant."""
        above = partial(self._tree.groups_above, self.path.member.names)
        neighbours = Neighbours.among(child.name for child in members)
        return Around(Surroundings(above, self.member_array, self.path.member.context), neighbours)

    def is_no_member(self, name: str, error: Exception) -> bool:
        """True if looking for a member failed, as of links in a damaged document, but none is listed that hides the file."""
        if isinstance(error, NotFound) or not is_lasting(error) or not ("." in name or "[" in name):
            return False
        return name not in self.fresh().neighbours.names

    def member_array(self, name: str) -> Array:
        """The array of that name; NotFound if there is none."""
        node = self.group.child(name)
        array = None if isinstance(node, Link) else as_array(node)
        if array is None:
            raise NotFound(f"{name!r} is no array")
        return array


def is_pyramid(group: Group) -> bool:
    """True if attributes or names of members say that the group is an image of several levels. Opens none of them."""
    attributes = known_attributes(group)
    names = (child.name for child in islice(group.children(), _MOST_MEMBERS))
    return bool(level_names(attributes, lambda: names) or listed_levels(attributes))


def known_attributes(group: Group) -> Mapping[str, JSON]:
    """Return the attributes of a group; none if they cannot be read, which is an error only where they are shown."""
    try:
        return group.attributes()
    except (FsbridgeError, OSError) as error:
        if not is_lasting(error):
            raise
        return {}


def group_document(directory: OpenGroup) -> DocumentFile:
    """Return the JSON file of a group: its path, format and attributes, and the levels of an image."""
    return DocumentFile(partial(_described_now, directory.path), _described(directory), directory.group.mtime_ns)


def _described_now(path: PathDirectory) -> bytes | None:
    shown = path.present()
    return _described(shown) if isinstance(shown, OpenGroup) else None


def _described(shown: OpenGroup) -> bytes:
    member, pyramid = shown.path.member, shown.pyramid()
    document: dict[str, JSON] = {
        "name": member.names[-1] if member.names else "",
        "path": "/" + "/".join(member.names),
        "kind": "group",
        "format": member.context.format_at(member.names).name,
        "attributes": dict(shown.group.attributes()),
    }
    return encode(document if pyramid is None else {**document, "pyramid": pyramid})
