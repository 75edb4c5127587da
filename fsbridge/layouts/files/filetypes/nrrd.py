"""NRRD, attached (`.nrrd`) and detached (`.raw.nhdr` with a data file): teem, ITK, Slicer. Text, x first, in millimeters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fsbridge.layouts.files.arrays.extents import FileMap, View, make_whole_file
from fsbridge.layouts.files.filetypes.filetype import FileType, check_dtype, check_rank, narrow_dtype
from fsbridge.layouts.files.filetypes.geometry import number, offset, placement, spacing, volume
from fsbridge.meaning.kinds import is_space
from fsbridge.meaning.units import meters

if TYPE_CHECKING:
    from typing import Any

    import numpy as np

_TYPES = {
    "i1": "int8", "u1": "uint8", "i2": "int16", "u2": "uint16", "i4": "int32", "u4": "uint32", "i8": "int64",
    "u8": "uint64", "f4": "float", "f8": "double", "c8": "float", "c16": "double",
}  # fmt: skip
_UNITS = {"micrometer": "um", "nanometer": "nm", "millimeter": "mm", "centimeter": "cm", "meter": "m", "angstrom": "A"}
MAX_RANK, MAX_SPACE = 16, 8
"""NRRD_DIM_MAX and NRRD_SPACE_DIM_MAX of teem."""


def nrrd(view: View) -> FileMap:
    """Return the plan of a file with header and elements."""
    dtype = narrow_dtype(view, *_TYPES)
    return make_whole_file(view, _header(view, dtype, ""), volume(view), dtype)


def nhdr(view: View) -> FileMap:
    """Return the plan of a header alone.

    It names its data file: `NAME.raw`, or `NAME.nrrd` if `NAME.raw` has another order.
    """
    if volume(view) == view.natural:
        dtype, data = check_dtype(view, *_TYPES), f"data file: {view.name}.raw\n"
    else:
        dtype = narrow_dtype(view, *_TYPES)
        data = f"byte skip: {len(_header(view, dtype, ''))}\ndata file: {view.name}.nrrd\n"
    header = _header(view, dtype, data)
    return FileMap(len(header), None, ((0, header),))


def nameable(name: str) -> bool:
    """True if a detached header can name the data file of the array `name`."""
    drive = name[1:2] == ":"  # teem reads it as a Windows path, and does not look beside the header
    return name.isprintable() and not (drive or "%" in name or name.startswith(("LIST", " ")))


def _header(view: View, dtype: np.dtype[Any], data: str) -> bytes:
    order = volume(view)[::-1]
    axes = [view.axes[i] for i in order]
    sizes = [str(view.shape[i]) for i in order]
    labels = [axis.name or "" for axis in axes]
    lengths = [meters(axis.unit) is not None for axis in axes]
    units = ["millimeter" if length else axis.unit for axis, length in zip(axes, lengths, strict=True)]
    scales = [spacing(axis, "millimeter") for axis in axes]
    starts = [number(offset(axis, "millimeter")) for axis in axes]
    if dtype.kind == "c":
        sizes, labels = ["2", *sizes], ["", *labels]
    lines = [
        "NRRD0004",
        f"type: {_TYPES[f'{dtype.kind}{dtype.itemsize}']}",
        f"dimension: {len(sizes)}",
        f"sizes: {' '.join(sizes)}",
    ]
    quoted = [_quote(_UNITS.get(one or "", one or "")) for one in units]
    parts = int(dtype.kind == "c")  # the two parts of a complex number are the fastest axis
    place = placement(view, order, "millimeter") if len(axes) <= MAX_SPACE else None
    # Where an axis is turned, all axes count as axes of space: ITK opens no file in which only some have directions.
    if place is not None and (all(map(is_space, axes)) or place.turned or any(axis.orientation for axis in axes)):
        lines += [
            "space: left-posterior-superior" if len(axes) == 3 and all(lengths) else f"space dimension: {len(axes)}",
            "space directions: " + " ".join(["none"] * parts + [_vector(direction) for direction in place.vectors]),
            f"space origin: {_vector(place.origin)}",
        ]
        if any(units):
            lines.append("space units: " + " ".join(quoted))
    elif any(axis.scale is not None for axis in axes):
        # Each axis has a spacing and a start. Positions along axes other than space are counted where they are not known,
        # because ITK ignores all starts if one is missing.
        unknown = [axis.scale is None and is_space(axis) for axis in axes]
        unnamed = [axis.scale is None for axis in axes]
        lines += [
            "spacings: " + " ".join(["nan"] * parts + _replace_unknown(map(number, scales), unknown, "nan")),
            "axis mins: " + " ".join(["nan"] * parts + _replace_unknown(starts, unknown, "nan")),
            "centers: " + " ".join(["???"] * parts + _replace_unknown(["node"] * len(axes), unknown, "???")),
        ]
        if any(units):
            lines.append("units: " + " ".join(['""'] * parts + _replace_unknown(quoted, unnamed, '""')))
    if parts:
        lines.append("kinds: " + " ".join(["complex", *(["domain"] * len(axes))]))
    if any(labels):
        lines.append("labels: " + " ".join(map(_quote, labels)))
    if dtype.itemsize // (2 if dtype.kind == "c" else 1) > 1:
        lines.append(f"endian: {'big' if dtype.byteorder == '>' else 'little'}")
    lines += [*_describe_packing(view, dtype), "encoding: raw"]
    return ("\n".join(lines) + "\n" + data + ("" if data else "\n")).encode()


def _describe_packing(view: View, dtype: np.dtype[Any]) -> list[str]:
    """Return the header lines of packed numbers: the values half a step below the least and above the greatest number."""
    packed = view.packing
    if packed is None or dtype.kind != "u" or dtype.itemsize > 4:
        return []  # teem unpacks only those types
    factor, start = packed
    least = start - factor / 2
    most = least + factor * 2 ** (8 * dtype.itemsize)
    return [f"old min: {number(least)}", f"old max: {number(most)}"] if math.isfinite(most) else []


def _replace_unknown(texts: Iterable[str], unknown: Sequence[bool], otherwise: str) -> list[str]:
    return [otherwise if is_unknown else text for text, is_unknown in zip(texts, unknown, strict=True)]


def _vector(values: Sequence[float]) -> str:
    return f"({','.join(map(number, values))})"


def _quote(text: str) -> str:
    """Quote a text. Quotes and line ends in it are replaced, because they would end the text or the header line."""
    shown = "".join(char if char.isprintable() else " " for char in text.replace('"', "'").replace("\\", "/"))
    return f'"{shown.encode("ascii", "replace").decode()}"'


def _dimensions(view: View) -> None:
    if check_dtype(view, *_TYPES).kind == "c":  # the two parts are a dimension
        check_rank(view, 1, MAX_RANK - 1)


NRRD = FileType("nrrd", nrrd, types=tuple(_TYPES), ranks=(1, MAX_RANK), check=_dimensions, narrows=True)
# Detached headers are not called `NAME.nhdr`: Bio-Formats looks for such a file beside every picture, and prefers it.
NHDR = replace(NRRD, suffix="raw.nhdr", plan=nhdr, can_name=nameable, names_array=True, beside=("raw",))
