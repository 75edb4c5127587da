"""`Twin`: a virtual HDF5 file as a map of its bytes: the skeleton, and the elements of arrays. Made by a child process.

The file of one array has the same coordinates that the file of the whole store has for it. Not here: what the skeleton holds
(`specification.py`), which coordinates are dimension scales (`dimensions.py`), how it is written (`writer.py`), its nodes in
the tree (`nodes.py`).
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fsbridge.decoded import ArrayVersion
from fsbridge.errors import CorruptData, TooLarge
from fsbridge.layouts.files.arrays.extents import MAX_SIZE, Elements, View
from fsbridge.layouts.files.arrays.open_array import OpenArray
from fsbridge.layouts.files.h5.dimensions import COORDINATE_VALUES, Labelled, Scales, describe_values, find_scales
from fsbridge.layouts.files.h5.specification import (
    Specification,
    choose_element_type,
    choose_storage,
    describe_dataset,
    describe_labelled,
    is_labelled,
    spell_items,
)
from fsbridge.layouts.files.h5.writing import SkeletonWriter
from fsbridge.meaning import Axis
from fsbridge.meaning.conventions.cf import BOUNDS, OF_COORDINATES
from fsbridge.meaning.conventions.xarray import DIMENSIONS
from fsbridge.metadata import JSON

ATTRIBUTE_CHARACTERS = 1024
"""Most characters of a coordinate's attribute and its name, because the file's size is fixed before they are read."""

ATTRIBUTES = 32
"""Most attributes of a coordinate."""


def add_scales(array: OpenArray, view: View, path: str, specification: Specification) -> Scales:
    """Add an array's coordinates and other dimension scales to the specification of its file, and return the scales.

    An array of an HDF5 file gets none unless each of its dimensions has a name.
    """
    label = describe_labelled(view, array.name)
    if label is None:
        return Scales([], [], [], [])
    if "hdf5" in view.metadata.native:
        label = label._replace(axes=tuple(view.axes), scale=None, final=False)
        if any(axis.name is None for axis in view.axes):
            return Scales([], [], [], [])
    arrays: dict[str, Labelled] = {path: label}
    for position, number in enumerate(view.selection.kept):
        axis = view.axes[position]
        place = f"/{axis.name}"
        if axis.name is None or "/" in axis.name or place in arrays or view.shape[position] > COORDINATE_VALUES:
            continue
        variable = array.surroundings.variable(axis.name)
        if variable is None or variable.values.shape != (array.metadata.shape[number],):
            continue
        pick = view.selection.picks[number]
        rows = [pick.start + pick.step * i for i in range(pick.length)]
        specification.add(**describe_values(place, variable.values[rows], _select_fitting(variable.attributes)))
        arrays[place] = Labelled((len(rows),), (Axis(axis.name),), None, False)
        for name in (variable.attributes.get(word) for word in BOUNDS):
            bounds = array.surroundings.variable(name) if isinstance(name, str) and name and "/" not in name else None
            if bounds is None or bounds.values.shape != (len(variable.values), 2) or f"/{name}" in arrays:
                continue
            specification.add(**describe_values(f"/{name}", bounds.values[rows], _select_fitting(bounds.attributes)))
            arrays[f"/{name}"] = Labelled((len(rows), 2), (Axis(axis.name), Axis(None)), None, False)
    made = find_scales(arrays)
    for item in made.datasets:
        specification.add(**item)
    return made


def _select_fitting(attributes: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return as many attributes of a coordinate as fit into the reserved space, those in `OF_COORDINATES` first."""
    fitting = {
        name: value
        for name, value in attributes.items()
        if len(str(value)) + len(name) <= ATTRIBUTE_CHARACTERS and name != DIMENSIONS
    }
    return dict(sorted(fitting.items(), key=lambda item: item[0] not in OF_COORDINATES)[:ATTRIBUTES])


BASE_BYTES = 1 << 16
"""Most bytes of a skeleton without attributes, generously estimated."""


_COORDINATE_BYTES, _VALUE_BYTES = 1 << 15, 24
"""Bytes of a coordinate with its attributes, and of each of its values with their bounds."""


class Opened(NamedTuple):
    """An array opened for reading. `version`: that of the array when it was opened, see `OpenArray.find_version`."""

    array: OpenArray
    view: View
    version: Hashable


