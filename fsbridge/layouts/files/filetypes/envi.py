"""ENVI: elements in a file of their own, described by a text file beside it. GDAL, QGIS, ArcGIS, spectral tools."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fsbridge.layouts.files.arrays.extents import FileMap, View, whole_file
from fsbridge.layouts.files.filetypes.filetype import FileType, plain
from fsbridge.layouts.files.filetypes.geometry import number, offset, spacing
from fsbridge.meaning.kinds import is_channel, is_geographic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsbridge.meaning import Axes, Axis

_TYPES = {"u1": 1, "i2": 2, "i4": 3, "f4": 4, "f8": 5, "c8": 6, "c16": 9, "u2": 12, "u4": 13, "i8": 14, "u8": 15}

MAX_BANDS = 4096
"""Most bands of a picture for which the header names each band."""


def envi(view: View) -> FileMap:
    """The elements, band by band."""
    return whole_file(view, b"", view.picture, plain(view, *_TYPES))


def envi_header(view: View) -> FileMap:
    """Return the plan of the header, `NAME.envi.hdr`."""
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
    missing, factor = view.missing, view.packing
    if missing is not None:
        text.append(f"data ignore value = {missing}")
    if factor is not None and bands <= MAX_BANDS:
        text.append(f"data gain values = {{{', '.join([number(factor[0])] * bands)}}}")
        text.append(f"data offset values = {{{', '.join([number(factor[1])] * bands)}}}")
    if len(view.shape) == 3 and bands <= MAX_BANDS and (names := _band_names(view, bands)):
        text.append(f"band names = {{{', '.join(names)}}}")
    if (place := _map_info(view.picture_axes)) is not None:
        text.append(f"map info = {{{place}}}")
    content = ("\n".join(text) + "\n").encode()
    return FileMap(len(content), None, ((0, content),))


def _band_names(view: View, bands: int) -> list[str]:
    """Return the names of channels, or each plane's position along the first axis."""
    axis, channels = view.picture_axes[0], view.image.channels if view.image is not None else ()
    if is_channel(axis) and len(channels) == bands:
        names = [channel.label or f"Band {i + 1}" for i, channel in enumerate(channels)]
    else:
        places, unit = _positions(view, axis, bands), f" {axis.unit}" if axis.unit else ""
        if axis.name is None or places is None:
            return []
        names = [f"{axis.name} {number(float(f'{place:.12g}'))}{unit}" for place in places]
    return ["".join(_plain(char) for char in name) for name in names]


def _positions(view: View, axis: Axis, bands: int) -> Sequence[float] | None:
    """Return the position of each band along its axis; None if it is unknown."""
    if axis.scale is not None:
        return [axis.offset + i * axis.scale for i in range(bands)]
    uneven = view.positions(view.picture[0])
    return None if uneven is None else uneven.tolist()


def _plain(char: str) -> str:
    """Return the character, or a space for commas and braces, which would end the name, and for all but plain ASCII."""
    return char if char.isascii() and char.isprintable() and char not in ",{}" else " "


def _map_info(axes: Axes) -> str | None:
    """Return ENVI's `map info`: the tie point is the outer corner of the first pixel, and lines go from north to south.

    ENVI cannot express another direction. So a map with lines from south to north has no `map info`. A picture that is no
    map has its offset and spacing as if its lines went down.
    """
    if len(axes) < 2 or any(axis.scale is None for axis in axes[-2:]):
        return None
    y, x = axes[-2:]
    dx, dy = spacing(x, None), spacing(y, None)
    if dx <= 0 or (dy > 0 and (is_geographic(x) or is_geographic(y))):
        return None
    if is_geographic(x) and is_geographic(y):
        corner = f"{number(offset(x, None) - dx / 2)}, {number(offset(y, None) - dy / 2)}, {number(dx)}, {number(-dy)}"
        return f"Geographic Lat/Lon, 1, 1, {corner}, WGS-84, units=Degrees"
    unit = f", units={x.unit}" if x.unit and x.unit.isalnum() else ""
    place = f"{number(offset(x, None))}, {number(offset(y, None))}, {number(dx)}, {number(abs(dy))}"
    return f"Arbitrary, 1.5, 1.5, {place}, 0, North{unit}"


ENVI = FileType("envi", envi, types=tuple(_TYPES), ranks=(2, 3), beside=("envi.hdr",))
HEADER = replace(ENVI, suffix="envi.hdr", plan=envi_header, beside=(), chosen=False)
