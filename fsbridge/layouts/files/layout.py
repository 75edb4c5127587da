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
from fsbridge.errors import FsbridgeError, NotFound, Stale, is_lasting
from fsbridge.layouts.directories import PathDirectory
from fsbridge.layouts.files.arrays.array_files import ArrayFiles, file_of, level_of, no_array, pyramid_preview
from fsbridge.layouts.files.arrays.extents import View
from fsbridge.layouts.files.arrays.listing import listed_briefly, listed_files, named_group_files, unsized
from fsbridge.layouts.files.arrays.names import SLICES, ParsedName, full_store_name, readings, store_name
from fsbridge.layouts.files.arrays.nodes import ArrayFile, DescriptionFile
from fsbridge.layouts.files.arrays.open_array import OpenArray, Shared, Surroundings
from fsbridge.layouts.files.arrays.selection import whole
from fsbridge.layouts.files.filetypes import ALIASES, FILE_TYPES, listed, reasons
from fsbridge.layouts.files.filetypes.previews import PICTURE as PREVIEW_PICTURE
from fsbridge.layouts.files.filetypes.tiff import OME
from fsbridge.layouts.files.groups.images import images
from fsbridge.layouts.files.groups.pyramids import PyramidFile
from fsbridge.layouts.files.groups.surroundings import (
    STORE_DOCUMENT,
    Around,
    OpenGroup,
    SourceTree,
    group_document,
    known_attributes,
)
from fsbridge.layouts.files.groups.tables import has_order, table_of
from fsbridge.layouts.files.h5.making import Making
from fsbridge.layouts.files.h5.nodes import H5Files, H5Group
from fsbridge.layouts.files.h5.walk import group_file
from fsbridge.layouts.files.looks.group_page import NAME as PAGE
from fsbridge.layouts.files.looks.group_page import Rows, group_page
from fsbridge.layouts.files.looks.plates import PICTURE, plate_file, plate_of
from fsbridge.layouts.members import Opener, child_or_none, has_child
from fsbridge.layouts.nodes import DocumentFile, LinkNode, file_name, link_target
from fsbridge.metadata import JSON, ArrayMetadata, Axis, Format
from fsbridge.model import Array, Child, Group, Link, Node, as_array
from fsbridge.tree import AnyNode, Attrs, Entry, escape

PREVIEW = PREVIEW_PICTURE.suffix

_GROUP_FILES = frozenset(("json", *(suffix for suffix, one in FILE_TYPES.items() if one.groups)))
"""Suffixes of files that a group may have."""

_LISTED_ONCE = 20_000
"""Most members of a group that are kept in memory while it is listed. Each takes some 200 bytes."""

_TAKEN = frozenset[bytes]()


class Files:
    """Whole arrays as ordinary files (`directories.Layout`)."""

    name = "files"
    documents = _TAKEN
    of_groups = of_arrays = ()

    def __init__(self, config: Config) -> None:
        self.shared = Shared(config)
        self.wanted = tuple(config.files)
        self.briefly = "h5" not in self.wanted
        self.groups = H5Files(config)
        self.tree = SourceTree()
        self.root_name, self.full_root_name = store_name(config.place), full_store_name(config.place)

    def selective(self, format: Format) -> bool:
        return True

    def file_names(self, name: str, metadata: ArrayMetadata) -> dict[str, list[str]]:
        """Return an array's files: those listed, and those that only open by name. Without `name`: the root's files."""
        selection = whole(metadata.shape)
        view = View(name or self.root_name, metadata, selection, (Axis(),) * len(metadata.shape), False)
        shown = ["json", *listed(view, self.wanted)]
        fits = [suffix for suffix, reason in reasons(view).items() if reason is None and suffix not in shown]
        series = [f"{view.name}.{SLICES}/"] if len(metadata.shape) > 2 else []
        aliases = [alias for alias, suffix in ALIASES.items() if suffix in (*shown, *fits)]
        unlisted = [*(f"{view.name}.{suffix}" for suffix in (*fits, *aliases)), *series]
        return {"files": [f"{view.name}.{suffix}" for suffix in shown], "by name": unlisted}

    def group_file_names(self, name: str, group: Group) -> dict[str, list[str]]:
        """Return a group's files, as far as its attributes and the names of its members tell: see `Layout`."""
        stem = self.full_root_name if has_child(group, self.root_name) else self.root_name
        return named_group_files(name, stem, group, self.wanted)

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
        member, above = path.member, partial(self.tree.groups_above, path.member.names[:-1])
        around = Surroundings(above if member.names else list, no_array, member.context)
        name = member.names[-1] if member.names else self.root_name
        opened = self.shared.array(member.context, member.names, name, array, around)
        return ArrayFiles(path, array, opened, self.wanted, self.full_root_name)

    def _begin(self, path: PathDirectory) -> None:
        if not path.member.names:
            self.tree.root = path


