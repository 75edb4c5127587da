"""ENVI: elements in a file of their own, described by a text file beside it. GDAL, QGIS, ArcGIS, spectral tools."""

from __future__ import annotations

from dataclasses import replace

from fsbridge.layouts.files.arrays.colors import find_color_axis
from fsbridge.layouts.files.arrays.extents import FileMap, View, make_whole_file
from fsbridge.layouts.files.filetypes.filetype import FileType, check_dtype
from fsbridge.layouts.files.filetypes.geometry import Georeference, georeference, number, offset, plane_names, spacing
from fsbridge.layouts.files.filetypes.projections import esri_text
from fsbridge.meaning.kinds import is_geographic
from fsbridge.meaning.systems import WGS84
from fsbridge.meaning.units import convert

_TYPES = {"u1": 1, "i2": 2, "i4": 3, "f4": 4, "f8": 5, "c8": 6, "c16": 9, "u2": 12, "u4": 13, "i8": 14, "u8": 15}

_UTM = 32600
"""EPSG's code before that of the first zone of UTM in the north. Those of the south are 100 greater."""

MAX_BANDS = 4096
"""Most bands of a picture for which the header names each band."""


def envi(view: View) -> FileMap:
    """Return the plan of a file with the elements alone, band by band."""
    return make_whole_file(view, b"", view.picture, check_dtype(view, *_TYPES))


def envi_header(view: View) -> FileMap:
    """Return the plan of the header, `NAME.envi.hdr`."""
    dtype = check_dtype(view, *_TYPES)
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
    missing, factor = view.missing, view.packing
    if missing is not None:
        text.append(f"data ignore value = {missing}")
    if factor is not None and bands <= MAX_BANDS:
        text.append(f"data gain values = {{{', '.join([number(factor[0])] * bands)}}}")
        text.append(f"data offset values = {{{', '.join([number(factor[1])] * bands)}}}")
    if len(view.shape) == 3 and bands <= MAX_BANDS and (names := plane_names(view)):
        plain_names = ("".join(_replace_char(char) for char in name) for name in names)
        text.append(f"band names = {{{', '.join(plain_names)}}}")
    if (place := _map_info(view)) is not None:
        text.append(f"map info = {{{place}}}")
        if (system := _system(view)) is not None and place.startswith("Arbitrary"):
            text.append(f"coordinate system string = {{{system}}}")
    elif (size := _pixel_size(view)) is not None:
        text.append(f"pixel size = {{{size}}}")
    content = ("\n".join(text) + "\n").encode()
    return FileMap(len(content), None, ((0, content),))


def _replace_char(char: str) -> str:
    """Return the character, or a space if it is a comma, a brace, or no printable ASCII.

    Commas and braces would end the name in the header.
    """
    return char if char.isascii() and char.isprintable() and char not in ",{}" else " "


def _map_info(view: View) -> str | None:
    """Return ENVI's `map info`, with the tie point at the first pixel's outer corner. Lines must go from north to south.

    ENVI cannot express another direction, so a picture with lines that go up or are turned has no `map info`: None.
    """
    location = _georeference(view)
    if location is not None:
        if location.x_row or location.y_column or location.x_column < 0 or location.y_row > 0:
            return None
        place = ", ".join(map(number, (location.x0, location.y0, location.x_column, -location.y_row)))
        code = location.system.code
        if location.system.geographic:
            return f"Geographic Lat/Lon, 1, 1, {place}, {'WGS-84, ' if code == WGS84 else ''}units=Degrees"
        side, zone = divmod((code or 0) - _UTM, 100)
        if side in (0, 1) and 1 <= zone <= 60:
            return f"UTM, 1, 1, {place}, {zone}, {('North', 'South')[side]}, WGS-84, units=Meters"
        return f"Arbitrary, 1, 1, {place}, 0, North"
    if len(view.shape) < 2 or any(axis.scale is None for axis in view.picture_axes[-2:]):
        return None
    y, x = view.picture_axes[-2:]
    dx, dy = spacing(x, None), spacing(y, None)
    if dx <= 0 or dy > 0 or is_geographic(x) or is_geographic(y):
        return None
    unit = f", units={x.unit}" if x.unit and x.unit.isalnum() else ""
    place = ", ".join(map(number, (offset(x, None), offset(y, None), dx, -dy)))
    return f"Arbitrary, 1.5, 1.5, {place}, 0, North{unit}"


def _georeference(view: View) -> Georeference | None:
    """Return the place of a map; None if it is not known, or if colours do not come first: ENVI keeps each in a band."""
    return georeference(view) if find_color_axis(view) in (None, view.picture[0]) else None


def _system(view: View) -> str | None:
    """Return the projection of a map as well-known text; None if it has none, or if its parameters are not known."""
    location = _georeference(view)
    return None if location is None or location.system.projection is None else esri_text(location.system.projection)


def _pixel_size(view: View) -> str | None:
    """Return the size of a pixel in meters; None if it is not known."""
    sizes = [None if axis.scale is None else convert(axis.scale, axis.unit, "meter") for axis in view.picture_axes[:-3:-1]]
    known = [number(abs(size)) for size in sizes if size is not None]
    return f"{', '.join(known)}, units=Meters" if len(known) == 2 else None


ENVI = FileType("envi", envi, types=tuple(_TYPES), ranks=(2, 3), beside=("envi.hdr",))
HEADER = replace(ENVI, suffix="envi.hdr", plan=envi_header, beside=(), chosen=False)
