"""`Twin`: a virtual HDF5 file as a map of its bytes: the skeleton, and the elements of arrays. Made by a child process.

Not here: what the skeleton holds (`specification.py`), who writes it (`writer.py`), its nodes in the tree (`nodes.py`).
"""

from __future__ import annotations

import json
import logging
from bisect import bisect_right
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fsbridge.children.client import ChildDied, ChildProcess, ChildTooSlow
from fsbridge.children.starting import Program
from fsbridge.decoded import ArrayVersion
from fsbridge.errors import CorruptData, TimedOut, TooLarge, Unsupported
from fsbridge.exact import Exact, exact, stored_dtype
from fsbridge.layouts.files.arrays import OpenArray
from fsbridge.layouts.files.extents import MAX_SIZE, Elements, View
from fsbridge.layouts.files.h5.limits import ADDRESS_SPACE_BYTES, PATIENCE_SECONDS, SKELETON_BYTES
from fsbridge.layouts.files.h5.specification import COORDINATE_VALUES, Specification, coordinates, dataset, items_of, stored
from fsbridge.layouts.files.selection import whole as everything
from fsbridge.model import Array, Group

log = logging.getLogger(__name__)

WRITER = Program(
    "fsbridge.layouts.files.h5.writer",
    (("HDF5_USE_FILE_LOCKING", "FALSE"), ("HDF5_PLUGIN_PRELOAD", "::")),  # as the child that reads HDF5 without plug-ins
    without="HDF5_",
)

OF_SCALES = ("DIMENSION_LIST", "REFERENCE_LIST")
"""Attributes that refer to other datasets: those are not in the file of one array."""

BASE_BYTES = 1 << 16
"""Of a skeleton without attributes, with room to spare."""


@dataclass(frozen=True, slots=True)
class Part:
    """The elements of an array: bytes [start, stop) of the file."""

    start: int
    stop: int
    array: OpenArray
    view: View
    elements: Elements
    token: Hashable


@dataclass(frozen=True, slots=True)
class Twin:
    """A virtual file: `pieces` of the skeleton by offset, over which the elements of `parts` lie, which do not overlap."""

    size: int
    pieces: tuple[tuple[int, bytes], ...]
    parts: tuple[Part, ...]

    def overlay(self, out: bytearray, start: int) -> None:
        """Copy what the skeleton has of the bytes from `start` on."""
        stop = start + len(out)
        first = max(0, bisect_right(self.pieces, start, key=lambda piece: piece[0]) - 1)
        for offset, content in self.pieces[first:]:
            if offset >= stop:
                break
            low, high = max(start, offset), min(stop, offset + len(content))
            if low < high:
                out[low - start : high - start] = content[low - offset : high - offset]

    def within(self, start: int, stop: int) -> list[Part]:
        """Parts that have any of the bytes [start, stop)."""
        first = bisect_right(self.parts, start, key=lambda part: part.stop)
        found: list[Part] = []
        for part in self.parts[first:]:
            if part.start >= stop:
                break
            found.append(part)
        return found


def written(
    specification: Specification, arrays: Mapping[int, tuple[OpenArray, View]], least: int = 0
) -> tuple[Twin, dict[str, str]]:
    """Have the skeleton written; with it, which objects it lacks, and why.

    `arrays`: by the number of a dataset the array that has its elements; of others the skeleton has them. `least`: bytes
    that the file must have besides its elements. Raises CorruptData when the writer fails.
    """
    try:
        head, content = _run(specification)
    except ChildDied as error:
        if not specification.files:
            raise
        log.warning("objects are described as those of other formats are in the virtual HDF5 file: %s", error)
        specification.forget_types()
        head, content = _run(specification)
    pieces: list[tuple[int, bytes]] = []
    done = 0
    for offset, length in head["pieces"]:
        pieces.append((offset, content[done : done + length]))
        done += length
    parts: list[Part] = []
    total = 0
    for number, (array, view) in arrays.items():
        offset = head["offsets"][number]
        dtype = view.dtype or np.dtype((np.void, view.metadata.dtype.itemsize))
        size = view.selection.size * dtype.itemsize
        total += size
        if size and offset is not None:
            exactly = stored_dtype(array.array) if specification.objects[number].get("typed", {}).get("type") else None
            elements = Elements(offset, stored(view).order, exactly or dtype)
            parts.append(Part(offset, offset + size, array, view, elements, array.token))
    size = max(head["end"], total + least, *(part.stop for part in parts), 0)
    if least and size > total + least:
        raise CorruptData(f"the HDF5 skeleton has {size - total} bytes, more than the {least} that were reserved")
    failed = {str(specification.objects[int(number)]["path"]): str(reason) for number, reason in head["failed"].items()}
    return Twin(size, tuple(pieces), tuple(sorted(parts, key=lambda part: part.start))), failed


