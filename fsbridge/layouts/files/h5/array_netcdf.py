"""`NAME.nc` of one array: the array with all that its dimensions and attributes name, as one virtual netCDF file.

It holds what `Dataset[[NAME]].to_netcdf()` of xarray writes: coordinates, bounds, grid mappings and so on from the array's
group and those above, and the attributes of these groups. Not here: how a file is made (`walk.py`), `NAME.h5` (`nodes.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from fsbridge.errors import PASSING, FsbridgeError, NotFound, printable
from fsbridge.layouts.files.arrays.extents import View
from fsbridge.layouts.files.arrays.open_array import OpenArray
from fsbridge.layouts.files.arrays.selection import Pick, Selection
from fsbridge.layouts.files.filetypes.h5 import NC
from fsbridge.layouts.files.h5.making import Making
from fsbridge.layouts.files.h5.nodes import H5Files, H5Group
from fsbridge.layouts.files.h5.twin import Opened
from fsbridge.layouts.files.h5.walk import Walk, Walked
from fsbridge.layouts.members import SourceMember
from fsbridge.meaning.conventions.cf import named
from fsbridge.meaning.conventions.netcdf import too_long
from fsbridge.metadata import JSON, Origin
from fsbridge.model import Array, Link, as_array

log = logging.getLogger(__name__)


def array_netcdf(array: OpenArray, selection: Selection | None = None, name: str | None = None) -> H5Group:
    """Return the netCDF file of an array, or of a region of it with `name`; NotFound if there can be none."""
    view = array.view(selection, name)
    reason = NC.refusal(view) or too_long(array.name)
    if reason is not None:
        raise NotFound(f"{view.name}.{NC.suffix}: {reason}")
    files = array.shared.part(H5Files)

    def begin() -> Making:
        walk = Walk(array.names, True)
        return Making(f"{view.name}.{NC.suffix}", partial(_written, walk, array, view), files.room, walk.count)

    return files.find((NC.suffix, array.names, selection, array.identity), begin)


def _written(walk: Walk, array: OpenArray, view: View) -> Walked:
    """Write the file. Arrays that cannot be read are left out by name."""
    beside = _Beside(array, view.selection)
    with walk:
        walk.owner("", beside.attributes())
        walk.array(array, view, f"/{array.name}", partial(_opened, array, view))
        left_out: list[str] = []
        for other in beside.arrays():
            part = other.view(beside.selection(other))
            try:
                walk.array(other, part, f"/{other.name}", partial(_opened, other, part))
            except PASSING:
                raise
            except FsbridgeError as error:
                left_out.append(f"{other.name}: {error}")
                log.warning("%s is left out of %s.%s: %s", printable(other.name), printable(view.name), NC.suffix, error)
        return walk.finished(left_out, beside.seen)


def _opened(array: OpenArray, view: View) -> Opened:
    return Opened(array, view, array.settled())


class _Beside:
    """Finds all that an array names, and what that names. `seen`: all that was looked at, so that changes can be found."""

    def __init__(self, array: OpenArray, selection: Selection) -> None:
        self.seen: list[Origin] = []
        self._array = array
        self._group = array.surroundings.group
        self._picks = {
            axis.name: (length, pick)
            for axis, length, pick in zip(array.axes, array.metadata.shape, selection.picks, strict=True)
        }

    def attributes(self) -> dict[str, JSON]:
        """Return the attributes of the groups above; those of a nearer group count more."""
        found: dict[str, JSON] = {}
        group = self._group
        while group is not None:
            attributes = _attributes(group)
            self.seen.append(SeenAttributes(group, hash(repr(attributes))))
            found = {**attributes, **found}
            group = group.above
        return found

    def arrays(self) -> Iterator[OpenArray]:
        """Yield the arrays besides the first one."""
        known, waiting = {self._array.name}, [self._array]
        while waiting:
            array = waiting.pop(0)
            axes = zip(array.axes, array.metadata.shape, strict=True)
            lengths = {axis.name: length for axis, length in axes if axis.name is not None}
            for name in (*lengths, *named(array.metadata.shown_attributes())):
                if name in known or "/" in name or too_long(name) is not None:
                    continue
                other = self._find(name)
                if other is None or (name in lengths and other.metadata.shape != (lengths[name],)):
                    continue
                known.add(name)
                waiting.append(other)
                yield other

    def selection(self, other: OpenArray) -> Selection:
        """Return the part of another array that belongs to the region of the first one: equal dimensions are cut alike."""
        axes = zip(other.axes, other.metadata.shape, strict=True)
        return Selection(tuple(self._pick(axis.name, length) for axis, length in axes))

    def _pick(self, name: str | None, length: int) -> Pick:
        other, pick = self._picks.get(name, (None, None))
        return pick if name is not None and pick is not None and other == length else Pick(0, 1, length)

    def _find(self, name: str) -> OpenArray | None:
        """Open the array of that name in the array's group, else in the nearest group above that has one."""
        group = self._group
        while group is not None:
            array = _member(group, name)
            self.seen.append(SeenMember(group, name, None if array is None else array.version))
            if array is not None:
                return self._array.beside(group, name, array)
            group = group.above
        return None


@dataclass(frozen=True, slots=True)
class SeenMember:
    """An array that was looked for in a group, by its version; None if there was none."""

    group: SourceMember
    name: str
    version: Hashable

    def current(self) -> bool:
        """True if the same array is there, or still none."""
        array = _member(self.group, self.name)
        return self.version == (None if array is None else array.version)


@dataclass(frozen=True, slots=True)
class SeenAttributes:
    """A group's attributes, by their hash."""

    group: SourceMember
    state: int

    def current(self) -> bool:
        """True if the group has the same attributes."""
        return self.state == hash(repr(_attributes(self.group)))


def _member(group: SourceMember, name: str) -> Array | None:
    """Return the array of that name in a group; None if there is none that can be opened."""
    try:
        node = group.group().child(name)
    except PASSING:
        raise
    except FsbridgeError:
        return None
    return None if isinstance(node, Link) else as_array(node)


def _attributes(group: SourceMember) -> Mapping[str, JSON]:
    """Return a group's attributes; none if they cannot be read, which is an error where they are shown themselves."""
    try:
        return group.group().attributes()
    except PASSING:
        raise
    except FsbridgeError:
        return {}
