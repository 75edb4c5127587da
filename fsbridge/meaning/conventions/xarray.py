"""xarray: names of dimensions in Zarr v2, and how it and Zarr say which elements are missing; for the layouts, too.

`_FillValue` stands for missing elements. In Zarr v3, xarray wants an integer as it is and a real number as the base64 of a
double; it refuses the whole group if it finds anything else. In Zarr v2, xarray, netCDF-C and GDAL use the array's
`fill_value`. netCDF and HDF5 have a number, mostly in a list of one.

Not here: what fills chunks that are not stored (`layouts/json_text.py`).
"""

from __future__ import annotations

import base64
import math
import struct
from dataclasses import replace

import numpy as np

from fsbridge.meaning import Attributes, Meaning
from fsbridge.meaning.attributes import WORDS, number, single
from fsbridge.meaning.convention import Convention, Written
from fsbridge.meaning.conventions.cf import FILL_VALUE, MISSING_VALUE, PACKED
from fsbridge.meaning.conventions.netcdf import without_notes
from fsbridge.meaning.conventions.types import SEQUENCES, is_plain_bytes
from fsbridge.metadata import JSON, ArrayMetadata

DIMENSIONS = "_ARRAY_DIMENSIONS"
"""The names of dimensions in Zarr v2; netCDF-C and GDAL read them, too."""

TYPE = "dtype"
"""The type of which elements are that a netCDF file has as another one: truth values."""


_TRUTH = {0: "FALSE", 1: "TRUE"}
"""What xarray means by the numbers of an array that it marks as boolean: netCDF has no such type."""


def dimension_names(attributes: Attributes, rank: int) -> tuple[str | None, ...] | None:
    """Return the names of dimensions that an attribute gives. The attribute itself stays."""
    names = attributes.get(DIMENSIONS)
    if isinstance(names, list) and len(names) == rank and rank and all(isinstance(name, str) for name in names):
        return tuple(names)
    return None


def _array(written: Written, known: Meaning) -> Meaning:
    if is_truth(written.metadata):
        known = replace(known, values=replace(known.values, names={(): _TRUTH, **known.values.names}))
    missing = missing_value(written.metadata)
    if missing is None or (not missing and FILL_VALUE not in written.attributes):
        return known  # writers of Zarr v2 put a fill value of 0 there without meaning anything, and zeros would be missing
    return replace(known, values=replace(known.values, missing=(*known.values.missing, missing)))


def missing_value(metadata: ArrayMetadata) -> int | float | None:
    """Return the number that xarray takes for missing elements; None if there is none, or elements are not real numbers."""
    dtype = metadata.dtype.numpy
    if dtype is None or dtype.kind not in "iuf":
        return None
    if ".zarray" in metadata.native and metadata.dimension_names is not None and isinstance(metadata.fill, bytes):
        value = np.frombuffer(metadata.fill, dtype)[0]  # xarray opens only arrays with dimension names
        if value == value:  # NaN counts as missing without a marker
            return float(value) if dtype.kind == "f" else int(value)
    return _number(metadata.attributes.get(FILL_VALUE), dtype.kind == "f")


def fills_with_nan(metadata: ArrayMetadata) -> bool:
    """True if xarray takes NaN for missing elements only because Zarr v2 fills chunks with it."""
    dtype, fill = metadata.dtype.numpy, metadata.fill
    if dtype is None or dtype.kind != "f" or not isinstance(fill, bytes) or ".zarray" not in metadata.native:
        return False
    return metadata.dimension_names is not None and bool(np.isnan(np.frombuffer(fill, dtype)[0]))


def _number(written: JSON, real: bool) -> int | float | None:
    """Return the number of a `_FillValue`, also from Zarr v3's base64."""
    plain = number(written, real)
    return _from_zarr3(single(written)) if plain is None and real else plain


def zarr2_attributes(metadata: ArrayMetadata) -> dict[str, JSON]:
    """Return the source's attributes, with numbers where xarray wants numbers."""
    # netCDF has lists of one number, from which xarray makes arrays of objects.
    shown = {name: single(value) if name in PACKED else value for name, value in metadata.shown_attributes().items()}
    if isinstance(shown.get(FILL_VALUE), str) and (missing := missing_value(metadata)) is not None:
        shown[FILL_VALUE] = missing  # the text may be Zarr v3's base64 of a double
    return shown