def _run(specification: Specification) -> tuple[dict[str, Any], bytes]:
    text = json.dumps(specification.document()).encode()
    child = ChildProcess(WRITER, [], ADDRESS_SPACE_BYTES)
    try:
        head, (content,) = child.ask({"op": "write"}, SKELETON_BYTES, PATIENCE_SECONDS, [text, bytes(specification.blob)])
    except ChildTooSlow:
        raise TimedOut(f"the HDF5 skeleton was not written within {PATIENCE_SECONDS:g} s") from None
    except CorruptData as error:
        kind = ChildDied if isinstance(error, ChildDied) else CorruptData
        raise kind(f"the HDF5 skeleton cannot be written: {error}") from None
    finally:
        child.close()
    return head, bytes(content)


def reserved(view: View) -> int:
    """Bytes of an array's file besides its elements, from the metadata alone: a power of two above what a skeleton takes."""
    native = view.metadata.native.get("hdf5", {})
    text = len(json.dumps([dict(view.attributes), native.get("datatype")], default=str))
    made = sum(count * 8 for count in view.shape if count <= COORDINATE_VALUES)
    stored_bytes = int(native.get("attribute_bytes", 0))
    return 1 << (BASE_BYTES + 8 * text + 2 * stored_bytes + made).bit_length()


def array_size(view: View) -> int:
    """Size of `NAME.h5`, exact without making it."""
    return view.selection.size * view.metadata.dtype.itemsize + reserved(view)


def array_twin(array: OpenArray, view: View, version: ArrayVersion) -> Twin:
    """The file of one array: the dataset `/NAME`, and a dimension scale for each axis with a name and a spacing.

    A region of a dataset in an HDF5 file has its attributes as they are, all of it its type and dataspace, too.
    """
    path, whole, variable = f"/{view.name}", view.selection == everything(view.metadata.shape), stored(view).items
    known = known_exactly(array.array)
    specification = Specification()
    specification.add("group", "/", attributes={})
    item = dataset(view, path)
    if known is not None:
        facts = {name: fact for name, fact in known.described.items() if whole or name == "order"}
        own = [fact for fact in known.described.get("attributes", ()) if fact.get("name") not in OF_SCALES]
        item |= specification.typed(known.file, {**facts, "attributes": own})
    if variable and known is not None and whole:
        item |= specification.elements(known.items())
    elif variable:
        item["items"] = items_of(view, array.elements(version, view.selection, stored(view).order))
    number = specification.add(**item)
    order = stored(view).order
    for axis, scale in coordinates(view, [view.name]):
        specification.add(**scale)
        specification.made.append([str(scale["path"]), str(scale["path"])[1:]])
        specification.attached.append([path, order.index(axis), scale["path"]])
    shown = {} if variable else {number: (array, view)}
    twin, failed = written(specification, shown, 0 if variable else reserved(view))
    if path in failed:
        raise CorruptData(f"{path}: {failed[path]}")
    return twin


def known_exactly(node: Group | Array) -> Exact | None:
    """A node just as HDF5 has it; None outside HDF5 files, and where only the mount's own description can be had."""
    try:
        return exact(node)
    except (CorruptData, Unsupported, TooLarge) as error:
        log.warning("described as other formats are in the virtual HDF5 file: %s", error)
        return None


def fits(total: int) -> None:
    """TooLarge where the elements of a file are more than any file can have."""
    if total > MAX_SIZE // 2:
        raise TooLarge(f"{total} bytes are no file")
