"""OME-Zarr's metadata in the version that belongs to the Zarr format of a layout: 0.4 in v2, 0.5 in v3. Pure.

In 0.4 they are among the user's attributes, with a version in each part; in 0.5 they are in the attribute `ome`, with one
version. All parts and all other attributes are kept. Metadata of another version stay as they are, and so do all where a
part would take the place of an attribute of the user. Not here: what they mean (`ome.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fsbridge.meaning import Attributes
from fsbridge.meaning.conventions import spatialdata
from fsbridge.meaning.conventions.ome import axis_names
from fsbridge.metadata import JSON, ArrayMetadata

_VERSIONED = ("plate", "well", "image-label")
"""Attributes that contain a version in 0.4, as each entry of `multiscales` does."""

_BESIDE = ("omero", "bioformats2raw.layout")
"""Attributes without a version. They move along with versioned ones, or if `bioformats2raw.layout` is 3."""

_BY_GROUP = {"labels": "labels", "OME": "series"}
"""Attributes (lists without a version) by the name of the group in which OME-Zarr has them."""


def in_zarr2(attributes: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the attributes of a group of a Zarr v3 source, with OME-Zarr 0.5 converted to 0.4."""
    attributes = spatialdata.of_zarr(attributes, 2)
    ome = attributes.get("ome")
    if not isinstance(ome, dict) or not _is(ome, "0.5"):
        return dict(attributes)
    version = f"0.4{_suffix(ome)}"
    parts = {name: _set_version(name, value, version) for name, value in ome.items() if name != "version"}
    rest = {name: value for name, value in attributes.items() if name != "ome"}
    return dict(attributes) if parts.keys() & rest.keys() else {**rest, **parts}


def in_zarr3(attributes: Mapping[str, JSON], names: Sequence[str]) -> dict[str, JSON]:
    """Return the attributes of the group at the path `names` of a Zarr v2 source, with OME-Zarr 0.4 converted to 0.5."""
    attributes = spatialdata.of_zarr(attributes, 3)
    parts: dict[str, JSON] = {}
    version = "0.5"
    scales = attributes.get("multiscales")
    if isinstance(scales, list) and scales and all(isinstance(one, dict) and _is(one, "0.4") for one in scales):
        parts["multiscales"] = [_without_version(one) for one in scales]
        version += _suffix(scales[0])
    for name in _VERSIONED:
        part = attributes.get(name)
        if isinstance(part, dict) and _is(part, "0.4"):
            parts[name] = _without_version(part)
    listed = _BY_GROUP.get(names[-1]) if names else None
    if listed is not None and isinstance(attributes.get(listed), list):
        parts[listed] = attributes[listed]
    if parts or attributes.get("bioformats2raw.layout") == 3:
        parts |= {name: attributes[name] for name in _BESIDE if name in attributes}
    if not parts or "ome" in attributes:
        return dict(attributes)
    rest = {name: value for name, value in attributes.items() if name not in parts}
    return {**rest, "ome": {"version": version, **parts}}


def ome_names(metadata: ArrayMetadata, groups: Sequence[Attributes], names: Sequence[str]) -> tuple[str, ...] | None:
    """Return the `dimension_names` that OME-Zarr 0.5 demands of an array, if it is a level of an image converted from 0.4.

    `groups`, `names`: see `Written`. None if no such image lists the array, or if the image does not name all axes.
    """
    converted = [in_zarr3(attributes, names[:-above]) for above, attributes in enumerate(groups, 1)]
    images = [{} if new == old else new for new, old in zip(converted, groups, strict=True)]
    return axis_names(images, names, len(metadata.shape))


def _is(part: Mapping[str, JSON], version: str) -> bool:
    written = part.get("version")
    return isinstance(written, str) and (written == version or written.startswith((f"{version}.", f"{version}-")))


def _suffix(part: Mapping[str, JSON]) -> str:
    """Return the part of the version after its numbers, as in `0.5-dev-spatialdata`."""
    _, dash, rest = str(part["version"]).partition("-")
    return dash + rest


def _set_version(name: str, value: JSON, version: str) -> JSON:
    if name == "multiscales" and isinstance(value, list):
        return [{**one, "version": version} if isinstance(one, dict) else one for one in value]
    return {**value, "version": version} if name in _VERSIONED and isinstance(value, dict) else value


def _without_version(part: Mapping[str, JSON]) -> dict[str, JSON]:
    return {name: value for name, value in part.items() if name != "version"}
