"""`GROUP.ome.tif`: the file of an image pyramid, and its open form, which makes only those tiles that are read.

Not here: what its header says (`filetypes/pyramid.py`), which arrays are its levels (`images.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from hashlib import blake2b
from typing import Any, cast

import numpy as np

from fsbridge.asking import before_waiting
from fsbridge.errors import NotFound, Stale
from fsbridge.layouts.files.arrays.element_bytes import Misfit, find_conversion
from fsbridge.layouts.files.arrays.extents import Unfit
from fsbridge.layouts.files.arrays.open_array import OpenArray
from fsbridge.layouts.files.arrays.selection import Span
from fsbridge.layouts.files.elements.reading import ElementReader
from fsbridge.layouts.files.elements.supply import ChunkSupply
from fsbridge.layouts.files.filetypes.pyramid import Level, Pyramid, pyramid
from fsbridge.layouts.files.filetypes.tiff import OME
from fsbridge.layouts.files.groups.group_file import GroupFile
from fsbridge.layouts.files.groups.images import open_levels
from fsbridge.layouts.files.groups.surroundings import OpenGroup, is_pyramid
from fsbridge.meaning.reading import read_group
from fsbridge.tree import Attrs, Buffer, File, Handle


def pyramid_of(images: Sequence[Sequence[OpenArray]]) -> Pyramid:
    """Plan the file that shows these images, each with its levels; Unfit if TIFF cannot hold them."""
    return pyramid([[array.make_view() for array in levels] for levels in images], "/".join(images[0][0].names[:-1]))


class PyramidFile(File):
    """The OME-TIFF of a group: its images with all their levels.

    Its version consists of the versions of its arrays and of its description.
    """

    def __init__(self, name: str, images: Sequence[Sequence[OpenArray]], again: Callable[[], PyramidFile]) -> None:
        """`again` makes the file as it is now, so that an open detects changes. NotFound if TIFF cannot hold the image."""
        before_waiting()  # because the header needs a library
        if not images:
            raise NotFound(f"{name}: the group is no image of several levels")
        try:
            self._plan = pyramid_of(images)
        except Unfit as error:
            raise NotFound(f"{name}: {error}") from None
        self._arrays = [array for levels in images for array in levels]
        self._again = again
        self._versions = tuple(array.version for array in self._arrays)
        digest = blake2b(self._plan.description, digest_size=16).digest()
        self.version = ("ome.tif", digest, self._versions)

    def attrs(self) -> Attrs:
        return Attrs("file", self._plan.size, max(array.find_mtime_ns() for array in self._arrays))

    def settle(self) -> None:
        for array in self._arrays:
            array.settle()

    def open(self) -> PyramidHandle:
        """Open the file; Stale if an array or its description has changed."""
        if self._again().version != self.version:
            raise Stale("the image has changed")
        levels = []
        for array, version, level, start in zip(
            self._arrays, self._versions, self._plan.levels, self._plan.starts, strict=True
        ):
            reader, supply = array.make_reader(array.current(version), level.view.selection, level.order)
            levels.append(_Tiles(start, level, reader, supply))
        return PyramidHandle(self._plan, self.version, levels)


class _Tiles:
    """The tiles of one level as bytes of the file, which begin at offset `start`."""

    def __init__(self, start: int, level: Level, reader: ElementReader, supply: ChunkSupply) -> None:
        self.start = start
        self.stop = start + level.nbytes
        self.supply = supply
        self._level = level
        self._reader = reader
        assert level.view.dtype is not None
        self._convert = find_conversion(level.view.dtype, level.dtype)

    def read_into(self, out: memoryview, first: int) -> None:
        """Fill `out` with the bytes from `first` on. Parts of tiles beyond the picture are zero."""
        level = self._level
        (height, width), (down, across), size = level.tile, level.grid, level.row_bytes
        position = first
        while position < first + len(out):
            number, inside = divmod(position, level.tile_bytes)
            end = min(first + len(out), (number + 1) * level.tile_bytes)
            rows = inside // size, -(-(end - number * level.tile_bytes) // size)
            plane, place = divmod(number, down * across)
            block = self._block(plane, place // across * height, place % across * width, rows)
            begin = inside - rows[0] * size
            out[position - first : end - first] = block.reshape(-1).view(np.uint8).data[begin : begin + end - position]
            position = end

    def _block(self, plane: int, top: int, left: int, rows: tuple[int, int]) -> np.ndarray[Any, Any]:
        """Return some rows of the tile with its upper left element at `top`, `left`. Elements beyond the picture are zero.

        `plane`: its number in the level; `rows`: the first row, and the one after the last, counted in the tile.
        """
        level, width = self._level, self._level.tile[1]
        block = np.zeros((rows[1] - rows[0], width, level.samples), level.dtype)
        low, high = top + rows[0], min(top + rows[1], level.shape[-2])
        right = min(left + width, level.shape[-1])
        if low < high:
            leading = np.unravel_index(plane, level.shape[:-2]) if level.shape[:-2] else ()
            box: tuple[Span, ...] = (*((int(i), int(i) + 1) for i in leading), (low, high), (left, right))
            box = box if level.samples == 1 else (*box, (0, level.samples))
            elements = self._reader.read_box(box)
            shown = elements.view(level.dtype) if self._convert is None else self._convert_elements(elements, box)
            block[: high - low, : right - left] = shown.reshape(high - low, right - left, level.samples)
        return block

    def _convert_elements(self, elements: np.ndarray[Any, Any], box: Sequence[Span]) -> np.ndarray[Any, Any]:
        assert self._convert is not None
        try:
            return self._convert(elements)
        except Misfit as error:
            inside = np.unravel_index(error.position, elements.shape)
            raise error.locate(
                self._reader.index([low + int(at) for (low, _), at in zip(box, inside, strict=True)])
            ) from None


class PyramidHandle(Handle):
    """An open pyramid: its head is in memory, tiles are made when they are read."""

    def __init__(self, plan: Pyramid, version: Hashable, levels: Sequence[_Tiles]) -> None:
        self.size = plan.size
        self.version = version
        self._head = plan.head()
        self._levels = levels

    def peek(self, offset: int, size: int) -> Buffer | None:
        """Return the bytes if they are in the head, which is in memory; else None."""
        stop = min(offset + size, self.size)
        return memoryview(self._head)[offset:stop] if stop <= len(self._head) else None

    def read(self, offset: int, size: int) -> Buffer:
        """Return the bytes. Gaps between the head and the levels are zero."""
        stop = min(offset + size, self.size)
        if offset >= stop:
            return b""
        out = bytearray(stop - offset)
        head = self._head[offset:stop]
        out[: len(head)] = head
        for level in self._levels:
            low, high = max(offset, level.start), min(stop, level.stop)
            if low < high:
                level.read_into(memoryview(out)[low - offset : high - offset], low - level.start)
        return memoryview(out)

    def close(self) -> None:
        """Close the readers, which frees the disk space of spilled chunks."""
        for level in self._levels:
            level.supply.close()


def pyramid_file(shown: OpenGroup) -> PyramidFile:
    """Return the file with all levels of a group's images; NotFound if the group is no pyramid."""
    levels = open_levels(read_group(shown.group.attributes()), shown.array_at)
    return PyramidFile(shown.path_of(OME.suffix), levels, lambda: pyramid_file(cast(OpenGroup, shown.path.refresh())))


PYRAMID = GroupFile(OME.suffix, pyramid_file, is_pyramid, wanted=OME.suffix, aliases=OME.aliases, opened=True)
