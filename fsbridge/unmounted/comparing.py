"""Compare two sources: what only one has, where types, shapes, attributes, elements and bytes of other files differ.

Formats, chunks and codecs do not matter. Not here: arguments and printing (`commands/diff.py`).
"""

from __future__ import annotations

import json
import math
import os
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fsbridge.errors import FsbridgeError
from fsbridge.meaning.conventions.xarray import comparable
from fsbridge.metadata import JSON
from fsbridge.model import Array, Group, as_array
from fsbridge.unmounted import VirtualTree
from fsbridge.unmounted.ordered import OrderedArray, ordered, type_text
from fsbridge.unmounted.units import (
    WHOLE,
    JobPart,
    OrderedMember,
    OtherUnit,
    Remark,
    Unit,
    Work,
    WorkSources,
    members,
    other_units,
    shown_path,
)

READ_BYTES = 4 << 20
"""Bytes of each array that are compared at a time."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One way in which a path differs, in words."""

    path: str
    words: str


@dataclass(frozen=True, slots=True)
class ElementRange(Unit):
    """Elements [start, stop) of the arrays at two paths. `is_last`: this is the job's last range of these arrays."""

    places: tuple[str, str]
    start: int
    stop: int
    is_last: bool
    tolerance: float
    reversed_axes: bool


@dataclass(slots=True)
class Unequal:
    """The result for `compared` elements: how many differ, the first that does, the largest difference."""

    compared: int = 0
    count: int = 0
    first: int = 0
    largest: float | int | None = None

    def add(self, where: NDArray[np.bool_], start: int, largest: float | int | None) -> None:
        """Count the differences of a piece that begins with element `start`."""
        found = int(np.count_nonzero(where))
        self.join(Unequal(len(where), found, start + int(where.argmax()) if found else 0, largest if found else None))

    def join(self, other: Unequal) -> None:
        """Add the counts of a later piece."""
        self.compared += other.compared
        if other.count and not self.count:
            self.first = other.first
        self.count += other.count
        if other.largest is not None:
            self.largest = other.largest if self.largest is None else max(self.largest, other.largest)


@dataclass(frozen=True, slots=True)
class OtherPair(Unit):
    """A file that belongs to no array or group, in both sources."""

    files: tuple[OtherUnit, OtherUnit]


