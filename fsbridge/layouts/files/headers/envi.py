"""ENVI: elements in a file of their own, described by a text file beside it. GDAL, QGIS, ArcGIS, spectral tools."""

from __future__ import annotations

from fsbridge.layouts.files.extents import FileMap, View, plain, ranked, whole_file
from fsbridge.layouts.files.headers.geometry import number, offset, spacing

_TYPES = {"u1": 1, "i2": 2, "i4": 3, "f4": 4, "f8": 5, "c8": 6, "c16": 9, "u2": 12, "u4": 13, "i8": 14, "u8": 15}


def envi(view: View) -> FileMap:
    """The elements, band by band."""
    dtype = plain(view, *_TYPES)
    ranked(view, 1, 3)
    return whole_file(view, b"", view.picture, dtype)


def envi_header(view: View) -> FileMap:
    """`NAME.envi.hdr`."""
    envi(view)
    dtype = plain(view, *_TYPES)
    bands, lines, samples = (1,) * (3 - len(view.shape)) + view.picture_shape
    text = [
        "ENVI",
        f"samples = {samples}",
        f"lines = {lines}",
        f"bands = {bands}",
        "header offset = 0",
        "file type = ENVI Standard",
        f"data type = {_TYPES[f'{dtype.kind}{dtype.itemsize}']}",
        "interleave = bsq",
        f"byte order = {int(dtype.byteorder == '>')}",
    ]
    across = view.picture_axes[-2:]
    steps = [spacing(axis, None) for axis in across]
    if len(across) == 2 and all(axis.scale is not None for axis in across) and min(steps) > 0:
        x, y = across[1], across[0]
        place = f"{number(offset(x, None))}, {number(offset(y, None))}, {number(steps[1])}, {number(steps[0])}"
        unit = f", units={x.unit}" if x.unit and x.unit.isalnum() else ""
        text.append(f"map info = {{Arbitrary, 1.5, 1.5, {place}, 0, North{unit}}}")
    content = ("\n".join(text) + "\n").encode()
    return FileMap(len(content), None, ((0, content),))
