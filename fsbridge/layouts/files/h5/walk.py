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
from fsbridge.layouts.files.h5.twin import Opened, Shown, Twin, check_size, finish_file, show_array
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
    """Something that was asked while the file was made: `ask(*about)`, and the answer, to detect changes."""

    ask: Callable[..., Hashable]
    about: tuple[Hashable, ...]
    answer: Hashable

    def current(self) -> bool:
        """True if the answer is still the same. Raises what `ask` raises."""
        return self.ask(*self.about) == self.answer


def hash_group(group: OpenGroup) -> int | None:
    """Return a hash of a group's attributes and members; None if another group lies at its path by now."""
    if group.path.refresh() is not group:
        return None
    return _hash(find_attributes(group.group), list(group.group.children()))


def find_refusal(group: OpenGroup, name: str) -> str | None:
    """Return why the member `name` cannot be opened; None if it can be."""
    try:
        group.group.child(name)
    except PASSING:
        raise
    except FsbridgeError as error:
        return str(error)
    return None


def has_elements(array: OpenArray, version: Hashable) -> bool:
    """Return True while the array has the given version; raise Stale after that (asked by `Seen`)."""
    array.current(version)
    return True


@dataclass(frozen=True, slots=True)
class Walked:
    """A virtual file, and everything that it was made of, to detect changes."""

    twin: Twin
    watched: tuple[Origin, ...]
    mtime_ns: int

    def current(self) -> bool:
        """True if nothing that the file was made of has changed.

        Of all elements, only those in the skeleton and those of coordinates are checked.
        """
        try:
            return all(watch.current() for watch in self.watched)
        except TimedOut:
            raise  # it does not tell that anything has changed
        except FsbridgeError:
            return False

    @property
    def weight(self) -> int:
        """Bytes of memory that the file takes, roughly."""
        pieces = sum(len(content) for _, content in self.twin.pieces)
        return pieces + (len(self.twin.parts) + len(self.watched)) * 512  # bytes of an array or a group


