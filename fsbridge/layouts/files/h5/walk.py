"""Everything below a group, for its virtual HDF5 file, and whether that is still so. Not here: the file (`twin.py`)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from fsbridge.config import MIB
from fsbridge.errors import FsbridgeError, NotFound, TooLarge
from fsbridge.layouts.files.arrays import OpenArray
from fsbridge.layouts.files.extents import View
from fsbridge.layouts.files.h5 import specification as spec
from fsbridge.layouts.files.h5.twin import Twin, fits, written
from fsbridge.layouts.files.headers.text import MAX_TEXTS
from fsbridge.model import JSON, Group, Link, Node, as_array

if TYPE_CHECKING:
    from fsbridge.layouts.files.layout import FilesGroup

log = logging.getLogger(__name__)

OBJECTS = 100_000
"""Of one virtual file: hard links of HDF5 can form circles."""

VARIABLE_BYTES = 64 * MIB
"""Elements of variable length in one virtual file."""


@dataclass(slots=True)
class Seen:
    """A group as it was: to tell whether the file still shows what there is."""

    group: FilesGroup
    attributes: Mapping[str, JSON]
    members: frozenset[tuple[str, str | None]]

    def same(self) -> bool:
        """Whether the group has the same attributes and members."""
        shown = self.group.path.present()
        if shown is not self.group:
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
    shown: list[tuple[OpenArray, View] | None] = field(default_factory=list)
    views: dict[str, tuple[View, bool]] = field(default_factory=dict)
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
        self.seen.append(Seen(group, dict(attributes), frozenset((child.name, child.link) for child in members)))
        left_out: list[str] = []
        place = len(self.specification.groups)
        self.specification.groups.append({"path": path or "/", "attributes": attributes})
        for child in members:
            self._room()
            name = spec.component(child.name)
            try:
                node: Node = Link(child.link) if child.link is not None else group.group.child(child.name)
                self._member(group, child.name, f"{path}/{name}", node, depth)
            except NotFound:
                continue  # removed meanwhile
            except FsbridgeError as error:
                left_out.append(f"{name}: {error}")
                log.warning("%s/%s is left out of the virtual HDF5 file: %s", path, name, error)
        if left_out:
            self.specification.groups[place]["attributes"] = {**attributes, spec.LEFT_OUT: left_out}

    def _room(self) -> None:
        if len(self.specification.datasets) + len(self.specification.groups) > OBJECTS:
            raise TooLarge(f"more than {OBJECTS} groups and arrays for one HDF5 file")

    def _member(self, group: FilesGroup, name: str, path: str, node: Node, depth: int) -> None:
        if isinstance(node, Link):
            target = spec.absolute(group.path.member.names, node.target, self.root)
            self.specification.links.append([path, target])
            return
        array = as_array(node)
        if array is not None:
            self._array(group.opened(name, array), path)
            return
        if depth <= 0:
            raise TooLarge("too many nested groups")
        below = group.directory(name, cast(Group, node)).present()
        self.group(cast("FilesGroup", below), path, depth - 1)

    def _array(self, array: OpenArray, path: str) -> None:
        view = array.view(name=path.rpartition("/")[2])
        token = array.settled()
        if array.metadata.varlength:
            raise TooLarge("its elements have different sizes")
        items = None
        if spec.stored(view).items:
            if view.selection.size > MAX_TEXTS:
                raise TooLarge(f"more than {MAX_TEXTS} elements of variable length")
            items = array.elements(array.current(token), view.selection, spec.stored(view).order)
            self.variable += sum(len(item) for item in items.reshape(-1).tolist())
            if self.variable > VARIABLE_BYTES:
                raise TooLarge(f"more than {VARIABLE_BYTES} bytes of elements of variable length")
        else:
            self.total += view.selection.size * array.metadata.dtype.itemsize
            fits(self.total)
        self.specification.datasets.append(spec.dataset(view, path, items))
        self.shown.append(None if items is not None else (array, view))
        self.arrays.append(array)
        self.tokens.append(token)
        self.views[path] = (view, spec.is_scale(view))

    def twin(self) -> Twin:
        """The file."""
        self.specification.made, self.specification.attached = spec.scales(self.views)
        return written(self.specification, self.shown)
