"""Plates of wells (OME-NGFF HCS, 0.4 and 0.5): their metadata, and the OME-XML that joins the images to one plate.

`PLATE.companion.ome` places the files `A/1/0.ome.tif` as wells and fields; Bio-Formats opens it as one plate. Not here: the
picture of a plate (`previews/plates.py`), the files of its fields (`pyramids.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import NAMESPACE_OID, uuid5
from xml.etree import ElementTree

from fsbridge.errors import TooLarge
from fsbridge.layouts.files.filetypes.pyramid import Pyramid
from fsbridge.layouts.units import text
from fsbridge.metadata import JSON

COMPANION = "companion.ome"
PICTURE = "plate.png"

MOST_SIDE = 64
"""Most rows, and most columns, of a plate. A plate of 1,536 wells has 32 by 48."""
MOST_FIELDS = 4096
"""Most fields of a plate that are opened for its OME-XML."""

_OME = "http://www.openmicroscopy.org/Schemas/OME/2016-06"


@dataclass(frozen=True, slots=True)
class Well:
    """A well of a plate. `path`: names of the groups that lead to it from the plate."""

    path: tuple[str, ...]
    row: int
    column: int


@dataclass(frozen=True, slots=True)
class Plate:
    """A plate of wells. `rows`, `columns`: their names."""

    name: str | None
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    wells: tuple[Well, ...]


def plate_of(attributes: Mapping[str, JSON]) -> Plate | None:
    """Return the plate that a group is; None if it is no plate, or if its metadata make no sense."""
    told = _part(attributes, "plate")
    if told is None:
        return None
    rows, columns = (_names(told.get(side)) for side in ("rows", "columns"))
    listed = told.get("wells")
    if not rows or not columns or not isinstance(listed, list):
        return None
    wells = []
    for one in listed:
        path = _path(one.get("path")) if isinstance(one, dict) else None
        if path is None or not isinstance(one, dict):
            return None
        row, column = one.get("rowIndex"), one.get("columnIndex")
        if row is None and column is None and len(path) == 2 and path[0] in rows and path[1] in columns:  # before 0.4
            row, column = rows.index(path[0]), columns.index(path[1])
        if not (_is_index(row, len(rows)) and _is_index(column, len(columns))):
            return None
        assert isinstance(row, int)
        assert isinstance(column, int)
        wells.append(Well(path, row, column))
    places = [(well.row, well.column) for well in wells]
    return Plate(text(told.get("name")), rows, columns, tuple(wells)) if len(places) == len({*places}) else None


def fields_of(attributes: Mapping[str, JSON]) -> list[tuple[str, ...]]:
    """Return the paths of the images of a well, from its group."""
    told = _part(attributes, "well") or {}
    listed = told.get("images")
    found = [_path(one.get("path")) for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return [path for path in found if path is not None]


def companion(name: str, plate: Plate, fields: Sequence[tuple[Well, Sequence[tuple[str, Pyramid]]]]) -> bytes:
    """Return the OME-XML. `name`: of the plate; `fields`: for each well, the path and the plan of each field's file."""
    if sum(len(images) for _, images in fields) > MOST_FIELDS:
        raise TooLarge(f"a plate of more than {MOST_FIELDS} fields")
    ElementTree.register_namespace("", _OME)
    own = uuid5(NAMESPACE_OID, repr((name, [path for _, images in fields for path, _ in images])))
    root = ElementTree.Element(f"{{{_OME}}}OME", UUID=f"urn:uuid:{own}", Creator="fsbridge")
    shown = {"ID": "Plate:0", "Name": name, "Rows": str(len(plate.rows)), "Columns": str(len(plate.columns))}
    naming = {f"{side}NamingConvention": _convention(names) for side, names in
              (("Row", plate.rows), ("Column", plate.columns))}  # fmt: skip
    told = ElementTree.SubElement(root, f"{{{_OME}}}Plate", {**shown, **naming})
    number = 0
    images: list[ElementTree.Element] = []
    for well, files in fields:
        place = f"{well.row}:{well.column}"
        element = ElementTree.SubElement(
            told, f"{{{_OME}}}Well", ID=f"Well:0:{place}", Row=str(well.row), Column=str(well.column)
        )
        for field, (path, plan) in enumerate(files):
            sample = ElementTree.SubElement(
                element, f"{{{_OME}}}WellSample", ID=f"WellSample:0:{place}:{field}", Index=str(number)
            )
            ElementTree.SubElement(sample, f"{{{_OME}}}ImageRef", ID=f"Image:{number}")
            images.append(_image(path, plan, number))
            number += 1
    root.extend(images)
    document: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return document


def _image(path: str, plan: Pyramid, number: int) -> ElementTree.Element:
    """Return the OME-XML of a file's first image, renumbered as image `number` of the plate."""
    found = ElementTree.fromstring(plan.description.rstrip(b"\0"))
    image = found.find(f"{{{_OME}}}Image")
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
            uuid.text = found.get("UUID")
    return image


def _convention(names: Sequence[str]) -> str:
    return "number" if all(name.isdecimal() for name in names) else "letter"


def _part(attributes: Mapping[str, JSON], name: str) -> dict[str, Any] | None:
    ome = attributes.get("ome")
    found = (ome if isinstance(ome, dict) else attributes).get(name)
    return found if isinstance(found, dict) else None


def _names(told: JSON) -> tuple[str, ...]:
    """Return the names of rows or columns; empty if one has no name, or if there are too many."""
    found = [text(one.get("name")) if isinstance(one, dict) else None for one in told] if isinstance(told, list) else []
    named = tuple(name for name in found if name is not None)
    return named if len(named) == len(found) <= MOST_SIDE else ()


def _path(told: JSON) -> tuple[str, ...] | None:
    """Split a relative path; None if it is empty or contains `.` or `..`."""
    parts = tuple((text(told) or "").strip("/").split("/"))
    return None if any(part in ("", ".", "..") for part in parts) else parts


def _is_index(value: JSON, count: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < count
