"""NIfTI-Zarr: the array `nifti` beside the levels of an image of OME-NGFF is the header of a NIfTI file, which wins.

What it says of the finest level holds for the others, too: OME-NGFF says how much coarser these are, and where they begin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fsbridge.meaning import Affine, Axes, Meaning, Orientation
from fsbridge.meaning.convention import Convention, Written, sensible, sensible_affine
from fsbridge.meaning.conventions.ome import first_level

_UNITS = {1: "meter", 2: "millimeter", 3: "micrometer"}
"""Units of length by the lower three bits of `xyzt_units`."""

_POINTING: Sequence[Orientation] = ("R", "A", "S")


def _array(written: Written, known: Meaning) -> Meaning:
    finest = first_level(written.groups[:1], written.names, written.rank)
    names = [axis.name for axis in known.axes]
    if finest is None or any(names.count(name) != 1 for name in "xyz"):
        return known
    beside = written.coordinate("nifti")
    header = None if beside is None or beside[0] is None else _header(beside[0])
    places = [names.index(name) for name in "xyz"]
    steps = None if header is None else _finer(known.axes, finest, places)
    if header is None or steps is None:
        return known
    matrix, unit = header[0] @ steps, header[1]
    axes = list(known.axes)
    for row, place in enumerate(places):
        alone = np.count_nonzero(matrix[row, :3]) == 1 == np.count_nonzero(matrix[:3, row]) and matrix[row, row]
        scale = float(matrix[row, row]) if alone else None
        offset = float(matrix[row, 3]) if alone else 0.0
        axes[place] = axes[place]._replace(unit=unit, scale=scale, offset=offset, orientation=_POINTING[row])
    turned = sorted((place, row) for row, place in enumerate(places) if axes[place].scale is None)
    rows = [row for _, row in turned]
    affine = None
    if turned:
        lines = tuple(tuple(map(float, matrix[row, rows])) for row in rows)
        affine = sensible_affine(Affine(tuple(place for place, _ in turned), lines, tuple(map(float, matrix[rows, 3]))))
    return replace(known, axes=sensible(tuple(axes)), affine=affine)


def _header(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], str | None] | None:
    """Return the matrix and the unit that a header gives; None if it is no header, or says nothing of a place."""
    from nibabel.nifti1 import Nifti1Header
    from nibabel.nifti2 import Nifti2Header
    from nibabel.spatialimages import HeaderDataError
    from nibabel.wrapstruct import WrapStructError

    content = values.astype(np.uint8).tobytes()
    kind = Nifti2Header if len(content) >= Nifti2Header.sizeof_hdr else Nifti1Header
    try:
        header: Any = kind(content[: kind.sizeof_hdr], check=False)  # type: ignore[no-untyped-call]  # nibabel has no types
        placed = int(header["sform_code"]) > 0 or int(header["qform_code"]) > 0
        matrix = np.asarray(header.get_best_affine(), np.float64) if placed else None
    except (HeaderDataError, WrapStructError, ValueError):
        return None
    if matrix is None or not np.isfinite(matrix).all():
        return None
    return matrix, _UNITS.get(int(header["xyzt_units"]) & 7)


def _finer(axes: Axes, finest: Axes, places: Sequence[int]) -> NDArray[np.float64] | None:
    """Return the matrix that converts indexes x, y, z of a level to indexes of the finest level; None if it is not known."""
    matrix = np.eye(4)
    for row, place in enumerate(places):
        own, first = axes[place], finest[place]
        if own.scale is None or first.scale is None:
            if own != first:
                return None
            continue
        matrix[row, row], matrix[row, 3] = own.scale / first.scale, (own.offset - first.offset) / first.scale
    return matrix


NIFTI = Convention("NIfTI-Zarr", _array)
