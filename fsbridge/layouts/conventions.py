"""What conventions say in attributes: missing and packed elements (netCDF, xarray), and OME-Zarr's versions. Pure.

`_FillValue` stands for missing elements. In Zarr v3, xarray wants an integer as it is and a real number as the base64 of a
double; it refuses the whole group if it finds anything else. In Zarr v2, xarray, netCDF-C and GDAL use the array's
`fill_value`. netCDF and HDF5 have a number, mostly in a list of one.

OME-Zarr's metadata are converted to the version that belongs to the Zarr format of the layout: 0.4 in v2, 0.5 in v3. In 0.4
they are among the user's attributes, with a version in each part; in 0.5 they are in the attribute `ome`, with one version.
All parts and all other attributes are kept. Metadata of another version stay as they are, and so do all where a part would
take the place of an attribute of the user.

Not here: what fills chunks that are not stored (`json_text.py`), what attributes say of axes (`axes.py`).
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Mapping, Sequence

import numpy as np

from fsbridge.layouts import spatialdata
from fsbridge.layouts.json_text import in_base64
from fsbridge.layouts.units import text
from fsbridge.metadata import JSON, ArrayMetadata

FILL_VALUE = "_FillValue"
MAX_ID = "maxId"

_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""Numbers that JSON cannot write, by the text that stands for them in attributes."""

_PACKED = ("scale_factor", "add_offset")
"""Attributes that are shown as plain numbers. netCDF has lists of one number, from which xarray makes arrays of objects."""


def zarr2_attributes(metadata: ArrayMetadata) -> dict[str, JSON]:
    """The source's attributes, with numbers where xarray wants numbers."""
    found = {name: _single(value) if name in _PACKED else value for name, value in metadata.shown_attributes().items()}
    if isinstance(found.get(FILL_VALUE), str) and (missing := missing_value(metadata)) is not None:
        found[FILL_VALUE] = missing  # the text may be Zarr v3's base64 of a double
    return found


def zarr3_attributes(metadata: ArrayMetadata) -> dict[str, JSON]:
    """Return the attributes for Zarr v3, with the marker of missing elements; a source that is Zarr v3 has its own."""
    if "zarr.json" in metadata.native:
        return dict(metadata.attributes)
    missing = missing_value(metadata)
    return zarr2_attributes(metadata) | ({} if missing is None else {FILL_VALUE: _in_zarr3(missing)})


def missing_value(metadata: ArrayMetadata) -> int | float | None:
    """The number that stands for missing elements; None if the source has none, or its elements are not real numbers."""
    dtype = metadata.dtype.numpy
    if dtype is None or dtype.kind not in "iuf":
        return None
    if ".zarray" in metadata.native and metadata.dimension_names is not None and isinstance(metadata.fill, bytes):
        value = np.frombuffer(metadata.fill, dtype)[0]  # xarray opens only arrays with dimension names
        if value == value:  # NaN counts as missing without a marker
            return float(value) if dtype.kind == "f" else int(value)
    return _number(metadata.attributes.get(FILL_VALUE), dtype.kind == "f")


def missing_values(metadata: ArrayMetadata) -> list[int | float]:
    """All numbers that stand for missing elements: `_FillValue` or Zarr v2's fill value, and CF's older `missing_value`.

    Attributes may list several. A fill value of 0 does not count by itself, because writers of Zarr v2 put it there without
    meaning anything, and the zeros would be missing.
    """
    dtype, attributes = metadata.dtype.numpy, metadata.attributes
    if dtype is None or dtype.kind not in "iuf":
        return []
    found = [missing_value(metadata) or None]
    for name in (FILL_VALUE, "missing_value"):
        written = attributes.get(name)
        found += [_number(each, dtype.kind == "f") for each in (written if isinstance(written, list) else [written])]
    least, most = (
        (np.finfo(dtype).min, np.finfo(dtype).max) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    )
    return list(dict.fromkeys(n for n in found if n is not None and (not math.isfinite(n) or least <= n <= most)))


def zarr2_fill(metadata: ArrayMetadata) -> bytes | None:
    """Return the element that `.zarray` gives as `fill_value`; None for null.

    zarr-python fills absent chunks with it, but xarray, GDAL and netCDF-C also take it for "missing". So it is the source's
    marker of missing elements, if there is one. An array without a marker but with dimension names, which xarray opens, gets
    null: else its zeros would be missing. Where this is not what fills the source's own absent chunks, the layout shows
    those as files (`chunk_variants.py`). A source that is Zarr v2 itself keeps what it says.
    """
    own = metadata.fill if isinstance(metadata.fill, bytes) else bytes(metadata.dtype.itemsize)
    dtype = metadata.dtype.numpy
    if ".zarray" in metadata.native or dtype is None or dtype.kind not in "biufcSU" or metadata.dtype.serializer != "bytes":
        return own
    filled = np.frombuffer(own, dtype)[0]
    marker = missing_value(metadata)
    if marker is None:
        return None if _nothing_missing(metadata) and filled == filled else own  # NaN counts as missing without a marker
    try:
        shown = np.array(marker, dtype)
    except OverflowError:
        return own
    return own if shown == filled or (marker != marker and filled != filled) else shown.tobytes()


