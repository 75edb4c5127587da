"""One tiled OME-TIFF with all levels of an image (`GROUP.ome.tif`), for QuPath, Bio-Formats, vips and tifffile.

Levels with as many planes as the first one are sub-images of its pages (SubIFDs), which readers recognise as a pyramid.
Other levels, as in N5 that halves z too, begin a new Image. The IFDs are written here, because tifffile would
write all tiles. Not here: which arrays are levels (`groups/images.py`), how tiles are read (`groups/pyramids.py`).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsbridge.layouts.files.arrays.colors import find_color_axis, order_colors
from fsbridge.layouts.files.arrays.extents import MAX_SIZE, Unfit, View
from fsbridge.layouts.files.filetypes.filetype import narrow_dtype
from fsbridge.layouts.files.filetypes.tiff import CLASSIC_BYTES, OME, letters_of, ome_metadata
from fsbridge.threads.forking import cached_property

if TYPE_CHECKING:
    from typing import Any

    import numpy as np

MAX_PAGES = 65536
"""Most IFDs of a file. Each takes some 20 microseconds."""
MAX_TILES = 1 << 20
"""Most tiles of a file. Each takes 16 bytes of memory while the file is open."""
_STEP = 16
"""Width and height of a tile are multiples of this (TIFF 6.0, section 15)."""
_LEAST, _USUAL, _MOST = 64, 256, 1024
"""Least, usual and most rows or columns of a tile: the chunk's if within the limits, else the usual number."""
_DATA_ALIGNMENT = 4096

_SHORT, _LONG, _LONG8, _IFD, _IFD8, _ASCII = 3, 4, 16, 13, 18, 2
_FORMATS = {"u": 1, "i": 2, "f": 3, "c": 6}
"""SampleFormat by numpy's kind."""
_TAGS = 9
"""Entries of every IFD that hold one number each; `_ifd_bytes` adds the others."""
_RGBA = 4
"""Samples of a pixel with red, green, blue and alpha."""


