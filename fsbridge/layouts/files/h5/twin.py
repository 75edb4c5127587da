"""`Twin`: a virtual HDF5 file as a map of its bytes: the skeleton, and the elements of arrays. Made by a child process.

Not here: what the skeleton holds (`specification.py`), who writes it (`writer.py`), its nodes in the tree (`nodes.py`).
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fsbridge.children.client import ChildProcess, ChildTooSlow
from fsbridge.children.starting import Program
from fsbridge.errors import CorruptData, TimedOut, TooLarge
from fsbridge.layouts.files.arrays import OpenArray
from fsbridge.layouts.files.extents import MAX_SIZE, Elements, View
from fsbridge.layouts.files.h5.limits import ADDRESS_SPACE_BYTES, PATIENCE_SECONDS, SKELETON_BYTES
from fsbridge.layouts.files.h5.specification import Specification, coordinates, dataset, stored

WRITER = Program(
    "fsbridge.layouts.files.h5.writer",
    (("HDF5_USE_FILE_LOCKING", "FALSE"), ("HDF5_PLUGIN_PRELOAD", "::")),  # as the child that reads HDF5 without plug-ins
    without="HDF5_",
)

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


def written(specification: Specification, arrays: Sequence[tuple[OpenArray, View] | None], least: int = 0) -> Twin:
    """Have the skeleton written. `arrays`: of each dataset the array that has its elements, None where the skeleton does.

    `least`: bytes that the file must have besides its elements. Raises CorruptData when the writer fails, TooLarge.
    """
    head, content = _run(specification)
    pieces: list[tuple[int, bytes]] = []
    position = 0
    for offset, length in head["pieces"]:
        pieces.append((offset, content[position : position + length]))
        position += length
    parts: list[Part] = []
    total = 0
    for shown, offset in zip(arrays, head["offsets"], strict=True):
        if shown is None or offset is None:
            continue
        array, view = shown
        dtype = view.dtype or np.dtype((np.void, view.metadata.dtype.itemsize))
        size = view.selection.size * dtype.itemsize
        total += size
        if size:
            elements = Elements(offset, stored(view).order, dtype)
            parts.append(Part(offset, offset + size, array, view, elements, array.token))
    size = max(head["end"], total + least, *(part.stop for part in parts), 0)
    if least and size > total + least:
        raise CorruptData(f"the HDF5 skeleton has {size - total} bytes, more than the {least} that were reserved")
    return Twin(size, tuple(pieces), tuple(sorted(parts, key=lambda part: part.start)))


def _run(specification: Specification) -> tuple[dict[str, Any], bytes]:
    text = json.dumps(specification.document()).encode()
    child = ChildProcess(WRITER, [], ADDRESS_SPACE_BYTES)
    try:
        head, (content,) = child.ask({"op": "write"}, SKELETON_BYTES, PATIENCE_SECONDS, [text])
    except ChildTooSlow:
        raise TimedOut(f"the HDF5 skeleton was not written within {PATIENCE_SECONDS:g} s") from None
    except CorruptData as error:
        raise CorruptData(f"the HDF5 skeleton cannot be written: {error}") from None
    finally:
        child.close()
    return head, bytes(content)


def reserved(view: View) -> int:
    """Bytes of an array's file besides its elements, from the metadata alone: a power of two above what a skeleton takes."""
    text = len(json.dumps(dict(view.attributes), default=str))
    made = sum(count * 8 for count in view.shape if count <= 65536)
    return 1 << (BASE_BYTES + 8 * text + made).bit_length()


def array_size(view: View) -> int:
    """Size of `NAME.h5`, exact without making it."""
    return view.selection.size * view.metadata.dtype.itemsize + reserved(view)


def array_twin(array: OpenArray, view: View, items: NDArray[Any] | None) -> Twin:
    """The file of one array: the dataset `/NAME`, and a dimension scale for each axis with a name and a spacing."""
    path = f"/{view.name}"
    specification = Specification(groups=[{"path": "/", "attributes": {}}], datasets=[dataset(view, path, items)])
    arrays: list[tuple[OpenArray, View] | None] = [(array, view) if items is None else None]
    order = stored(view).order
    for axis, scale in coordinates(view, [view.name]):
        specification.datasets.append(scale)
        arrays.append(None)
        specification.made.append([str(scale["path"]), str(scale["path"])[1:]])
        specification.attached.append([path, order.index(axis), scale["path"]])
    return written(specification, arrays, 0 if items is not None else reserved(view))


def fits(total: int) -> None:
    """TooLarge where the elements of a file are more than any file can have."""
    if total > MAX_SIZE // 2:
        raise TooLarge(f"{total} bytes are no file")
