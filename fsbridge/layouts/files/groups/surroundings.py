"""`OpenGroup`: a group that opens its arrays together with what stands around them, and where links in the source lead.

Not here: which files groups and arrays are shown as (`layout.py`), the files of groups (`group_file.py`), what stands around
arrays (`layouts/surroundings.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeVar, cast

from fsbridge.config import Config
from fsbridge.errors import AccessDenied, CorruptData, FsbridgeError, NotFound, Stale, TooDeep, Unsupported, is_lasting
from fsbridge.layouts.directories import GroupDirectory, PathDirectory
from fsbridge.layouts.files.arrays.names import NO_NEIGHBOURS, Neighbours, find_full_store_name, find_store_name
from fsbridge.layouts.files.arrays.nodes import DescriptionFile
from fsbridge.layouts.files.arrays.open_array import SHARED_LIMITS, OpenArray, Shared, SharedLimits
from fsbridge.layouts.files.groups.images import level_names
from fsbridge.layouts.members import child_or_none, has_child
from fsbridge.layouts.surroundings import Look
from fsbridge.links import follow
from fsbridge.meaning import GroupMeaning
from fsbridge.meaning.reading import read_group
from fsbridge.metadata import JSON
from fsbridge.model import Array, Child, Group, Link, as_array

T = TypeVar("T")


class SourceTree(Shared):
    """What all files of one mount share, and the directory of its root.

    `root`: None until the directory has been made; `kinds`: all kinds of files of groups.
    """

    def __init__(self, config: Config, kinds: Sequence[Any] = (), limits: SharedLimits = SHARED_LIMITS) -> None:
        super().__init__(config, limits)
        self.kinds = kinds
        self.root: PathDirectory | None = None

    def resolve(self, names: Sequence[str], link: Link) -> Group | Array | None:
        """Return the target of a link in the group at `names`; None if it cannot be opened."""
        assert self.root is not None
        try:
            return follow(self.root.member.refresh_node(), names, link.target).node
        except FsbridgeError:
            return None


class OpenGroup(GroupDirectory):
    """A group that opens its arrays together with their surroundings."""

    def __init__(self, path: PathDirectory, group: Group, tree: SourceTree) -> None:
        super().__init__(path, group)
        self._tree = tree
        self._neighbours: tuple[Hashable, Neighbours] = None, NO_NEIGHBOURS  # and the version of the group with them

    @property
    def store(self) -> str:
        """The name of the whole store."""
        return find_full_store_name(self._tree.config.place)

    @property
    def called(self) -> str:
        """The name of the group's files: the group's own, or for the root the store's without its suffix."""
        names = self.path.member.names
        return names[-1] if names else find_store_name(self._tree.config.place)

    @property
    def kinds(self) -> Sequence[Any]:
        """All kinds of files of groups: instances of `GroupFile`, which is in a module that imports this one."""
        return self._tree.kinds

    @property
    def listed_as(self) -> str:
        """The name of the group's files in a listing: `called`.

        If the root has a member of that name, its files are listed with the full name of the store.
        """
        root = not self.path.member.names
        return self.store if root and has_child(self.group, self.called) else self.called

    def path_of(self, suffix: str) -> str:
        """Return the path of the group's file with that suffix, for messages."""
        return "/".join([*self.path.member.names[:-1], f"{self.called}.{suffix}"])

    def part(self, kind: Callable[[Config], T]) -> T:
        """Return the object of the class `kind` that all groups of the mount share."""
        return self._tree.find_part(kind)

    def open_array(self, name: str, array: Array, look: Look | None = None) -> OpenArray:
        """Open an array of the group. `look`: what was found around the group already; None: look now."""
        member = self.path.member
        if len(member.names) >= member.context.config.limits.depth:
            raise TooDeep(f"{member}/{name}: groups are nested too deeply")
        return self._tree.find_array(
            member.context, (*member.names, name), name.replace("/", "%2F"), array, look or self.look()
        )

    def reopen_array(self, name: str, version: Hashable) -> OpenArray:
        """Open an array that the group's virtual file shows once more; Stale if its version is no longer `version`."""
        array = self.member_array(name)
        if array.version != version:
            raise Stale(f"{name!r} has changed since the group's file was made")
        return self.open_array(name, array)

    def resolve_link(self, link: Link) -> Group | Array | None:
        """Return the target of a link in this group; None if it cannot be opened."""
        return self._tree.resolve(self.path.member.names, link)

    def array_at(self, path: tuple[str, ...]) -> OpenArray:
        """Open the array at a path below the group; NotFound if there is none."""
        try:
            here = self.group_at(path[:-1])
            array = here.member_array(path[-1])
        except NotFound:  # with a text that is the same however the store was asked, because descriptions contain it
            raise NotFound(f"there is no array {'/'.join(('', *self.path.member.names, *path))}") from None
        return here.open_array(path[-1], array)

    @property
    def root(self) -> OpenGroup:
        """The group at the root of the source."""
        assert self._tree.root is not None
        return cast(OpenGroup, self._tree.root.refresh())

    def group_at(self, path: Sequence[str]) -> OpenGroup:
        """Return the group at a path below this one; NotFound if there is none."""
        here = self
        for name in path:
            node = here.group.child(name)
            if isinstance(node, Link) or as_array(node) is not None:
                raise NotFound(f"{name!r} is no group")
            here = cast(OpenGroup, here.directory(name, cast(Group, node)).refresh())
        return here

    def look(self) -> Look:
        """Look around the group's arrays, once for one question."""
        member = self.path.member
        return Look(member.context, member)

    def neighbours(self) -> Neighbours:
        """Return the members with names that could be those of files. List the group again if it has changed."""
        version = self.group.listing_version
        if version != self._neighbours[0]:
            try:
                self.note_members(version, self.group.children())
            except (AccessDenied, CorruptData, Unsupported):  # without a listing no name counts as taken
                return NO_NEIGHBOURS
        return self._neighbours[1]

    @property
    def noted_neighbours(self) -> Neighbours:
        """The neighbours that were found by the last listing."""
        return self._neighbours[1]

    def note_members(self, version: Hashable, members: Iterable[Child]) -> Neighbours:
        """Find the neighbours among all members, keep them, and return them.

        `version`: that of the group's listing before it was read.
        """
        neighbours = Neighbours.find_among(child.name for child in members)
        self._neighbours = version, neighbours
        return neighbours

    def _describe_again(self, name: str) -> DescriptionFile | None:
        """Return the description of an array as it is now; None if the array is gone."""
        node = child_or_none(self.group, name)
        array = None if node is None or isinstance(node, Link) else as_array(node)
        return None if array is None else self._description(self.open_array(name, array), name)

    def _description(self, opened: OpenArray, name: str) -> DescriptionFile:
        return DescriptionFile(opened, self.neighbours().find_collisions(opened.name), partial(self._describe_again, name))

    def is_no_member(self, name: str, error: Exception) -> bool:
        """True if `name` is not listed as a member, although looking for it failed otherwise than with NotFound.

        So it is for a damaged document. Only names that could be those of files are looked up.
        """
        if isinstance(error, NotFound) or not is_lasting(error) or not ("." in name or "[" in name):
            return False
        return name not in self.neighbours().names

    def member_array(self, name: str) -> Array:
        """Return the array of that name; NotFound if there is none."""
        node = self.group.child(name)
        array = None if isinstance(node, Link) else as_array(node)
        if array is None:
            raise NotFound(f"{name!r} is no array")
        return array


def find_attributes(group: Group) -> Mapping[str, JSON]:
    """Return the attributes of a group; none if they cannot be read.

    Whatever shows the attributes themselves reads them without this function, and so reports the error.
    """
    try:
        return group.attributes()
    except (FsbridgeError, OSError) as error:
        if not is_lasting(error):
            raise
        return {}


def find_meaning(group: Group) -> GroupMeaning:
    """Return what a group means, as far as its attributes can be read."""
    return read_group(find_attributes(group))


_MOST_MEMBERS = 1000
"""Members of a group among which levels are looked for."""


def names_of_levels(group: Group) -> list[str]:
    """Return the names of the members that are levels, finest first, as attributes or names say. Opens none of them."""
    return _names_of_levels(group, find_meaning(group))


def _names_of_levels(group: Group, meaning: GroupMeaning) -> list[str]:
    return level_names(meaning, lambda: (child.name for child in islice(group.children(), _MOST_MEMBERS)))


def is_pyramid(group: Group) -> bool:
    """True if attributes or names of members say that the group is an image of several levels. Opens none of them."""
    meaning = find_meaning(group)
    return bool(meaning.images or _names_of_levels(group, meaning))
