"""`PLATE.companion.ome`: the OME-XML that places the files `A/1/0.ome.tif` as the wells and fields of a plate.

Bio-Formats opens it as one plate. It is made from the present wells and fields. Not here: which wells and fields there are
(`plates.py`), the files of fields (`groups/pyramids.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, cast
from uuid import NAMESPACE_OID, uuid5
from xml.etree import ElementTree

from fsbridge.asking import before_waiting
from fsbridge.errors import NotFound, TooLarge, Unsupported
from fsbridge.layouts.directories import PathDirectory
from fsbridge.layouts.files.arrays.extents import Unfit
from fsbridge.layouts.files.filetypes.pyramid import Pyramid
from fsbridge.layouts.files.filetypes.tiff import OME, xml_text
from fsbridge.layouts.files.groups.group_file import GroupFile
from fsbridge.layouts.files.groups.images import open_levels
from fsbridge.layouts.files.groups.pyramids import pyramid_of
from fsbridge.layouts.files.groups.surroundings import OpenGroup
from fsbridge.layouts.files.looks.plates import find_fields, find_plate, is_plate
from fsbridge.layouts.nodes import DocumentFile
from fsbridge.meaning import Plate, Well
from fsbridge.meaning.reading import read_group
from fsbridge.tree import escape

MOST_FIELDS = 4096
"""Most fields of a plate that are opened for its OME-XML."""

_OME = "http://www.openmicroscopy.org/Schemas/OME/2016-06"


def make_companion_file(shown: OpenGroup) -> DocumentFile:
    """Return the OME-XML file of a plate, `companion.ome`; NotFound if the group is no plate."""
    content = _find_companion(shown, find_plate(shown))
    return DocumentFile(partial(_find_companion_now, shown.path), content, shown.group.mtime_ns)


def _find_companion(shown: OpenGroup, plate: Plate) -> bytes:
    before_waiting()
    count, shown_wells = 0, []
    for well, fields in find_fields(shown, plate):
        count += len(fields)
        if count > MOST_FIELDS:
            raise TooLarge(f"the plate has more than {MOST_FIELDS} fields")
        files = []
        for field in fields:
            image = shown.group_at(field.path)
            file = "/".join(escape(part).decode("utf-8", "surrogateescape") for part in field.path) + f".{OME.suffix}"
            if xml_text(file) != file:
                raise Unsupported(f"XML cannot hold the name {file!r}")
            try:
                plan = pyramid_of(open_levels(read_group(image.group.attributes()), image.array_at))
            except (Unfit, IndexError) as error:
                raise NotFound(f"{file}: {error}") from None
            files.append(ImageFile(file, plan, field.acquisition))
        shown_wells.append((well, files))
    return make_companion(plate.name or shown.called, plate, shown_wells)


def _find_companion_now(path: PathDirectory) -> bytes | None:
    shown = path.refresh()
    plate = read_group(shown.group.attributes()).plate if isinstance(shown, OpenGroup) else None
    return None if plate is None else _find_companion(cast(OpenGroup, shown), plate)


class ImageFile(NamedTuple):
    """The OME-TIFF of a field: its path below the plate, its plan, and the number of its acquisition."""

    path: str
    plan: Pyramid
    acquisition: int | None = None


def make_companion(name: str, plate: Plate, fields: Sequence[tuple[Well, Sequence[ImageFile]]]) -> bytes:
    """Return the OME-XML of a plate. `name`: of the plate; `fields`: the image files of each well."""
    if sum(len(images) for _, images in fields) > MOST_FIELDS:
        raise TooLarge(f"the plate has more than {MOST_FIELDS} fields")
    ElementTree.register_namespace("", _OME)
    own = uuid5(NAMESPACE_OID, repr((name, [image.path for _, images in fields for image in images])))
    root = ElementTree.Element(f"{{{_OME}}}OME", UUID=f"urn:uuid:{own}", Creator="fsbridge")
    shown = {"ID": "Plate:0", "Name": xml_text(name), "Rows": str(len(plate.rows)), "Columns": str(len(plate.columns))}
    naming = {f"{side}NamingConvention": _find_convention(names) for side, names in
              (("Row", plate.rows), ("Column", plate.columns))}  # fmt: skip
    shown_plate = ElementTree.SubElement(root, f"{{{_OME}}}Plate", {**shown, **naming})
    number = 0
    runs: dict[int | None, list[str]] = {}
    images: list[ElementTree.Element] = []
    for well, files in fields:
        place = f"{well.row}:{well.column}"
        element = ElementTree.SubElement(
            shown_plate, f"{{{_OME}}}Well", ID=f"Well:0:{place}", Row=str(well.row), Column=str(well.column)
        )
        for field, (path, plan, run) in enumerate(files):
            identity = f"WellSample:0:{place}:{field}"
            runs.setdefault(run, []).append(identity)
            sample = ElementTree.SubElement(element, f"{{{_OME}}}WellSample", ID=identity, Index=str(number))
            ElementTree.SubElement(sample, f"{{{_OME}}}ImageRef", ID=f"Image:{number}")
            images.append(_make_image(path, plan, number))
            number += 1
    for index, acquisition in enumerate(plate.acquisitions):
        said = {} if acquisition.name is None else {"Name": xml_text(acquisition.name)}
        element = ElementTree.SubElement(
            shown_plate, f"{{{_OME}}}PlateAcquisition", {"ID": f"PlateAcquisition:0:{index}", **said}
        )
        for identity in runs.get(acquisition.number, ()):
            ElementTree.SubElement(element, f"{{{_OME}}}WellSampleRef", ID=identity)
    root.extend(images)
    document: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return document


def _make_image(path: str, plan: Pyramid, number: int) -> ElementTree.Element:
    """Return the OME-XML of the first image of the file at `path`, numbered as image `number` of the plate."""
    document = ElementTree.fromstring(plan.description.rstrip(b"\0"))
    image = document.find(f"{{{_OME}}}Image")
    assert image is not None
    for reference in image.findall(f"{{{_OME}}}AnnotationRef"):
        image.remove(reference)
    image.set("Name", path.removesuffix(".ome.tif"))
    for element in image.iter():
        identity = element.get("ID")
        if identity is not None:
            kind, _, rest = identity.partition(":")
            element.set("ID", ":".join((kind, str(number), *rest.split(":")[1:])))
        if element.tag == f"{{{_OME}}}TiffData":
            uuid = ElementTree.SubElement(element, f"{{{_OME}}}UUID", FileName=path)
            uuid.text = document.get("UUID")
    return image


def _find_convention(names: Sequence[str]) -> str:
    return "number" if all(name.isdecimal() for name in names) else "letter"


COMPANION = GroupFile("companion.ome", make_companion_file, is_plate, inside=True)
