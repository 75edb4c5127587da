"""OME-Zarr's metadata, converted to the version that belongs to the Zarr format of the layout: 0.4 in v2, 0.5 in v3.

The two differ in where the metadata of a group are: 0.4 has them among the user's attributes, with a version in each part;
0.5 has them in the attribute `ome`, with one version. All parts and all other attributes are kept. Metadata of another
version stay as they are, and so do all where a part would take the place of an attribute of the user. Pure.

Not here: what the metadata say of axes (`axes.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fsbridge.metadata import JSON

_VERSIONED = ("plate", "well", "image-label")
"""Attributes that contain a version in 0.4, as each entry of `multiscales` does."""

_BESIDE = ("omero", "bioformats2raw.layout")
"""Attributes without a version. They move along with versioned ones, or if `bioformats2raw.layout` is 3."""

_BY_GROUP = {"labels": "labels", "OME": "series"}
"""Attributes (lists without a version) by the name of the group in which OME-Zarr has them."""


def in_zarr2(attributes: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the attributes of a group of a Zarr v3 source, with OME-Zarr 0.5 converted to 0.4."""
    ome = attributes.get("ome")
    if not isinstance(ome, dict) or not _is(ome, "0.5"):
        return dict(attributes)
    parts = {name: _versioned(name, value) for name, value in ome.items() if name != "version"}
    rest = {name: value for name, value in attributes.items() if name != "ome"}
    return dict(attributes) if parts.keys() & rest.keys() else {**rest, **parts}


def in_zarr3(attributes: Mapping[str, JSON], names: Sequence[str]) -> dict[str, JSON]:
    """Return the attributes of the group at the path `names` of a Zarr v2 source, with OME-Zarr 0.4 converted to 0.5."""
    parts: dict[str, JSON] = {}
    scales = attributes.get("multiscales")
    if isinstance(scales, list) and scales and all(isinstance(one, dict) and _is(one, "0.4") for one in scales):
        parts["multiscales"] = [_without_version(one) for one in scales]
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
    return {**rest, "ome": {"version": "0.5", **parts}}


def _is(part: Mapping[str, JSON], version: str) -> bool:
    written = part.get("version")
    return isinstance(written, str) and (written == version or written.startswith((f"{version}.", f"{version}-")))


def _versioned(name: str, value: JSON) -> JSON:
    if name == "multiscales" and isinstance(value, list):
        return [{**one, "version": "0.4"} if isinstance(one, dict) else one for one in value]
    return {**value, "version": "0.4"} if name in _VERSIONED and isinstance(value, dict) else value


def _without_version(part: Mapping[str, JSON]) -> dict[str, JSON]:
    return {name: value for name, value in part.items() if name != "version"}