@dataclass(frozen=True)
class Level:
    """One array as tiles. `order`: its dimensions, slowest first; the dimension of colours, if there is one, is the last.

    `shape`: lengths of the dimensions without colours; `samples`: numbers in a pixel; `dtype`: as the file has it.
    """

    view: View
    order: tuple[int, ...]
    shape: tuple[int, ...]
    tile: tuple[int, int]
    dtype: np.dtype[Any]
    samples: int = 1

    @property
    def planes(self) -> int:
        return math.prod(self.shape[:-2])

    @property
    def grid(self) -> tuple[int, int]:
        """Tiles down and across a plane."""
        return -(-self.shape[-2] // self.tile[0]), -(-self.shape[-1] // self.tile[1])

    @property
    def tile_bytes(self) -> int:
        return self.tile[0] * self.row_bytes

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of a tile."""
        return self.tile[1] * self.samples * self.dtype.itemsize

    @property
    def plane_bytes(self) -> int:
        return math.prod(self.grid) * self.tile_bytes

    @property
    def nbytes(self) -> int:
        return self.planes * self.plane_bytes


@dataclass(frozen=True)
class Pyramid:
    """The whole OME-TIFF of a group. `images`: the levels of each image, the finest first; `path`: of the group.

    The pages show the finest level; the other levels are sub-images of its pages.
    """

    images: tuple[tuple[Level, ...], ...]
    path: str = ""

    @property
    def levels(self) -> tuple[Level, ...]:
        return tuple(level for image in self.images for level in image)

    @cached_property
    def big(self) -> bool:
        """True if the file is a BigTIFF, because a classic TIFF cannot be larger than 4 GB."""
        heads = sum(level.planes * (512 + 16 * math.prod(level.grid)) for level in self.levels)
        return heads + sum(level.nbytes for level in self.levels) > CLASSIC_BYTES

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The offset in the file at which the tiles of each level begin."""
        position = -(-self._head_bytes // _DATA_ALIGNMENT) * _DATA_ALIGNMENT
        positions = []
        for level in self.levels:
            positions.append(position)
            position += -(-level.nbytes // _DATA_ALIGNMENT) * _DATA_ALIGNMENT
        return tuple(positions)

    @property
    def size(self) -> int:
        return self.starts[-1] + self.levels[-1].nbytes

    @cached_property
    def description(self) -> bytes:
        """The OME-XML that describes the images."""
        from uuid import NAMESPACE_OID, uuid5

        from tifffile import OmeXml

        described = []
        for image in self.images:
            level = image[0]
            shown, shape = level.order, level.shape
            letters = letters_of(tuple(level.view.axes[i] for i in shown))
            if level.samples > 1:
                shown, shape, letters = level.order[-3:], (*level.shape[-2:], level.samples), ["Y", "X", "S"]
            described.append((level, letters, shape, ome_metadata(level.view, shown, letters, shape)))
        identity = [(shape, level.dtype.str, metadata) for level, _, shape, metadata in described]
        same = uuid5(NAMESPACE_OID, self.path + repr(identity))
        document = OmeXml(UUID=f"urn:uuid:{same}")
        for level, letters, shape, metadata in described:
            stored = (level.planes, 1, 1, level.shape[-2], level.shape[-1], level.samples)
            document.addimage(level.dtype, shape, stored, axes="".join(letters), **metadata)
        return document.tostring().encode() + b"\0"

    def head(self) -> bytes:
        """Return everything before the first tile: header, IFDs and offsets of tiles."""
        order, starts = self._order, iter(self.starts)
        mark = b"II" if order == "<" else b"MM"
        parts = [mark + struct.pack(order + "HHHQ", 43, 8, 0, 16) if self.big else mark + struct.pack(order + "HL", 42, 8)]
        position = len(parts[0])
        for image in self.images:
            data = [next(starts) for _ in image]
            for plane in range(image[0].planes):
                is_first = len(parts) == 1
                places = [position]
                for one in range(len(image)):
                    places.append(places[-1] + self._ifd_bytes(image, one, is_first))
                last = image is self.images[-1] and plane == image[0].planes - 1
                for one, level in enumerate(image):
                    tags = self._tags(level, data[one] + plane * level.plane_bytes, reduced=one > 0)
                    if is_first and not one:
                        tags[270] = (_ASCII, len(self.description), self.description)
                    if len(image) > 1 and not one:
                        below = struct.pack(f"{order}{len(image) - 1}{self._width}", *places[1:-1])
                        tags[330] = (_IFD8 if self.big else _IFD, len(image) - 1, below)
                    parts.append(self._pack(tags, places[one], 0 if one or last else places[-1]))
                position = places[-1]
        head = b"".join(parts)
        assert len(head) == self._head_bytes
        return head

    @property
    def _order(self) -> str:
        """The byte order, as `struct` spells it."""
        return ">" if self.levels[0].dtype.byteorder == ">" else "<"

    @property
    def _width(self) -> str:
        """The type of an offset, as `struct` spells it."""
        return "Q" if self.big else "L"

    @cached_property
    def _head_bytes(self) -> int:
        total = 16 if self.big else 8
        for image in self.images:
            total += image[0].planes * sum(self._ifd_bytes(image, one, False) for one in range(len(image)))
        return total + self._ifd_bytes(self.images[0], 0, True) - self._ifd_bytes(self.images[0], 0, False)

    def _ifd_bytes(self, image: Sequence[Level], one: int, is_first: bool) -> int:
        """Return the bytes that the IFD of a plane of level `one` takes, with its values.

        `is_first`: it is the first of the file, which also has the description.
        """
        size, room = (8, 8) if self.big else (4, 4)
        values = [size * math.prod(image[one].grid), 2 * image[one].samples] * 2
        values += [2] if image[one].samples == _RGBA else []
        values += [len(self.description)] if is_first and not one else []
        values += [size * (len(image) - 1)] if len(image) > 1 and not one else []
        entries = _TAGS + len(values)
        table = 16 + 20 * entries if self.big else 6 + 12 * entries
        return _align(table) + sum(_align(value) for value in values if value > room)

    def _tags(self, level: Level, tiles: int, reduced: bool) -> dict[int, tuple[int, int, bytes]]:
        """Return the tags in the IFD of one plane.

        `tiles`: offset of its first tile; `reduced`: the level is not the finest.
        """
        import numpy as np

        count, kind, order = math.prod(level.grid), _LONG8 if self.big else _LONG, self._order
        offsets = np.arange(count, dtype=np.uint64) * level.tile_bytes + tiles
        long = np.dtype(f"{order}u{8 if self.big else 4}")
        numbers = {
            254: (_LONG, int(reduced)),
            256: (_LONG, level.shape[-1]),
            257: (_LONG, level.shape[-2]),
            259: (_SHORT, 1),  # not compressed
            262: (_SHORT, 1 if level.samples == 1 else 2),  # zero is black, or red, green, blue
            277: (_SHORT, level.samples),
            284: (_SHORT, 1),
            322: (_LONG, level.tile[1]),
            323: (_LONG, level.tile[0]),
        }
        each_sample = {258: 8 * level.dtype.itemsize, 339: _FORMATS[level.dtype.kind]}
        packed = {tag: (type, 1, struct.pack(order + "HL"[type == _LONG], value)) for tag, (type, value) in numbers.items()}
        for tag, number in each_sample.items():
            packed[tag] = (_SHORT, level.samples, struct.pack(f"{order}{level.samples}H", *[number] * level.samples))
        if level.samples == _RGBA:
            packed[338] = (_SHORT, 1, struct.pack(order + "H", 2))  # alpha was not multiplied into the colours
        each = np.full(count, level.tile_bytes).astype(long).tobytes()
        return packed | {324: (kind, count, offsets.astype(long).tobytes()), 325: (kind, count, each)}

    def _pack(self, tags: dict[int, tuple[int, int, bytes]], at: int, following: int) -> bytes:
        """Return the bytes of an IFD that begins at offset `at`, followed by the values that do not fit into its entries."""
        order, room = self._order, 8 if self.big else 4
        begin = at + _align(16 + 20 * len(tags) if self.big else 6 + 12 * len(tags))
        body, values = bytearray(struct.pack(order + ("Q" if self.big else "H"), len(tags))), bytearray()
        for tag, (type, count, value) in sorted(tags.items()):
            body += struct.pack(order + "HH" + self._width, tag, type, count)
            if len(value) <= room:
                body += value.ljust(room, b"\0")
            else:
                body += struct.pack(order + self._width, begin + len(values))
                values += value.ljust(_align(len(value)), b"\0")
        body += struct.pack(order + self._width, following)
        return bytes(body).ljust(begin - at, b"\0") + bytes(values)


def _align(position: int) -> int:
    return -(-position // 8) * 8


def pyramid(images: Sequence[Sequence[View]], path: str = "") -> Pyramid:
    """Plan the file of images, each given by its levels, the largest first. Unfit if TIFF cannot hold them.

    `path`: of the group in its store. It is part of the file's UUID, because images of wells may otherwise be identical.
    """
    series: list[tuple[Level, ...]] = []
    for views in images:
        series += _series([_level(view, views[0]) for view in views])
    whole = Pyramid(tuple(series), path)
    pages = sum(level.planes for level in whole.levels)
    tiles = sum(level.planes * math.prod(level.grid) for level in whole.levels)
    if pages > MAX_PAGES or tiles > MAX_TILES:
        raise Unfit(f"the TIFF would have {pages} pages and {tiles} tiles; the limits are {MAX_PAGES} and {MAX_TILES}")
    if sum(level.nbytes for level in whole.levels) > MAX_SIZE // 2:
        raise Unfit("the image is too large for a TIFF")
    return whole


def _series(levels: Sequence[Level]) -> Iterator[tuple[Level, ...]]:
    """Yield groups of consecutive levels that a reader recognises as one pyramid."""
    series: list[Level] = []
    for level in levels:
        if series and _kind(level) != _kind(series[0]):
            yield tuple(series)
            series = []
        series.append(level)
    yield tuple(series)


def _kind(level: Level) -> tuple[object, ...]:
    return level.shape[:-2], level.dtype, level.samples


def _level(view: View, first: View) -> Level:
    reason = OME.refusal(view)
    if reason is not None:
        raise Unfit(f"{view.name}: {reason}")
    assert view.dtype is not None
    assert first.dtype is not None
    color, chunks = find_color_axis(view), view.metadata.grid.edges
    order = view.picture if color is None else order_colors(view, color)
    planes = order if color is None else order[:-1]
    sides = [_side(chunks[i], view.shape[i]) for i in planes[-2:]]
    dtype = narrow_dtype(view, *OME.types or ())
    dtype = dtype.newbyteorder(">" if first.dtype.byteorder == ">" else "<")  # a TIFF has one byte order
    samples = 1 if color is None else view.shape[color]
    return Level(view, order, tuple(view.shape[i] for i in planes), (sides[0], sides[1]), dtype, samples)


def _side(chunk: int | tuple[int, ...], extent: int) -> int:
    """Return the height or the width of a tile: a chunk's length or a fraction of it, so that a tile lies in few chunks."""
    whole = -(-extent // _STEP) * _STEP
    if isinstance(chunk, int) and chunk % _STEP == 0:
        fitting = [chunk // parts for parts in range(1, chunk // _LEAST + 1) if chunk % (parts * _STEP) == 0]
        side = next((side for side in fitting if _LEAST <= side <= _MOST), 0)
        if side:
            return min(side, whole) if side <= whole else whole
    return min(_USUAL, whole)