class Shown(NamedTuple):
    """An array whose elements lie in a virtual HDF5 file and take `size` bytes there."""

    open: Callable[[], Opened]
    size: int
    order: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a virtual file that holds the elements of one array: bytes [start, stop)."""

    start: int
    stop: int
    elements: Elements
    open: Callable[[], Opened]


@dataclass(frozen=True, slots=True)
class Twin:
    """A virtual file. `pieces`: the skeleton's bytes, with their offsets; `parts`: elements, which lie over the skeleton.

    Parts do not overlap.
    """

    size: int
    pieces: tuple[tuple[int, bytes], ...]
    parts: tuple[Part, ...]

    def overlay(self, out: bytearray, start: int) -> None:
        """Fill `out` with the skeleton's bytes from offset `start` of the file on.

        Bytes that no piece covers are unchanged.
        """
        stop = start + len(out)
        first = max(0, bisect_right(self.pieces, start, key=lambda piece: piece[0]) - 1)
        for offset, content in self.pieces[first:]:
            if offset >= stop:
                break
            low, high = max(start, offset), min(stop, offset + len(content))
            if low < high:
                out[low - start : high - start] = content[low - offset : high - offset]

    def find_parts(self, start: int, stop: int) -> list[Part]:
        """Return the parts that contain any of the bytes [start, stop) of the file."""
        first = bisect_right(self.parts, start, key=lambda part: part.stop)
        parts: list[Part] = []
        for part in self.parts[first:]:
            if part.start >= stop:
                break
            parts.append(part)
        return parts


def finish_file(
    writer: SkeletonWriter,
    specification: Specification,
    end: Mapping[str, JSON],
    arrays: Mapping[int, Shown],
    least: int = 0,
) -> tuple[Twin, dict[str, str]]:
    """Finish the skeleton. Return the file, and by path the objects that HDF5 refused, with the reasons.

    `arrays`: by number of the dataset, each array with elements outside the skeleton. `least`: bytes reserved for
    everything but these elements, which the file has even if it needs fewer; 0: as many as it needs. Raises what
    `SkeletonWriter.finish` raises, and CorruptData if `least` is too small.
    """
    head, content = writer.finish(specification.take_rest(), end)
    pieces: list[tuple[int, bytes]] = []
    done = 0
    for offset, length in head["pieces"]:
        pieces.append((offset, content[done : done + length]))
        done += length
    parts: list[Part] = []
    total = 0
    for number, shown in arrays.items():
        offset = head["offsets"][number]
        total += shown.size
        if shown.size and offset is not None:
            parts.append(Part(offset, offset + shown.size, Elements(offset, shown.order, shown.dtype), shown.open))
    size = max(head["end"], total + least, *(part.stop for part in parts), 0)
    if least and size > total + least:
        raise CorruptData(f"the HDF5 skeleton has {size - total} bytes, more than the {least} that were reserved")
    failed = {str(path): str(reason) for path, reason in head["failed"]}
    return Twin(size, tuple(pieces), tuple(sorted(parts, key=lambda part: part.start))), failed


def show_array(view: View, opener: Callable[[], Opened], netcdf: bool = False) -> Shown:
    """Return how the elements of a view lie in a virtual file. `opener` opens the array when they are read."""
    dtype = choose_element_type(view, netcdf)
    return Shown(opener, view.selection.size * dtype.itemsize, choose_storage(view).order, dtype)


def estimate_bytes(view: View) -> int:
    """Return how many bytes to reserve for the skeleton: a power of two above what the metadata let expect."""
    native = view.metadata.native.get("hdf5", {})
    text = len(json.dumps([dict(view.attributes), native.get("datatype")], default=str))
    coordinates = [view.shape[i] for i in range(len(view.shape)) if is_labelled(view)]
    made = sum(_COORDINATE_BYTES + min(count, COORDINATE_VALUES) * _VALUE_BYTES for count in coordinates)
    return 1 << (BASE_BYTES + 8 * text + made).bit_length()


def compute_size(view: View) -> int:
    """Return the size of `NAME.h5` in bytes, which is known exactly before the file is made."""
    return view.selection.size * view.metadata.dtype.itemsize + estimate_bytes(view)


def make_array_twin(array: OpenArray, view: View, present: ArrayVersion, version: Hashable) -> Twin:
    """Make the file of one array: the dataset `/NAME`, with a dimension scale for each axis if any axis has a name."""
    path, variable, order = f"/{array.name}", choose_storage(view).items, choose_storage(view).order
    writer = SkeletonWriter()
    try:
        specification = Specification(writer.send)
        specification.add("group", "/", attributes={})
        item = describe_dataset(view, path)
        if variable:
            item["items"] = spell_items(view, array.read_elements(present, view.selection, order))
        number = specification.add(**item)
        scales = add_scales(array, view, path, specification)
        shown = show_array(view, lambda: Opened(array, view, version))
        arrays, least = ({}, 0) if variable else ({number: shown}, estimate_bytes(view))
        twin, failed = finish_file(writer, specification, specification.make_end(scales), arrays, least)
    finally:
        writer.close()
    if path in failed:
        raise CorruptData(f"{path}: {failed[path]}")
    return twin


def check_size(total: int) -> None:
    """Raise TooLarge if no file can have `total` bytes."""
    if total > MAX_SIZE // 2:
        raise TooLarge(f"a file cannot have {total} bytes")