def zarr3_attributes(metadata: ArrayMetadata) -> dict[str, JSON]:
    """Return the attributes for Zarr v3, with the marker of missing elements.

    If the source is Zarr v3, they are its own, but a marker that is a plain number is spelled as xarray reads it.
    """
    missing = missing_value(metadata)
    if _is_zarr3(metadata):
        own = metadata.attributes
        spelled = own.get(FILL_VALUE)
        if missing is None or (isinstance(spelled, str) and spelled not in WORDS):
            return dict(own)
        return {**own, FILL_VALUE: _in_zarr3(missing)}
    return zarr2_attributes(metadata) | ({} if missing is None else {FILL_VALUE: _in_zarr3(missing)})


def legible(metadata: ArrayMetadata) -> dict[str, JSON]:
    """Return the attributes for people. A number that is written in base64 becomes a number, or the name of one."""
    shown = without_notes(metadata.shown_attributes())
    missing = missing_value(metadata) if isinstance(shown.get(FILL_VALUE), str) else None
    return shown if missing is None else {**shown, FILL_VALUE: _spell_number(missing)}


def comparable(metadata: ArrayMetadata, other: ArrayMetadata) -> dict[str, JSON]:
    """Return the attributes for comparing with `other`, of any format. What a format says elsewhere is no attribute.

    NaN counts as missing without a marker, so a marker that is NaN says nothing. A fill value of 0 in Zarr v2 may stand for
    missing elements or for nothing, so it is a marker only if the other array has one.
    """
    shown, names = legible(metadata), list(names_of(metadata) or ())
    if shown.get(DIMENSIONS) in (names, names[::-1]):
        del shown[DIMENSIONS]
    if is_truth(metadata):
        del shown[TYPE]
    if is_plain_bytes(metadata):
        del shown[SEQUENCES]
    missing = missing_value(metadata)
    if missing is not None and missing != missing:
        del shown[FILL_VALUE]
        return shown
    says_nothing = not missing and FILL_VALUE not in shown and missing_value(other) is None
    return shown if missing is None or says_nothing else {**shown, FILL_VALUE: _spell_number(missing)}


def names_of(metadata: ArrayMetadata) -> tuple[str | None, ...] | None:
    """Return the names of dimensions; for Zarr v3 also those that only an attribute gives."""
    names = metadata.dimension_names
    return dimension_names(metadata.attributes, len(metadata.shape)) if names is None and _is_zarr3(metadata) else names


def is_truth(metadata: ArrayMetadata) -> bool:
    """True if the numbers 0 and 1 stand for false and true."""
    dtype = metadata.dtype.numpy
    return single(metadata.attributes.get(TYPE)) == "bool" and dtype is not None and dtype.kind in "iu"


def _is_zarr3(metadata: ArrayMetadata) -> bool:
    return "zarr.json" in metadata.native


def _spell_number(value: float) -> JSON:
    return value if math.isfinite(value) else next(word for word, number in WORDS.items() if repr(number) == repr(value))


def zarr2_fill(metadata: ArrayMetadata) -> bytes | None:
    """Return the element that `.zarray` gives as `fill_value`; None for null.

    zarr-python fills absent chunks with it, but xarray, GDAL and netCDF-C also take it for "missing". So it is the source's
    marker of missing elements, if there is one. An array without a marker but with dimension names, which xarray opens, gets
    null, because its zeros would count as missing otherwise. If it differs from what fills the source's own absent chunks,
    the layout shows those as files (`layouts/chunk_variants.py`). A source that is Zarr v2 itself keeps its own.
    """
    own = metadata.fill if isinstance(metadata.fill, bytes) else bytes(metadata.dtype.itemsize)
    dtype = metadata.dtype.numpy
    if ".zarray" in metadata.native or dtype is None or dtype.kind not in "biufcSU" or metadata.dtype.serializer != "bytes":
        return own
    filled = np.frombuffer(own, dtype)[0]
    marker = missing_value(metadata)
    if marker is None and dtype.kind in "iuf":  # CF's older attribute, which GDAL does not look for in Zarr
        listed = metadata.attributes.get(MISSING_VALUE)
        marker = number(listed[0] if isinstance(listed, list) and listed else listed, dtype.kind == "f")
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
    """True if xarray opens the array when it is shown as Zarr v2, and no attribute says which elements are missing."""
    names = metadata.dimension_names if metadata.shape else ()
    return names is not None and None not in names and FILL_VALUE not in metadata.attributes


def _in_zarr3(missing: int | float) -> JSON:
    return missing if isinstance(missing, int) else base64.b64encode(struct.pack("<d", missing)).decode("ascii")


def _from_zarr3(text: JSON) -> float | None:
    try:
        return float(struct.unpack("<d", base64.b64decode(text, validate=True))[0]) if isinstance(text, str) else None
    except (ValueError, struct.error):
        return None


XARRAY = Convention("xarray", _array)
