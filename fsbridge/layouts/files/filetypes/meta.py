"""MetaImage, attached (`.mha`) and detached (`.raw.mhd` with a data file): ITK, VTK, elastix. Text, in millimeters."""

from __future__ import annotations

from dataclasses import replace

from fsbridge.layouts.files.arrays.extents import FileMap, View, make_whole_file
from fsbridge.layouts.files.filetypes.filetype import FileType, check_dtype
from fsbridge.layouts.files.filetypes.geometry import Placement, number, offset, placement, spacing, volume

_TYPES = {
    "i1": "MET_CHAR", "u1": "MET_UCHAR", "i2": "MET_SHORT", "u2": "MET_USHORT", "i4": "MET_INT", "u4": "MET_UINT",
    "i8": "MET_LONG_LONG", "u8": "MET_ULONG_LONG", "f4": "MET_FLOAT", "f8": "MET_DOUBLE",
}  # fmt: skip


def mha(view: View) -> FileMap:
    """Return the plan of a file with header and elements."""
    return make_whole_file(view, _header(view, "LOCAL"), volume(view), check_dtype(view, *_TYPES))


def mhd(view: View) -> FileMap:
    """Return the plan of a header alone.

    It names its data file: `NAME.raw`, or `NAME.mha` if `NAME.raw` has another order.
    """
    if volume(view) == view.natural:
        header = _header(view, f"{view.name}.raw")
    else:
        header = _header(view, f"{view.name}.mha", len(_header(view, "LOCAL")))
    return FileMap(len(header), None, ((0, header),))


def nameable(name: str) -> bool:
    """True if a detached header can name the data file of the array `name`. Readers treat `LIST...` as a list of files."""
    return name.isprintable() and not (" " in name or "%" in name or name.startswith("LIST"))


def _header(view: View, data: str, skip: int = 0) -> bytes:
    dtype = check_dtype(view, *_TYPES)
    order, packed = volume(view)[::-1], view.packing
    axes = [view.axes[i] for i in order]
    rank = len(axes)
    place = placement(view, order, "millimeter")
    if place is None:
        vectors = [[abs(spacing(axis, "millimeter")) if i == j else 0.0 for j in range(rank)] for i, axis in enumerate(axes)]
        place = Placement(vectors, [offset(axis, "millimeter") for axis in axes])
    lengths = place.lengths
    matrix = [step / length for vector, length in zip(place.vectors, lengths, strict=True) for step in vector]
    lines = [
        "ObjectType = Image",
        f"NDims = {rank}",
        "BinaryData = True",
        f"BinaryDataByteOrderMSB = {dtype.byteorder == '>'}",
        "CompressedData = False",
        f"TransformMatrix = {' '.join(map(number, matrix))}",
        f"Offset = {' '.join(map(number, place.origin))}",
        f"ElementSpacing = {' '.join(map(number, lengths))}",
        f"DimSize = {' '.join(str(view.shape[i]) for i in order)}",
        *([f"HeaderSize = {skip}"] if skip else []),
        *([f"ElementToIntensityFunctionSlope = {number(packed[0])}"] if packed else []),
        *([f"ElementToIntensityFunctionOffset = {number(packed[1])}"] if packed else []),
        f"ElementType = {_TYPES[f'{dtype.kind}{dtype.itemsize}']}",
        f"ElementDataFile = {data}",
    ]
    return ("\n".join(lines) + "\n").encode()


MHA = FileType("mha", mha, types=tuple(_TYPES), ranks=(2, 10))  # the library MetaObject has room for ten
MHD = replace(MHA, suffix="raw.mhd", plan=mhd, can_name=nameable, names_array=True, beside=("raw",))
