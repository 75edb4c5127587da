"""hdmf (NWB): what its files in HDF5 and in Zarr write differently although it is the same. Pure.

Not here: links and references as members and elements (`formats/hdmf`), what elements mean (`nwb.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from fsbridge.meaning import Attributes
from fsbridge.meaning.attributes import dicts, place
from fsbridge.metadata import JSON, ArrayMetadata

LINKS = ("zarr_link", "_LINKS")
"""The attributes that hold a group's links in Zarr v2 and in v3."""

SPECIFICATIONS = ".specloc"
"""The attribute of the root of a file: where its specifications are. A reference in HDF5, text in Zarr."""

_OLD_TYPE, _TYPE, _JSON = "zarr_dtype", "_DTYPE", "_JSON"
"""What the elements were in hdmf's own terms: in Zarr v2, in v3 and for references of HDF5, and for compounds of HDF5."""

_FIELDS = "_REFERENCE_FIELDS"

NOTES = (_JSON,)
"""Attributes that only compounds with references of HDF5 have."""


def comparable(attributes: Attributes) -> dict[str, JSON]:
    """Return attributes for comparing: without names of types and links inside the file, references in one spelling."""
    shown = {name: _reference(value) for name, value in attributes.items() if name not in (_OLD_TYPE, _TYPE, _FIELDS)}
    for name in LINKS:
        if isinstance(entries := shown.pop(name, None), list):
            outside = [
                entry for entry in entries if not isinstance(entry, dict) or entry.get("source", ".") not in (".", "")
            ]
            shown |= {LINKS[0]: outside} if outside else {}
    target = place(attributes.get(SPECIFICATIONS))
    if target is not None:  # the attribute is at the root, so a relative path is an absolute one
        shown[SPECIFICATIONS] = "/".join(("", *target[1]))
    if is_reference(attributes):
        shown[_TYPE] = "reference"
    return shown


def is_typed(attributes: Attributes) -> bool:
    """True if an array notes its type as hdmf-zarr does. Its dimensions' names are then roles, which HDF5 lacks."""
    return _OLD_TYPE in attributes or _TYPE in attributes


def is_reference(attributes: Attributes) -> bool:
    """True if the elements of an array are references to objects."""
    return attributes.get(_TYPE) == "object_reference" or attributes.get(_OLD_TYPE) == "object"


def reference_fields(attributes: Attributes) -> frozenset[str]:
    """Return the fields of a Zarr array of structs that are references: texts that are paths of objects."""
    listed = attributes.get(_FIELDS)
    names = listed if isinstance(listed, list) else []
    old = [field.get("name") for field in dicts(attributes, _OLD_TYPE) if field.get("dtype") == "object"]
    return frozenset(name for name in (*names, *old) if isinstance(name, str))


def is_compound(attributes: Attributes) -> bool:
    """True if the elements of an array of HDF5 are compounds that are shown as JSON, because they contain references."""
    return _JSON in attributes


def shape(metadata: ArrayMetadata) -> tuple[int, ...]:
    """Return the shape. hdmf writes a scalar in Zarr v2 as an array of one element."""
    is_scalar = metadata.shape == (1,) and metadata.attributes.get(_OLD_TYPE) == "scalar"
    return () if is_scalar else metadata.shape


def is_text(metadata: ArrayMetadata) -> bool:
    """True if bytes of variable length are text: hdmf writes ASCII so in Zarr v2."""
    return metadata.dtype.serializer == "vlen-bytes" and metadata.attributes.get(_OLD_TYPE) in ("bytes", "scalar")


def reference(path: str) -> JSON:
    """Return a reference to the object at `path` as HDF5's attributes and compounds have it in JSON.

    None for an empty path.
    """
    return {"_REFERENCE": {"source": ".", "path": path}} if path else None


def _reference(value: JSON) -> JSON:
    """Return the value of an attribute. A reference in the form of Zarr v2 gets the form of HDF5 and Zarr v3."""
    if not isinstance(value, Mapping) or value.get(_OLD_TYPE) != "object":
        return value
    target = value.get("value")
    if isinstance(target, list):
        return [_reference({**value, "value": one}) for one in target]
    if not isinstance(target, Mapping) or not isinstance(target.get("path"), str):
        return value
    return {"_REFERENCE": {"source": target.get("source", "."), "path": target["path"]}}
