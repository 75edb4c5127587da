"""`element_size_um` (ilastik, BigDataViewer's HDF5), slowest first; else `resolution` and `units`, in the array's order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fsbridge.meaning import Axes, Axis, Meaning
from fsbridge.meaning.attributes import numbers, one_each
from fsbridge.meaning.convention import Convention, Written, sensible, unknown
from fsbridge.meaning.units import fold, meters
from fsbridge.metadata import JSON

_SIZE = "element_size_um"


def _array(written: Written, known: Meaning) -> Meaning:
    axes = _axes(written) if unknown(known.axes) else None
    return known if axes is None else replace(known, axes=sensible(axes))


def _axes(written: Written) -> Axes | None:
    attributes, rank = written.attributes, written.rank
    scale = numbers(attributes.get(_SIZE), rank)
    if scale is not None:
        axes = tuple(Axis(None, "micrometer", step) for step in scale)
        return axes[::-1] if written.x_first else axes
    scale = numbers(attributes.get("resolution"), rank)
    if scale is None:
        return None
    units = one_each(attributes.get("units"), rank)
    return tuple(Axis(None, fold(unit), step) for unit, step in zip(units, scale, strict=True))


def write(axes: Sequence[Axis], attributes: dict[str, JSON]) -> None:
    """Add the sizes of elements to attributes that have none, if all axes have a spacing in a unit of length.

    `axes`: slowest first. Negative steps are no sizes, and a map has no voxels.
    """
    sizes = [_micrometers(axis) for axis in axes]
    if sizes and None not in sizes:
        attributes.setdefault(_SIZE, sizes)


def _micrometers(axis: Axis) -> float | None:
    unit = meters(axis.unit)
    if unit is None or axis.scale is None or axis.scale < 0 or axis.kind in ("northing", "easting"):
        return None
    return float(f"{axis.scale * unit * 1e6:.15g}")


SIZES = Convention("ilastik", _array)
