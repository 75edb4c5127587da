"""NRRD, attached (`.nrrd`) and detached (`.nhdr` with a data file): teem, ITK, Slicer, Fiji. The header is text, x first."""

from __future__ import annotations

from fsbridge.layouts.files.extents import FileMap, Unfit, View, plain, ranked, whole_file
from fsbridge.layouts.files.headers.places import is_space, is_time, length_unit, number, offset, spacing
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
    if "\n" in view.name or "%" in view.name:
        raise Unfit("a detached header cannot name such a data file")
    if view.picture == view.natural:
        data = f"data file: {view.name}.raw\n"
    else:
        data = f"byte skip: {len(_header(view, ''))}\ndata file: {view.name}.nrrd\n"
    header = _header(view, data)
    nrrd(view)  # what it names must exist
    return FileMap(len(header), None, ((0, header),))


def _header(view: View, data: str) -> bytes:
    dtype = plain(view, *_TYPES)
    ranked(view, 1, MAX_RANK - (dtype.kind == "c"))
    axes = view.picture_axes[::-1]
    sizes = [str(n) for n in view.picture_shape[::-1]]
    labels = [(axis.name or "").replace('"', "'").replace("\n", " ") for axis in axes]
    kinds = ["domain" if is_space(axis) else "time" if is_time(axis) else "list" for axis in axes]
    space = [i for i, axis in enumerate(axes) if is_space(axis)]
    directions = ["none"] * len(axes)
    for row, i in enumerate(space):
        scale = spacing(axes[i], length_unit(axes))
        directions[i] = "(" + ",".join(number(scale) if row == column else "0" for column in range(len(space))) + ")"
    if dtype.kind == "c":
        sizes, labels, kinds, directions = ["2", *sizes], ["", *labels], ["complex", *kinds], ["none", *directions]
    lines = [
        "NRRD0004",
        f"type: {_TYPES[f'{dtype.kind}{dtype.itemsize}']}",
        f"dimension: {len(sizes)}",
        f"sizes: {' '.join(sizes)}",
    ]
    if space and len(space) <= MAX_SPACE:
        unit = length_unit(axes)
        origin = ",".join(number(offset(axes[i], unit)) for i in space)
        lines += [f"space dimension: {len(space)}", f"space directions: {' '.join(directions)}", f"space origin: ({origin})"]
        named = [axes[i].unit if converted(1, axes[i].unit, unit or "") is None else unit for i in space]
        if any(named):
            lines.append("space units: " + " ".join(f'"{_ascii(_UNITS.get(one or "", one or ""))}"' for one in named))
        if not all(kind == "domain" for kind in kinds):
            lines.append(f"kinds: {' '.join(kinds)}")
    if any(labels):
        lines.append("labels: " + " ".join(f'"{_ascii(label)}"' for label in labels))
    if dtype.itemsize // (2 if dtype.kind == "c" else 1) > 1:
        lines.append(f"endian: {'big' if dtype.byteorder == '>' else 'little'}")
    lines.append("encoding: raw")
    return ("\n".join(lines) + "\n" + data + ("" if data else "\n")).encode()


def _ascii(text: str) -> str:
    return text.encode("ascii", "replace").decode()


