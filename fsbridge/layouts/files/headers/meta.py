"""MetaImage, attached (`.mha`) and detached (`.mhd` with a data file): ITK, VTK, elastix. Text, in millimeters."""

from __future__ import annotations

from fsbridge.layouts.files.extents import FileMap, Unfit, View, plain, ranked, whole_file
from fsbridge.layouts.files.headers.geometry import number, offset, spacing

_TYPES = {
    "i1": "MET_CHAR", "u1": "MET_UCHAR", "i2": "MET_SHORT", "u2": "MET_USHORT", "i4": "MET_INT", "u4": "MET_UINT",
    "i8": "MET_LONG_LONG", "u8": "MET_ULONG_LONG", "f4": "MET_FLOAT", "f8": "MET_DOUBLE",
}  # fmt: skip


def mha(view: View) -> FileMap:
    """Header and elements in one file."""
    return whole_file(view, _header(view, "LOCAL"), view.picture, plain(view, *_TYPES))


def mhd(view: View) -> FileMap:
    """The header alone; its data file is `NAME.raw`, or `NAME.mha` where that has another memory order."""
    if not nameable(view.name):
        raise Unfit("a detached header cannot name such a data file")
    if view.picture == view.natural:
        header = _header(view, f"{view.name}.raw")
    else:
        header = _header(view, f"{view.name}.mha", len(_header(view, "LOCAL")))
    mha(view)  # what it names must exist
    return FileMap(len(header), None, ((0, header),))


def nameable(name: str) -> bool:
    """Whether a detached header can name the data file of the array `name`; readers take LIST... for a list of files."""
    return name.isprintable() and not (" " in name or "%" in name or name.startswith("LIST"))


def _header(view: View, data: str, skip: int = 0) -> bytes:
    dtype = plain(view, *_TYPES)
    ranked(view, 1, 10)  # MetaObject's fixed arrays
    axes = view.picture_axes[::-1]
    rank = len(axes)
    sign = [-1.0 if spacing(axis, None) < 0 else 1.0 for axis in axes]  # a negative step is a direction
    matrix = " ".join(number(sign[i]) if i == j else "0" for i in range(rank) for j in range(rank))
    lines = [
        "ObjectType = Image",
        f"NDims = {rank}",
        "BinaryData = True",
        f"BinaryDataByteOrderMSB = {dtype.byteorder == '>'}",
        "CompressedData = False",
        f"TransformMatrix = {matrix}",
        f"Offset = {' '.join(number(offset(axis, 'millimeter')) for axis in axes)}",
        f"ElementSpacing = {' '.join(number(abs(spacing(axis, 'millimeter'))) for axis in axes)}",
        f"DimSize = {' '.join(str(n) for n in view.picture_shape[::-1])}",
        *([f"HeaderSize = {skip}"] if skip else []),
        f"ElementType = {_TYPES[f'{dtype.kind}{dtype.itemsize}']}",
        f"ElementDataFile = {data}",
    ]
    return ("\n".join(lines) + "\n").encode()
