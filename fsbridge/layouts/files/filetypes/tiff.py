"""TIFF with headers by tifffile's writer: ImageJ's dialect (`.tif`) and OME-TIFF (`.ome.tif`)."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fsbridge.layouts.files.arrays.colors import find_color_axis, order_colors
from fsbridge.layouts.files.arrays.extents import MAX_SIZE, Elements, FileMap, Recorder, View
from fsbridge.layouts.files.filetypes.filetype import FileType, Limit, check_dtype, extent, narrow_dtype, nbytes, planes
from fsbridge.layouts.files.filetypes.geometry import Tag, geotiff, number, plane_names, spacing
from fsbridge.meaning.kinds import is_channel, is_space, is_time
from fsbridge.meaning.units import meters, seconds, symbol

if TYPE_CHECKING:
    import numpy as np

    from fsbridge.meaning import Axis

_IMAGEJ = ("u1", "i2", "u2", "f4")
_TIF = (*_IMAGEJ, "i4", "u4", "f8", "i1", "i8", "u8", "f2", "c8", "c16")
"""Types that TIFF and GDAL have. ImageJ reads the first seven, and its own dialect has only those of `_IMAGEJ`."""
_LABELS = ("u8", "i8")
_OME = ("u1", "i1", "u2", "i2", "u4", "i4", "f4", "f8", "c8", "c16")
MAX_PAGES = 65536
"""Most pages with their own header. Each takes 4 microseconds and 256 bytes."""
CLASSIC_BYTES = 2**32 - 2**20
"""File size above which classic TIFF cannot address every page. ImageJ's dialect then has one header for all pages."""
MAX_PLANE_BYTES = 2**32 - 1
"""Most bytes of a page in classic TIFF."""
MAX_BANDS = 65535
"""Most bands of a page."""
MAX_LABELS = 4096
"""Most pages of a file in which each page has a label."""
IMAGEJ_CHANNELS = 7
"""Most channels that ImageJ shows together."""
PAGE_BYTES = 1024
"""Bytes of a page's header, with room to spare."""
MAX_EXTENT = 2**31 - 1
WINDOWS = "ngff.openmicroscopy.org/omero"
"""Namespace of an annotation: which values are black and which are full colour, by channel."""
MOST = 2.0**32 - 1
"""Most pixels per unit, or units per pixel, in a header: a ratio of two 32-bit integers."""


def tif(view: View) -> FileMap:
    """Return the plan of a TIFF that stock ImageJ opens, as a virtual stack of any size.

    Above 4 GB other programs see only its first page.
    """
    return _tif(view, narrow_dtype(view, *_TIF))


def labels_tif(view: View) -> FileMap:
    """Return the plan of a TIFF of labels with 32 bits, whatever their range.

    Reading a label that does not fit is an error.
    """
    import numpy as np

    return _tif(view, np.dtype("u4").newbyteorder(check_dtype(view, *_LABELS).byteorder))


