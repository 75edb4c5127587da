"""Dimension scales of a virtual HDF5 file, as in netCDF-4: which datasets are scales, and which scales must be added.

netCDF takes the dimensions of a dataset from its scales, and cannot open one that has scales for some dimensions only. So
every dimension of an array with names gets one: the coordinate array of that name, else one made from the spacing, else one
without values that netCDF does not show as a variable. An array of an HDF5 file that has scales for some dimensions only
keeps these. Not here: how they are written (`child/skeleton.py`).

Source: netCDF-C, `libhdf5/hdf5create.c` and `nc4hdf.c` (names of dimensions without a variable).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fsbridge.meaning import Axis
from fsbridge.meaning.conventions import netcdf as netcdf_c
from fsbridge.meaning.conventions.cf import UNITS, typed
from fsbridge.meaning.conventions.netcdf import too_long
from fsbridge.meaning.units import symbol
from fsbridge.metadata import JSON

COORDINATE_VALUES = 65536
"""Most elements of a coordinate that is made from an axis' spacing, or added to the file of one array."""


class Labelled(NamedTuple):
    """What dimension scales need to know about a dataset: its shape and axes, in HDF5's order.

    `scale`: the name that it has as a scale; None if the source does not say that it is a scale. `final`: no scales are
    added to those that it has in its own HDF5 file.
    """

    shape: tuple[int, ...]
    axes: tuple[Axis, ...] | None
    scale: str | None
    final: bool


class Scales(NamedTuple):
    """The dimension scales of a file, as instructions for its writer.

    `datasets`: scales to be added to the file, as `Specification.add` takes them. `made`: path and name of each scale.
    `attached`: path of a dataset, number of its dimension, and path of the scale. `notes`: path, name and value of
    attributes in which netCDF-C keeps what HDF5's scales cannot say.
    """

    datasets: list[dict[str, JSON]]
    made: list[list[str]]
    attached: list[list[JSON]]
    notes: list[list[JSON]]


def find_scales(arrays: Mapping[str, Labelled], netcdf: bool = False) -> Scales:
    """Find the dimension scales of `arrays`, which are given by path.

    A dimension's scale is an array of its name, in the group of its array or in a group above; else a scale is added.
    """
    made = {path: array.scale for path, array in arrays.items() if array.scale is not None}
    attached: dict[str, list[list[JSON]]] = {}
    dimensions = _Dimensions(arrays, netcdf)
    for path, array in arrays.items():
        if _is_coordinate(path, array, netcdf):
            made.setdefault(path, path.rpartition("/")[2])
            if len(array.shape) == 1:
                continue
        for position, axis in enumerate(array.axes or ()):
            coordinate = _find_coordinate(arrays, path, array.shape[position], axis.name, netcdf)
            if coordinate is None:
                if array.final:
                    continue
                scale = dimensions.find(path, position, array.shape[position], axis)
            elif array.final and arrays[coordinate].scale is None:
                continue
            else:
                scale = coordinate
                made.setdefault(scale, str(axis.name))
            attached.setdefault(path, []).append([path, position, scale])
    pairs = [*([path, name] for path, name in made.items()), *dimensions.named]
    shown = [item for path, items in attached.items() if path not in made for item in items]
    several = {path: items for path, items in attached.items() if netcdf and path in made and len(arrays[path].shape) > 1}
    return Scales(dimensions.datasets, pairs, shown, _make_notes([path for path, _ in pairs], several))


def _make_notes(paths: Sequence[str], several: Mapping[str, Sequence[Sequence[JSON]]]) -> list[list[JSON]]:
    """Return netCDF-C's attributes about scales with `several` dimensions, such as the letters of names.

    If there are such scales, each scale of the file is numbered, and theirs list the numbers of their dimensions' scales.
    """
    if not several:
        return []
    numbers: dict[JSON, int] = {path: number for number, path in enumerate(paths)}
    noted: list[list[JSON]] = [[path, netcdf_c.DIMENSION, numbers[path]] for path in paths]
    return [*noted, *([path, netcdf_c.COORDINATES, [numbers[item[2]] for item in items]] for path, items in several.items())]


