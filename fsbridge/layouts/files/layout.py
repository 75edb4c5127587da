"""The layout `files` over the machinery of all layouts: a group is a directory, an array is files beside it.

Not here: what is in the files (`arrays/nodes.py`), what stands around an array (`groups/surroundings.py`), names
(`arrays/names.py`), which file types fit (`filetypes/__init__.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import cast

from fsbridge.config import Config
from fsbridge.errors import PASSING, FsbridgeError, NotFound, Stale, is_lasting
from fsbridge.layouts.directories import PathDirectory, other_entries
from fsbridge.layouts.files import group_files
from fsbridge.layouts.files.arrays.array_files import ArrayFiles, find_file, find_named_file
from fsbridge.layouts.files.arrays.listing import list_file_names, list_files, list_linked_suffixes
from fsbridge.layouts.files.arrays.names import (
    NO_NEIGHBOURS,
    Neighbours,
    ParsedName,
    find_full_store_name,
    find_store_name,
    parse_name,
)
from fsbridge.layouts.files.arrays.open_array import SHARED_LIMITS, SharedLimits
from fsbridge.layouts.files.group_files import GROUP_FILES
from fsbridge.layouts.files.groups.group_file import GroupFile
from fsbridge.layouts.files.groups.levels import PREVIEW, array_preview
from fsbridge.layouts.files.groups.surroundings import OpenGroup, SourceTree
from fsbridge.layouts.files.looks.rows import SeenMembers
from fsbridge.layouts.members import Opener, child_or_none, has_child
from fsbridge.layouts.nodes import LinkNode, file_name, link_target
from fsbridge.metadata import JSON, ArrayMetadata, Format
from fsbridge.model import Array, Child, Group, Link, Node, OtherFile, as_array
from fsbridge.tree import AnyNode, Attrs, Entry, escape

_LISTED_ONCE = 20_000
"""Most members of a group that are kept in memory while it is listed. Each takes some 200 bytes."""

_TAKEN = frozenset[bytes]()


class Files:
    """Whole arrays as ordinary files (`directories.Layout`)."""

    name = "files"
    documents = _TAKEN
    of_groups = of_arrays = ()

    def __init__(
        self, config: Config, kinds: Sequence[GroupFile] = GROUP_FILES, limits: SharedLimits = SHARED_LIMITS
    ) -> None:
        """`kinds`: all kinds of files of groups."""
        self.wanted = tuple(config.files)
        self.tree = SourceTree(config, kinds, limits)
        self.kinds = kinds
        self.beside, self.endings = group_files.find_beside(kinds), group_files.list_endings(kinds)
        self.listed = [one for one in kinds if one.is_listed(self.wanted)]
        self.root_name, self.full_root_name = find_store_name(config.place), find_full_store_name(config.place)

    def selective(self, format: Format) -> bool:
        return True

    def file_names(self, name: str, metadata: ArrayMetadata) -> dict[str, list[str]]:
        """Return an array's files: those listed, and those that only open by name. Without `name`: the root's files."""
        return list_file_names(name or self.root_name, metadata, self.wanted)

    def group_file_names(self, name: str, group: Group) -> dict[str, list[str]]:
        """Return a group's files, as far as its attributes and the names of its members tell: see `Layout`."""
        return group_files.file_names(self.kinds, name, self.store(group), group, self.wanted)

    def store(self, root: Group) -> str:
        """Return what a listing calls the files of the root group: a member that is called like the store has its own."""
        return self.full_root_name if has_child(root, self.root_name) else self.root_name

    def refusal(self, metadata: ArrayMetadata) -> str | None:
        return None  # an array that no format can hold still has its `NAME.json`

    def describe(self, group: Group) -> JSON:
        return None

    def group_documents(self, described: JSON, names: Sequence[str]) -> Mapping[bytes, bytes]:
        return {}

    def array_documents(self, metadata: ArrayMetadata, root: bool, around: JSON = None) -> Mapping[bytes, bytes]:
        return {}

    def group(self, path: PathDirectory, group: Group) -> FilesGroup:
        self._begin(path)
        return FilesGroup(self, path, group)

    def array(self, path: PathDirectory, array: Array) -> ArrayFiles:
        self._begin(path)
        return ArrayFiles(path, array, self.tree)

    def _begin(self, path: PathDirectory) -> None:
        if not path.member.names:
            self.tree.root = path