class FilesGroup(OpenGroup):
    """A group: its groups as directories, its arrays as files."""

    def __init__(self, layout: Files, path: PathDirectory, group: Group) -> None:
        super().__init__(path, group, layout.shared, layout.tree)
        self._files = layout
        self._unopened: set[str] = set()  # members that the last listing could not open, of unknown kind

    def members(self, group: Group) -> Iterable[Child]:
        """Return the members, after finding which of their names could be those of an array's files.

        If there are fewer than `_LISTED_ONCE`, one listing of the store is enough for both.
        """
        self._unopened = set()
        members = group.children()
        first = list(islice(members, _LISTED_ONCE))
        if len(first) < _LISTED_ONCE:
            self.look_around(first)
        else:
            self.fresh()
        return chain(first, members)

    def listed(self, group: Group, child: Child, opener: Opener, rows: Rows | None = None) -> Iterable[Entry]:
        """Return the entries of a member: a group's directory and files, an array's files, or links to these."""
        name = file_name(child.name, _TAKEN)
        if rows is not None:
            rows.member(child)
        if child.link is None and (files := self._listed_briefly(group, child.name, name, rows)) is not None:
            return files
        try:
            node: Node = Link(child.link) if child.link is not None else opener()
        except NotFound:
            return []  # removed while we list
        except (FsbridgeError, OSError) as error:
            if isinstance(error, OSError) and not is_lasting(error):
                raise
            if len(self._unopened) < _LISTED_ONCE:
                self._unopened.add(child.name)
            return [Entry(name, Attrs("directory", None, child.mtime_ns), partial(self._entered, child.name))]
        if isinstance(node, Link):
            return self._listed_link(node, name, child)
        array = as_array(node)
        if array is None:
            if rows is not None:
                rows.group(child.name, cast(Group, node))
            entry = Entry(name, Attrs("directory", 0, child.mtime_ns), partial(self.directory, child.name))
            return [entry, *self._listed_files(group, child, name, cast(Group, node))]
        around = self.last_around()  # the context of this listing, however old it is by now
        opened = self.opened(child.name, array, around)
        again = partial(self._again, child.name)
        files = listed_files(opened, self._files.wanted, name, around.neighbours, again, rows)
        return files if self._is_described(group, child.name, around) else files[1:]

    def _listed_files(self, group: Group, child: Child, name: bytes, member: Group) -> Iterator[Entry]:
        """Yield the entries of the files of a member that is a group."""
        for suffix in ("json", *self._files.wanted):
            file = f"{child.name}.{suffix}"
            if suffix not in _GROUP_FILES - {PREVIEW} or file in self.fresh().neighbours.names:
                continue
            if suffix in ("json", "h5") or (suffix == "csv" and has_order(known_attributes(member))):
                yield unsized(name, suffix, child.mtime_ns, partial(self.found, group, file))
            if suffix in ("json", "h5", "csv"):
                continue
            try:
                image = self.found(group, file)
            except (FsbridgeError, OSError) as error:
                if not is_lasting(error):
                    raise
                continue  # it is no image of several levels, or one of them is damaged
            if isinstance(image, PyramidFile):
                yield image.entry(name + b"." + suffix.encode())

    def _is_described(self, group: Group, name: str, around: Around) -> bool:
        """True if `NAME.json` is the array's file; False if a group, or a link to one, has that name."""
        if f"{name}.json" not in around.neighbours.names:
            return True
        try:
            node = child_or_none(group, f"{name}.json")
        except FsbridgeError:
            return False  # the member is listed under this name, and opening it is an error
        found = self._tree.resolve(self.path.member.names, node) if isinstance(node, Link) else node
        return node is None or (found is not None and as_array(found) is not None)

    def _entered(self, name: str) -> PathDirectory:
        """Return the directory of a member that could not be opened when it was listed; Stale if it is not a group."""
        node = self.group.child(name)
        if isinstance(node, Link) or as_array(node) is not None:
            raise Stale(f"{name!r} could not be opened when it was listed, and is no group")
        return self.directory(name, cast(Group, node))

    def _listed_briefly(self, group: Group, child: str, name: bytes, rows: Rows | None) -> list[Entry] | None:
        """The entries of an array's files, found without opening the array; None if the member must be opened."""
        around, member = self.last_around(), self.path.member
        names, limit = (*member.names, child), member.context.config.limits.depth
        if len(names) > limit or not (self._files.briefly and around.surroundings.impartial):
            return None
        if (found := group.brief(child)) is None:
            return None
        x_first = member.context.format_at(names).first_axis_fastest
        axes = around.surroundings.axes(found.metadata, names, x_first, found.shared)
        opener, coordinate = partial(self._briefly_listed, child), around.surroundings.coordinate
        wanted, others = self._files.wanted, around.neighbours
        return listed_briefly(self._shared, found, names, axes, x_first, coordinate, wanted, name, others, opener, rows)

    def _briefly_listed(self, name: str, suffix: str) -> AnyNode:
        """Return a file that was listed without opening its array, which is opened now."""
        opened = self.opened(name, self.member_array(name))
        return self._description(opened, name) if suffix == "json" else file_of(opened, None, suffix, name)

    def _listed_link(self, link: Link, name: bytes, child: Child) -> list[Entry]:
        target = link_target(link.target, _TAKEN)
        node = self._tree.resolve(self.path.member.names, link)
        array = None if node is None or isinstance(node, Link) else as_array(node)
        if array is None:
            return [LinkNode(target, child.mtime_ns).entry(name)]
        around = self.last_around()
        shown = listed(self.opened(child.name, array, around).view(), self._files.wanted)
        suffixes = [suffix for suffix in shown if around.neighbours.leave(child.name, suffix)]
        ends = [b"." + suffix.encode() for suffix in ("json", *suffixes)]
        ends = ends if self._is_described(self.group, child.name, around) else ends[1:]
        return [LinkNode(target + end, child.mtime_ns).entry(name + end) for end in ends]

    def found(self, group: Group, name: str) -> AnyNode:
        """Return the group or the link of that name, or the file that the name stands for.

        If each look-up needs requests (`Group.costly`), members that were not listed are looked for last. If the name may be
        that of an array's file, the group is listed, which opening the array needs anyway.
        """
        group.prefetch()  # an array needs the groups above it, because they describe its axes
        lacks = group.lacks if group.costly else None
        if lacks is not None and self.path.member.context.config.is_remote and next(readings(name), None) is not None:
            self.fresh()
        error: Exception | None = None
        try:
            found = None if lacks is None else self._found(group, name, lacks)
            found = self._found(group, name, lambda other: False) if found is None else found
            if found is not None:
                return found
        except (FsbridgeError, OSError) as raised:
            if not self.is_no_member(name, raised):
                raise
            error = raised
        stems = (self._files.root_name, self._files.full_root_name)
        if not self.path.member.names:
            own = next((one for one in readings(name) if one.array in stems and one.region is None), None)
            file = None if own is None or own.suffix not in _GROUP_FILES else self.as_file(own.suffix, own.array)
            if file is not None or name == STORE_DOCUMENT:
                return group_document(self) if file is None else file
        if name == PAGE:
            return self._page_file()
        if (file := plate_file(self, name, self._files.root_name)) is not None:
            return file
        if error is not None:
            raise error
        if name in self._unopened:  # NotFound would tell a program that the member was removed
            raise Stale(f"{name!r} could not be opened when it was listed: list it again")
        raise NotFound(f"{name!r} is no file of this group")

    def _found(self, group: Group, name: str, lacks: Callable[[str], bool]) -> AnyNode | None:
        """Like `found`, but without looking for members for which `lacks` is true; None if nothing has that name."""
        node, error = None, None
        try:
            node = child_or_none(group, name, lacks)
        except (FsbridgeError, OSError) as raised:
            if not self.is_no_member(name, raised):
                raise
            error = raised
        found = None if node is None else self._called(group, name, node)
        if found is not None:
            return found
        for reading in readings(name):
            node = child_or_none(group, reading.array, lacks)
            found = None if node is None else self._read(group, name, reading, node)
            if found is not None:
                return found
        if error is not None:
            raise error
        return None

    def _called(self, group: Group, name: str, node: Node) -> AnyNode | None:
        """Return the node at a member's exact name.

        None for an array, unless its name is that of a file, and None for a link to an array.
        """
        if isinstance(node, Link):
            resolved = self._tree.resolve(self.path.member.names, node)
            if resolved is None or as_array(resolved) is None:
                return LinkNode(link_target(node.target, _TAKEN), group.mtime_ns)
            return None
        array = as_array(node)
        if array is None:
            return self.directory(name, cast(Group, node))
        suffixes = sorted({own.suffix for own in readings(name) if own.suffix in FILE_TYPES}, key=len)
        if not suffixes:
            return None
        opened = self.opened(name, array)  # the array has the name of a file
        fits = reasons(opened.view())
        chosen = [suffix for suffix in suffixes if fits[suffix] is None] or suffixes
        return file_of(opened, None, chosen[-1], name)

    def _read(self, group: Group, name: str, reading: ParsedName, node: Node) -> AnyNode | None:
        """Return the file of the member `node` that `name`, parsed as `reading`, stands for; None if there is none."""
        all_of_it = reading.region is None
        if isinstance(node, Link):
            resolved = self._tree.resolve(self.path.member.names, node)
            own = all_of_it and reading.suffix in _GROUP_FILES
            if resolved is None or (as_array(resolved) is None and not own):
                return None
            end = name[len(reading.array) :].encode("utf-8", "surrogateescape")
            return LinkNode(link_target(node.target, _TAKEN) + end, group.mtime_ns)
        array = as_array(node)
        if array is None:
            if not all_of_it or reading.suffix not in _GROUP_FILES:
                cast(Group, node).attributes()  # raises the error of a damaged document, which may be an array's
                return None
            below = cast(FilesGroup, self.directory(reading.array, cast(Group, node)).present())
            return below.as_file(reading.suffix, reading.array)
        opened = self.opened(reading.array, array)
        if all_of_it and reading.suffix == "json":
            return self._description(opened, reading.array)
        if all_of_it and reading.suffix == PREVIEW:
            return ArrayFile(level_of(self, opened), PREVIEW, None, opened.name)
        return file_of(opened, reading.region, reading.suffix, name)

    def entries(self) -> Iterator[Sequence[Entry]]:
        """Yield the members' entries; before them the root's HDF5 file, if wanted, and after them the group's own files."""
        group, files, mtime_ns = self.group, self._files, self.group.mtime_ns
        if not self.path.member.names and "h5" in files.wanted:
            name = files.full_root_name if has_child(group, files.root_name) else files.root_name
            yield [unsized(escape(name), "h5", mtime_ns, self._as_h5)]
        rows = Rows() if "html" in files.wanted else None  # one for each listing, because several may run at once
        yield from self.listing(partial(self.listed, rows=rows), (Rows() if rows is None else rows).member)
        if rows is not None and PAGE not in self.last_around().neighbours.names:
            yield [self._page_file(rows).entry(PAGE.encode())]
        if "preview" in files.wanted and plate_of(known_attributes(group)) is not None:
            yield [Entry(PICTURE.encode(), Attrs("file", None, mtime_ns), partial(self.found, group, PICTURE))]
        if not (self.path.member.names or has_child(group, "store") or has_child(group, STORE_DOCUMENT)):
            yield [unsized(b"store", "json", mtime_ns, partial(group_document, self))]

    def _page_file(self, seen: Rows | None = None) -> DocumentFile:
        return DocumentFile(self._present_page, self._page(seen), self.group.mtime_ns)

    def _page(self, seen: Rows | None = None) -> bytes:
        return group_page(self, self.group, self._files.full_root_name, seen)

    def _present_page(self) -> bytes | None:
        shown = self.path.present()
        return shown._page() if isinstance(shown, FilesGroup) else None

    def as_file(self, suffix: str, name: str) -> AnyNode | None:
        """Return the group, which is called `name`, as one file; None if a preview is wanted and it has none."""
        if suffix in ("json", "csv"):
            return group_document(self) if suffix == "json" else table_of(self)
        if suffix == PREVIEW:
            return pyramid_preview(self, name)
        return self._as_pyramid() if suffix == OME.suffix else self._as_h5()

    def _as_pyramid(self) -> PyramidFile:
        """Return the file with all levels of the image that the group is."""
        name = f"{'/'.join(self.path.member.names) or self._files.root_name}.{OME.suffix}"
        levels = images(self.group.attributes(), self.below)
        return PyramidFile(name, levels, lambda: cast(FilesGroup, self.path.present())._as_pyramid())

    def _as_h5(self) -> H5Group:
        """Return the HDF5 file of the group and all below it."""
        names, depth = self.path.member.names, self.path.member.context.config.limits.depth
        name = f"{'/'.join(names) or self._files.root_name}.h5"
        files = self._files.groups
        return files.find(names, lambda: Making(name, partial(group_file, self, names, depth), files.room))

    def _again(self, name: str) -> DescriptionFile | None:
        """Return the description of an array as it is now; None if the array is gone."""
        node = child_or_none(self.group, name)
        array = None if node is None or isinstance(node, Link) else as_array(node)
        return None if array is None else self._description(self.opened(name, array), name)

    def _description(self, opened: OpenArray, name: str) -> DescriptionFile:
        return DescriptionFile(opened, self.fresh().neighbours.collisions(opened.name), partial(self._again, name))