def _is_coordinate(path: str, array: Labelled, netcdf: bool) -> bool:
    """True if the array has one dimension, and both have the same name. In netCDF other dimensions may follow that one."""
    axes = array.axes
    if array.final or not axes or (len(axes) > 1 and not netcdf):
        return False
    return axes[0].name == path.rpartition("/")[2]


def _find_coordinate(arrays: Mapping[str, Labelled], path: str, extent: int, label: str | None, netcdf: bool) -> str | None:
    """Return the path of the coordinate of a dimension of the array at `path`; None if there is none.

    `extent`, `label`: length and name of the dimension.
    """
    folder = path.rpartition("/")[0]
    while label is not None:
        candidate = f"{folder}/{label}"
        array = arrays.get(candidate)
        several = array is not None and len(array.shape) > 1 and _is_coordinate(candidate, array, netcdf)
        if array is not None and (candidate != path or several):
            return candidate if array.shape == (extent,) or (several and array.shape[0] == extent) else None
        if not folder:
            return None
        folder = folder.rpartition("/")[0]
    return None


class _Dimensions:
    """The scales that are added to the file.

    All arrays of a group share one scale for a dimension of the same name and axis.
    """

    def __init__(self, arrays: Mapping[str, Labelled], netcdf: bool) -> None:
        self._netcdf = netcdf
        self._taken = set(arrays)
        self._known: dict[tuple[str, int, Axis], str] = {}
        self.datasets: list[dict[str, JSON]] = []
        self.named: list[list[str]] = []

    def find(self, path: str, position: int, extent: int, axis: Axis) -> str:
        """Return the path of the scale of dimension `position` of the array at `path`.

        Add the scale if it does not exist yet.
        """
        folder, _, array = path.rpartition("/")
        label = axis.name if axis.name and re.fullmatch(r"[^/.\0][^/\0]*", axis.name) else None
        if label is not None and too_long(label):
            label = None
        key = folder, extent, axis if label is not None else Axis(f"{array}.{position}")
        known = self._known.get(key)
        if known is None:
            label = label or f"{array}_dim_{position}"
            names = [label, f"{label}_{array}", *(f"{label}_{number}" for number in range(len(self._taken) + 2))]
            name = next(name for name in names if f"{folder}/{name}" not in self._taken)
            known = self._known[key] = f"{folder}/{name}"
            self._taken.add(known)
            self._make(known, name, extent, axis)
        return known

    def _make(self, path: str, name: str, extent: int, axis: Axis) -> None:
        if axis.scale is not None and 0 < extent <= COORDINATE_VALUES:
            self.datasets.append(describe_spacing(path, extent, axis, self._netcdf))
            self.named.append([path, name])
            return
        self.datasets.append({"kind": "dataset", "path": path, "shape": [extent], "dtype": ">f4", "attributes": {}})
        self.named.append([path, f"This is a netCDF dimension but not a netCDF variable.{extent:10d}"])


def describe_spacing(path: str, extent: int, axis: Axis, netcdf: bool) -> dict[str, JSON]:
    """Describe the dataset of a coordinate with values that follow from the offset and the spacing of an axis."""
    values = axis.offset + (axis.scale or 1.0) * np.arange(extent, dtype="<f8")
    return describe_values(path, values, {UNITS: symbol(axis.unit) or axis.unit} if axis.unit else {}, netcdf)


def describe_values(
    path: str,
    values: np.ndarray[tuple[int, ...], np.dtype[np.generic]],
    attributes: Mapping[str, JSON],
    netcdf: bool = False,
) -> dict[str, JSON]:
    """Describe a dataset with the elements `values`, which lie in the skeleton."""
    return {
        "kind": "dataset",
        "path": path,
        "shape": list(values.shape),
        "dtype": values.dtype.str,
        "attributes": dict(attributes),
        "typed": typed(attributes),
        "netcdf": netcdf,
        "items": base64.b64encode(values.tobytes()).decode(),
    }
