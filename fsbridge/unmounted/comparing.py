"""Compare two sources: what only one has, where types, shapes, attributes, elements and bytes of other files differ.

Formats, chunks and codecs do not matter. Not here: arguments and printing (`commands/diff.py`).
"""

from __future__ import annotations

import json
import math
import os
import posixpath
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fsbridge.errors import FsbridgeError
from fsbridge.formats.n5 import STRUCTURAL
from fsbridge.layouts.n5.documents import DOCUMENT, refusal
from fsbridge.links import follow
from fsbridge.meaning import alike
from fsbridge.meaning.conventions.hdmf import reference_fields, shape
from fsbridge.metadata import JSON, ArrayMetadata
from fsbridge.model import Array, Group, Link, as_array
from fsbridge.tree import escape, unescape
from fsbridge.unmounted import VirtualTree, split
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

MAX_NESTED = 8
"""Most links followed inside each other, because they can form a circle."""


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
        count = int(np.count_nonzero(where))
        self.join(Unequal(len(where), count, start + int(where.argmax()) if count else 0, largest if count else None))

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
    """All differences between what is at two paths of two sources, in the order of the members' paths; `report` gets each.

    Of several jobs each compares its part of the elements, and counts only those. The first one compares all else.
    """

    def __init__(
        self,
        sources: WorkSources,
        places: tuple[tuple[int, str], tuple[int, str]],
        tell: Callable[[str, Exception], object],
        report: Callable[[Difference], object],
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
        self._report = report
        self._tolerance = tolerance
        self._reversed = reversed_axes
        self._data_only = data_only
        self._number = 0
        self._in_n5: dict[int, VirtualTree] = {}  # sources as N5, where the other one is N5
        self._arrays: deque[tuple[OrderedArray, OrderedArray]] = deque()  # arrays with units still to come, in their order
        self._unequal: Unequal | None = Unequal()  # of the array that is being compared

    def units(self) -> Iterator[ElementRange | OtherPair | Remark]:
        try:
            yield from self._units()
        finally:
            for tree in self._in_n5.values():
                tree.close()

    def _units(self) -> Iterator[ElementRange | OtherPair | Remark]:
        trees = [(self.sources.tree(source), path) for source, path in self._places]
        for path, left, right in _pairs(trees[0], trees[1]):
            if left is None or right is None:
                yield self._remark(path, "only in the second" if left is None else "only in the first")
                continue
            if isinstance(left, Link) or isinstance(right, Link):
                yield self._remark(path, f"{_kind(left)} and {_kind(right)}")
                continue
            errors = [side.error for side in (left, right) if side.error is not None]
            if errors:
                self.tell(path, errors[0])
                continue
            assert left.node is not None
            assert right.node is not None
            try:
                for words in () if self._data_only else self._attributes(path, left, right):
                    yield self._remark(path, words)
                first, second = as_array(left.node), as_array(right.node)
                if first is not None and second is not None:
                    yield from self._cut(path, (left.path, first), (right.path, second))
                elif first is not None or second is not None:
                    yield self._remark(path, "an array and a group" if first is not None else "a group and an array")
                yield from self._others(path, left, right)
            except (FsbridgeError, OSError) as error:
                self.tell(path, error)

    def _attributes(self, path: str, left: OrderedMember, right: OrderedMember) -> Iterator[str]:
        """Describe the attributes that differ; nothing if one member is a group and the other an array."""
        first, second = (None if of.node is None else as_array(of.node) for of in (left, right))
        if first is not None and second is not None:
            one, other = self._as_in_n5(first.metadata, 0, left.path), self._as_in_n5(second.metadata, 1, right.path)
            names = alike.differing_of_arrays(one, other)
        elif first is None and second is None:
            groups = [cast(Group, of.node).attributes() for of in (left, right)]
            names = alike.differing_of_groups(groups[0], groups[1], path.strip("/").split("/"))
        else:
            return
        if names:
            yield f"attributes differ: {', '.join(names)}"

    def _as_in_n5(self, metadata: ArrayMetadata, side: int, path: str) -> ArrayMetadata:
        """Return metadata with the attributes that the layout `n5` shows, if the other source is N5 and this one is not.

        N5 has lists about axes in the order of its own axes, so this is only done if they are compared as reversed.
        """
        trees = [self.sources.tree(source) for source, _ in self._places]
        x_first = [tree.source.format.first_axis_fastest for tree in trees]
        if not self._reversed or x_first[side] or not x_first[1 - side] or refusal(metadata) is not None:
            return metadata
        if side not in self._in_n5:
            self._in_n5[side] = VirtualTree(replace(trees[side].config, layout="n5"))
        with self._in_n5[side].open(f"{path}/{os.fsdecode(DOCUMENT)}") as file:
            document = json.loads(bytes(file.read(0, file.size)))
        attributes = {name: value for name, value in document.items() if name not in STRUCTURAL}
        return replace(metadata, attributes=attributes, native={})

    def _others(self, path: str, left: OrderedMember, right: OrderedMember) -> Iterator[OtherPair | Remark]:
        """Yield pairs of other files of two members, to be compared, and a remark for each that only one member has."""
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
        return Remark(lambda: self.part.is_first and self._report(Difference(path, words)))

    def _cut(self, path: str, one: tuple[str, Array], other: tuple[str, Array]) -> Iterator[ElementRange | Remark]:
        first, second = one[1].metadata, other[1].metadata
        documents = alike.are_documents(first, second)
        types = type_text(alike.type_of(first)), type_text(alike.type_of(second))
        if types[0] != types[1] and not documents:
            yield self._remark(path, f"data types {types[0]} and {types[1]}")
        shapes = shape(first), shape(second)[:: -1 if self._reversed else 1]
        if shapes[0] != shapes[1]:
            yield self._remark(path, f"shapes {list(shapes[0])} and {list(shapes[1])}")
            return
        dimensions = alike.differing_dimensions(first, second, self._reversed)
        if dimensions is not None:
            yield self._remark(path, f"dimensions {dimensions}")
        left = ordered(self.sources, self._places[0][0], one[0], False, one[1])
        right = ordered(self.sources, self._places[1][0], other[0], self._reversed, other[1])
        if not documents and not _comparable(left, right):
            if types[0] == types[1]:
                yield self._remark(path, "elements of types that cannot be compared")
            return
        wide = max(left, right, key=lambda of: (of.is_text, of.band * of.array.metadata.dtype.itemsize))
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
        return _texts(left, right) if left.is_text or right.is_text else _unequal(sources, left, right, unit)

    def join(self, unit: ElementRange | OtherPair, result: Unequal) -> None:
        if isinstance(unit, OtherPair):
            if result.count:
                self._report(Difference(unit.path, "the bytes differ"))
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
        arrays, differences, self._unequal = self._arrays.popleft(), self._unequal, Unequal()
        if differences is None:
            return
        try:
            for elements in arrays:
                elements.check()
        except (FsbridgeError, OSError) as error:
            self.tell(path, error)
            return
        if differences.count:
            first = [int(i) for i in np.unravel_index(differences.first, arrays[0].shape)]
            largest = "" if differences.largest is None else f", largest difference {differences.largest}"
            words = f"{differences.count:,} of {differences.compared:,} elements differ, the first at {first}{largest}"
            self._report(Difference(path, words))


_Place = tuple[VirtualTree, str]
_Visit = tuple[str, "OrderedMember | Link"]
_Pair = tuple[str, "OrderedMember | Link | None", "OrderedMember | Link | None"]


def _pairs(one: _Place, other: _Place, nested: int = MAX_NESTED) -> Iterator[_Pair]:
    """Yield each path below the two compared places, with what each source has there, or None.

    Two links to the same place are left out. `nested`: how many links inside each other are followed at most.
    """
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
        elif isinstance(first[1], Link) or isinstance(second[1], Link):
            yield from _compare_links(one, other, first, second, nested)
            path = first[0]
            first, second = _skip_below(path, left), _skip_below(path, right)
        else:
            yield first[0], first[1], second[1]
            first, second = next(left, None), next(right, None)


def _compare_links(one: _Place, other: _Place, first: _Visit, second: _Visit, nested: int) -> Iterator[_Pair]:
    """Yield what differs where a source has a link.

    If the other one has a group or an array there, a copy may have followed the link, so what it leads to is compared.
    """
    places = [_find_target(place, *item) for place, item in ((one, first), (other, second))]
    if isinstance(first[1], Link) and isinstance(second[1], Link):
        same_words = posixpath.normpath(first[1].target) == posixpath.normpath(second[1].target)
        tops = [top.rstrip("/") for _, top in (one, other)]
        inside = [place and place.removeprefix(top) for place, top in zip(places, tops, strict=True)]
        if not same_words and (None in places or inside[0] != inside[1]):
            yield first[0], first[1], second[1]
    elif places[0] is None or places[1] is None or not nested:
        yield first[0], first[1], second[1]
    else:
        for path, left, right in _pairs((one[0], places[0]), (other[0], places[1]), nested - 1):
            yield first[0] + path.rstrip("/"), left, right


def _find_target(place: _Place, path: str, member: OrderedMember | Link) -> str | None:
    """Return the path of a member. For a link return the path of its target, or None if it leads nowhere."""
    tree, top = place
    if not isinstance(member, Link):
        return member.path
    names = [name for name in map(unescape, split(f"{top}{path}")[:-1]) if name is not None]
    try:
        trail = follow(tree.source.root, names, member.target).trail
        return "/" + "/".join(os.fsdecode(escape(name)) for name, _ in trail)
    except (FsbridgeError, OSError):
        return None


def _skip_below(path: str, items: Iterator[_Visit]) -> _Visit | None:
    """Return the next of `items` that is not below `path`, or None at the end."""
    return next((one for one in items if not one[0].startswith(f"{path}/")), None)


def _kind(member: OrderedMember | Link) -> str:
    if isinstance(member, Link):
        return f"a link to {member.target}"
    return "what cannot be opened" if member.node is None else f"{'a group' if member.node.kind == 'group' else 'an array'}"


def _key(path: str) -> list[bytes]:
    """Return the key that sorts members by their path."""
    return os.fsencode(path).split(b"/") if path != "/" else [b""]


def _below(tree: VirtualTree, path: str) -> Iterator[_Visit]:
    """Yield all groups, arrays and links at a path and below it, in the order of their names."""
    links: list[tuple[str, Link]] = []
    top = "/" + "/".join(os.fsdecode(name) for name in split(path))
    skip = len(top.rstrip("/"))
    for member in members(tree, path, lambda place, link: links.append((place, link))):
        yield from ((place[skip:], link) for place, link in links)
        links.clear()
        yield member.path[skip:] or "/", member
    yield from ((place[skip:], link) for place, link in links)


def _numeric(*arrays: OrderedArray) -> bool:
    return all(of.dtype is not None and of.dtype.kind in "biufc" for of in arrays)


def _comparable(left: OrderedArray, right: OrderedArray) -> bool:
    """True if the elements are of one kind, so that comparing them makes sense."""
    if left.is_text or right.is_text:
        return left.is_text and right.is_text
    sizes = {of.array.metadata.dtype.itemsize for of in (left, right)}
    return _numeric(left, right) or (left.dtype == right.dtype and len(sizes) == 1)


def _unequal(sources: WorkSources, left: OrderedArray, right: OrderedArray, unit: ElementRange) -> Unequal:
    differences, numbers = Unequal(), _numeric(left, right)
    step = max(1, READ_BYTES // max(1, left.array.metadata.dtype.itemsize, right.array.metadata.dtype.itemsize))
    with left.reading() as one, right.reading() as other:
        for start in range(unit.start, unit.stop, step):
            if sources.ended:
                break
            stop = min(start + step, unit.stop)
            pair = one.read(start, stop), other.read(start, stop)
            if numbers:
                differences.add(*_numbers(*pair, unit.tolerance, start))
            else:
                rows = [np.ascontiguousarray(part).view(np.uint8).reshape(stop - start, -1) for part in pair]
                differences.add((rows[0] != rows[1]).any(axis=1), start, None)
    return differences


def _numbers(
    one: NDArray[Any], other: NDArray[Any], tolerance: float, start: int
) -> tuple[NDArray[np.bool_], int, float | int | None]:
    """Return which numbers differ, `start`, and the largest difference, for `Unequal.add`. A NaN is equal to a NaN."""
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
    """Do the same as `_numbers` for integers, exactly."""
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
    differences = Unequal()
    both = left.is_text and right.is_text
    first, second = (_flat(of) if both else _documents(of) for of in (left, right))
    for start, (one, other) in enumerate(zip(first, second, strict=True)):
        if one != other:
            differences.join(Unequal(0, 1, start))
    differences.compared = left.size
    return differences


def _flat(array: OrderedArray) -> Iterator[bytes]:
    for band in array.texts():
        yield from band


def _documents(array: OrderedArray) -> Iterator[JSON]:
    """Yield elements as JSON: texts that are JSON, or structs."""
    if array.is_text:
        yield from map(json.loads, _flat(array))
        return
    fields, dtype = reference_fields(array.array.metadata.attributes), array.dtype
    assert dtype is not None
    names, step = dtype.names or (), max(1, READ_BYTES // dtype.itemsize)
    with array.reading() as elements:
        for start in range(0, array.size, step):
            for row in elements.read(start, min(start + step, array.size)).tolist():
                yield alike.document(dict(zip(names, row, strict=True)), fields)
