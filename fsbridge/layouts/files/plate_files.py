"""The files of a group that is a plate: `plate.png` and `PLATE.companion.ome`, made from its present wells and fields.

Not here: what metadata say of plates (`plates.py`), how the picture is put together (`previews/plates.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from fsbridge.asking import before_waiting
from fsbridge.errors import NotFound, TooLarge
from fsbridge.layouts.files.extents import Unfit
from fsbridge.layouts.files.filetypes.tiff import OME
from fsbridge.layouts.files.groups import OpenGroup
from fsbridge.layouts.files.levels import images, listed
from fsbridge.layouts.files.nodes import ArrayFile
from fsbridge.layouts.files.plates import COMPANION, MOST_FIELDS, PICTURE, Plate, Well, companion, fields_of, plate_of
from fsbridge.layouts.files.previews.plates import PlatePicture
from fsbridge.layouts.files.previews.pyramids import SUFFIX
from fsbridge.layouts.files.pyramids import pyramid_of
from fsbridge.layouts.nodes import DocumentFile
from fsbridge.tree import AnyNode, escape


def plate_file(shown: OpenGroup, name: str, store: str) -> AnyNode | None:
    """Return the plate's file `name`; None if there is no such file. `store`: what the root's files are called."""
    names = shown.path.member.names
    called = names[-1] if names else store
    if name not in (PICTURE, f"{called}.{COMPANION}"):
        return None
    plate = plate_of(shown.group.attributes())
    if plate is None:
        return None
    if name == PICTURE:
        return _picture(shown, plate)
    return DocumentFile(lambda: _companion_now(shown, called), _companion(shown, plate, called), shown.group.mtime_ns)


def _fields(shown: OpenGroup, plate: Plate) -> Iterator[tuple[Well, list[tuple[str, ...]]]]:
    """Yield each well and the paths of its images below the plate; no paths if the group of the well is missing."""
    with shown.path.member.context.together():
        for well in plate.wells:
            try:
                found = fields_of(shown.at(well.path).group.attributes())
            except NotFound:
                found = []
            yield well, [(*well.path, *path) for path in found]


def _picture(shown: OpenGroup, plate: Plate) -> PlatePicture:
    before_waiting()
    wells: dict[Well, ArrayFile] = {}
    for well, paths in _fields(shown, plate):
        for path in paths[:1]:
            field = shown.at(path)
            levels = listed(field.group.attributes())
            if not levels:
                raise NotFound(f"{'/'.join(path)} is no image")
            coarsest = field.below(levels[0][-1])
            wells[well] = ArrayFile(coarsest, SUFFIX, None, coarsest.name)
    return PlatePicture(plate, wells, lambda: _picture_now(shown))


def _picture_now(shown: OpenGroup) -> PlatePicture:
    now = shown.path.present()
    plate = plate_of(now.group.attributes()) if isinstance(now, OpenGroup) else None
    if plate is None:
        raise NotFound(f"{shown.path.member} is no plate any more")
    return _picture(cast(OpenGroup, now), plate)


def _companion(shown: OpenGroup, plate: Plate, name: str) -> bytes:
    before_waiting()
    count, told = 0, []
    for well, paths in _fields(shown, plate):
        count += len(paths)
        if count > MOST_FIELDS:
            raise TooLarge(f"a plate of more than {MOST_FIELDS} fields")
        files = []
        for path in paths:
            field = shown.at(path)
            file = "/".join(escape(part).decode("utf-8", "surrogateescape") for part in path) + f".{OME.suffix}"
            try:
                files.append((file, pyramid_of(images(field.group.attributes(), field.below))))
            except (Unfit, IndexError) as error:
                raise NotFound(f"{file}: {error}") from None
        told.append((well, files))
    return companion(plate.name or name, plate, told)


def _companion_now(shown: OpenGroup, called: str) -> bytes | None:
    now = shown.path.present()
    plate = plate_of(now.group.attributes()) if isinstance(now, OpenGroup) else None
    return None if plate is None else _companion(cast(OpenGroup, now), plate, called)
