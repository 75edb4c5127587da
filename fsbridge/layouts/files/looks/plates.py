"""`plate.png`: a picture of a plate of wells (OME-NGFF HCS).

It has the wells in their places, and the names of rows and columns at the margin. Each well is a coarse level of its
first field. Each channel has the same limits in all wells, so that these can be compared. Not here: what is a plate
(`meaning/conventions/ome.py`), `PLATE.companion.ome` (`companion.py`), pictures of arrays (`previews/picture.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fsbridge.asking import before_waiting
from fsbridge.config import MIB
from fsbridge.decoded import ArrayVersion
from fsbridge.errors import NotFound, Stale
from fsbridge.layouts.directories import PathDirectory
from fsbridge.layouts.files.arrays.nodes import SAMPLE_SECONDS, ArrayFile
from fsbridge.layouts.files.filetypes.previews import PICTURE as PREVIEW
from fsbridge.layouts.files.groups.group_file import GroupFile
from fsbridge.layouts.files.groups.surroundings import OpenGroup, find_meaning
from fsbridge.layouts.files.looks.previews.picture import Drawn, find_windows, make_pixels, plan_drawing, resize, spell_ends
from fsbridge.layouts.files.looks.previews.png import HEIGHT, draw_letters, make_png
from fsbridge.layouts.nodes import BytesHandle
from fsbridge.meaning import Field, Path, Plate, Well
from fsbridge.meaning.reading import read_group
from fsbridge.model import Group
from fsbridge.tree import Attrs, Buffer, File


def is_plate(group: Group) -> bool:
    """True if the attributes of a group say that it is a plate."""
    return find_meaning(group).plate is not None


def find_plate(shown: OpenGroup) -> Plate:
    """Return what a group says about the plate that it is; NotFound if it is no plate."""
    plate = read_group(shown.group.attributes()).plate
    if plate is None:
        raise NotFound(f"{shown.path.member} is no plate")
    return plate


def find_fields(shown: OpenGroup, plate: Plate) -> Iterator[tuple[Well, list[Field]]]:
    """Yield each well with its images, with paths from the plate on. A well has none if its group is missing."""
    for well in plate.wells:
        try:
            fields = read_group(shown.group_at(well.path).group.attributes()).fields
        except NotFound:
            fields = ()
        yield well, [Field((*well.path, *field.path), field.acquisition) for field in fields]


def make_plate_picture(shown: OpenGroup) -> PlatePicture:
    """Return the picture of a plate; NotFound if the group is no plate, or a field is no image."""
    plate = find_plate(shown)
    before_waiting()
    wells: dict[Well, ArrayFile] = {}
    for well, fields in find_fields(shown, plate):
        for field in fields[:1]:
            image = shown.group_at(field.path)
            levels = read_group(image.group.attributes()).images
            if not levels:
                raise NotFound(f"{'/'.join(field.path)} is no image")
            wells[well] = _choose_level(image, levels[0])
    return PlatePicture(plate, wells, lambda: _make_picture_now(shown.path))


def _choose_level(image: OpenGroup, levels: Sequence[Path]) -> ArrayFile:
    """Return the preview of the coarsest level that has as many elements as a well has pixels.

    If no level has that many, return the preview of the finest one.
    """
    preview = None
    for path in reversed(levels):
        array = image.array_at(path)
        try:
            preview = ArrayFile(array, PREVIEW.suffix, None, array.name)
        except NotFound:  # the chunks of a finer level may be too large for a preview
            if preview is None:
                raise
            break
        if max(array.metadata.shape[-2:]) >= _LARGEST:
            break
    assert preview is not None
    return preview


def _make_picture_now(path: PathDirectory) -> PlatePicture:
    shown = path.refresh()
    if not isinstance(shown, OpenGroup):
        raise NotFound(f"{path.member} is no plate any more")
    return make_plate_picture(shown)


_LARGEST, _WIDEST = 96, 1536
"""Most pixels across a well, and across all columns."""
_WORK_BYTES = 64 * MIB
"""Bytes of memory for drawing, about: as many pixels of each channel of all wells, and the elements of one of them."""
_GAP = 2
_EMPTY = (128, 128, 128, 40)
"""Colour of places without a well or without an image: red, green, blue, and how opaque."""
_INK = (128, 128, 128, 255)
"""Colour of names, on white and on black pages."""
_LONGEST = 12
"""Most letters of the name of a row or a column; a longer one is cut, and ends in two dots."""


class PlatePicture(File):
    """The picture of a plate. Its version consists of the versions of all images in it."""

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

    def measure(self) -> Attrs:
        return self.attrs()._replace(size=len(self._make_once()))

    def settle(self) -> None:
        for preview in self._wells.values():
            preview.settle()

    def open(self) -> BytesHandle:
        """Open the picture; Stale if a well has changed."""
        if self._again().version != self.version:
            raise Stale("the plate has changed")
        return BytesHandle(self._make_once(), self.version)

    def _make_once(self) -> Buffer:
        """Return the picture's bytes, which stay in the cache as long as no well changes."""
        before_waiting()
        present = {well: preview.check_version() for well, preview in self._wells.items()}
        some = next(iter(self._wells.values()), None)
        if some is None:
            return self._draw(present)
        cache, key = some.array.chunks.cache, ("wells", self.version, *present.values())
        content = cache.peek(key)
        if content is None:
            with some.array.shared.made.room.take(_WORK_BYTES):
                made = self._draw(present)
            content = cache.get_all(key, lambda: made, len(made))
        return content

    def _draw(self, present: Mapping[Well, ArrayVersion]) -> bytes:
        plate = self._plate
        side = max(8, min(_LARGEST, _WIDEST // len(plate.columns)))
        rows, columns = _draw_names(plate.rows), _draw_names(plate.columns)
        left, top = rows.shape[2] + _GAP, HEIGHT + _GAP
        out = np.zeros((top + len(plate.rows) * side, left + len(plate.columns) * side, 4), np.uint8)
        for number, name in enumerate(rows):
            at = top + number * side + (side - HEIGHT) // 2
            out[at : at + HEIGHT, : name.shape[1]][name] = _INK
        for number in range(0, len(columns), -(-columns.shape[2] // side)):
            name = columns[number]
            at = left + number * side + max(0, (side - name.shape[1]) // 2)
            room = out[:HEIGHT, at : at + name.shape[1]]
            room[name[:, : room.shape[1]]] = _INK
        pictures = {well: _read_small(preview, present[well], side - _GAP) for well, preview in self._wells.items()}
        ends = find_windows([*pictures.values()])
        for row in range(len(plate.rows)):
            for column in range(len(plate.columns)):
                _cut_cell(out, top + row * side, left + column * side, side - _GAP)[:] = _EMPTY
        for well, (how, layers) in pictures.items():
            cell = _cut_cell(out, top + well.row * side, left + well.column * side, side - _GAP)
            shown = make_pixels(how, layers, ends)
            cell[:] = (0, 0, 0, 255)
            above, before = ((side - _GAP - extent) // 2 for extent in shown.shape[:2])
            cell[above : above + shown.shape[0], before : before + shown.shape[1]] = _make_rgba(shown)
        texts = {"Title": plate.name or "Plate", "Software": "fsbridge"}
        return make_png(out, texts | ({"Limits": spell_ends(ends)} if ends else {}))


def _draw_names(names: Sequence[str]) -> NDArray[np.bool_]:
    """Draw the names of rows or columns. Returns name × row × column: True for each pixel of a letter."""
    short = [name if len(name) <= _LONGEST else f"{name[: _LONGEST - 2]}.." for name in names]
    drawn = [draw_letters(name) for name in short]
    out = np.zeros((len(drawn), HEIGHT, max(letters.shape[1] for letters in drawn)), np.bool_)
    for place, letters in zip(out, drawn, strict=True):
        place[:, : letters.shape[1]] = letters
    return out


def _cut_cell(out: NDArray[np.uint8], top: int, left: int, side: int) -> NDArray[np.uint8]:
    return out[top : top + side, left : left + side]


def _read_small(preview: ArrayFile, present: ArrayVersion, side: int) -> tuple[Drawn, NDArray[Any]]:
    """Read the image of a well.

    Returns how it is drawn, and its elements, resized so that the longer side has `side` pixels.
    """
    how = plan_drawing(preview.view)
    layers = how.arrange_layers(preview.array.read_elements(present, how.sample.selection, how.order))
    scale = side / max(how.size)
    return how, resize(layers, (max(1, round(how.size[0] * scale)), max(1, round(how.size[1] * scale))))


def _make_rgba(shown: NDArray[np.uint8]) -> NDArray[Any]:
    """Return pixels of 1 to 4 samples as red, green, blue and alpha."""
    count = shown.shape[-1]
    opaque = np.full((*shown.shape[:2], 1), 255, np.uint8) if count in (1, 3) else shown[..., -1:]
    return np.concatenate([shown[..., :1].repeat(3, -1) if count < 3 else shown[..., :3], opaque], -1)


PICTURE = GroupFile("plate.png", make_plate_picture, is_plate, wanted="preview", named=False, inside=True)
