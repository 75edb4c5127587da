"""One store of every format, written by its own library, as the members of one collection. Not here: programs, mounts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
import z5py
import zarr
from hangar_data import Expected
from hangar_data import unpack as unpack_hangar
from nwb_data import expected_arrays
from nwb_data import unpack as unpack_nwb

SHAPE = (11, 20, 30)
CHUNKS = (4, 8, 16)
SPACING, ORIGIN = (4.0, 5.0, 40.0), (20.0, 0.0, 100.0)
"""The spacing of the volumes, in nanometers, x first."""
HOLE = (slice(4, 8), slice(8, 16), slice(0, 16))
"""A chunk that is never written."""


@dataclass(frozen=True)
class Sample:
    """An array of a store: its path in the collection, its values in the source's order of dimensions.

    `fastest_first`: its first dimension is the fastest, so that N5 shows it as it is. `spacing`, `origin`: in nanometers, x
    first, where the source says so. `large`: more than 4 GB, of which `values` are the planes of `plane_numbers`.
    """

    format: str
    path: str
    values: np.ndarray[Any, Any]
    fastest_first: bool = False
    spacing: tuple[float, ...] | None = None
    origin: tuple[float, ...] | None = None
    large: bool = False


def values() -> np.ndarray[Any, Any]:
    found = np.random.default_rng(7).integers(1, 60000, SHAPE).astype("<u2")
    found[HOLE] = 0
    return found


def positions(axis: int) -> np.ndarray[Any, Any]:
    """Return the places of the elements along an axis (z, y, x), in nanometers."""
    found: np.ndarray[Any, Any] = ORIGIN[2 - axis] + np.arange(SHAPE[axis]) * SPACING[2 - axis]
    return found


def multiscales() -> dict[str, Any]:
    """OME-NGFF's words for where the volume lies."""
    scale, start = list(SPACING[::-1]), list(ORIGIN[::-1])
    steps = [{"type": "scale", "scale": scale}, {"type": "translation", "translation": start}]
    axes = [{"name": name, "type": "space", "unit": "nanometer"} for name in "zyx"]
    return {"multiscales": [{"axes": axes, "datasets": [{"path": "volume", "coordinateTransformations": steps}]}]}


def plane_numbers(count: int) -> tuple[int, ...]:
    """The first, a middle and the last plane, which are looked at where there are too many."""
    return 0, count // 2 + 1, count - 1


def large(path: Path) -> Sample:
    """A stack of more than 4 GB of which only those planes are stored."""
    shape = (2200, 1024, 1024)
    array = zarr.open_group(str(path), mode="w").create_array("stack", shape=shape, chunks=(1, *shape[1:]), dtype="<u2")
    planes = np.random.default_rng(8).integers(0, 60000, (3, *shape[1:])).astype("<u2")
    for number, plane in zip(plane_numbers(shape[0]), planes, strict=True):
        array[number] = plane
    return Sample("Zarr v3, 4.6 GB", f"{path.name}/stack", planes, large=True)


def fill(array: Any, data: np.ndarray[Any, Any]) -> None:
    """Write every chunk but the hole."""
    for z in range(0, SHAPE[0], CHUNKS[0]):
        for y in range(0, SHAPE[1], CHUNKS[1]):
            for x in range(0, SHAPE[2], CHUNKS[2]):
                where = (slice(z, z + CHUNKS[0]), slice(y, y + CHUNKS[1]), slice(x, x + CHUNKS[2]))
                if where != HOLE:
                    array[where] = data[where]


def write(folder: Path) -> list[Sample]:
    """Write the collection into `folder` and say what is in it."""
    data = values()
    folder.mkdir()
    found = []
    with z5py.File(str(folder / "a.n5"), "w", use_zarr_format=False) as file:
        array = file.create_dataset("volume", shape=SHAPE, chunks=CHUNKS, dtype="uint16", compression="gzip")
        array.attrs["axes"] = ["x", "y", "z"]
        array.attrs["pixelResolution"] = {"unit": "nm", "dimensions": list(SPACING)}
        fill(array, data)
    found.append(Sample("N5", "a.n5/volume", data.T, True, SPACING))
    orders: tuple[Literal["C", "F"], ...] = ("C", "F")
    for order in orders:
        group = zarr.open_group(str(folder / f"{order}.zarr"), mode="w", zarr_format=2)
        for axis, name in enumerate("zyx"):  # not OME's words, which netCDF-C takes for an error
            coordinate = group.create_array(name, shape=SHAPE[axis : axis + 1], chunks=SHAPE[axis : axis + 1], dtype="<f8")
            coordinate[...] = positions(axis)
            coordinate.attrs.update({"_ARRAY_DIMENSIONS": [name], "units": "nm"})
        array = group.create_array("volume", shape=SHAPE, chunks=CHUNKS, dtype="<u2", order=order, fill_value=0)
        array.attrs["_ARRAY_DIMENSIONS"] = ["z", "y", "x"]
        fill(array, data)
        found.append(Sample(f"Zarr v2 {order}", f"{order}.zarr/volume", data, order == "F", SPACING, ORIGIN))
    group = zarr.open_group(str(folder / "sharded.zarr"), mode="w", zarr_format=3)
    group.attrs["ome"] = {"version": "0.5", **multiscales()}
    shards = tuple(2 * edge for edge in CHUNKS)
    names = ("z", "y", "x")
    fill(
        group.create_array(
            "volume", shape=SHAPE, chunks=CHUNKS, shards=shards, dtype="<u2", fill_value=0, dimension_names=names
        ),
        data,
    )
    found.append(Sample("Zarr v3 sharded", "sharded.zarr/volume", data, False, SPACING, ORIGIN))
    with h5py.File(folder / "a.h5", "w") as file:
        options: dict[str, Any] = {"chunks": CHUNKS, "compression": "gzip", "shuffle": True}
        array = file.create_dataset("volume", SHAPE, "<u2", **options)
        for axis, name in enumerate("zyx"):
            file[name] = positions(axis)
            file[name].attrs["units"] = "nm"
            file[name].make_scale(name)
            array.dims[axis].attach_scale(file[name])
        fill(array, data)
    found.append(Sample("HDF5", "a.h5/volume", data, False, SPACING, ORIGIN))
    unpack_nwb("zarr2", folder)
    path, series = next((path, array) for path, array in expected_arrays("zarr2").items() if path.endswith("/data"))
    found.append(Sample("NWB", f"session.nwb.zarr/{path}", series))
    unpack_hangar("main", folder / "hangar")
    expected = Expected.load("main")
    place, sample = next(
        (place, value)
        for place, value in expected.values.items()
        if place[0] in expected.branches.values() and place[-1].isalnum() and getattr(value, "ndim", 0) > 1
    )
    commit = place[0]
    found.append(Sample("Hangar", f"hangar/commits/{commit}/{'/'.join(place[1:])}", np.asarray(sample)))
    found.append(large(folder / "large.zarr"))
    return found