class Comparison(Work["ElementRange | OtherPair", Unequal]):
    """All differences between what is at two paths of two sources, in the order of the members' paths; `found` gets each.

    Of several jobs each compares its part of the elements, and counts only those. The first one compares all else.
    """

    def __init__(
        self,
        sources: WorkSources,
        places: tuple[tuple[int, str], tuple[int, str]],
        tell: Callable[[str, Exception], object],
        found: Callable[[Difference], object],
        tolerance: float = 0.0,
        reversed_axes: bool = False,
        part: JobPart = WHOLE,
        data_only: bool = False,
    ) -> None:
        """`tolerance`: numbers that differ by no more are equal. `reversed_axes`: the other's arrays are transposed.

        `data_only`: attributes are not compared.
        """
        super().__init__(sources, tell, part)
        self._places = places
        self._found = found
        self._tolerance = tolerance
        self._reversed = reversed_axes
        self._data_only = data_only
        self._number = 0
        self._arrays: deque[tuple[OrderedArray, OrderedArray]] = deque()  # arrays with units still to come, in their order
        self._unequal: Unequal | None = Unequal()  # of the array that is being compared

    def units(self) -> Iterator[ElementRange | OtherPair | Remark]:
        trees = [(self.sources.tree(source), path) for source, path in self._places]
        for path, left, right in _pairs(trees[0], trees[1]):
            if left is None or right is None:
                yield self._remark(path, "only in the second" if left is None else "only in the first")
                continue
            errors = [found.error for found in (left, right) if found.error is not None]
            if errors:
                self.tell(path, errors[0])
                continue
            assert left.node is not None
            assert right.node is not None
            try:
                for words in () if self._data_only else _attributes(left.node, right.node):
                    yield self._remark(path, words)
                first, second = as_array(left.node), as_array(right.node)
                if first is not None and second is not None:
                    yield from self._cut(path, (left.path, first), (right.path, second))
                elif first is not None or second is not None:
                    yield self._remark(path, "an array and a group" if first is not None else "a group and an array")
                yield from self._others(path, left, right)
            except (FsbridgeError, OSError) as error:
                self.tell(path, error)

    def _others(self, path: str, left: OrderedMember, right: OrderedMember) -> Iterator[OtherPair | Remark]:
        """Compare the other files of two members."""
        sources = (source for source, _ in self._places)
        one, other = (
            {unit.name: unit for unit in other_units(source, member)}
            for source, member in zip(sources, (left, right), strict=True)
        )
        for name in sorted(one.keys() | other.keys()):
            place = shown_path(path, name)
            if name not in other or name not in one:
                yield self._remark(place, "only in the first" if name in one else "only in the second")
            elif self.part.has_named(place):
                yield OtherPair(place, one[name].size + other[name].size, (one[name], other[name]))

    def _remark(self, path: str, words: str) -> Remark:
        """Return a remark for a difference outside of the elements. Only the first job reports it."""
        return Remark(lambda: self.part.is_first and self._found(Difference(path, words)))

    def _cut(self, path: str, one: tuple[str, Array], other: tuple[str, Array]) -> Iterator[ElementRange | Remark]:
        types = type_text(one[1]), type_text(other[1])
        if types[0] != types[1]:
            yield self._remark(path, f"data types {types[0]} and {types[1]}")
        shapes = one[1].metadata.shape, other[1].metadata.shape[:: -1 if self._reversed else 1]
        if shapes[0] != shapes[1]:
            yield self._remark(path, f"shapes {list(shapes[0])} and {list(shapes[1])}")
            return
        left = ordered(self.sources, self._places[0][0], one[0], False, one[1])
        right = ordered(self.sources, self._places[1][0], other[0], self._reversed, other[1])
        if not _comparable(left, right):
            if types[0] == types[1]:
                yield self._remark(path, "elements of types that cannot be compared")
            return
        wide = max(left, right, key=lambda of: of.band * of.array.metadata.dtype.itemsize)
        mine = []
        for piece in wide.pieces():
            if self.part.has(self._number):
                mine.append(piece)
            self._number += 1
        if not mine:
            return
        self._arrays.append((left, right))
        itemsize = sum(of.array.metadata.dtype.itemsize for of in (left, right))
        for start, stop in mine:
            size, last = (stop - start) * itemsize, (start, stop) == mine[-1]
            yield ElementRange(path, size, (one[0], other[0]), start, stop, last, self._tolerance, self._reversed)

    @staticmethod
    def do(sources: WorkSources, unit: ElementRange | OtherPair) -> Unequal:
        """Compare elements, or two other files."""
        if isinstance(unit, OtherPair):
            pairs = zip_longest(*(file.pieces(sources) for file in unit.files), fillvalue=b"")
            return Unequal(count=int(any(one != other for one, other in pairs)))
        second = len(sources.configs) - 1  # one tree for both, if they have the same source
        left, right = ordered(sources, 0, unit.places[0]), ordered(sources, second, unit.places[1], unit.reversed_axes)
        return _texts(left, right) if left.is_text else _unequal(sources, left, right, unit)

    def join(self, unit: ElementRange | OtherPair, result: Unequal) -> None:
        if isinstance(unit, OtherPair):
            if result.count:
                self._found(Difference(unit.path, "the bytes differ"))
            return
        if self._unequal is not None:
            self._unequal.join(result)
        if unit.is_last:
            self._end(unit.path)

    def failed(self, unit: ElementRange | OtherPair, error: Exception) -> None:
        if isinstance(unit, OtherPair):
            self.tell(unit.path, error)
            return
        if self._unequal is not None:
            self.tell(unit.path, error)
        self._unequal = None
        if unit.is_last:
            self._end(unit.path)

    def _end(self, path: str) -> None:
        arrays, found, self._unequal = self._arrays.popleft(), self._unequal, Unequal()
        if found is None:
            return
        try:
            for elements in arrays:
                elements.check()
        except (FsbridgeError, OSError) as error:
            self.tell(path, error)
            return
        if found.count:
            first = [int(i) for i in np.unravel_index(found.first, arrays[0].shape)]
            largest = "" if found.largest is None else f", largest difference {found.largest}"
            words = f"{found.count:,} of {found.compared:,} elements differ, the first at {first}{largest}"
            self._found(Difference(path, words))


def _pairs(
    one: tuple[VirtualTree, str], other: tuple[VirtualTree, str]
) -> Iterator[tuple[str, OrderedMember | None, OrderedMember | None]]:
    """Yield each path below the two compared places, with the member of each source there, or None."""
    left, right = _below(*one), _below(*other)
    first, second = next(left, None), next(right, None)
    while first is not None or second is not None:
        if second is None or (first is not None and _key(first[0]) < _key(second[0])):
            assert first is not None
            yield first[0], first[1], None
            first = next(left, None)
        elif first is None or _key(first[0]) > _key(second[0]):
            yield second[0], None, second[1]
            second = next(right, None)
        else:
            yield first[0], first[1], second[1]
            first, second = next(left, None), next(right, None)


