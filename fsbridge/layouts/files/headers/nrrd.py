"""NRRD, attached (`.nrrd`) and detached (`.nhdr` with a data file): teem, ITK, Slicer, Fiji. The header is text, x first."""

from __future__ import annotations

from fsbridge.layouts.files.extents import FileMap, Unfit, View, plain, ranked, whole_file
from fsbridge.layouts.files.headers.geometry import is_space, length_unit, number, offset, spacing
from fsbridge.layouts.files.units import converted

_TYPES = {
    "i1": "int8", "u1": "uint8", "i2": "int16", "u2": "uint16", "i4": "int32", "u4": "uint32", "i8": "int64",
    "u8": "uint64", "f4": "float", "f8": "double", "c8": "float", "c16": "double",
}  # fmt: skip
_UNITS = {"micrometer": "um", "nanometer": "nm", "millimeter": "mm", "centimeter": "cm", "meter": "m", "angstrom": "A"}
MAX_RANK, MAX_SPACE = 16, 8
"""NRRD_DIM_MAX and NRRD_SPACE_DIM_MAX of teem."""


def nrrd(view: View) -> FileMap:
    """Header and elements in one file."""
    return whole_file(view, _header(view, ""), view.picture, plain(view, *_TYPES))


def nhdr(view: View) -> FileMap:
    """The header alone; its data file is `NAME.raw`, or `NAME.nrrd` where that has another memory order."""
    if not nameable(view.name):
        raise Unfit("a detached header cannot name such a data file")
    if view.picture == view.natural:
        data = f"data file: {view.name}.raw\n"
    else:
        data = f"byte skip: {len(_header(view, ''))}\ndata file: {view.name}.nrrd\n"
    header = _header(view, data)
    nrrd(view)  # what it names must exist
    return FileMap(len(header), None, ((0, header),))


def nameable(name: str) -> bool:
    """Whether a detached header can name the data file of the array `name`."""
    drive = name[1:2] == ":"  # teem takes it for a path of Windows, and does not look beside the header
    return name.isprintable() and not (drive or "%" in name or name.startswith(("LIST", " ")))


def _header(view: View, data: str) -> bytes:
    dtype = plain(view, *_TYPES)
    ranked(view, 1, MAX_RANK - (dtype.kind == "c"))
    axes = view.picture_axes[::-1]
    sizes = [str(n) for n in view.picture_shape[::-1]]
    labels = [axis.name or "" for axis in axes]
    unit = length_unit(axes)
    units = [unit if converted(1, axis.unit, unit or "") is not None else axis.unit for axis in axes]
    scales = [spacing(axis, unit) for axis in axes]
    if dtype.kind == "c":
        sizes, labels = ["2", *sizes], ["", *labels]
    lines = [
        "NRRD0004",
        f"type: {_TYPES[f'{dtype.kind}{dtype.itemsize}']}",
        f"dimension: {len(sizes)}",
        f"sizes: {' '.join(sizes)}",
    ]
    quoted = [_quoted(_UNITS.get(one or "", one or "")) for one in units]
    parts = int(dtype.kind == "c")  # of a complex number: the fastest axis of the file
    if all(is_space(axis) for axis in axes) and len(axes) <= MAX_SPACE:
        directions = [_direction(scale, row, len(axes)) for row, scale in enumerate(scales)]
        lines += [
            f"space dimension: {len(axes)}",
            "space directions: " + " ".join(["none"] * parts + directions),
            f"space origin: ({','.join(number(offset(axis, unit)) for axis in axes)})",
        ]
        if any(units):
            lines.append("space units: " + " ".join(quoted))
    else:  # readers take axes that are no space for parts of a vector: then each axis has a spacing, and nothing is space
        lines.append("spacings: " + " ".join(["nan"] * parts + [number(scale) for scale in scales]))
        if any(units):
            lines.append("units: " + " ".join(['""'] * parts + quoted))
    if parts:
        lines.append("kinds: " + " ".join(["complex", *(["domain"] * len(axes))]))
    if any(labels):
        lines.append("labels: " + " ".join(map(_quoted, labels)))
    if dtype.itemsize // (2 if dtype.kind == "c" else 1) > 1:
        lines.append(f"endian: {'big' if dtype.byteorder == '>' else 'little'}")
    lines.append("encoding: raw")
    return ("\n".join(lines) + "\n" + data + ("" if data else "\n")).encode()


def _direction(scale: float, row: int, rank: int) -> str:
    return "(" + ",".join(number(scale) if row == column else "0" for column in range(rank)) + ")"


def _quoted(text: str) -> str:
    """Within quotes, of which the text may have none itself, nor what would be another line of the header."""
    shown = "".join(char if char.isprintable() else " " for char in text.replace('"', "'").replace("\\", "/"))
    return f'"{shown.encode("ascii", "replace").decode()}"'