class Walk:
    """Walks through the groups and arrays below one group, and describes them to the process that writes the skeleton."""

    def __init__(self, root: tuple[str, ...], netcdf: bool) -> None:
        """`root`: path of the group. `netcdf`: write the file as netCDF-4's own writer would."""
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

    def count_objects(self) -> int:
        """Return the number of groups and arrays found so far."""
        return self.specification.count

    def __enter__(self) -> None:
        """Start the process that writes the skeleton. Leaving the context ends it."""
        self._writer.begin()

    def __exit__(self, *raised: object) -> None:
        self._writer.close()

    def make_file(self, group: OpenGroup, depth: int) -> Walked:
        """Make the virtual file of a group and everything below it, at most `depth` levels of groups."""
        with self:
            self._mtime_ns = group.group.mtime_ns
            self._add_tree(group, "", depth)
            return self.finish()

    def finish(self, left_out: Sequence[str] = (), seen: Iterable[Origin] = ()) -> Walked:
        """Finish the file.

        `left_out`: what the root lacks, with reasons; `seen`: what was read besides, to detect changes.
        """
        if left_out:
            self.specification.leave_out("/", left_out)
        for watch in seen:
            self._watch(watch)
        scales = dimensions.find_scales(self._labelled, self._netcdf)
        for item in scales.datasets:
            self.specification.add(**item)
        end = self.specification.make_end(scales)
        twin, failed = finish_file(self._writer, self.specification, end, self._shown)
        for path, reason in failed.items():
            log.warning("%s is left out of the virtual HDF5 file: %s", printable(path), reason)
        return Walked(twin, tuple(self._watched), self._mtime_ns)

    def _add_tree(self, group: OpenGroup, path: str, depth: int) -> None:
        """Add a group and everything below it."""
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
        self.add_group(path, attributes)
        for child, opener in openers(group.group, members, group.path.member.context.config.is_remote):
            self._check_room()
            name = spec.escape_name(child.name)
            if self._netcdf and (reason := too_long(name)) is not None:
                left_out.append(f"{name}: {reason}")
                continue
            try:
                self._add_child(group, child, opener, path, depth)
            except NotFound:
                continue  # removed meanwhile
            except (WriterDied, *PASSING):
                raise  # else the member would be left out until something else changes
            except FsbridgeError as error:
                left_out.append(f"{name}: {error}")
                if (reason := find_refusal(group, child.name)) is not None:
                    self._watch(Seen(find_refusal, (group, child.name), reason))
                log.warning("%s is left out of the virtual HDF5 file: %s", printable(f"{path}/{name}"), error)
        del self._looks[group]
        if left_out:
            self.specification.leave_out(path or "/", left_out)
        self._watch(Seen(hash_group, (group,), _hash(attributes, members)))
        self._watch(look)

    def add_group(self, path: str, attributes: Mapping[str, JSON]) -> None:
        """Add a group without its members."""
        own = without_notes(attributes)
        own = spec.keep_netcdf_attributes(own) if self._netcdf else own
        self.specification.add("group", path or "/", attributes=own, netcdf=self._netcdf)

    def _watch(self, watch: Origin) -> None:
        self._watched[watch] = None

    def _check_room(self) -> None:
        if self.specification.count > MAX_OBJECTS:
            raise TooLarge(f"the virtual HDF5 file has room for at most {MAX_OBJECTS} groups and arrays")

    def _add_child(self, group: OpenGroup, child: Child, opener: Opener, path: str, depth: int) -> None:
        name, path = child.name, f"{path}/{spec.escape_name(child.name)}"
        node: Node = Link(child.link) if child.link is not None else opener()
        if isinstance(node, Link):
            target = spec.make_absolute(group.path.member.names, node.target, self._root)
            self.specification.add("soft", path, target=target)
            return
        array = as_array(node)
        if array is not None:
            opened = group.open_array(name, array, self._looks[group])
            self.add_array(
                opened, opened.make_view(name=path.rpartition("/")[2]), path, partial(_reopen, group, name, array.version)
            )
            return
        if depth <= 0:
            raise TooLarge("the group is nested too deeply")
        below = group.directory(name, cast(Group, node)).refresh()
        self._add_tree(cast(OpenGroup, below), path, depth - 1)

    # ---- arrays

    def add_array(
        self, array: OpenArray, view: View, path: str, opener: Callable[[], Opened], changed: Mapping[str, JSON] = _NONE
    ) -> None:
        """Add an array, or a region of it. `opener` opens it when its elements are read.

        `changed`: attributes that replace the array's own.
        """
        self._check_room()
        if array.metadata.varlength:
            raise TooLarge("the blocks have varying numbers of elements")
        item = spec.describe_dataset(view, path, self._netcdf)
        item["attributes"] = {**cast(Mapping[str, JSON], item["attributes"]), **changed}
        if spec.choose_storage(view).items:
            item["items"] = self._read_items(array, view)
        else:
            size = view.selection.size * spec.choose_element_type(view, self._netcdf).itemsize
            check_size(self._total + size)
            self._total += size
        number = self.specification.add(**item)
        if item["bytes"]:
            self._shown[number] = show_array(view, opener, self._netcdf)
        self._watched[array.array.watch() or array.array] = None
        self._mtime_ns = max(self._mtime_ns, array.array.mtime_ns)
        labelled = spec.describe_labelled(view, path.rpartition("/")[2], self._netcdf)
        if labelled is not None:
            self._labelled[path] = labelled

    def _read_items(self, array: OpenArray, view: View) -> list[JSON]:
        """Read the elements of an array that must lie in the skeleton (`Stored.items`), as the writer takes them."""
        if view.selection.size > MAX_TEXTS:
            raise TooLarge(f"the array has more than {MAX_TEXTS} elements of variable length")
        version = array.find_version()
        items = array.read_elements(array.current(version), view.selection, spec.choose_storage(view).order)
        count = sum(len(item) for item in items.reshape(-1).tolist())
        if self._variable + count > VARIABLE_BYTES:
            raise TooLarge(f"elements of variable length have more than {VARIABLE_BYTES} bytes altogether")
        self._variable += count
        self._watch(Seen(has_elements, (array, version), True))
        return list(spec.spell_items(view, items))


def _reopen(group: OpenGroup, name: str, version: Hashable) -> Opened:
    """Open an array of a group again, to read its elements; Stale if it has another version by now, or does not exist."""
    try:
        array = group.reopen_array(name, version)
        return Opened(array, array.make_view(), array.find_version())
    except NotFound as error:
        raise Stale(f"{name!r} has gone since the group's file was made: {error}") from None


def _hash(attributes: Mapping[str, JSON], members: Sequence[Child]) -> int:
    """Return a hash of a group's attributes and members."""
    return hash((repr(attributes), frozenset((child.name, child.link) for child in members)))
