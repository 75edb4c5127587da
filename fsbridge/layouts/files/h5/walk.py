"""Collects everything below a group for its virtual HDF5 file, and detects changes. Not here: the file (`twin.py`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

from fsbridge.errors import PASSING, AccessDenied, FsbridgeError, NotFound, Stale, TimedOut, TooLarge, printable
from fsbridge.layouts.files.arrays.extents import View
from fsbridge.layouts.files.arrays.open_array import VARIABLE_BYTES, OpenArray
from fsbridge.layouts.files.filetypes.text import MAX_TEXTS
from fsbridge.layouts.files.groups.surroundings import OpenGroup, find_attributes
from fsbridge.layouts.files.h5 import dimensions
from fsbridge.layouts.files.h5 import specification as spec
from fsbridge.layouts.files.h5.twin import Opened, Shown, Twin, finish_file, fits, shown_array
from fsbridge.layouts.files.h5.writing import SkeletonWriter, WriterDied
from fsbridge.layouts.members import Opener, openers
from fsbridge.layouts.surroundings import Look
from fsbridge.meaning.conventions.netcdf import too_long, without_notes
from fsbridge.metadata import JSON, Origin
from fsbridge.model import Child, Group, Link, Node, as_array

log = logging.getLogger(__name__)

MAX_OBJECTS = 100_000
"""Most objects of one virtual file. A limit is needed because hard links of HDF5 can form cycles."""

_NONE: Mapping[str, JSON] = {}


@dataclass(frozen=True, slots=True)
class Seen:
    """The answer to a question that was asked when the file was made: `ask(*about)`."""

    ask: Callable[..., Hashable]
    about: tuple[Hashable, ...]
    answer: Hashable

    def current(self) -> bool:
        """True if the answer is still the same. Raises what `ask` does."""
        return self.ask(*self.about) == self.answer


def hash_group(group: OpenGroup) -> int | None:
    """Return a hash of a group's attributes and members; None if there is another group in its place."""
    if group.path.refresh() is not group:
        return None
    return _hash(find_attributes(group.group), list(group.group.children()))


def refusal(group: OpenGroup, name: str) -> str | None:
    """Return why the member `name` cannot be opened; None if it can."""
    try:
        group.group.child(name)
    except PASSING:
        raise
    except FsbridgeError as error:
        return str(error)
    return None


def has_elements(array: OpenArray, version: Hashable) -> bool:
    """Return True if the elements of an array are those of that version; Stale if they are not."""
    array.current(version)
    return True


@dataclass(frozen=True, slots=True)
class Walked:
    """A virtual file and all that it was made of, so that changes can be found."""

    twin: Twin
    watched: tuple[Origin, ...]
    mtime_ns: int

    def current(self) -> bool:
        """True if nothing that the file was made of has changed. Of elements, only those of coordinates are looked at."""
        try:
            return all(watch.current() for watch in self.watched)
        except TimedOut:
            raise  # it does not tell that anything has changed
        except FsbridgeError:
            return False

    @property
    def weight(self) -> int:
        """Bytes of memory, roughly."""
        pieces = sum(len(content) for _, content in self.twin.pieces)
        return pieces + (len(self.twin.parts) + len(self.watched)) * 512  # bytes of an array or a group


