"""TIFF by tifffile's writer, of which only the headers are taken: ImageJ's dialect (`.tif`) and OME-BigTIFF (`.ome.tif`)."""

from __future__ import annotations

import math
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import numpy as np

from fsbridge.layouts.files.extents import MAX_SIZE, Elements, FileMap, Recorder, Unfit, View, plain, ranked
from fsbridge.layouts.files.headers.geometry import is_channel, is_space, is_time, length_unit, spacing
from fsbridge.layouts.files.units import symbol
from fsbridge.metadata import Axis

_IMAGEJ = ("u1", "i2", "u2", "f4")
_OME = ("u1", "i1", "u2", "i2", "u4", "i4", "f4", "f8", "c8", "c16")
MAX_PAGES = 65536
"""Pages with a header each; each takes 4 microseconds and 256 bytes."""
CLASSIC_BYTES = 2**32 - 2**20
"""Bytes above which classic TIFF cannot say where a page is: ImageJ's dialect then has one header for all of them."""
MAX_PLANE_BYTES = 2**32 - 1
"""Bytes of a page that classic TIFF can tell of."""
MAX_EXTENT = 2**31 - 1
MOST = 2.0**32 - 1
"""Pixels in a unit that a header can tell of, or units in a pixel: two integers of 32 bits."""


def tif(view: View) -> FileMap:
    """Stock ImageJ opens it, as a virtual stack of any size; other readers too, above 4 GB its first page only."""
    dtype = check_tif(view)
    letters = _letters(view.picture_axes)
    order = sorted(range(len(letters)), key=lambda i: "TZCYX".index(letters[i]))  # the dialect has no other
    axes = [view.picture_axes[i] for i in order]
    unit = length_unit(view.picture_axes)
    metadata: dict[str, Any] = {"axes": "".join(letters[i] for i in order)}
    if unit is not None:
        metadata["unit"] = {"micrometer": "um"}.get(unit) or (symbol(unit) or unit).encode("ascii", "replace").decode()
    for axis, letter in zip(axes, metadata["axes"], strict=True):
        if letter == "Z" and axis.scale is not None:
            metadata["spacing"] = abs(spacing(axis, unit))
        if letter == "T" and axis.scale is not None:
            metadata["finterval"] = spacing(axis, "second")
    shape = tuple(view.picture_shape[i] for i in order)
    size = view.selection.size * dtype.itemsize
    pages = int(np.prod(shape[:-2], dtype=object))
    across = [abs(spacing(axis, unit)) for axis in axes[-2:][::-1]]
    known = all(axis.scale is not None for axis in axes[-2:]) and min(across) >= 1 / MOST and max(across) <= MOST
    return _written(
        view,
        tuple(view.picture[i] for i in order),
        (*shape, 1),
        dtype,
        {"imagej": True},
        {"metadata": metadata | {"axes": metadata["axes"] + "S"}, "truncate": size > CLASSIC_BYTES or pages > MAX_PAGES},
        across if known else None,
    )


def ome(view: View) -> FileMap:
    """Bio-Formats, QuPath, napari and libtiff read it; spacing in the unit of the source."""
    dtype = check_ome(view)
    shape = view.picture_shape
    letters = _letters(view.picture_axes)
    metadata: dict[str, Any] = {"axes": "".join(letters)}
    for axis, letter in zip(view.picture_axes, letters, strict=True):
        if letter in "ZYX" and axis.scale is not None:
            metadata[f"PhysicalSize{letter}"] = abs(axis.scale)
            metadata[f"PhysicalSize{letter}Unit"] = symbol(axis.unit) or "pixel"
        if letter == "T" and axis.scale is not None and axis.scale > 0:
            metadata["TimeIncrement"], metadata["TimeIncrementUnit"] = axis.scale, symbol(axis.unit) or "s"
    metadata["Name"] = view.file_name.encode("utf-8", "replace").decode()  # XML has no control characters
    metadata["UUID"] = f"urn:uuid:{uuid5(NAMESPACE_OID, repr((metadata, shape, dtype.str)))}"  # the same header each time
    return _written(view, view.picture, shape, dtype, {"ome": True, "bigtiff": True}, {"metadata": metadata}, None)


def check_tif(view: View) -> np.dtype[Any]:
    """Unfit where ImageJ's dialect cannot hold the array."""
    dtype = _checked(view, _IMAGEJ)
    if math.prod(view.picture_shape[-2:]) * dtype.itemsize > MAX_PLANE_BYTES:
        raise Unfit("planes of 4 GiB and more")
    return dtype


def check_ome(view: View) -> np.dtype[Any]:
    """Unfit where OME-TIFF cannot hold the array."""
    if int(np.prod(view.picture_shape[:-2], dtype=object)) > MAX_PAGES:
        raise Unfit(f"more than {MAX_PAGES} pages; take a region")
    return _checked(view, _OME)


def _checked(view: View, types: tuple[str, ...]) -> np.dtype[Any]:
    dtype = plain(view, *types)
    ranked(view, 2, 5)
    if max(view.shape) > MAX_EXTENT or view.selection.size * dtype.itemsize > MAX_SIZE // 2:
        raise Unfit("too large for a TIFF")
    return dtype


def _letters(axes: tuple[Axis, ...]) -> list[str]:
    """T, C, Z, Y or X for each axis: the last two are Y and X, the others by their names, else the next that is free."""
    letters = ["?"] * (len(axes) - 2) + ["Y", "X"]
    for i, axis in enumerate(axes[:-2]):
        letter = "T" if is_time(axis) else "C" if is_channel(axis) else "Z" if is_space(axis) and axis.name else "?"
        if letter not in letters:
            letters[i] = letter
    for i in range(len(letters) - 1, -1, -1):
        if letters[i] == "?":
            letters[i] = next(letter for letter in "ZTC" if letter not in letters)
    return letters


def _written(
    view: View, order: tuple[int, ...], shape: tuple[int, ...], dtype: np.dtype[Any], file: dict[str, Any],
    page: dict[str, Any], across: list[float] | None,
) -> FileMap:  # fmt: skip
    """What the writer makes beside the elements. `across`: the size of a pixel in x and y."""
    from tifffile import TiffWriter

    if across is not None:
        page["resolution"] = (1 / across[0], 1 / across[1])
    recorder = Recorder()
    with TiffWriter(recorder, byteorder=">" if dtype.byteorder == ">" else "<", **file) as writer:  # type: ignore[arg-type]
        place = writer.write(
            shape=shape,
            dtype=dtype.newbyteorder("="),
            photometric="minisblack",
            returnoffset=True,
            software=False,
            **page,
        )
    assert place is not None
    start = place[0]
    stop = start + view.selection.size * dtype.itemsize
    return FileMap(max(recorder.end, stop), Elements(start, order, dtype), outside(recorder.merged(), start, stop))


def outside(pieces: tuple[tuple[int, bytes], ...], start: int, stop: int) -> tuple[tuple[int, bytes], ...]:
    """The pieces without what lies in [start, stop): a writer that only skips over data puts a zero at their end."""
    left: list[tuple[int, bytes]] = []
    for offset, content in pieces:
        if offset < start:
            left.append((offset, content[: start - offset]))
        if offset + len(content) > stop:
            cut = max(0, stop - offset)
            left.append((offset + cut, content[cut:]))
    return tuple(left)
