"""Collects everything below a group for its virtual HDF5 file, and detects changes. Not here: the file (`twin.py`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, cast

from fsbridge.errors import PASSING, AccessDenied, CorruptData, FsbridgeError, NotFound, Stale, TooLarge, Unsupported
from fsbridge.layouts.files.arrays.extents import View
from fsbridge.layouts.files.arrays.open_array import VARIABLE_BYTES, OpenArray, Surroundings
from fsbridge.layouts.files.filetypes.text import MAX_TEXTS
from fsbridge.layouts.files.groups.surroundings import OpenGroup, known_attributes
from fsbridge.layouts.files.h5 import dimensions
from fsbridge.layouts.files.h5 import specification as spec
from fsbridge.layouts.files.h5.twin import Opened, Shown, Twin, fits, known_exactly, shown_array, written
from fsbridge.layouts.files.h5.writing import SkeletonWriter, WriterDied
from fsbridge.layouts.members import Opener, openers
from fsbridge.metadata import JSON, Exact, ExactMember, Origin
from fsbridge.model import Child, Group, Link, Node, as_array

log = logging.getLogger(__name__)

MAX_OBJECTS = 100_000
"""Most objects of one virtual file. A limit is needed because hard links of HDF5 can form cycles."""

_WEIGHT_BYTES = 512
"""Bytes kept for an array or a group."""


@dataclass(frozen=True, slots=True)
class SeenGroup:
    """A group as it was when the file was made, to be compared with the group now.

    `state`: hash of its attributes and members; None if `origin`, the file that contains the group, detects changes.
    """

    group: OpenGroup
    origin: Origin | None
    state: int | None

    def current(self) -> bool:
        """True if the group has the same attributes and members."""
        if self.group.path.present() is not self.group or (self.origin is not None and not self.origin.current()):
            return False
        group = self.group.group
        if self.state is None:
            return True
        return self.state == _state(known_attributes(group), list(group.children()))


@dataclass(frozen=True, slots=True)
class SkeletonElements:
    """An array with its elements in the skeleton."""

    array: OpenArray
    version: Hashable

    def current(self) -> bool:
        """Return True if the array has not changed; Stale if it has."""
        self.array.current(self.version)
        return True


@dataclass(frozen=True, slots=True)
class Walked:
    """A virtual file and all that it was made of, so that changes can be found."""

    twin: Twin
    watched: tuple[Origin, ...]
    mtime_ns: int

    def current(self) -> bool:
        """True if nothing that the file was made of has changed. Elements in chunks are not looked at."""
        try:
            return all(watch.current() for watch in self.watched)
        except FsbridgeError:
            return False

    @property
    def weight(self) -> int:
        """Bytes of memory, roughly."""
        pieces = sum(len(content) for _, content in self.twin.pieces)
        return pieces + (len(self.twin.parts) + len(self.watched)) * _WEIGHT_BYTES


class Walk:
    """Walks through the groups and arrays below one group, and describes them to the process that writes the file."""

    def __init__(self, root: tuple[str, ...], exactly: bool = True) -> None:
        """`exactly`: describe objects of HDF5 files exactly as those files do."""
        self._root = root
        self._exactly = exactly
        self._writer = SkeletonWriter()
        self.specification = spec.Specification(self._writer.send)
        self._watched: dict[Origin, None] = {}
        self._shown: dict[int, Shown] = {}
        self._labelled: dict[str, dimensions.Labelled] = {}
        self._objects: dict[tuple[str, JSON], str] = {}
        self._around: dict[OpenGroup, Surroundings] = {}  # contexts of the groups that the walk is in
        self._mtime_ns = 0
        self._variable = 0
        self._total = 0
        self._excerpt = False  # True if the new file is a part of one HDF5 file

    def file(self, group: OpenGroup, depth: int) -> Walked:
        """The virtual file of a group and all below it."""
        try:
            self._writer.begin()
            known = known_exactly(group.group) if self._exactly else None
            self._excerpt = known is not None and known.nested > 0
            self._mtime_ns = group.group.mtime_ns
            self._group(group, "", depth)
            scales = dimensions.scales(self._labelled)
            for item in scales.datasets:
                self.specification.add(**item)
            end = self.specification.end(scales.made, scales.attached)
            twin, failed = written(self._writer, self.specification, end, self._shown)
        finally:
            self._writer.close()
        for path, reason in failed.items():
            log.warning("%s is left out of the virtual HDF5 file: %s", path, reason)
        return Walked(twin, tuple(self._watched), self._mtime_ns)

    def _group(self, group: OpenGroup, path: str, depth: int) -> None:
        """Add a group and all below it."""
        attributes, left_out = dict[str, JSON](), list[str]()
        try:
            attributes = dict(group.group.attributes())
        except (AccessDenied, *PASSING):
            raise
        except FsbridgeError as error:
            left_out.append(f"attributes: {error}")
            log.warning("the attributes of %s/ are left out of the virtual HDF5 file: %s", path, error)
        known = known_exactly(group.group) if self._exactly else None
        members = list(group.group.children()) if known is None else None
        self._around[group] = group.around(()) if members is None else group.look_around(members)
        typed = {} if known is None else self.specification.typed(known.file, known.described)
        self.specification.add("group", path or "/", attributes=attributes, characters=spec.characters(attributes), **typed)
        if known is not None:
            self._same(known.file, known.described, path or "/")
        seen = _SeenMembers()
        for name, step in self._steps(group, known, members, seen, path, depth):
            self._room()
            try:
                step()
            except NotFound:
                continue  # removed meanwhile
            except (WriterDied, *PASSING):
                raise  # else the member would be left out until something else changes
            except FsbridgeError as error:
                left_out.append(f"{name}: {error}")
                log.warning("%s/%s is left out of the virtual HDF5 file: %s", path, name, error)
        del self._around[group]
        if left_out:
            self.specification.leave_out(path or "/", left_out)
        if known is not None and seen.alone:
            self._watch(SeenGroup(group, known.origin, None))
        else:
            state = _state(attributes, list(group.group.children()) if members is None else members)
            self._watch(SeenGroup(group, None if known is None else known.origin, state))

    def _steps(
        self,
        group: OpenGroup,
        known: Exact | None,
        listed: Sequence[Child] | None,
        seen: _SeenMembers,
        path: str,
        depth: int,
    ) -> Iterator[tuple[str, Callable[[], None]]]:
        """Yield each member's name, and a function that adds it. `seen` gets members that an HDF5 file describes exactly.

        If HDF5 cannot describe all of them, the others are added in the same way as members of other formats.
        """
        if known is not None:
            try:
                for member in known.members:
                    seen.names.add(member.name)
                    seen.alone &= member.kind != "external"
                    yield member.name, partial(self._exact_member, group, known, member, path, depth)
                return
            except (CorruptData, Unsupported, TooLarge) as error:
                seen.alone = False
                log.warning("types and attributes in the virtual HDF5 file may differ from those of the source: %s", error)
        children = (child for child in group.group.children() if child.name not in seen.names) if listed is None else listed
        for child, opener in openers(group.group, children, group.path.member.context.config.is_remote):
            yield spec.component(child.name), partial(self._child, group, child, opener, path, depth)

    def _watch(self, watch: Origin) -> None:
        self._watched[watch] = None

    def _room(self) -> None:
        if self.specification.count > MAX_OBJECTS:
            raise TooLarge(f"the virtual HDF5 file has room for at most {MAX_OBJECTS} groups and arrays")

    def _child(self, group: OpenGroup, child: Child, opener: Opener, path: str, depth: int) -> None:
        node: Node = Link(child.link) if child.link is not None else opener()
        self._node(group, child.name, f"{path}/{spec.component(child.name)}", node, depth)

    def _node(self, group: OpenGroup, name: str, path: str, node: Node, depth: int, known: Facts | None = None) -> None:
        if isinstance(node, Link):
            target = spec.absolute(group.path.member.names, node.target, self._root)
            self.specification.add("soft", path, target=target)
            return
        array = as_array(node)
        if array is not None:
            self._array(group, name, group.opened(name, array, self._around[group]), path, known)
            return
        if depth <= 0:
            raise TooLarge("the group is nested too deeply")
        below = group.directory(name, cast(Group, node)).present()
        self._group(cast(OpenGroup, below), path, depth - 1)

    # ---- members of HDF5 files

    def _exact_member(self, group: OpenGroup, known: Exact, member: ExactMember, path: str, depth: int) -> None:
        """Add a member of an HDF5 file's group. Links and types become what they are in that file."""
        full = f"{path}/{member.name}"
        if member.kind == "user-defined":
            raise Unsupported("user-defined links of HDF5 cannot be copied")
        if member.kind == "soft":
            self.specification.add("soft", full, target=self._soft_target(group, known, str(member.target), path))
            return
        described = member.described
        same = self._objects.get((known.file, described.get("address"))) if described else None
        if same is not None:
            self.specification.add("hard", full, target=same)
            return
        facts = Facts(known.file, described) if described.get("attributes") is not None else None
        if member.kind == "type" and facts is not None:
            self.specification.add("type", full, **self.specification.typed(*facts))
            self._same(known.file, described, full)
            return
        try:
            node = group.group.child(member.name)
        except (AccessDenied, CorruptData, NotFound) as error:
            if member.kind == "external":
                self.specification.add("external", full, target=member.target)
                return
            if isinstance(error, CorruptData) or facts is None or described.get("stored") or member.kind != "dataset":
                raise
            self.specification.add("dataset", full, bytes=0, **self.specification.typed(*facts))  # a netCDF dimension
        else:
            self._node(group, member.name, full, node, depth, facts)
        if member.kind != "external":
            self._same(known.file, described, full)

    def _same(self, file: str, described: Mapping[str, JSON], path: str) -> None:
        """Note that this object is at `path`, so that other links to it lead there."""
        if described.get("address") is not None:
            self._objects.setdefault((file, described["address"]), path)

    def _soft_target(self, group: OpenGroup, known: Exact, target: str, path: str) -> str:
        """Return a soft link's target. An absolute one is adapted if the new file has another group as its root."""
        if not target.startswith("/") or known.nested == path.count("/"):
            return target
        up = "/".join([".."] * known.nested + [part for part in target.split("/") if part not in ("", ".")])
        return spec.absolute(group.path.member.names, up, self._root)

    # ---- arrays

    def _array(self, group: OpenGroup, name: str, array: OpenArray, path: str, known: Facts | None) -> None:
        view = array.view(name=path.rpartition("/")[2])
        if array.metadata.varlength:
            raise TooLarge("the blocks have varying numbers of elements")
        item, elements = spec.dataset(view, path), None
        if known is not None:
            described = dimensions.excerpt(known.described) if self._excerpt else known.described
            item |= self.specification.typed(known.file, described)
        if spec.stored(view).items and known is not None:
            elements = self._exact_items(array)
        elif spec.stored(view).items:
            item["items"] = self._items(array, view)
        else:
            size = view.selection.size * array.metadata.dtype.itemsize
            fits(self._total + size)
            self._total += size
            if known is not None and not known.described.get("stored"):
                item["bytes"] = 0
        number = self.specification.add(**item, elements=elements)
        if item["bytes"]:
            opener = partial(_opened, group, name, array.array.version)
            exactly = known is not None and "type" in known.described
            self._shown[number] = shown_array(view, exactly, array.array, opener)
        self._watched[array.array.watch() or array.array] = None
        self._mtime_ns = max(self._mtime_ns, array.array.mtime_ns)
        labelled = spec.labelled(view, path.rpartition("/")[2]) if known is None else None
        if labelled is not None:
            self._labelled[path] = labelled

    def _exact_items(self, array: OpenArray) -> bytes:
        """Return the elements of an HDF5 file's array that only point at their values, for the skeleton."""
        exactly = array.array.exact()
        assert exactly is not None
        content = exactly.items()
        self._add_variable(len(content))
        return content

    def _items(self, array: OpenArray, view: View) -> list[JSON]:
        """Return the elements of an array that must lie in the skeleton (`Stored.items`)."""
        if view.selection.size > MAX_TEXTS:
            raise TooLarge(f"the array has more than {MAX_TEXTS} elements of variable length")
        version = array.settled()
        items = array.elements(array.current(version), view.selection, spec.stored(view).order)
        self._add_variable(sum(len(item) for item in items.reshape(-1).tolist()))
        self._watch(SkeletonElements(array, version))
        return list(spec.items_of(view, items))

    def _add_variable(self, count: int) -> None:
        if self._variable + count > VARIABLE_BYTES:
            raise TooLarge(f"elements of variable length have more than {VARIABLE_BYTES} bytes altogether")
        self._variable += count