class Walk:
    """Walks through the groups and arrays below one group, and describes them to the process that writes the file."""

    def __init__(self, root: tuple[str, ...], netcdf: bool) -> None:
        """`root`: path of the group. `netcdf`: the file is what netCDF-4's own writer would write."""
        self._root = root
        self._netcdf = netcdf
        self._writer = SkeletonWriter()
        self.specification = spec.Specification(self._writer.send)
        self._watched: dict[Origin, None] = {}
        self._shown: dict[int, Shown] = {}
        self._labelled: dict[str, dimensions.Labelled] = {}
        self._looks: dict[OpenGroup, Look] = {}  # around the groups that the walk is in
        self._mtime_ns = 0
        self._variable = 0
        self._total = 0

    def count(self) -> int:
        """Return the number of groups and arrays found so far."""
        return self.specification.count

    def __enter__(self) -> None:
        """Start the process that writes the file. It ends when the block does."""
        self._writer.begin()

    def __exit__(self, *raised: object) -> None:
        self._writer.close()

    def make_file(self, group: OpenGroup, depth: int) -> Walked:
        """Make the virtual file of a group and all below it."""
        with self:
            self._mtime_ns = group.group.mtime_ns
            self._group(group, "", depth)
            return self.finish()

    def finish(self, left_out: Sequence[str] = (), seen: Iterable[Origin] = ()) -> Walked:
        """Finish the file of all that was added. `left_out`: what the root lacks, with reasons; `seen`: what was read."""
        if left_out:
            self.specification.leave_out("/", left_out)
        for watch in seen:
            self._watch(watch)
        scales = dimensions.scales(self._labelled, self._netcdf)
        for item in scales.datasets:
            self.specification.add(**item)
        end = self.specification.end(scales)
        twin, failed = finish_file(self._writer, self.specification, end, self._shown)
        for path, reason in failed.items():
            log.warning("%s is left out of the virtual HDF5 file: %s", printable(path), reason)
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
            log.warning("the attributes of %s/ are left out of the virtual HDF5 file: %s", printable(path), error)
        members = list(group.group.children())
        look = self._looks[group] = group.look()
        self.owner(path, attributes)
        for child, opener in openers(group.group, members, group.path.member.context.config.is_remote):
            self._room()
            name = spec.component(child.name)
            if self._netcdf and (reason := too_long(name)) is not None:
                left_out.append(f"{name}: {reason}")
                continue
            try:
                self._child(group, child, opener, path, depth)
            except NotFound:
                continue  # removed meanwhile
            except (WriterDied, *PASSING):
                raise  # else the member would be left out until something else changes
            except FsbridgeError as error:
                left_out.append(f"{name}: {error}")
                if (reason := refusal(group, child.name)) is not None:
                    self._watch(Seen(refusal, (group, child.name), reason))
                log.warning("%s is left out of the virtual HDF5 file: %s", printable(f"{path}/{name}"), error)
        del self._looks[group]
        if left_out:
            self.specification.leave_out(path or "/", left_out)
        self._watch(Seen(hash_group, (group,), _hash(attributes, members)))
        self._watch(look)

    def owner(self, path: str, attributes: Mapping[str, JSON]) -> None:
        """Add a group itself."""
        own = without_notes(attributes)
        own = spec.in_netcdf(own) if self._netcdf else own
        self.specification.add("group", path or "/", attributes=own, netcdf=self._netcdf)

    def _watch(self, watch: Origin) -> None:
        self._watched[watch] = None

    def _room(self) -> None:
        if self.specification.count > MAX_OBJECTS:
            raise TooLarge(f"the virtual HDF5 file has room for at most {MAX_OBJECTS} groups and arrays")

    def _child(self, group: OpenGroup, child: Child, opener: Opener, path: str, depth: int) -> None:
        name, path = child.name, f"{path}/{spec.component(child.name)}"
        node: Node = Link(child.link) if child.link is not None else opener()
        if isinstance(node, Link):
            target = spec.absolute(group.path.member.names, node.target, self._root)
            self.specification.add("soft", path, target=target)
            return
        array = as_array(node)
        if array is not None:
            opened = group.open_array(name, array, self._looks[group])
            self.array(opened, opened.view(name=path.rpartition("/")[2]), path, partial(_reopen, group, name, array.version))
            return
        if depth <= 0:
            raise TooLarge("the group is nested too deeply")
        below = group.directory(name, cast(Group, node)).refresh()
        self._group(cast(OpenGroup, below), path, depth - 1)

    # ---- arrays

    def array(
        self, array: OpenArray, view: View, path: str, opener: Callable[[], Opened], changed: Mapping[str, JSON] = _NONE
    ) -> None:
        """Add an array, or a region of it. `opener` opens it when its elements are read; `changed`: other attributes."""
        self._room()
        if array.metadata.varlength:
            raise TooLarge("the blocks have varying numbers of elements")
        item = spec.dataset(view, path, self._netcdf)
        item["attributes"] = {**cast(Mapping[str, JSON], item["attributes"]), **changed}
        if spec.stored(view).items:
            item["items"] = self._items(array, view)
        else:
            size = view.selection.size * spec.element_type(view, self._netcdf).itemsize
            fits(self._total + size)
            self._total += size
        number = self.specification.add(**item)
        if item["bytes"]:
            self._shown[number] = shown_array(view, opener, self._netcdf)
        self._watched[array.array.watch() or array.array] = None
        self._mtime_ns = max(self._mtime_ns, array.array.mtime_ns)
        labelled = spec.labelled(view, path.rpartition("/")[2], self._netcdf)
        if labelled is not None:
            self._labelled[path] = labelled

    def _items(self, array: OpenArray, view: View) -> list[JSON]:
        """Return the elements of an array that must lie in the skeleton (`Stored.items`)."""
        if view.selection.size > MAX_TEXTS:
            raise TooLarge(f"the array has more than {MAX_TEXTS} elements of variable length")
        version = array.find_version()
        items = array.elements(array.current(version), view.selection, spec.stored(view).order)
        count = sum(len(item) for item in items.reshape(-1).tolist())
        if self._variable + count > VARIABLE_BYTES:
            raise TooLarge(f"elements of variable length have more than {VARIABLE_BYTES} bytes altogether")
        self._variable += count
        self._watch(Seen(has_elements, (array, version), True))
        return list(spec.items_of(view, items))


def _reopen(group: OpenGroup, name: str, version: Hashable) -> Opened:
    """Return an array of a group that is being read; Stale if it is another one by now, or there is none."""
    try:
        array = group.reopen_array(name, version)
        return Opened(array, array.view(), array.find_version())
    except NotFound as error:
        raise Stale(f"{name!r} has gone since the group's file was made: {error}") from None


def _hash(attributes: Mapping[str, JSON], members: Sequence[Child]) -> int:
    """Return a hash of a group's attributes and members."""
    return hash((repr(attributes), frozenset((child.name, child.link) for child in members)))
