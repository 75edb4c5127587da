"""NIfTI-1 in one file (`.nii`), by nibabel: x, y, z, time, channels, in millimeters.

Its axes run right, anterior, superior. So x and y change their signs, and each element has the same place as elsewhere.
"""

from __future__ import annotations

import math
from typing import Any

from fsbridge.layouts.files.arrays.extents import FileMap, View, make_whole_file
from fsbridge.layouts.files.filetypes.filetype import FileType, Limit, extent, narrow_dtype
from fsbridge.layouts.files.filetypes.geometry import offset, placement, spacing, volume
from fsbridge.meaning import Axis
from fsbridge.meaning.kinds import is_channel, is_space, is_time
from fsbridge.meaning.units import meters, seconds

_TYPES = ("u1", "i1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", "c8", "c16")
MAX_RANK = 7
LEAST, MOST = 1e-37, 1e38
"""Smallest and largest magnitudes that a header can hold."""
MAX_EXTENT = 32767
"""Most elements along a dimension: the header has signed 16-bit integers."""
HEADER_BYTES = 352


def nii(view: View) -> FileMap:
    """Return the plan of a file with at most seven dimensions, each of at most 32767 elements."""
    order = _order(view)
    kept = tuple(i for i in order[::-1] if i is not None)
    return make_whole_file(view, _header(view, order), kept, narrow_dtype(view, *_TYPES))


def _header(view: View, order: tuple[int | None, ...]) -> bytes:
    import numpy as np
    from nibabel.nifti1 import Nifti1Header

    dtype, packed = narrow_dtype(view, *_TYPES), view.packing
    axes = [Axis() if i is None else view.axes[i] for i in order]
    place = placement(view, (*order, None, None)[:3], "millimeter")
    lengths = [meters(view.axes[i].unit) is not None for i in order[:3] if i is not None]
    header: Any = Nifti1Header(endianness=">" if dtype.byteorder == ">" else "<")
    header.set_data_shape([1 if i is None else view.shape[i] for i in order])
    header.set_data_dtype(dtype.newbyteorder("="))
    steps = [abs(spacing(axis, "second" if i > 2 and is_time(axis) else "millimeter")) for i, axis in enumerate(axes)]
    if place is not None:
        steps[:3] = place.lengths[: len(axes)]
        affine = np.eye(4)
        affine[:3] = np.column_stack([place.steps, place.origin])
        affine[:2] = -affine[:2] + 0.0  # NIfTI's x and y run to the right and to the front; 0.0 and not -0.0
        header.set_qform(affine, code=int(_is_rigid(place.vectors)), strip_shears=True)
        header.set_sform(affine, code=1)
    header.set_zooms(steps)
    timed = len(axes) > 3 and (order[3] is None or (seconds(axes[3].unit) is not None and axes[3].scale is not None))
    header.set_xyzt_units("mm" if place is not None and all(lengths) else None, "sec" if timed else None)
    if len(axes) > 3 and is_time(axes[3]):
        header["toffset"] = offset(axes[3], "second")
    if packed and all(LEAST <= abs(value) <= MOST for value in packed if value):
        header["scl_slope"], header["scl_inter"] = packed
    header["vox_offset"] = HEADER_BYTES
    header["magic"] = b"n+1"
    return bytes(header.binaryblock) + bytes(4)


def _order(view: View) -> tuple[int | None, ...]:
    """Return the region's dimension for each NIfTI dimension: x, y, z, time, then the others. None: a filler of length 1.

    The order is kept if no axis is time or channels, or if the new order would need more than seven dimensions.
    """
    plain_order = volume(view)[::-1]
    times = [i for i in plain_order if is_time(view.axes[i])][:1]
    spaces = [i for i in plain_order if is_space(view.axes[i])][:3]
    others = [i for i in plain_order if i not in times and i not in spaces]
    if not times and not any(is_channel(view.axes[i]) for i in others):
        return plain_order
    absent: list[int | None] = [None] * (3 - len(spaces))
    order = [*spaces, *absent, times[0] if times else None, *others]
    return plain_order if len(order) > MAX_RANK else tuple(order)


def _is_rigid(vectors: list[list[float]]) -> bool:
    """True if all axes are at right angles. Only then can a `qform` express them; a shear is in the `sform` alone."""
    pairs = [(one, other) for i, one in enumerate(vectors) for other in vectors[:i]]
    return all(
        abs(sum(a * b for a, b in zip(one, other, strict=True))) <= 1e-6 * math.hypot(*one) * math.hypot(*other)
        for one, other in pairs
    )


NII = FileType(
    "nii",
    nii,
    types=_TYPES,
    ranks=(2, MAX_RANK),
    limits=(Limit(extent, MAX_EXTENT, f"NIfTI-1 has at most {MAX_EXTENT} elements along a dimension"),),
    narrows=True,
)