def group_file(group: OpenGroup, names: tuple[str, ...], depth: int, began: Callable[[Walk], None]) -> Walked:
    """The virtual file of the group at `names`; `began` gets each walk that is begun for it."""
    walk = Walk(names)
    began(walk)
    try:
        return walk.file(group, depth)
    except WriterDied as error:
        if not walk.specification.is_typed:
            raise
        log.warning("types and attributes in the virtual HDF5 file may differ from those of the source: %s", error)
    walk = Walk(names, exactly=False)
    began(walk)
    return walk.file(group, depth)


def _opened(group: OpenGroup, name: str, version: Hashable) -> Opened:
    """Return an array of a group that is being read; Stale if it is another one by now, or there is none."""
    try:
        array = group.reopened(name, version)
        return Opened(array, array.view(), array.settled())
    except NotFound as error:
        raise Stale(f"{name!r} has gone since the group's file was made: {error}") from None


def _state(attributes: Mapping[str, JSON], members: Sequence[Child]) -> int:
    """Return a hash of a group's attributes and members."""
    return hash((repr(attributes), frozenset((child.name, child.link) for child in members)))


@dataclass
class _SeenMembers:
    """Members of a group that an HDF5 file describes exactly. `alone`: it describes all, and none is in another file."""

    names: set[str] = field(default_factory=set)
    alone: bool = True


class Facts(NamedTuple):
    """What an HDF5 file says of one of its objects. `file`: the HDF5 file; `described`: see `exact.Exact.described`."""

    file: str
    described: Mapping[str, JSON]
