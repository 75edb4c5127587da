"""Everything below a group, for its virtual HDF5 file, and whether that is still so. Not here: the file (`twin.py`)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from fsbridge.config import MIB
from fsbridge.errors import AccessDenied, FsbridgeError, NotFound, TooLarge, Unsupported
from fsbridge.exact import Exact, ExactMember, Origin, exact
from fsbridge.layouts.files.arrays import OpenArray
from fsbridge.layouts.files.extents import View
from fsbridge.layouts.files.h5 import specification as spec
from fsbridge.layouts.files.h5.twin import Twin, fits, known_exactly, written
from fsbridge.layouts.files.headers.text import MAX_TEXTS
from fsbridge.model import JSON, Child, Group, Link, Node, as_array

if TYPE_CHECKING:
    from fsbridge.layouts.files.layout import FilesGroup

log = logging.getLogger(__name__)

MAX_OBJECTS = 100_000
"""Of one virtual file: hard links of HDF5 can form circles."""

VARIABLE_BYTES = 64 * MIB
"""Elements of variable length in one virtual file."""


@dataclass(slots=True)
class Seen:
    """A group as it was: to tell whether the file still shows what there is."""

    group: FilesGroup
    attributes: Mapping[str, JSON]
    members: frozenset[tuple[str, str | None]]
    origin: Origin | None

    def same(self) -> bool:
        """Whether the group has the same attributes and members."""
        shown = self.group.path.present()
        if shown is not self.group:
            return False
        if self.origin is not None and not self.origin.current():
            return False
        members = frozenset((child.name, child.link) for child in self.group.group.children())
        return members == self.members and self.group.group.attributes() == self.attributes


@dataclass(slots=True)
class Walk:
    """The groups and arrays below one group, and the file's specification."""

    root: tuple[str, ...]
    specification: spec.Specification = field(default_factory=spec.Specification)
    seen: list[Seen] = field(default_factory=list)
    arrays: list[OpenArray] = field(default_factory=list)
    tokens: list[Any] = field(default_factory=list)
    shown: dict[int, tuple[OpenArray, View]] = field(default_factory=dict)
    views: dict[str, tuple[View, bool]] = field(default_factory=dict)
    objects: dict[tuple[str, JSON], str] = field(default_factory=dict)
    variable: int = 0
    total: int = 0

    def current(self) -> bool:
        """Whether everything is as it was."""
        try:
            if not all(seen.same() for seen in self.seen):
                return False
            for array, token in zip(self.arrays, self.tokens, strict=True):
                array.current(token)
        except FsbridgeError:
            return False
        return True

    def group(self, group: FilesGroup, path: str, depth: int) -> None:
        """Take in a group and all below."""
        attributes = dict(group.group.attributes())
        members = list(group.group.children())
        known = known_exactly(group.group)
        links = frozenset((child.name, child.link) for child in members)
        self.seen.append(Seen(group, dict(attributes), links, None if known is None else known.origin))
        typed = {} if known is None else self.specification.typed(known.file, known.described)
        number = self.specification.add("group", path or "/", attributes=attributes, **typed)
        if known is None:
            steps = [(spec.component(child.name), partial(self._child, group, child, path, depth)) for child in members]
        else:
            self._same(known.file, known.described, path or "/")
            steps = [(m.name, partial(self._exact_member, group, known, m, path, depth)) for m in known.members]
        left_out: list[str] = []
        for name, step in steps:
            self._room()
            try:
                step()
            except NotFound:
                continue  # removed meanwhile
            except FsbridgeError as error:
                left_out.append(f"{name}: {error}")
                log.warning("%s/%s is left out of the virtual HDF5 file: %s", path, name, error)
        if left_out:
            self.specification.objects[number]["left_out"] = left_out

    def _room(self) -> None:
        if len(self.specification.objects) > MAX_OBJECTS:
            raise TooLarge(f"more than {MAX_OBJECTS} groups and arrays for one HDF5 file")

    def _child(self, group: FilesGroup, child: Child, path: str, depth: int) -> None:
        node: Node = Link(child.link) if child.link is not None else group.group.child(child.name)
        self._node(group, child.name, f"{path}/{spec.component(child.name)}", node, depth)

    def _node(self, group: FilesGroup, name: str, path: str, node: Node, depth: int, known: Facts | None = None) -> None:
        if isinstance(node, Link):
            target = spec.absolute(group.path.member.names, node.target, self.root)
            self.specification.add("soft", path, target=target)
            return
        array = as_array(node)
        if array is not None:
            self._array(group.opened(name, array), path, known)
            return
        if depth <= 0:
            raise TooLarge("too many nested groups")
        below = group.directory(name, cast(Group, node)).present()
        self.group(cast("FilesGroup", below), path, depth - 1)

    # ---- what HDF5 says of itself

    def _exact_member(self, group: FilesGroup, known: Exact, member: ExactMember, path: str, depth: int) -> None:
        """A member of a group of an HDF5 file, links and types as they are."""
        full = f"{path}/{member.name}"
        if member.kind == "user-defined":
            raise Unsupported("a user-defined link")
        if member.kind == "soft":
            self.specification.add("soft", full, target=self._soft_target(group, known, str(member.target), path))
            return
        described = member.described
        same = self.objects.get((known.file, described.get("address"))) if described else None
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
        except (AccessDenied, NotFound):
            if member.kind == "external":
                self.specification.add("external", full, target=member.target)
                return
            if facts is None or described.get("stored") or member.kind != "dataset":
                raise
            self.specification.add("dataset", full, bytes=0, **self.specification.typed(*facts))  # a netCDF dimension
        else:
            self._node(group, member.name, full, node, depth, facts)
        if member.kind != "external":
            self._same(known.file, described, full)

    def _same(self, file: str, described: Mapping[str, JSON], path: str) -> None:
        """Other links to this object lead to `path`."""
        if described.get("address") is not None:
            self.objects.setdefault((file, described["address"]), path)

    def _soft_target(self, group: FilesGroup, known: Exact, target: str, path: str) -> str:
        """A soft link's target as it is; where the file begins further down, the same place in this file."""
        if not target.startswith("/") or known.nested == path.count("/"):
            return target
        up = "/".join([".."] * known.nested + [part for part in target.split("/") if part not in ("", ".")])
        return spec.absolute(group.path.member.names, up, self.root)

    # ---- arrays

    def _array(self, array: OpenArray, path: str, known: Facts | None) -> None:
        view = array.view(name=path.rpartition("/")[2])
        token = array.settled()
        if array.metadata.varlength:
            raise TooLarge("its elements have different sizes")
        item = spec.dataset(view, path)
        if known is not None:
            item |= self.specification.typed(*known)
        if spec.stored(view).items:
            item |= self._items(array, view, token, known)
        else:
            size = view.selection.size * array.metadata.dtype.itemsize
            fits(self.total + size)
            self.total += size
            if known is not None and not known.described.get("stored"):
                item["bytes"] = 0
        number = self.specification.add(**item)
        if not spec.stored(view).items and item["bytes"]:
            self.shown[number] = array, view
        self.arrays.append(array)
        self.tokens.append(token)
        if known is None:
            self.views[path] = (view, spec.is_scale(view))

    def _items(self, array: OpenArray, view: View, token: Any, known: Facts | None) -> dict[str, JSON]:
        """Elements of an array that have no fixed size, for the skeleton."""
        if known is not None:
            exactly = exact(array.array)
            assert exactly is not None
            content = exactly.items()
            self._variable(len(content))
            return self.specification.elements(content)
        if view.selection.size > MAX_TEXTS:
            raise TooLarge(f"more than {MAX_TEXTS} elements of variable length")
        items = array.elements(array.current(token), view.selection, spec.stored(view).order)
        self._variable(sum(len(item) for item in items.reshape(-1).tolist()))
        return {"items": spec.items_of(view, items)}

    def _variable(self, count: int) -> None:
        self.variable += count
        if self.variable > VARIABLE_BYTES:
            self.variable -= count
            raise TooLarge(f"more than {VARIABLE_BYTES} bytes of elements of variable length")

    def twin(self) -> Twin:
        """The file; what it was made of is let go."""
        self.specification.made, self.specification.attached = spec.scales(self.views)
        twin, failed = written(self.specification, self.shown)
        for path, reason in failed.items():
            log.warning("%s is left out of the virtual HDF5 file: %s", path, reason)
        self.specification, self.shown, self.views, self.objects = spec.Specification(), {}, {}, {}
        return twin


class Facts(NamedTuple):
    """What an HDF5 file says of an object of its own."""

    file: str
    described: Mapping[str, JSON]
