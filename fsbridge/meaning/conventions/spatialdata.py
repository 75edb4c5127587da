"""SpatialData's versions of its formats: each belongs to Zarr v2 or v3, so they change with the Zarr format of a layout.

`spatialdata` looks for metadata where a version has them: those of an image in version 0.1 where OME-Zarr 0.4 has them,
which belongs to Zarr v2. Elements are stored alike in both versions of each pair below. Pure. Not here: OME-Zarr's own
versions (`ome_versions.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from fsbridge.metadata import JSON

_OWN = "spatialdata_attrs"

_ROOT = _POINTS = _TABLE = ("0.1", "0.2")
_RASTER = _SHAPES = ("0.2", "0.3")
"""The version in Zarr v2, and the equivalent one in Zarr v3. Zarr v3 has none for older ones."""


def of_zarr(attributes: Mapping[str, JSON], zarr_format: Literal[2, 3]) -> dict[str, JSON]:
    """Return the attributes of a group, with the version of SpatialData that belongs to this Zarr format."""
    copy = dict(attributes)
    own, encoding = copy.get(_OWN), copy.get("encoding-type")
    if copy.get("spatialdata-encoding-type") == "ngff:regions_table":
        copy["version"] = _version(copy.get("version"), _TABLE, zarr_format)
    elif isinstance(own, dict) and "version" in own:
        if encoding == "ngff:points":
            pair = _POINTS
        elif encoding == "ngff:shapes" or "multiscales" in copy or "ome" in copy:
            pair = _RASTER
        else:
            pair = _ROOT
        copy[_OWN] = {**own, "version": _version(own["version"], pair, zarr_format)}
    return copy


def _version(written: JSON, pair: tuple[str, str], zarr_format: Literal[2, 3]) -> JSON:
    before, after = pair if zarr_format == 3 else pair[::-1]
    return after if written == before else written
