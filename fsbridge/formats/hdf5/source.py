"""An HDF5 file as a model source: groups, links, and `open_hdf5`, which opens it. Not here: arrays (`arrays.py`)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from fsbridge.children.client import error_of
from fsbridge.config import Config
from fsbridge.errors import AccessDenied, CorruptData, FsbridgeError, NotFound, Stale, TooDeep, Unsupported
from fsbridge.formats.hdf5 import answers, pages
from fsbridge.formats.hdf5.answers import HDF5Member
from fsbridge.formats.hdf5.arrays import HDF5Array, open_array
from fsbridge.formats.hdf5.file import HDF5File
from fsbridge.formats.hdf5.versions import DataFile, LocalDataFile
from fsbridge.formats.hdf5.whole import WholeFile, whole_file
from fsbridge.formats.records import HDF5
from fsbridge.formats.shared import Shared
from fsbridge.metadata import JSON
from fsbridge.model import Child, Group, Link, Source
from fsbridge.store import Stat
from fsbridge.store.local.files import file_check, path_opener

MAX_LINKS = 16
"""Most links in a row that lead to an object: HDF5's own limit (H5L_NUM_LINKS)."""
HIDDEN = ("type", "dimension")
"""Kinds of members that hold no data: committed datatypes, netCDF dimensions without a variable."""


class Ancestor(NamedTuple):
    """A group on the way from the root of the mounted file. Hard and external links can lead back to it."""

    file: str
    address: int | None


def open_hdf5(path: str | DataFile, config: Config, shared: Shared | None = None) -> HDF5Source:
    """Open an HDF5 file. Raises NotFound, AccessDenied, or CorruptData if it is not an HDF5 file."""
    if isinstance(path, str):
        path = LocalDataFile(path, check=file_check(config), open_path=path_opener(config))
    file = HDF5File(path, config, shared)
    try:
        return HDF5Source(file)
    except BaseException:
        file.close()
        raise


class HDF5Source(Source):
    """One opened file."""

    format = HDF5
    root: HDF5Group
    rests = True

    def __init__(self, file: HDF5File) -> None:
        self.file = file
        self.root = HDF5Group(file, ())
        self.root.attributes()

    @property
    def lease(self) -> HDF5File:
        return self.file

    def rest(self) -> None:
        for file in self.file.family:
            file.drop_kept()  # children, descriptors and pages are dropped by their own limits

    def close(self) -> None:
        """End the child process and close the file."""
        pages.forget(self.file.family, self.file.shared)
        self.rest()
        self.file.close()


