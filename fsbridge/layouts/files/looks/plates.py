"""`plate.png`: a picture of a plate of wells (OME-NGFF HCS).

It has the wells in their places: each is the preview of the coarsest level of its first field. It is made from the present
wells and fields. Not here: what is a plate (`meaning/conventions/ome.py`), `PLATE.companion.ome` (`companion.py`), previews
of arrays (`previews/picture.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fsbridge.asking import before_waiting
from fsbridge.errors import NotFound, Stale
from fsbridge.layouts.directories import PathDirectory
from fsbridge.layouts.files.arrays.nodes import SAMPLE_SECONDS, ArrayFile
from fsbridge.layouts.files.filetypes.previews import PICTURE as PREVIEW
from fsbridge.layouts.files.groups.group_file import GroupFile
from fsbridge.layouts.files.groups.surroundings import OpenGroup, known_meaning
from fsbridge.layouts.files.looks.previews.png import png, samples
from fsbridge.layouts.nodes import BytesHandle
from fsbridge.meaning import Field, Plate, Well
from fsbridge.meaning.reading import read_group
from fsbridge.model import Group
from fsbridge.tree import Attrs, File


def is_plate(group: Group) -> bool:
    """True if the attributes of a group say that it is a plate."""
    return known_meaning(group).plate is not None


def shown_plate(shown: OpenGroup) -> Plate:
    """Return the plate that a group is; NotFound if it is none."""
    plate = read_group(shown.group.attributes()).plate
    if plate is None:
        raise NotFound(f"{shown.path.member} is no plate")
    return plate


def fields_of_wells(shown: OpenGroup, plate: Plate) -> Iterator[tuple[Well, list[Field]]]:
    """Yield each well and its images, with paths below the plate; no images if the group of the well is missing."""
    for well in plate.wells:
        try:
            found = read_group(shown.at(well.path).group.attributes()).fields
        except NotFound:
            found = ()
        yield well, [Field((*well.path, *field.path), field.acquisition) for field in found]


def plate_picture(shown: OpenGroup) -> PlatePicture:
    """Return the picture of a plate; NotFound if the group is no plate."""
    plate = shown_plate(shown)
    before_waiting()
    wells: dict[Well, ArrayFile] = {}
    for well, fields in fields_of_wells(shown, plate):
        for field in fields[:1]:
            image = shown.at(field.path)
            levels = read_group(image.group.attributes()).images
            if not levels:
                raise NotFound(f"{'/'.join(field.path)} is no image")
            coarsest = image.below(levels[0][-1])
            wells[well] = ArrayFile(coarsest, PREVIEW.suffix, None, coarsest.name)
    return PlatePicture(plate, wells, lambda: _picture_now(shown.path))


def _picture_now(path: PathDirectory) -> PlatePicture:
    shown = path.present()
    if not isinstance(shown, OpenGroup):
        raise NotFound(f"{path.member} is no plate any more")
    return plate_picture(shown)


_LARGEST, _WIDEST = 96, 1536
"""Most pixels across a well, and across all columns."""
_GAP = 2
_EMPTY = (128, 128, 128, 40)
"""Colour of places without a well or without an image: red, green, blue, and how opaque."""


class PlatePicture(File):
    """The picture of a plate. Its version consists of those of all previews in it."""

    def __init__(self, plate: Plate, wells: Mapping[Well, ArrayFile], again: Callable[[], PlatePicture]) -> None:
        """`wells`: the preview of each well with an image. `again` makes the present picture, to detect changes."""
        before_waiting()
        self._plate = plate
        self._wells = wells
        self._again = again
        self.version = (plate, tuple((well, preview.version) for well, preview in wells.items()))

    size_seconds = SAMPLE_SECONDS

    def attrs(self) -> Attrs:
        return Attrs("file", None, max((preview.attrs().mtime_ns for preview in self._wells.values()), default=0))

    def measured(self) -> Attrs:
        return self.attrs()._replace(size=len(self._made()))

    def settle(self) -> None:
        for preview in self._wells.values():
            preview.settle()

    def open(self) -> BytesHandle:
        """Open the picture; Stale if a well has changed."""
        if self._again().version != self.version:
            raise Stale("the plate has changed")
        return BytesHandle(self._made(), self.version)

    def _made(self) -> bytes:
        before_waiting()
        plate = self._plate
        side = max(8, min(_LARGEST, _WIDEST // len(plate.columns)))
        out = np.zeros((len(plate.rows) * side, len(plate.columns) * side, 4), np.uint8)
        cells = out.reshape(len(plate.rows), side, len(plate.columns), side, 4).swapaxes(1, 2)
        cells[:, :, : side - _GAP, : side - _GAP] = _EMPTY
        for well, preview in self._wells.items():
            handle = preview.open()
            try:
                picture = _fitted(samples(bytes(handle.read(0, handle.size))), side - _GAP)
            finally:
                handle.close()
            cell = cells[well.row, well.column]
            cell[: side - _GAP, : side - _GAP] = (0, 0, 0, 255)
            top, left = ((side - _GAP - extent) // 2 for extent in picture.shape[:2])
            cell[top : top + picture.shape[0], left : left + picture.shape[1]] = picture
        return png(out, {"Title": plate.name or "Plate", "Software": "fsbridge"})


def _fitted(pixels: NDArray[np.uint8], side: int) -> NDArray[Any]:
    """Return red, green, blue and alpha of a picture, scaled to fit into a square."""
    height, width = pixels.shape[:2]
    scale = side / max(height, width)
    rows, columns = (_nearest(extent, scale) for extent in (height, width))
    small = pixels[rows[:, None], columns]
    count = small.shape[-1]
    opaque = np.full((*small.shape[:2], 1), 255, np.uint8) if count in (1, 3) else small[..., -1:]
    colors = small[..., :1].repeat(3, -1) if count < 3 else small[..., :3]
    return np.concatenate([colors, opaque], -1)


def _nearest(extent: int, scale: float) -> NDArray[np.intp]:
    """Return for each pixel along one side the index of the nearest element."""
    places = (np.arange(max(1, round(extent * scale))) + 0.5) / scale
    return np.minimum(places.astype(np.intp), extent - 1)


PICTURE = GroupFile("plate.png", plate_picture, is_plate, wanted="preview", named=False, inside=True)
