"""`NAME.nc` of one array: the array with all that its dimensions and attributes name, as one virtual netCDF file.

It holds what `Dataset[[NAME]].to_netcdf()` of xarray writes: coordinates, bounds, grid mappings and so on from the array's
group and those above, or from where a path leads, and the attributes of the groups above. Not here: how a file is made
(`walk.py`), `NAME.h5` (`nodes.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterator, Mapping
from functools import partial

from fsbridge.errors import PASSING, FsbridgeError, NotFound, TooLarge, printable
from fsbridge.layouts.files.arrays.extents import View
from fsbridge.layouts.files.arrays.open_array import OpenArray
from fsbridge.layouts.files.arrays.selection import Pick, Selection
from fsbridge.layouts.files.filetypes.h5 import NC
from fsbridge.layouts.files.h5.making import Making
from fsbridge.layouts.files.h5.nodes import H5Files, H5Group
from fsbridge.layouts.files.h5.twin import Opened
from fsbridge.layouts.files.h5.walk import Seen, Walk, Walked
from fsbridge.layouts.members import SourceMember, array_at
from fsbridge.meaning.conventions.cf import named, renamed
from fsbridge.meaning.conventions.netcdf import too_long
from fsbridge.metadata import JSON, Origin
from fsbridge.model import Array

log = logging.getLogger(__name__)

MAX_LOOKS = 10_000
"""Most places where named arrays are looked for: half a second in a local store. An attribute may have a million names."""


def array_netcdf(array: OpenArray, selection: Selection | None = None, name: str | None = None) -> H5Group:
    """Return the netCDF file of an array, or of a region of it with `name`; NotFound if there can be none."""
    view = array.view(selection, name)
    reason = NC.refusal(view) or too_long(array.name)
    if reason is not None:
        raise NotFound(f"{view.name}.{NC.suffix}: {reason}")
    files = array.shared.part(H5Files)

    def begin() -> Making:
        walk = Walk(array.names, True)
        return Making(f"{view.name}.{NC.suffix}", partial(_write, walk, array, view), files.room, walk.count)

    return files.find((NC.suffix, array.names, selection, array.identity), begin)


def _write(walk: Walk, array: OpenArray, view: View) -> Walked:
    """Write the file. Arrays that cannot be read are left out by name."""
    beside = _Beside(array, view.selection)
    with walk:
        walk.owner("", beside.attributes())
        others = list(beside.arrays())
        walk.array(array, view, f"/{array.name}", partial(_open, array, view), beside.changed(array))
        for name, other in others:
            part = other.view(beside.selection(other))
            try:
                walk.array(other, part, f"/{name}", partial(_open, other, part), beside.changed(other))
            except PASSING:
                raise
            except FsbridgeError as error:
                beside.left_out[f"{name}: {error}"] = None
        for reason in beside.left_out:
            log.warning("left out of %s.%s: %s", printable(view.name), NC.suffix, printable(reason))
        return walk.finish(list(beside.left_out), beside.seen)


def _open(array: OpenArray, view: View) -> Opened:
    return Opened(array, view, array.find_version())


class _Beside:
    """Finds all that an array names, and what that names. Names may be paths, whose arrays get names of this one group.

    `seen`: all that was looked at, so that changes can be found; `left_out`: paths that lead to no array, with reasons.
    """

    def __init__(self, array: OpenArray, selection: Selection) -> None:
        self.seen: list[Origin] = []
        self.left_out: dict[str, None] = {}  # in order
        self._names = {array.names: array.name}  # in the file, by path
        self._called: dict[tuple[str, ...], dict[str, str]] = {}  # what an array's attributes call others, and their names
        self._array = array
        self._group = array.surroundings.group
        self._picks = {
            axis.name: (length, pick)
            for axis, length, pick in zip(array.axes, array.metadata.shape, selection.picks, strict=True)
        }

    def attributes(self) -> dict[str, JSON]:
        """Return the attributes of the groups above; those of a nearer group count more."""
        inherited: dict[str, JSON] = {}
        group = self._group
        while group is not None:
            attributes = _attributes(group)
            self.seen.append(Seen(_hash_attributes, (group,), hash(repr(attributes))))
            inherited = {**attributes, **inherited}
            group = group.above
        return inherited

    def arrays(self) -> Iterator[tuple[str, OpenArray]]:
        """Yield the arrays besides the first one, and their names in the file."""
        waiting = [self._array]
        while waiting:
            array = waiting.pop(0)
            axes = zip(array.axes, array.metadata.shape, strict=True)
            lengths = {axis.name: length for axis, length in axes if axis.name is not None}
            called = self._called[array.names] = dict[str, str]()
            for reference in dict.fromkeys((*lengths, *named(array.metadata.shown_attributes()))):
                other = self._find(array, reference)
                if other is None or (reference in lengths and other.metadata.shape != (lengths[reference],)):
                    continue
                name = self._names.get(other.names)
                if name is None:
                    name = self._name(other)
                    if name is None or (reference in lengths and name != reference):
                        continue  # another array is the coordinate of this dimension
                    self._names[other.names] = name
                    waiting.append(other)
                    yield name, other
                called[reference] = name

    def changed(self, array: OpenArray) -> Mapping[str, JSON]:
        """Return the attributes of an array that name others by paths, with the names in the file instead."""
        return renamed(array.metadata.shown_attributes(), self._called[array.names])

    def _name(self, other: OpenArray) -> str | None:
        """Return the name of another array in the file: its own, else its path; None if netCDF has room for neither."""
        for name in (other.name, "_".join(other.names)):
            if too_long(name) is None and name not in self._names.values() and not self._hides(other, name):
                return name
        self.left_out[f"{'/'.join(('', *other.names))}: its name is too long for netCDF, or taken"] = None
        return None

    def _hides(self, other: OpenArray, name: str) -> bool:
        """True if that name already means something else to the first array: another array, or a dimension of its own."""
        if name in self._picks and (not other.axes or other.axes[0].name != name):
            return True
        known = self._near(self._array, name)
        return known is not None and known.names != other.names

    def selection(self, other: OpenArray) -> Selection:
        """Return the part of another array that belongs to the region of the first one: equal dimensions are cut alike."""
        axes = zip(other.axes, other.metadata.shape, strict=True)
        return Selection(tuple(self._pick(axis.name, length) for axis, length in axes))

    def _pick(self, name: str | None, length: int) -> Pick:
        other, pick = self._picks.get(name, (None, None))
        return pick if name is not None and pick is not None and other == length else Pick(0, 1, length)

    def _find(self, array: OpenArray, reference: str) -> OpenArray | None:
        """Open the array that an array calls so: by its name, or by its path from the root or from the array's group."""
        if "/" not in reference:
            return None if too_long(reference) is not None else self._near(array, reference)
        group = array.surroundings.group
        variable = None if group is None else self._at(group, reference)
        if variable is None:
            self.left_out[f"{reference}: {array.name} names it, but there is no such array in the store"] = None
        return variable

    def _near(self, array: OpenArray, name: str) -> OpenArray | None:
        """Open the array of that name in the group of an array, else in the nearest group above that has one."""
        group = array.surroundings.group
        while group is not None:
            variable = self._at(group, name)
            if variable is not None:
                return variable
            group = group.above
        return None

    def _at(self, group: SourceMember, path: str) -> OpenArray | None:
        if len(self.seen) >= MAX_LOOKS:
            raise TooLarge(f"{self._array.name} and what it names are looked for at more than {MAX_LOOKS} places")
        pair = _array_at(group, path)
        self.seen.append(Seen(_version_at, (group, path), None if pair is None else pair[1].version))
        return None if pair is None else self._array.open_beside(pair[0], path.rpartition("/")[2], pair[1])


def _array_at(group: SourceMember, path: str) -> tuple[SourceMember, Array] | None:
    """Return the array at a path from a group, and its group; None if there is none that can be opened."""
    try:
        return array_at(group, path)
    except PASSING:
        raise
    except FsbridgeError:
        return None


def _version_at(group: SourceMember, path: str) -> Hashable:
    """Return the version of the array at a path from a group; None if there is none."""
    pair = _array_at(group, path)
    return None if pair is None else pair[1].version


def _attributes(group: SourceMember) -> Mapping[str, JSON]:
    """Return a group's attributes; none if they cannot be read, which is an error where they are shown themselves."""
    try:
        return group.group().attributes()
    except PASSING:
        raise
    except FsbridgeError:
        return {}


def _hash_attributes(group: SourceMember) -> int:
    return hash(repr(_attributes(group)))
