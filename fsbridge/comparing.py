"""Two sources compared: which arrays and groups only one has, and where types, shapes, attributes and elements differ.

Formats, chunks and codecs do not matter. Not here: arguments and printing (`commands/diff.py`).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fsbridge.errors import FsbridgeError
from fsbridge.metadata import JSON
from fsbridge.model import Array, Group, as_array
from fsbridge.ordered import OrderedArray, OrderedMember, members, type_text
from fsbridge.virtual import VirtualTree

READ_BYTES = 4 << 20
"""Bytes of each array that are compared at a time."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One way in which a path differs, in words. `error`: that could not be found out."""

    path: str
    words: str
    error: Exception | None = None


@dataclass(slots=True)
class _Unequal:
    """The elements that differ so far."""

    count: int = 0
    first: int = 0
    largest: float | int | None = None

    def add(self, where: NDArray[np.bool_], start: int, largest: float | int | None) -> None:
        """Count those of a piece that begins with element `start`."""
        found = int(np.count_nonzero(where))
        if not found:
            return
        if not self.count:
            self.first = start + int(where.argmax())
        self.count += found
        if largest is not None:
            self.largest = largest if self.largest is None else max(self.largest, largest)


def compare(
    one: tuple[VirtualTree, str],
    other: tuple[VirtualTree, str],
    tolerance: float = 0.0,
    reversed_axes: bool = False,
    progress: Callable[[str, int], None] = lambda path, count: None,
) -> Iterator[Difference]:
    """All differences between what is at two paths, in the order of the members' paths.

    `tolerance`: numbers that differ by no more are equal. `reversed_axes`: the other's arrays are compared transposed.
    """
    for path, left, right in _pairs(one, other):
        if left is None or right is None:
            yield Difference(path, "only in the second" if left is None else "only in the first")
            continue
        errors = [found.error for found in (left, right) if found.error is not None]
        if errors:
            yield Difference(path, "", errors[0])
            continue
        assert left.node is not None
        assert right.node is not None
        first, second = as_array(left.node), as_array(right.node)
        try:
            yield from (Difference(path, words) for words in _attributes(left.node, right.node))
            if first is not None and second is not None:
                pair = (one[0], first), (other[0], second)
                yield from (Difference(path, words) for words in _arrays(path, *pair, tolerance, reversed_axes, progress))
            elif first is not None or second is not None:
                yield Difference(path, "an array and a group" if first is not None else "a group and an array")
        except (FsbridgeError, OSError) as error:
            yield Difference(path, "", error)


def _pairs(
    one: tuple[VirtualTree, str], other: tuple[VirtualTree, str]
) -> Iterator[tuple[str, OrderedMember | None, OrderedMember | None]]:
    """The members of both by their path below the two that are compared."""
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
    """What members are sorted by."""
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
    """Attributes in a spelling in which a NaN is equal to a NaN."""
    array = as_array(node)
    found = cast(Group, node).attributes() if array is None else array.metadata.attributes
    return {name: json.dumps(value, sort_keys=True) for name, value in found.items()}


def _arrays(
    path: str,
    one: tuple[VirtualTree, Array],
    other: tuple[VirtualTree, Array],
    tolerance: float,
    reversed_axes: bool,
    progress: Callable[[str, int], None],
) -> Iterator[str]:
    types = type_text(one[1]), type_text(other[1])
    if types[0] != types[1]:
        yield f"data types {types[0]} and {types[1]}"
    shapes = one[1].metadata.shape, other[1].metadata.shape[:: -1 if reversed_axes else 1]
    if shapes[0] != shapes[1]:
        yield f"shapes {list(shapes[0])} and {list(shapes[1])}"
        return
    left, right = OrderedArray(*one), OrderedArray(*other, reversed_axes)
    try:
        found = _unequal(path, left, right, tolerance, progress)
    finally:
        left.close()
        right.close()
    if found is None:
        if types[0] == types[1]:
            yield "elements of types that cannot be compared"
    elif found.count:
        first = [int(i) for i in np.unravel_index(found.first, left.shape)]
        largest = "" if found.largest is None else f", largest difference {found.largest}"
        yield f"{found.count:,} of {left.size:,} elements differ, the first at {first}{largest}"


def _unequal(
    path: str, left: OrderedArray, right: OrderedArray, tolerance: float, progress: Callable[[str, int], None]
) -> _Unequal | None:
    """What differs; None for elements of different kinds, which nobody can compare."""
    found = _Unequal()
    if left.is_text or right.is_text:
        return _texts(left, right) if left.is_text and right.is_text else None
    numbers = all(of.dtype is not None and of.dtype.kind in "biufc" for of in (left, right))
    if not numbers and (
        left.dtype != right.dtype or left.array.metadata.dtype.itemsize != right.array.metadata.dtype.itemsize
    ):
        return None
    step = max(1, READ_BYTES // max(1, left.array.metadata.dtype.itemsize, right.array.metadata.dtype.itemsize))
    for start in range(0, left.size, step):
        stop = min(start + step, left.size)
        pair = left.read(start, stop), right.read(start, stop)
        progress(path, sum(part.nbytes for part in pair))
        if numbers:
            found.add(*_numbers(*pair, tolerance, start))
        else:
            rows = [np.ascontiguousarray(part).view(np.uint8).reshape(stop - start, -1) for part in pair]
            found.add((rows[0] != rows[1]).any(axis=1), start, None)
    return found


def _numbers(
    one: NDArray[Any], other: NDArray[Any], tolerance: float, start: int
) -> tuple[NDArray[np.bool_], int, float | int | None]:
    """Which numbers differ, and the largest difference. A NaN is equal to a NaN."""
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
    """The same of integers, exactly."""
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


def _texts(left: OrderedArray, right: OrderedArray) -> _Unequal:
    found, start = _Unequal(), 0
    first, second = _flat(left), _flat(right)
    for start, (one, other) in enumerate(zip(first, second, strict=True)):
        if one != other:
            found.add(np.array([True]), start, None)
    return found


def _flat(array: OrderedArray) -> Iterator[bytes]:
    for band in array.texts():
        yield from band