class FilesGroup(OpenGroup):
    """A group: its groups as directories, its arrays as files."""

    def __init__(self, layout: Files, path: PathDirectory, group: Group) -> None:
        super().__init__(path, group, layout.tree)
        self._files = layout
        self._unopened: set[str] = set()  # members that the last listing could not open, of unknown kind
        self._listed = self.look(), NO_NEIGHBOURS  # what the last listing found around the group, and among its members

    def members(self, group: Group, others: list[OtherFile]) -> Iterable[Child]:
        """Return the members, after finding which of their names could be those of an array's files.

        If there are fewer than `_LISTED_ONCE`, one listing of the store is enough for both.
        """
        self._unopened = set()
        version, members = group.listing_version, group.listing(others.append)
        first = list(islice(members, _LISTED_ONCE))
        self._listed = self.look(), self.note_members(version, first) if len(first) < _LISTED_ONCE else self.neighbours()
        return chain(first, members)

    def list_member(self, group: Group, child: Child, opener: Opener, rows: SeenMembers | None = None) -> Iterable[Entry]:
        """Return the entries of a member: a group's directory and files, an array's files, or links to these."""
        name = file_name(child.name, _TAKEN)
        if rows is not None:
            rows.add_member(child)
        try:
            node: Node = Link(child.link) if child.link is not None else opener()
        except NotFound:
            return []  # removed while we list
        except (FsbridgeError, OSError) as error:
            if isinstance(error, OSError) and not is_lasting(error):
                raise
            if len(self._unopened) < _LISTED_ONCE:
                self._unopened.add(child.name)
            return [Entry(name, Attrs("directory", None, child.mtime_ns), partial(self._enter, child.name))]
        if isinstance(node, Link):
            return self._list_link(node, name, child)
        array = as_array(node)
        if array is None:
            if rows is not None:
                rows.add_group(child.name, cast(Group, node))
            entry = Entry(name, Attrs("directory", 0, child.mtime_ns), partial(self.directory, child.name))
            return [entry, *self._list_files(group, child, name, cast(Group, node))]
        look, neighbours = self._listed
        opened = self.open_array(child.name, array, look)
        again = partial(self._describe_again, child.name)
        files = list_files(opened, self._files.wanted, name, neighbours, again, rows)
        return files if self._is_described(group, child.name, neighbours) else files[1:]

    def _list_files(self, group: Group, child: Child, name: bytes, member: Group) -> Iterator[Entry]:
        """Yield the entries of the files beside a member that is a group."""
        for one in self._files.listed:
            if not one.inside and self._listed[1].allow(child.name, one.suffix):
                opener = partial(self.find, group, one.make_name(child.name))
                entry = one.entry(member, name + b"." + one.suffix.encode(), child.mtime_ns, opener)
                if entry is not None and not member.is_plain():
                    yield entry

    def _is_described(self, group: Group, name: str, others: Neighbours) -> bool:
        """True if `NAME.json` is the array's file; False if a group, or a link to one, has that name."""
        if f"{name}.json" not in others.names:
            return True
        try:
            node = child_or_none(group, f"{name}.json")
        except FsbridgeError:
            return False  # the member is listed under this name, and opening it is an error
        target = self.resolve_link(node) if isinstance(node, Link) else node
        return node is None or (target is not None and as_array(target) is not None)

    def _enter(self, name: str) -> PathDirectory:
        """Return the directory of a member that could not be opened when it was listed; Stale if it is not a group."""
        node = self.group.child(name)
        if isinstance(node, Link) or as_array(node) is not None:
            raise Stale(f"{name!r} could not be opened when it was listed, and is no group")
        return self.directory(name, cast(Group, node))

    def _list_link(self, link: Link, name: bytes, child: Child) -> list[Entry]:
        target = link_target(link.target, _TAKEN)
        node = self.resolve_link(link)
        array = None if node is None or isinstance(node, Link) else as_array(node)
        if array is None:
            return [LinkNode(target, child.mtime_ns).entry(name)]
        look, neighbours = self._listed
        opened = self.open_array(child.name, array, look)
        ends = [
            b"." + suffix.encode() for suffix in list_linked_suffixes(opened, self._files.wanted, child.name, neighbours)
        ]
        ends = ends if self._is_described(self.group, child.name, neighbours) else ends[1:]
        return [LinkNode(target + end, child.mtime_ns).entry(name + end) for end in ends]

    def find(self, group: Group, name: str) -> AnyNode:
        """Return the group or the link of that name, or the file that the name stands for.

        If each look-up needs requests (`Group.costly`), members that were not listed are looked for last. If the name may be
        that of an array's file, the group is listed, which opening the array needs anyway.
        """
        arrays = [reading.array for reading in parse_name(name)]
        group.prefetch(arrays[-1:])  # an array needs the groups above it, because they describe its axes
        lacks = group.lacks if group.costly else None
        if lacks is not None and self.path.member.context.config.is_remote and arrays:
            self.neighbours()
        error: Exception | None = None
        try:
            answer = None if lacks is None else self._find(group, name, lacks)
            answer = self._find(group, name, lambda other: False) if answer is None else answer
            if answer is not None:
                return answer
        except (FsbridgeError, OSError) as raised:
            if not self.is_no_member(name, raised):
                raise
            error = raised
        if (file := self._own_file(name)) is not None:
            return file
        if error is not None:
            raise error
        if name in self._unopened:  # NotFound would tell a program that the member was removed
            raise Stale(f"{name!r} could not be opened when it was listed: list it again")
        raise NotFound(f"{name!r} is no file of this group")

    def _own_file(self, name: str) -> AnyNode | None:
        """Return the group's file of that name in its own directory; None if there is no such kind of file."""
        kind = self._own_kind(name)
        return None if kind is None else kind.node(self)

    def _own_kind(self, name: str) -> GroupFile | None:
        names = self.path.member.names
        called = names[-1:] or (self._files.root_name, self._files.full_root_name)
        kind = next((one for one in self._files.kinds if one.is_called(name, called, not names)), None)
        return None if kind is None or self.group.is_plain() else kind

    def is_own(self, name: str) -> bool:
        if (kind := self._own_kind(name)) is not None:
            return kind.applies(self.group)
        try:
            return self._find(self.group, name, self.group.lacks) is not None
        except PASSING:
            raise
        except FsbridgeError as error:
            return not isinstance(error, NotFound)

    def _find(self, group: Group, name: str, lacks: Callable[[str], bool]) -> AnyNode | None:
        """Do as `find`, but look for no members of which `lacks` is true; return None if nothing has that name."""
        node, error = None, None
        try:
            node = child_or_none(group, name, lacks)
        except (FsbridgeError, OSError) as raised:
            if not self.is_no_member(name, raised):
                raise
            error = raised
        answer = None if node is None else self._find_called(group, name, node)
        if answer is not None:
            return answer
        for reading in parse_name(name, self._files.endings):
            node = child_or_none(group, reading.array, lacks)
            answer = None if node is None else self._read(group, name, reading, node)
            if answer is not None:
                return answer
        if error is not None:
            raise error
        return None

    def _find_called(self, group: Group, name: str, node: Node) -> AnyNode | None:
        """Return the node at a member's exact name.

        None for an array, unless its name is that of a file, and None for a link to an array.
        """
        if isinstance(node, Link):
            resolved = self.resolve_link(node)
            if resolved is None or as_array(resolved) is None:
                return LinkNode(link_target(node.target, _TAKEN), group.mtime_ns)
            return None
        array = as_array(node)
        if array is None:
            return self.directory(name, cast(Group, node))
        return find_named_file(self.open_array(name, array), name)

    def _read(self, group: Group, name: str, reading: ParsedName, node: Node) -> AnyNode | None:
        """Return the file of the member `node` that `name`, parsed as `reading`, stands for; None if there is none."""
        all_of_it = reading.region is None
        kind = self._files.beside.get(reading.suffix) if all_of_it else None
        if isinstance(node, Link):
            resolved = self.resolve_link(node)
            if resolved is None or (as_array(resolved) is None and kind is None):
                return None
            end = name[len(reading.array) :].encode("utf-8", "surrogateescape")
            return LinkNode(link_target(node.target, _TAKEN) + end, group.mtime_ns)
        array = as_array(node)
        if array is None:
            if kind is None:
                cast(Group, node).attributes()  # raises the error of a damaged document, which may be an array's
                return None
            return kind.node(cast(OpenGroup, self.directory(reading.array, cast(Group, node)).refresh()))
        opened = self.open_array(reading.array, array)
        if all_of_it and reading.suffix == "json":
            return self._description(opened, reading.array)
        if kind is PREVIEW:
            return array_preview(self, opened)
        return find_file(opened, reading.region, reading.suffix, name)

    def entries(self) -> Iterator[Sequence[Entry]]:
        """Yield the members' entries, and after them the group's own files."""
        rows = None  # for each listing its own, because several may run at once
        if any(one.of_rows is not None for one in self._files.listed):
            rows = SeenMembers()
        others: list[OtherFile] = []
        yield from self.listing(
            partial(self.list_member, rows=rows), others, (SeenMembers() if rows is None else rows).add_member
        )
        if not self.group.is_plain():
            yield list(self._own_entries(rows))
        if others:
            yield other_entries(self.path, others, self)

    def _own_entries(self, rows: SeenMembers | None) -> Iterator[Entry]:
        """Yield the entries of the group's files that lie in its own directory."""
        group, names = self.group, self.path.member.names
        for one in self._files.listed:
            if one.inside or not names:
                name = one.make_name(names[-1] if names else self._files.store(group), not names)
                opener = partial(one.node, self)
                if one.of_rows is not None and rows is not None:
                    opener = partial(one.of_rows, self, rows)
                entry = one.entry(group, escape(name), group.mtime_ns, opener)
                if entry is not None and not self._is_taken(name):
                    yield entry

    def _is_taken(self, name: str) -> bool:
        """True if a member, or a file of one, has that name."""
        if name in self._listed[1].names:
            return True
        return any(has_child(self.group, one.array) for one in parse_name(name) if one.region is None)