def _tif(view: View, dtype: np.dtype[Any]) -> FileMap:
    """Return the plan of a TIFF in ImageJ's dialect.

    Element types that the dialect lacks get an ordinary TIFF with ImageJ's description, above 4 GB a BigTIFF. A stack of
    maps becomes bands of one page, because programs for maps read only the first page.
    """
    if find_color_axis(view) is None and 1 < planes(view) <= MAX_BANDS and (place := geotiff(view)):
        return _bands(view, dtype, place)
    color, own = find_color_axis(view), f"{dtype.kind}{dtype.itemsize}" in _IMAGEJ
    place, size = geotiff(view), view.selection.size * dtype.itemsize
    # Bio-Formats takes ImageJ's spacing for micrometers, whatever the unit is. Those of maps would not fit the header.
    word, unit = ("m", "meter") if place else ("micron", "micrometer")
    metadata: dict[str, Any] = {}
    if color is None:
        letters = letters_of(view.picture_axes)
        places = sorted(range(len(letters)), key=lambda i: "TZCYX".index(letters[i]))  # ImageJ accepts no other order
        order = tuple(view.picture[i] for i in places)
        metadata["axes"] = "".join(letters[i] for i in places) + "S"
        shape: tuple[int, ...] = (*(view.shape[i] for i in order), 1)
        rows = order[-2:]
    else:
        order = order_colors(view, color)
        metadata["axes"], shape, rows = "YXS", tuple(view.shape[i] for i in order[-3:]), order[-3:-1]
    across = [abs(spacing(view.axes[i], unit)) for i in rows[::-1]]
    known = all(view.axes[i].scale is not None for i in rows) and min(across) >= 1 / MOST and max(across) <= MOST
    lengths = [meters(view.axes[i].unit) is not None for i in rows]
    if known and all(lengths):
        metadata["unit"] = word
    for dimension, letter in zip(order if color is None else order[-3:], metadata["axes"], strict=False):
        axis = view.axes[dimension]
        alike = all(length == (meters(axis.unit) is not None) for length in lengths)
        if letter == "Z" and axis.scale is not None and known and alike:
            metadata["spacing"] = abs(spacing(axis, unit))
        elif letter == "Z" and "unit" in metadata:
            metadata["zunit"] = "pixel"  # ImageJ would take the distance of planes for 1 unit
        if letter == "T" and axis.scale is not None and seconds(axis.unit) is not None:
            metadata["finterval"] = spacing(axis, "second")
    pages = math.prod(shape[:-3])
    if color is None:
        metadata |= _looks(view, metadata["axes"], shape, pages)
    tags, large = [*_gdal(view), *place], size + pages * PAGE_BYTES > CLASSIC_BYTES
    if own:
        page = {"metadata": metadata, "truncate": large or pages > MAX_PAGES, "extratags": tags}
        file = {"imagej": True}
    else:
        shape = shape[:-1] if color is None else shape
        page = {"metadata": None, "description": _description(shape, metadata), "extratags": tags}
        file = {"bigtiff": large}
    return _write(view, order, shape, dtype, file, page, across if known else None, color is not None)


def _bands(view: View, dtype: np.dtype[Any], place: list[Tag]) -> FileMap:
    """Return the plan of a TIFF with one page. Each plane is a band with its name, unit, scale and offset."""
    count, (rows, columns) = planes(view), view.picture_shape[-2:]
    size = view.selection.size * dtype.itemsize
    page = {"metadata": None, "planarconfig": "separate", "extratags": [*_gdal(view, count, plane_names(view)), *place]}
    shape = (count, rows, columns)
    return _write(view, view.picture, shape, dtype, {"bigtiff": size + PAGE_BYTES * count > CLASSIC_BYTES}, page, None)


def _description(shape: Sequence[int], metadata: dict[str, Any]) -> str:
    """Return the text by which ImageJ recognises axes and spacing in any TIFF."""
    from tifffile import imagej_description

    kept = {key: value for key, value in metadata.items() if key not in ("Labels", "LUTs", "Ranges")}  # these have tags
    return imagej_description(shape, **{**kept, "axes": metadata["axes"][: len(shape)]})


