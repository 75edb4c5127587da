"""The layout n5 says axes, units, resolution and downsampling factors where the source does, as N5 readers expect them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
import pytest
import tensorstore
import z5py
import zarr
from mounting import MountFunction
from waiting import until

AXES = [
    {"name": "c", "type": "channel"},
    {"name": "z", "type": "space", "unit": "micrometer"},
    {"name": "y", "type": "space", "unit": "nanometer"},
    {"name": "x", "type": "space", "unit": "nanometer"},
]
SCALES = {
    "s0": [1.0, 0.5, 4.0, 4.5],
    "s1": [1.0, 0.5, 8.0, 9.0],
    "sub/s2": [1.0, 1.0, 16.0, 18.0],
    "odd": [1.0, 0.5, 6.0, 9.0],
}
ADDED = ("axes", "units", "resolution", "downsamplingFactors")


def multiscales(scales: dict[str, list[float]]) -> list[dict[str, Any]]:
    return [
        {
            "axes": AXES,
            "datasets": [
                {"path": path, "coordinateTransformations": [{"type": "scale", "scale": scale}]}
                for path, scale in scales.items()
            ],
        }
    ]


def image(path: Path, zarr_format: Literal[2, 3]) -> zarr.Group:
    scales = multiscales(SCALES)
    attributes = {"ome": {"version": "0.5", "multiscales": scales}} if zarr_format == 3 else {"multiscales": scales}
    group = zarr.create_group(path, zarr_format=zarr_format, attributes=attributes)
    for number, name in enumerate(SCALES):
        group.create_array(name, shape=(2, 3, 16 >> number, 32 >> number), chunks=(1, 3, 2, 2), dtype="u1")[:] = 1
    group.create_array("other", shape=(2, 2), chunks=(2, 2), dtype="u1")[:] = 1
    return group


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_levels_of_ome_zarr_have_resolutions_and_factors_of_n5(
    tmp_path: Path, mount: MountFunction, zarr_format: Literal[2, 3]
) -> None:
    """`resolution` times `downsamplingFactors` is the scale of the level, for that is what N5 readers make of them."""
    image(tmp_path / "m.zarr", zarr_format)
    mounted = mount(tmp_path / "m.zarr", "--layout", "n5").path
    read = z5py.File(str(mounted), mode="r", use_zarr_format=False)
    for name, scale in SCALES.items():
        found = dict(read[name].attrs)
        factors = found.get("downsamplingFactors", [1, 1, 1, 1])
        assert [a * b for a, b in zip(found["resolution"], factors, strict=True)] == scale[::-1]
        assert found["axes"] == ["x", "y", "z", "c"]
        assert found["units"] == ["nanometer", "nanometer", "micrometer", ""]
    assert read["s0"].attrs["downsamplingFactors"] == [1, 1, 1, 1]
    assert read["s1"].attrs["downsamplingFactors"] == [2, 2, 1, 1]
    assert read["sub/s2"].attrs["downsamplingFactors"] == [4, 4, 2, 1]
    assert "downsamplingFactors" not in read["odd"].attrs, "1.5 times is no factor"
    assert not set(ADDED) & set(read["other"].attrs), "the image is not about it"
    spec = {"driver": "n5", "kvstore": f"file://{mounted}/s0/"}
    store = tensorstore.open(spec, open=True, read=True).result()
    assert store.domain.labels == ("x", "y", "z", "c")
    assert [str(unit) for unit in store.dimension_units] == ["4.5 nanometer", "4 nanometer", "0.5 micrometer", "1"]


def test_attributes_of_the_array_are_kept(tmp_path: Path, mount: MountFunction) -> None:
    group = image(tmp_path / "m.zarr", 3)
    group["s0"].attrs["axes"] = ["a", "b", "d", "e"]
    group["s0"].attrs["resolution"] = [1, 2, 3, 4]
    group["s1"].attrs["pixelResolution"] = [1, 2, 3, 4]
    mounted = mount(tmp_path / "m.zarr", "--layout", "n5").path
    first, second = (json.loads((mounted / name / "attributes.json").read_bytes()) for name in ("s0", "s1"))
    assert [first.get(name) for name in ADDED] == [["e", "d", "b", "a"], None, [4, 3, 2, 1], None]
    assert [second.get(name) for name in ADDED] == [["x", "y", "z", "c"], None, None, None], "they would be multiplied"


def test_p9_a_group_that_changes_changes_its_arrays(tmp_path: Path, mount: MountFunction) -> None:
    group = image(tmp_path / "m.zarr", 3)
    document = mount(tmp_path / "m.zarr", "--layout", "n5").path / "s1/attributes.json"
    assert json.loads(document.read_bytes())["resolution"] == [4.5, 4, 0.5, 1]
    group.attrs["ome"] = {"version": "0.5", "multiscales": multiscales({"s1": [1.0, 7.0, 8.0, 9.0]})}
    until(lambda: json.loads(document.read_bytes())["resolution"] == [9, 8, 7, 1])


def test_coordinates_beside_an_array(tmp_path: Path, mount: MountFunction) -> None:
    """CF coordinates and HDF5's dimension scales; none of it where one axis is not regularly spaced."""
    lat, lon, depth = np.arange(4) * 0.5, 10 + np.arange(6) * 0.25, np.array([0.0, 1, 10, 100])
    group = zarr.create_group(tmp_path / "cf.zarr", zarr_format=3)
    with h5py.File(tmp_path / "cf.h5", "w") as file:
        for name, values, unit in (("lat", lat, "degrees_north"), ("lon", lon, "degrees_east"), ("depth", depth, "m")):
            array = group.create_array(name, shape=values.shape, chunks=(3,), dtype="f8", dimension_names=(name,))
            array[:], array.attrs["units"] = values, unit
            file[name] = values
            file[name].attrs["units"] = unit
            file[name].make_scale(name)
        for name, labels in (("t", ("lat", "lon")), ("d", ("depth", "lon"))):
            array = group.create_array(name, shape=(4, 6), chunks=(2, 2), dtype="f4", dimension_names=labels)
            array[:], array.attrs["units"] = 1, "K"
            dataset = file.create_dataset(name, data=np.ones((4, 6), "f4"), chunks=(2, 2))
            for dimension, label in zip(dataset.dims, labels, strict=True):
                dimension.label = label
                dimension.attach_scale(file[label])
            dataset.attrs["units"] = "K"
    for source in ("cf.zarr", "cf.h5"):
        mounted = mount(tmp_path / source, "--layout", "n5").path
        told, untold = (json.loads((mounted / name / "attributes.json").read_bytes()) for name in ("t", "d"))
        assert [told.get(name) for name in ADDED] == [["lon", "lat"], ["degrees_east", "degrees_north"], [0.25, 0.5], None]
        assert [untold.get(name) for name in ADDED] == [["lon", "depth"], None, None, None]
        assert told["units_"] == untold["units_"] == "K", "of the elements"
        spec = {"driver": "n5", "kvstore": f"file://{mounted}/t/"}
        store = tensorstore.open(spec, open=True, read=True).result()
        assert [unit and unit.multiplier for unit in store.dimension_units] == [0.25, 0.5]
