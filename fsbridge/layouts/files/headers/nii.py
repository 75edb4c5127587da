"""NIfTI-1 in one file (`.nii`), by nibabel: x first, spacing in millimeters or micrometers."""

from __future__ import annotations

from typing import Any

from fsbridge.layouts.files.extents import FileMap, Unfit, View, plain, ranked, whole_file
from fsbridge.layouts.files.headers.geometry import is_time, offset, spacing
from fsbridge.layouts.files.units import meters, seconds

_TYPES = ("u1", "i1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", "c8", "c16")
MAX_EXTENT = 32767
"""Dimensions are 16 bit integers."""
HEADER_BYTES = 352


def nii(view: View) -> FileMap:
    """At most seven dimensions of at most 32767."""
    check(view)
    return whole_file(view, _header(view), view.picture, plain(view, *_TYPES))


def check(view: View) -> None:
    """Unfit where NIfTI-1 cannot hold the array."""
    plain(view, *_TYPES)
    ranked(view, 1, 7)
    if max(view.shape) > MAX_EXTENT:
        raise Unfit(f"NIfTI-1 has no dimension above {MAX_EXTENT}")


def _header(view: View) -> bytes:
    import numpy as np
    from nibabel.nifti1 import Nifti1Header

    dtype = plain(view, *_TYPES)
    axes, sizes = view.picture_axes[::-1], view.picture_shape[::-1]
    unit = _unit([axis.unit for axis in axes[:3]])
    header: Any = Nifti1Header(endianness=">" if dtype.byteorder == ">" else "<")  # type: ignore[no-untyped-call]  # nibabel has no types
    header.set_data_shape(sizes)
    header.set_data_dtype(dtype.newbyteorder("="))
    steps = [spacing(axis, unit if i < 3 else "second" if is_time(axis) else None) for i, axis in enumerate(axes)]
    header.set_zooms([abs(step) for step in steps])
    affine = np.eye(4)
    for i, axis in enumerate(axes[:3]):
        affine[i, i] = steps[i]
        affine[i, 3] = offset(axis, unit)
    header.set_qform(affine, code=1, strip_shears=True)
    header.set_sform(affine, code=1)
    timed = len(axes) > 3 and is_time(axes[3]) and seconds(axes[3].unit) is not None
    header.set_xyzt_units({"millimeter": "mm", "micrometer": "micron"}.get(unit or ""), "sec" if timed else None)
    header["vox_offset"] = HEADER_BYTES
    header["magic"] = b"n+1"
    return bytes(header.binaryblock) + bytes(4)


def _unit(units: list[str | None]) -> str | None:
    """Micrometers for what is measured in less than millimeters; None where no length is known."""
    known = [length for unit in units if (length := meters(unit)) is not None]
    if not known:
        return None
    return "micrometer" if min(known) < 0.99e-3 else "millimeter"