def _looks(view: View, axes: str, shape: tuple[int, ...], pages: int) -> dict[str, Any]:
    """Return names, colours and windows of channels, as ImageJ's dialect has them."""
    import numpy as np

    channels = view.image.channels if view.image is not None else ()
    place = axes.find("C")
    if len(channels) != (1 if place < 0 else shape[place]) or pages > MAX_LABELS:
        return {}
    looks: dict[str, Any] = {}
    if all(channel.label for channel in channels):
        below = math.prod(shape[place + 1 : -3])
        looks["Labels"] = [str(channels[page // below % len(channels)].label) for page in range(pages)]
    if all(channel.color is not None for channel in channels):
        ramp = np.arange(256, dtype=np.uint16)
        looks["LUTs"] = [np.array([ramp * part // 255 for part in channel.color or ()], np.uint8) for channel in channels]
        if place >= 0 and len(channels) <= IMAGEJ_CHANNELS:
            looks["mode"] = "composite"
    if all(channel.window is not None for channel in channels):
        looks["Ranges"] = tuple(end for channel in channels for end in channel.window or ())
    return looks


def _gdal(view: View, bands: int = 1, names: Sequence[str] = ()) -> list[Tag]:
    """Return GDAL's tags for the unit, the missing value, and the scale and offset of packed numbers (GTiff driver).

    `names`: of the bands, if they have any.
    """
    tags: list[Tag] = []
    missing, factor, unit = view.missing, view.packing, view.unit
    said = {} if factor is None else {"scale": repr(factor[0]), "offset": repr(factor[1])}
    if unit is not None:
        said["unittype"] = _escape_twice(unit)
    each = [said | ({"description": _escape_twice(names[i])} if names else {}) for i in range(bands)]
    if any(each):
        items = [
            f'<Item name="{name.upper()}" sample="{i}" role="{name}">{value}</Item>'
            for i, one in enumerate(each)
            for name, value in one.items()
        ]
        tags.append((42112, "s", 0, f"<GDALMetadata>{''.join(items)}</GDALMetadata>", False))
    if missing is not None:
        tags.append((42113, "s", 0, repr(missing), False))
    return tags


def _escape_twice(text: str) -> str:
    """Escape a text twice, as GDAL's own writer does, because its reader stops at an & otherwise."""
    return html.escape(html.escape(text, quote=False), quote=False).encode("ascii", "xmlcharrefreplace").decode()


def ome(view: View) -> FileMap:
    """Return the plan of an OME-TIFF, with spacing in the source's unit. Above 4 GiB it is a BigTIFF.

    Bio-Formats, QuPath, napari and libtiff read it.
    """
    from uuid import NAMESPACE_OID, uuid5

    dtype, color = narrow_dtype(view, *_OME), find_color_axis(view)
    order = view.picture if color is None else order_colors(view, color)
    shown = order if color is None else order[-3:]
    letters = letters_of(tuple(view.axes[i] for i in order)) if color is None else ["Y", "X", "S"]
    shape = tuple(view.shape[i] for i in shown)
    metadata = {"axes": "".join(letters), **ome_metadata(view, shown, letters, shape)}
    metadata["UUID"] = f"urn:uuid:{uuid5(NAMESPACE_OID, repr((metadata, shape, dtype.str)))}"  # same bytes each time
    pages = math.prod(shape[:-2])
    big = view.selection.size * dtype.itemsize + pages * PAGE_BYTES > CLASSIC_BYTES
    return _write(view, order, shape, dtype, {"ome": True, "bigtiff": big}, {"metadata": metadata}, None, color is not None)


def ome_metadata(view: View, shown: Sequence[int], letters: Sequence[str], shape: Sequence[int]) -> dict[str, Any]:
    """Return an image's entries in OME-XML: name, spacing, channels.

    `shown`: the dimensions that it has; `letters`: OME's letter of each.
    """
    metadata: dict[str, Any] = {}
    for dimension, letter in zip(shown, letters, strict=True):
        axis = view.axes[dimension]
        if letter in "ZYX" and axis.scale is not None:
            metadata[f"PhysicalSize{letter}"] = abs(axis.scale)
            metadata[f"PhysicalSize{letter}Unit"] = symbol(axis.unit) or "pixel"
        if letter == "T" and axis.scale is not None and axis.scale > 0 and seconds(axis.unit) is not None:
            metadata["TimeIncrement"], metadata["TimeIncrementUnit"] = axis.scale, symbol(axis.unit)
    metadata["Name"] = xml_text(view.title)
    channels = view.image.channels if view.image is not None else ()
    if len(channels) == (shape[letters.index("C")] if "C" in letters else 1):
        said: dict[str, Any] = {}
        if all(channel.label for channel in channels):
            said["Name"] = [xml_text(channel.label or "") for channel in channels]
        if all(channel.color is not None for channel in channels):
            said["Color"] = [_rgba(channel.color or (0, 0, 0)) for channel in channels]
        metadata |= {"Channel": said} if said else {}
        windows = {f"window of channel {i}": window for i, channel in enumerate(channels) if (window := channel.window)}
        if windows:  # OME's schema has no place for them
            spelled = {name: f"{number(low)} {number(high)}" for name, (low, high) in windows.items()}
            metadata["MapAnnotation"] = {"Namespace": WINDOWS, **spelled}
    return metadata


def _rgba(color: tuple[int, int, int]) -> int:
    """Return an opaque colour as OME writes it: a signed integer of 32 bits, made of red, green, blue and alpha."""
    return int.from_bytes(bytes((*color, 255)), "big", signed=True)


def xml_text(name: str) -> str:
    """Return a name without the characters that XML cannot hold."""
    return "".join(char for char in name if char.isprintable()).encode("utf-8", "replace").decode()


def _plane_bytes(view: View) -> int:
    """Return the bytes of a page."""
    plane = view.selection.size if find_color_axis(view) is not None else math.prod(view.picture_shape[-2:])
    return plane * view.metadata.dtype.itemsize


def _pages(view: View) -> int:
    return 1 if find_color_axis(view) is not None else planes(view)


def _headed_pages(view: View) -> int:
    """Return the number of pages that have a header: 1 in ImageJ's dialect, which needs no more."""
    dtype = view.dtype
    own = dtype is not None and f"{dtype.kind}{dtype.itemsize}" in (*_IMAGEJ, "b1")
    return 1 if own else _pages(view)


def letters_of(axes: tuple[Axis, ...]) -> list[str]:
    """Return T, C, Z, Y or X for each axis. The last two are Y and X; others go by name, else get the next free letter."""
    letters = ["?"] * (len(axes) - 2) + ["Y", "X"]
    for i, axis in enumerate(axes[:-2]):
        letter = "T" if is_time(axis) else "C" if is_channel(axis) else "Z" if is_space(axis) and axis.name else "?"
        if letter not in letters:
            letters[i] = letter
    for i in range(len(letters) - 1, -1, -1):
        if letters[i] == "?":
            letters[i] = next(letter for letter in "ZTC" if letter not in letters)
    return letters


def _write(
    view: View, order: tuple[int, ...], shape: tuple[int, ...], dtype: np.dtype[Any], file: dict[str, Any],
    page: dict[str, Any], across: list[float] | None, color: bool = False,
) -> FileMap:  # fmt: skip
    """Return the plan of a file that tifffile would write. The elements are left out.

    `across`: the size of a pixel in x and y.
    """
    from tifffile import TiffWriter

    if across is not None:
        page["resolution"] = (1 / across[0], 1 / across[1])
    recorder = Recorder()
    with TiffWriter(recorder, byteorder=">" if dtype.byteorder == ">" else "<", **file) as writer:  # type: ignore[arg-type]
        place = writer.write(
            shape=shape,
            dtype=dtype.newbyteorder("="),
            photometric="rgb" if color else "minisblack",
            returnoffset=True,
            software=False,
            **page,
        )
    assert place is not None
    start = place[0]
    stop = start + view.selection.size * dtype.itemsize
    return FileMap(max(recorder.end, stop), Elements(start, order, dtype), cut_out(recorder.merge(), start, stop))


def cut_out(pieces: tuple[tuple[int, bytes], ...], start: int, stop: int) -> tuple[tuple[int, bytes], ...]:
    """Return the pieces without bytes [start, stop).

    Elements are cut out of a header so: a writer that skips them still writes a zero at their end.
    """
    left: list[tuple[int, bytes]] = []
    for offset, content in pieces:
        if offset < start:
            left.append((offset, content[: start - offset]))
        if offset + len(content) > stop:
            cut = max(0, stop - offset)
            left.append((offset + cut, content[cut:]))
    return tuple(left)


_SIZES = (
    Limit(extent, MAX_EXTENT, "the array is too large for a TIFF"),
    Limit(nbytes, MAX_SIZE // 2, "the array is too large for a TIFF"),
)
_PAGES = f"the file would have more than {MAX_PAGES} pages; take a region"
TIF = FileType(
    "tif",
    tif,
    types=_TIF,
    ranks=(2, 5),
    limits=(
        *_SIZES,
        Limit(_plane_bytes, MAX_PLANE_BYTES, "a plane has 4 GiB or more"),
        Limit(_headed_pages, MAX_PAGES, _PAGES),
    ),
    narrows=True,
)
LABELS = replace(TIF, suffix="u32.tif", plan=labels_tif, types=_LABELS, narrows=False, chosen=False)
OME = FileType(
    "ome.tif",
    ome,
    types=_OME,
    ranks=(2, 5),
    limits=(*_SIZES, Limit(_pages, MAX_PAGES, _PAGES)),
    names_array=True,
    narrows=True,
)