def zarr2_text(metadata: ArrayMetadata) -> bool:
    """True if elements are variable-length text and no element is missing: xarray would show empty text as missing.

    Such an array's `fill_value` is null, and an absent chunk then has empty texts for every reader.
    """
    return (
        metadata.dtype.serializer == "vlen-utf8"
        and ".zarray" not in metadata.native
        and not metadata.fill
        and _nothing_missing(metadata)
    )


def _nothing_missing(metadata: ArrayMetadata) -> bool:
    """True if xarray opens the array in Zarr v2, and no attribute defines missing elements."""
    names = metadata.dimension_names if metadata.shape else ()
    return names is not None and None not in names and FILL_VALUE not in metadata.attributes


def greatest(metadata: ArrayMetadata, groups: Sequence[Mapping[str, JSON]] = ()) -> int | None:
    """Return a number that no element exceeds, if elements are whole and not negative and an attribute tells it; else None.

    The attributes are `maxId` of labels (Paintera; of the array or of a group above, the nearest of `groups` first), and
    CF's `actual_range`, which holds for the stored numbers only if nothing is packed and no number means "missing".
    """
    dtype, attributes = metadata.dtype.numpy, metadata.attributes
    if dtype is None or dtype.kind not in "iu":
        return None
    written = attributes.get("actual_range")
    ends = [_number(end, False) for end in written] if isinstance(written, list) and len(written) == 2 else []
    if len(ends) == 2 and isinstance(ends[0], int) and isinstance(ends[1], int) and 0 <= ends[0] <= ends[1]:
        return None if packing(metadata) is not None or missing_value(metadata) is not None else ends[1]
    named = (_number(holder.get(MAX_ID), False) for holder in (attributes, *groups))
    found = next((one for one in named if isinstance(one, int) and one >= 0), None)
    return found if dtype.kind == "u" else None


def packing(metadata: ArrayMetadata) -> tuple[float, float] | None:
    """Factor and offset that turn stored numbers into the quantity: `stored * factor + offset`. None if nothing is packed.

    They are `scale_factor` and `add_offset` of CF, or `conversion` and `offset` of NWB's `data`, which has a `unit`.
    """
    dtype, attributes = metadata.dtype.numpy, metadata.attributes
    if dtype is None or dtype.kind not in "iuf":
        return None
    nwb = "conversion" in attributes and "unit" in attributes
    names = ("conversion", "offset") if nwb and "scale_factor" not in attributes else _PACKED
    factor, offset = (
        _finite(_single(attributes.get(name, default))) for name, default in zip(names, (1.0, 0.0), strict=True)
    )
    return None if factor is None or offset is None or not factor or (factor, offset) == (1.0, 0.0) else (factor, offset)


def element_unit(metadata: ArrayMetadata) -> str | None:
    """The unit of the elements: `units` of CF, `unit` of NWB."""
    found = text(_single(metadata.attributes.get("units"))) or text(_single(metadata.attributes.get("unit")))
    return found if found is not None and found.isprintable() else None


def _finite(value: JSON) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _number(written: JSON, real: bool) -> int | float | None:
    """Return the number that an attribute contains; None if it contains no number of the wanted kind."""
    value = _single(written)
    if real and isinstance(value, str):
        value = _WORDS.get(value, _from_zarr3(value))
    if isinstance(value, bool) or not isinstance(value, int | float) or (not real and value != value // 1):
        return None
    try:
        return float(value) if real else _element(int(value))
    except OverflowError:
        return None


def _element(value: int) -> int | None:
    """Return a whole number if an element of some type can hold it. JSON may have hundreds of digits."""
    return value if -(2**63) <= value < 2**64 else None


def _single(value: JSON) -> JSON:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _in_zarr3(missing: int | float) -> JSON:
    return missing if isinstance(missing, int) else in_base64(struct.pack("<d", missing))


def _from_zarr3(text: str) -> float | None:
    try:
        return float(struct.unpack("<d", base64.b64decode(text, validate=True))[0])
    except (ValueError, struct.error):
        return None


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
    parts = {name: _versioned(name, value, version) for name, value in ome.items() if name != "version"}
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


def _is(part: Mapping[str, JSON], version: str) -> bool:
    written = part.get("version")
    return isinstance(written, str) and (written == version or written.startswith((f"{version}.", f"{version}-")))


def _suffix(part: Mapping[str, JSON]) -> str:
    """Return what follows the version, as in `0.5-dev-spatialdata`."""
    _, dash, rest = str(part["version"]).partition("-")
    return dash + rest


def _versioned(name: str, value: JSON, version: str) -> JSON:
    if name == "multiscales" and isinstance(value, list):
        return [{**one, "version": version} if isinstance(one, dict) else one for one in value]
    return {**value, "version": version} if name in _VERSIONED and isinstance(value, dict) else value


def _without_version(part: Mapping[str, JSON]) -> dict[str, JSON]:
    return {name: value for name, value in part.items() if name != "version"}