def _key(path: str) -> list[bytes]:
    """Return the key that sorts members by their path."""
    return os.fsencode(path).split(b"/") if path != "/" else [b""]


def _below(tree: VirtualTree, path: str) -> Iterator[tuple[str, OrderedMember]]:
    top = None
    for member in members(tree, path):
        top = member.path.rstrip("/") if top is None else top
        yield member.path[len(top) :] or "/", member


def _attributes(one: Group | Array, other: Group | Array) -> Iterator[str]:
    left, right = _plain(one), _plain(other)
    names = sorted(name for name in left.keys() | right.keys() if left.get(name, ...) != right.get(name, ...))
    if names:
        yield f"attributes differ: {', '.join(names)}"


def _plain(node: Group | Array) -> dict[str, JSON]:
    """Return the attributes as text, so that a NaN equals another one, and in one spelling, whatever the format's is."""
    array = as_array(node)
    found = cast(Group, node).attributes() if array is None else comparable(array.metadata)
    return {name: json.dumps(value, sort_keys=True) for name, value in found.items()}


def _numeric(*arrays: OrderedArray) -> bool:
    return all(of.dtype is not None and of.dtype.kind in "biufc" for of in arrays)


def _comparable(left: OrderedArray, right: OrderedArray) -> bool:
    """True if the elements are of one kind, so that comparing them makes sense."""
    if left.is_text or right.is_text:
        return left.is_text and right.is_text
    sizes = {of.array.metadata.dtype.itemsize for of in (left, right)}
    return _numeric(left, right) or (left.dtype == right.dtype and len(sizes) == 1)


def _unequal(sources: WorkSources, left: OrderedArray, right: OrderedArray, unit: ElementRange) -> Unequal:
    found, numbers = Unequal(), _numeric(left, right)
    step = max(1, READ_BYTES // max(1, left.array.metadata.dtype.itemsize, right.array.metadata.dtype.itemsize))
    with left.reading() as one, right.reading() as other:
        for start in range(unit.start, unit.stop, step):
            if sources.ended:
                break
            stop = min(start + step, unit.stop)
            pair = one.read(start, stop), other.read(start, stop)
            if numbers:
                found.add(*_numbers(*pair, unit.tolerance, start))
            else:
                rows = [np.ascontiguousarray(part).view(np.uint8).reshape(stop - start, -1) for part in pair]
                found.add((rows[0] != rows[1]).any(axis=1), start, None)
    return found


def _numbers(
    one: NDArray[Any], other: NDArray[Any], tolerance: float, start: int
) -> tuple[NDArray[np.bool_], int, float | int | None]:
    """Return which numbers differ, and the largest difference. A NaN is equal to a NaN."""
    kinds = one.dtype.kind + other.dtype.kind
    with np.errstate(all="ignore"):
        if set(kinds) <= set("biu"):
            return _integers(one, other, tolerance, start)
        wide: Any = np.complex128 if "c" in kinds else np.float64
        left, right = one.astype(wide), other.astype(wide)
        apart = np.abs(left - right)
        where = (left != right) & ~(np.isnan(left) & np.isnan(right)) & ~(apart <= tolerance)
    if not where.any():
        return where, start, None
    finite = apart[where][~np.isnan(apart[where])]
    return where, start, float(finite.max()) if len(finite) else math.nan


def _integers(
    one: NDArray[Any], other: NDArray[Any], tolerance: float, start: int
) -> tuple[NDArray[np.bool_], int, int | None]:
    """Compare integers, exactly."""
    where = np.asarray(one != other)
    if not where.any():
        return where, start, None
    pairs = zip(one[where].tolist(), other[where].tolist(), strict=True)
    apart = np.array([abs(int(a) - int(b)) for a, b in pairs], object)
    if tolerance:
        beyond = np.array([difference > tolerance for difference in apart], bool)
        where[where] = beyond
        apart = apart[beyond]
    return where, start, int(max(apart)) if len(apart) else None


def _texts(left: OrderedArray, right: OrderedArray) -> Unequal:
    found = Unequal()
    first, second = _flat(left), _flat(right)
    for start, (one, other) in enumerate(zip(first, second, strict=True)):
        if one != other:
            found.join(Unequal(0, 1, start))
    found.compared = left.size
    return found


def _flat(array: OrderedArray) -> Iterator[bytes]:
    for band in array.texts():
        yield from band
