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


def make_array_netcdf(array: OpenArray, selection: Selection | None = None, name: str | None = None) -> H5Group:
    """Return an array, or a region of it, as a netCDF file; NotFound if netCDF cannot hold it.

    `name`: of the file, without its suffix; None: the array's own name.
    """
    view = array.make_view(selection, name)
    reason = NC.refusal(view) or too_long(array.name)
    if reason is not None:
        raise NotFound(f"{view.name}.{NC.suffix}: {reason}")
    files = array.shared.find_part(H5Files)

    def begin() -> Making:
        walk = Walk(array.names, True)
        return Making(f"{view.name}.{NC.suffix}", partial(_write, walk, array, view), files.room, walk.count_objects)

    return files.find((NC.suffix, array.names, selection, array.identity), begin)


def _write(walk: Walk, array: OpenArray, view: View) -> Walked:
    """Write the file of `array` and of all arrays that it names. A named array that cannot be read is left out."""
    beside = _Beside(array, view.selection)
    with walk:
        walk.add_group("", beside.collect_attributes())
        others = list(beside.find_arrays())
        walk.add_array(array, view, f"/{array.name}", partial(_open, array, view), beside.rename_references(array))
        for name, other in others:
            part = other.make_view(beside.select(other))
            try:
                walk.add_array(other, part, f"/{name}", partial(_open, other, part), beside.rename_references(other))
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
    """Finds the arrays that an array names in its attributes and axes, and those that these name in turn.

    An array may be named by a path. In the file all of them lie in one group, so each gets a name without slashes.

    `seen`: everything that was looked at, to detect changes; `left_out`: names that lead to no array, each with the reason.
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

    def collect_attributes(self) -> dict[str, JSON]:
        """Return the attributes of all groups above the array.

        If two groups have the same one, the nearer group's counts.
        """
        inherited: dict[str, JSON] = {}
        group = self._group
        while group is not None:
            attributes = _read_attributes(group)
            self.seen.append(Seen(_hash_attributes, (group,), hash(repr(attributes))))
            inherited = {**attributes, **inherited}
            group = group.above
        return inherited

    def find_arrays(self) -> Iterator[tuple[str, OpenArray]]:
        """Yield every array besides the first one, with its name in the file."""
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

    def rename_references(self, array: OpenArray) -> Mapping[str, JSON]:
        """Return those attributes of an array that name others by paths, with names of the file in place of the paths."""
        return renamed(array.metadata.shown_attributes(), self._called[array.names])

    def _name(self, other: OpenArray) -> str | None:
        """Return the name of another array in the file: its own, else its path.

        None if both are too long for netCDF, or taken.
        """
        for name in (other.name, "_".join(other.names)):
            if too_long(name) is None and name not in self._names.values() and not self._hides(other, name):
                return name
        self.left_out[f"{'/'.join(('', *other.names))}: its name is too long for netCDF, or taken"] = None
        return None

    def _hides(self, other: OpenArray, name: str) -> bool:
        """True if the first array already uses `name` for something else.

        That is a dimension of its own, or an array that is not `other`.
        """
        if name in self._picks and (not other.axes or other.axes[0].name != name):
            return True
        known = self._find_nearest(self._array, name)
        return known is not None and known.names != other.names

    def select(self, other: OpenArray) -> Selection:
        """Return the part of another array that belongs to the region of the first one.

        A dimension with the name and the length of one of the first array's is cut as that one is; others are not cut.
        """
        axes = zip(other.axes, other.metadata.shape, strict=True)
        return Selection(tuple(self._pick(axis.name, length) for axis, length in axes))

    def _pick(self, name: str | None, length: int) -> Pick:
        other, pick = self._picks.get(name, (None, None))
        return pick if name is not None and pick is not None and other == length else Pick(0, 1, length)

    def _find(self, array: OpenArray, reference: str) -> OpenArray | None:
        """Open the array to which `array` refers: by a name, or by a path from the root or from its group.

        None if there is none.
        """
        if "/" not in reference:
            return None if too_long(reference) is not None else self._find_nearest(array, reference)
        group = array.surroundings.group
        variable = None if group is None else self._open_at(group, reference)
        if variable is None:
            self.left_out[f"{reference}: {array.name} names it, but there is no such array in the store"] = None
        return variable

    def _find_nearest(self, array: OpenArray, name: str) -> OpenArray | None:
        """Open the array called `name` in the group of `array`, or in the nearest group above that has one.

        None if none has.
        """
        group = array.surroundings.group
        while group is not None:
            variable = self._open_at(group, name)
            if variable is not None:
                return variable
            group = group.above
        return None

    def _open_at(self, group: SourceMember, path: str) -> OpenArray | None:
        if len(self.seen) >= MAX_LOOKS:
            raise TooLarge(f"{self._array.name} and what it names are looked for at more than {MAX_LOOKS} places")
        pair = _find_array(group, path)
        self.seen.append(Seen(_find_version, (group, path), None if pair is None else pair[1].version))
        return None if pair is None else self._array.open_beside(pair[0], path.rpartition("/")[2], pair[1])


def _find_array(group: SourceMember, path: str) -> tuple[SourceMember, Array] | None:
    """Return the array at a path from a group, and the group that it lies in; None if no array can be opened there."""
    try:
        return array_at(group, path)
    except PASSING:
        raise
    except FsbridgeError:
        return None


def _find_version(group: SourceMember, path: str) -> Hashable:
    """Return the version of the array at a path from a group; None if there is none."""
    pair = _find_array(group, path)
    return None if pair is None else pair[1].version


def _read_attributes(group: SourceMember) -> Mapping[str, JSON]:
    """Return a group's attributes.

    None if they cannot be read. (A file that shows these attributes themselves reports the error.)
    """
    try:
        return group.group().attributes()
    except PASSING:
        raise
    except FsbridgeError:
        return {}


def _hash_attributes(group: SourceMember) -> int:
    return hash(repr(_read_attributes(group)))
