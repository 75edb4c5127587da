"""MRC2014 (`.mrc`): IMOD, EMAN2, RELION, Chimera. The header is the standard's record, in Angstrom.

The file is little-endian, whatever the source is: VTK ignores what the header says of the byte order.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fsbridge.layouts.files.arrays.extents import FileMap, View, make_whole_file
from fsbridge.layouts.files.filetypes.filetype import FileType, Limit, extent, narrow_dtype, nbytes
from fsbridge.layouts.files.filetypes.geometry import offset, spacing, volume

if TYPE_CHECKING:
    import numpy as np

    from fsbridge.meaning import Axis

_MODES = {"i1": 0, "i2": 1, "f4": 2, "c8": 4, "u2": 6, "f2": 12, "u1": 6}
"""MRC's modes by numpy's type. Unsigned bytes have no mode and become unsigned integers of 16 bits."""

_HEADER = [
    ("size", "i4", 3), ("mode", "i4"), ("start", "i4", 3), ("sampling", "i4", 3), ("cell", "f4", 3), ("angles", "f4", 3),
    ("axes", "i4", 3), ("dmin", "f4"), ("dmax", "f4"), ("dmean", "f4"), ("ispg", "i4"), ("nsymbt", "i4"), ("extra1", "V8"),
    ("exttyp", "S4"), ("nversion", "i4"), ("extra2", "V84"), ("origin", "f4", 3), ("map", "S4"), ("machst", "u1", 4),
    ("rms", "f4"), ("nlabl", "i4"), ("label", "S80", 10),
]  # fmt: skip
MAX_EXTENT = 2**31 - 1


def mrc(view: View) -> FileMap:
    """Return the plan of a picture, a volume, or a stack of volumes."""
    import numpy as np

    dtype = narrow_dtype(view, *_MODES)
    shape = (1,) * (3 - len(view.shape)) + tuple(view.shape[i] for i in volume(view))
    shown = np.dtype("<u2") if dtype.kind + str(dtype.itemsize) == "u1" else dtype.newbyteorder("<")
    return make_whole_file(view, _header(view, shape, shown), volume(view), shown)


def _header(view: View, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> bytes:
    import numpy as np

    record = np.zeros((), np.dtype([tuple(field) for field in _HEADER]).newbyteorder("<"))
    assert record.nbytes == 1024
    sampling = shape[-3:][::-1]
    axes = [view.axes[i] for i in volume(view)[::-1]][:3]
    record["size"] = (shape[-1], shape[-2], int(np.prod(shape[:-2])))
    record["mode"] = _MODES[f"{dtype.kind}{dtype.itemsize}"]
    record["sampling"] = sampling
    record["cell"] = [n * (_edge(axes[i]) if i < len(axes) else 1.0) for i, n in enumerate(sampling)]
    record["angles"] = 90
    record["axes"] = (1, 2, 3)
    record["dmax"], record["dmean"], record["rms"] = -1, -2, -1  # not computed, by the standard's convention
    record["ispg"] = 401 if len(shape) == 4 else 1 if len(view.shape) == 3 else 0
    record["exttyp"], record["nversion"], record["map"] = b"MRCO", 20140, b"MAP "
    record["origin"] = [offset(axes[i], "angstrom") if i < len(axes) else 0.0 for i in range(3)]
    record["machst"] = (0x44, 0x44, 0, 0)
    return record.tobytes()


def _edge(axis: Axis) -> float:
    """Return the size of a voxel along an axis in Angstrom; 0, as programs write it, if it is unknown."""
    return 0.0 if axis.scale is None else abs(spacing(axis, "angstrom"))


def _sections(view: View) -> int:
    return math.prod(view.shape[i] for i in volume(view)[:-2])


_TOO_LONG = f"MRC has at most {MAX_EXTENT} elements along a dimension"
MRC = FileType(
    "mrc",
    mrc,
    types=tuple(_MODES),
    ranks=(2, 4),
    narrows=True,
    limits=(
        Limit(extent, MAX_EXTENT, _TOO_LONG),
        Limit(_sections, MAX_EXTENT, _TOO_LONG),
        Limit(nbytes, 2**62 - 2**32, "the file would have 2^63 bytes or more"),  # 8 bits may become 16
    ),
)