class HDF5Group(Group):
    """A group, by its path of hard links.

    The first `above` components of the path are not in the mount (external links). `ancestors` are the groups above it in
    the mount, the root first.
    """

    def __init__(
        self,
        file: HDF5File,
        path: tuple[str, ...],
        above: int = 0,
        ancestors: tuple[Ancestor, ...] = (),
        seen: Hashable = None,
    ) -> None:
        """`seen`: the version of the file in which the group was found; None if other files, too, decide what is there."""
        self.file = file
        self.path = path
        self._above = above
        self._ancestors = ancestors
        self._seen = seen

    @property
    def version(self) -> Hashable:
        """Return the version of the file, because any change of the file may be one of the group."""
        stat = self.file.current().stat
        return stat.version if stat.settled else object()

    @property
    def listing_version(self) -> Hashable:
        return self.version

    def current(self) -> bool:
        try:
            return self._seen is not None and self.file.version(self._seen).stat.settled
        except (NotFound, Stale):
            return False

    @property
    def mtime_ns(self) -> int:
        return self.file.current().stat.mtime_ns

    def attributes(self) -> Mapping[str, JSON]:
        return pages.read_attributes(self.file, self.path)

    def whole_file(self) -> WholeFile | None:
        return None if self.path else whole_file(self.file)

    def children(self) -> Iterator[Child]:
        """Yield members by name, except those without data and links that no path in the mount can express."""
        start: int | None = 0
        while start is not None:
            page = pages.read_page(self.file, self.path, start)
            lineage = self._find_lineage(page.address)
            for member in page.members.values():
                child = self._list_member(member, page.stat, lineage)
                if child is not None:
                    yield child
            start = page.following

    def skipped(self) -> Iterator[str]:
        """Describe links that no path in the mount can express, and unreadable attributes."""
        yield from answers.describe_unreadable(self.attributes())
        start: int | None = 0
        while start is not None:
            page = pages.read_page(self.file, self.path, start)
            for member in page.members.values():
                if member.kind == "soft" and self._make_soft_link(member.name, str(member.target)) is None:
                    yield f"{self._place_of(member.name)}: a link to {member.target}, which no path in the mount can express"
                elif member.kind == "user-defined":
                    yield f"{self._place_of(member.name)}: a user-defined link, which is not followed"
            start = page.following

    def child(self, name: str) -> HDF5Group | HDF5Array | Link:
        try:
            answer, stat = pages.read_description(self.file, (*self.path, name))
        except (AccessDenied, Unsupported) as error:
            raise error.at(self._place_of(name)) from None
        if (problem := error_of(answer)) is not None:
            raise problem.at(self._place_of(name))
        return self._make_node(name, answer, stat)

    @property
    def place(self) -> str:
        """File and path for messages."""
        return f"{self.file.path}:/{'/'.join(self.path)}"

    def _place_of(self, name: str) -> str:
        return f"{self.file.path}:/{'/'.join((*self.path, name))}"

    def _make_node(self, name: str, answer: Mapping[str, Any], stat: Stat) -> HDF5Group | HDF5Array | Link:
        kind, path = answer.get("kind"), (*self.path, name)
        if kind == "group":
            lineage = self._find_lineage()
            up = _find_way_up(lineage, Ancestor(self.file.path, answers.parse_address(answer.get("address"))))
            alone = all(ancestor.file == self.file.path for ancestor in lineage)
            seen = stat.version if alone else None
            return Link(up) if up is not None else HDF5Group(self.file, path, self._above, lineage, seen)
        if kind == "dataset":
            try:
                return open_array(self.file, path, answer, stat)
            except (CorruptData, Unsupported) as error:
                raise error.at(self._place_of(name)) from None
        if kind == "soft":
            link = self._make_soft_link(name, str(answers.parse_link_target("soft", answer.get("target"))))
            if link is not None:
                return link
        if kind == "external":
            return self._open_external(name, answers.parse_link_target("external", answer.get("target")))
        raise NotFound(f"{self.place}: {name!r} is no group, dataset or link to one in this file")

    # ---- links

    def _find_lineage(self, address: int | None = None) -> tuple[Ancestor, ...]:
        """Return the groups above a member of this group: its ancestors, and the group itself, at `address` of its file."""
        if address is None:
            address = pages.read_address(self.file, self.path)
        return (*self._ancestors, Ancestor(self.file.path, address))

    def _list_member(self, member: HDF5Member, stat: Stat, lineage: tuple[Ancestor, ...]) -> Child | None:
        mtime_ns = stat.mtime_ns
        if member.kind == "soft":
            link = self._make_soft_link(member.name, str(member.target))
            return None if link is None else Child(member.name, mtime_ns, link.target)
        if member.kind == "external":
            return self._list_external(member, mtime_ns, lineage)
        if member.kind == "user-defined":
            self.file.remark(f"{'/'.join((*self.path, member.name))}: user-defined link is not followed")
        if member.address is None or member.kind in HIDDEN:
            return None
        up = _find_way_up(lineage, Ancestor(self.file.path, member.address))
        return Child(member.name, mtime_ns, up)

    def _list_external(self, member: HDF5Member, mtime_ns: int, lineage: tuple[Ancestor, ...]) -> Child:
        """List an external link, even if it may not be followed or leads nowhere (P3). Its look-up reports why.

        Only a link to a file on the way here, which may lead back to an ancestor, is followed for a listing.
        """
        node = None
        if self._external_path(member.target) in {ancestor.file for ancestor in lineage}:
            with suppress(FsbridgeError):
                node = self._open_external(member.name, member.target)
        return Child(member.name, mtime_ns, node.target if isinstance(node, Link) else None)

    def _make_soft_link(self, name: str, target: str) -> Link | None:
        """Return the target relative to this group, or None if no path in the mount can express it.

        HDF5 has no parent directory: a component `..` is an ordinary name, which a symbolic link cannot express.
        """
        parts = _split(target)
        if ".." in parts:
            self.file.remark(f"{'/'.join((*self.path, name))}: soft link to a name '..' is left out")
            return None
        if not target.startswith("/"):
            return Link("/".join(parts) or ".")
        above = self._above
        if tuple(parts[:above]) != self.path[:above]:
            self.file.remark(f"{'/'.join((*self.path, name))}: soft link to a place that is not mounted is left out")
            return None
        return Link("/".join([".."] * (len(self.path) - above) + parts[above:]) or ".")

    def _open_external(self, name: str, target: Any) -> HDF5Group | HDF5Array | Link:
        """Return what an external link leads to, if its file is in an allowed folder.

        Raises CorruptData if nothing is there.
        """
        lineage = self._find_lineage()
        try:
            file, path = self._follow(target)
            if path:
                node = HDF5Group(file, path[:-1], len(path), lineage)._open_node(path[-1])
            else:
                up = _find_way_up(lineage, Ancestor(file.path, pages.read_address(file, ())))
                node = HDF5Group(file, (), 0, lineage) if up is None else Link(up)
        except NotFound as error:
            raise CorruptData(f"{self._place_of(name)}: an external link to something that is not there: {error}") from None
        except FsbridgeError as error:
            raise error.at(f"{self._place_of(name)}: an external link") from None
        if isinstance(node, Link) and self._external_path(target) not in {ancestor.file for ancestor in lineage}:
            raise TooDeep(f"{self._place_of(name)}: external links lead back to an ancestor")  # it was not listed as a link
        return node

    def _open_node(self, name: str) -> HDF5Group | HDF5Array | Link:
        """Return the member `name`, with this group's ancestors as its own: this group is not in the mount itself."""
        answer, stat = pages.read_node(self.file, (*self.path, name))
        if answer.get("kind") != "group":
            return self._make_node(name, answer, stat)
        up = _find_way_up(self._ancestors, Ancestor(self.file.path, answers.parse_address(answer.get("address"))))
        group = HDF5Group(self.file, (*self.path, name), self._above, self._ancestors)
        return group if up is None else Link(up)

    def _follow(self, target: tuple[str, str]) -> tuple[HDF5File, tuple[str, ...]]:
        """Follow an external link over further links to a file and a path of hard links. Raises TooDeep for a circle."""
        file, parts = self._open_allowed(target), _split(target[1])
        done: tuple[str, ...] = ()
        links = MAX_LINKS
        while parts:
            name, *parts = parts
            answer = file.ask({"op": "node", "path": [*done, name]})[0]
            kind = answer.get("kind")
            if kind not in ("soft", "external"):
                done = (*done, name)
                continue
            links -= 1
            if links < 0:
                raise TooDeep(f"more than {MAX_LINKS} links one after the other")
            further: Any = answers.parse_link_target(kind, answer.get("target"))
            if kind == "external":
                file, done = HDF5Group(file, done)._open_allowed(further), ()
                parts = _split(further[1]) + parts
            else:
                done = () if further.startswith("/") else done
                parts = _split(further) + parts
        return file, done

    def _external_path(self, target: Any) -> str:
        return self.file.data.sibling_path(target[0])

    def _is_allowed(self, target: Any) -> bool:
        return self.file.data.is_within(self._external_path(target), self.file.config.allow_external)

    def _open_allowed(self, target: Any) -> HDF5File:
        path = self._external_path(target)
        if not self._is_allowed(target):
            raise AccessDenied(f"leads to {path}: {self.file.data.permission(path)}")
        return self.file.open_sibling(path)


def _split(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _find_way_up(lineage: Sequence[Ancestor], ancestor: Ancestor) -> str | None:
    """Return the relative path from the last group of `lineage` to the group `ancestor` in it; None if it is not in it."""
    if ancestor.address is None or ancestor not in lineage:
        return None
    return "/".join([".."] * (len(lineage) - 1 - lineage.index(ancestor))) or "."
