"""Virtual HDF5 files as netCDF programs read them: names of dimensions, dates, texts, missing elements, a copy to edit."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import xarray
import zarr
from hangar_data import unpack
from mounting import MountFunction

from fsbridge.config import Config
from fsbridge.errors import FsbridgeError
from fsbridge.metadata import JSON
from fsbridge.unmounted import VirtualTree


@pytest.fixture(params=[2, 3])
def climate(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A store that xarray wrote: 360-day calendar with bounds, bare dimensions, two dimensions of one length."""
    time = np.arange(40.0)
    variables: dict[str, Any] = {
        "tas": (("time", "lat"), np.ones((40, 3)), {"units": "K"}),
        "bare": (("station", "month"), np.zeros((3, 5), "<i2")),
        "time_bnds": (("time", "nv"), np.stack([time, time + 1], 1)),
    }
    days = {"units": "days since 2001-01-01", "calendar": "360_day", "bounds": "time_bnds", "axis": "T"}
    coordinates = {"time": ("time", time, days), "lat": ("lat", [-60.0, 0.0, 70.0], {"units": "degrees_north"})}
    dataset = xarray.Dataset(variables, coordinates, {"title": "A title"})
    dataset.to_zarr(tmp_path / "climate.zarr", zarr_format=request.param, consolidated=False)
    return tmp_path / "climate.zarr"


def attributes(variable: Any) -> dict[str, Any]:
    return {name: variable.getncattr(name) for name in variable.ncattrs() if name != "_FillValue"}


def test_p12_netcdf_reads_names_of_dimensions_dates_and_texts(climate: Path, mount: MountFunction) -> None:
    mounted = mount(climate, "--layout", "files").path
    with netCDF4.Dataset(mounted / "climate.nc") as whole, netCDF4.Dataset(mounted / "tas.nc") as single:
        assert whole["tas"].dimensions == single["tas"].dimensions == ("time", "lat")
        assert whole["bare"].dimensions == ("station", "month")
        assert "station" not in whole.variables, "it is a dimension without a variable"
        assert attributes(single["time"]) == attributes(whole["time"])
        assert single["time"].calendar == "360_day"
        for file in (whole, single):
            np.testing.assert_array_equal(file["time_bnds"][:, 1], np.arange(40) + 1)
            dates = np.asarray(netCDF4.num2date(file["time"][:], file["time"].units, file["time"].calendar))
            assert (dates[30].month, dates[30].day) == (2, 1)
    for suffix, kind in (("nc", "S"), ("h5", "O")):
        with h5py.File(mounted / f"climate.{suffix}") as raw:
            for owner, name in ((raw, "title"), (raw["tas"], "units")):
                assert owner.attrs.get_id(name).dtype.kind == kind, "NC_CHAR in netCDF, and what h5py writes in HDF5"
    with h5py.File(mounted / "climate.h5") as raw:
        assert "DIMENSION_LABELS" not in raw["tas"].attrs
        assert "_ARRAY_DIMENSIONS" not in raw["tas"].attrs


def test_a_copy_can_be_edited_and_converted(climate: Path, tmp_path: Path, mount: MountFunction) -> None:
    mounted = mount(climate, "--layout", "files").path
    shutil.copyfile(mounted / "climate.nc", tmp_path / "copy.nc")
    with netCDF4.Dataset(tmp_path / "copy.nc", "a") as dataset:
        dataset["tas"].units = "degC"
    with netCDF4.Dataset(tmp_path / "copy.nc") as dataset:
        assert dataset["tas"].units == "degC"
    command = ["nccopy", "-3", "-V", "tas,lat,time", str(mounted / "climate.nc"), str(tmp_path / "classic.nc")]
    subprocess.run(command, check=True)


def test_the_file_of_a_region_has_its_part_of_the_coordinates(climate: Path, mount: MountFunction) -> None:
    mounted = mount(climate, "--layout", "files").path
    with netCDF4.Dataset(mounted / "tas[30:,1].nc") as dataset:
        assert dataset["tas"].dimensions == ("time",)
        assert dataset["time"][:].tolist() == list(range(30, 40))
        assert dataset["time_bnds"][0].tolist() == [30, 31]


def test_p12_excerpts_of_a_netcdf_file_have_its_dimensions(tmp_path: Path, mount: MountFunction) -> None:
    """netCDF-C numbers the dimensions of a file by attributes, which are wrong in a part of it."""
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as dataset:
        for name, size in (("time", 3), ("lat", 4), ("lon", 5)):
            dataset.createDimension(name, size)
            dataset.createVariable(name, "f8", (name,))[:] = np.arange(size)
        dataset["time"].setncatts({"units": "days since 2001-01-01", "calendar": "360_day"})
        dataset.createVariable("v", "i2", ("time", "lat", "lon"))[:] = np.arange(60).reshape(3, 4, 5)
        below = dataset.createGroup("g")
        below.createVariable("u", "i2", ("lat", "lon"))[:] = np.arange(20).reshape(4, 5)
    mounted = mount(tmp_path / "a.nc", "--layout", "files").path
    with netCDF4.Dataset(mounted / "v.h5") as dataset:
        assert dataset["v"].dimensions == ("time", "lat", "lon")
        assert dataset["v"][1, 0].tolist() == list(range(20, 25))
        assert dataset["time"].calendar == "360_day"
    for path in ("g.h5", "g/u.h5"):
        with netCDF4.Dataset(mounted / path) as dataset:
            np.testing.assert_array_equal(dataset["u"][:], np.arange(20).reshape(4, 5))


def test_levels_of_an_image_have_dimensions_and_coordinates(tmp_path: Path, mount: MountFunction) -> None:
    group = zarr.open_group(tmp_path / "cells.zarr", mode="w", zarr_format=3)
    scales: list[JSON] = [[{"type": "scale", "scale": [2.0, 0.5]}], [{"type": "scale", "scale": [2.0, 1.0]}]]
    axes: list[JSON] = [
        {"name": "z", "type": "space", "unit": "micrometer"},
        {"name": "x", "type": "space", "unit": "micrometer"},
    ]
    datasets: list[JSON] = [{"path": str(i), "coordinateTransformations": scale} for i, scale in enumerate(scales)]
    group.attrs["ome"] = {"version": "0.5", "multiscales": [{"axes": axes, "datasets": datasets}]}
    for level, extent in enumerate((8, 4)):
        group.create_array(str(level), shape=(3, extent), chunks=(3, 4), dtype="<u2")[...] = level
    with netCDF4.Dataset(mount(tmp_path / "cells.zarr", "--layout", "files") / "cells.h5") as dataset:
        assert dataset["0"].dimensions == ("z", "x")
        assert dataset["1"].dimensions == ("z", "x_1")
        assert dataset["x"][:].tolist() == [0.5 * i for i in range(8)]
        assert dataset["x_1"][:].tolist() == [0, 1, 2, 3]


def test_a_dimension_without_a_name_costs_the_others_nothing(tmp_path: Path, mount: MountFunction) -> None:
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=3)
    group.create_array("x", shape=(4,), chunks=(4,), dtype="<f8", dimension_names=("x",))[...] = [1, 2, 4, 8]
    group.create_array("v", shape=(4, 4), chunks=(4, 4), dtype="<i2", dimension_names=("x", None))[...] = 1
    mounted = mount(tmp_path / "a.zarr", "--layout", "files")
    for name in ("a.h5", "v.h5"):
        with netCDF4.Dataset(mounted / name) as dataset:
            assert dataset["v"].dimensions == ("x", "v_dim_1")
            assert dataset["x"][:].tolist() == [1, 2, 4, 8]


def test_hangar_repositories_have_files_of_groups_and_of_the_whole(tmp_path: Path, mount: MountFunction) -> None:
    unpack("main", tmp_path / "hangar")
    mount_ = mount(tmp_path / "hangar", "--layout", "files")
    mount_.allow("texts contain zero characters, at which HDF5 would end them")
    mounted = mount_.path
    commit = next((mounted / "commits").iterdir()).name
    with h5py.File(mounted / "commits" / f"{commit}.h5") as file:
        assert list(file)


def test_a_region_without_brackets_is_the_same_region(climate: Path, mount: MountFunction) -> None:
    mounted = mount(climate, "--layout", "files").path
    assert (mounted / "tas@30:,1.npy").read_bytes() == (mounted / "tas[30:,1].npy").read_bytes()
    with netCDF4.Dataset(mounted / "tas@30:,1.nc") as dataset:
        assert dataset["tas"].shape == (10,)


def test_p12_texts_of_a_fixed_length_and_compounds_are_types_of_netcdf(tmp_path: Path, mount: MountFunction) -> None:
    """Also where texts are the coordinate of a dimension, which netCDF-C says in attributes of its own."""
    group = zarr.open_group(tmp_path / "s.zarr", mode="w", zarr_format=2, attributes={"title": "mine"})
    records = np.array([(1, b"abc", True), (2, b"de", False)], [("a", "<i4"), ("s", "S3"), ("b", "?")])
    arrays = {"station": np.array([b"ab", b"abcd"]), "height": np.array([1.5, 2.5], "<f2"), "record": records,
              "z": np.array([1 + 2j, 3])}  # fmt: skip
    for name, values in arrays.items():
        group.create_array(name, data=values, attributes={"_ARRAY_DIMENSIONS": ["station"]})
    mounted = mount(tmp_path / "s.zarr", "--layout", "files").path
    shown = ncdump(mounted / "s.nc")
    assert "char station(station, string4) ;" in shown
    assert '"ab",\n  "abcd" ;' in shown
    assert 'record = {1, {"abc"}, 1}, {2, {"de"}, 0} ;' in shown
    assert "_PFNC_DOUBLE_COMPLEX_TYPE z(station) ;" in shown
    assert "z = {1, 2}, {3, 0} ;" in shown
    alone = ncdump(mounted / "height.nc")
    for expected in (
        "float height(station) ;",
        "height = 1.5, 2.5 ;",
        ':title = "mine" ;',
        "char station(station, string4) ;",
    ):
        assert expected in shown
        assert expected in alone
    assert "record" not in alone
    with xarray.open_dataset(mounted / "height.nc", engine="netcdf4") as dataset:
        assert dataset["station"].values.tolist() == [b"ab", b"abcd"]
        assert dataset["height"].sel(station=b"abcd") == 2.5
    shown = ncdump(mounted / "height[1].nc")
    assert "float height ;" in shown
    assert "char station(string4) ;" in shown


def ncdump(file: Path) -> str:
    return subprocess.run(["ncdump", file], check=True, capture_output=True, text=True).stdout


GROUPS = {
    "coordinates": "/g/lat ../h/lon",
    "grid_mapping": "/crs: /g/lat ../h/lon",
    "ancillary_variables": "error/sd /gone ../../x",
}


def grouped(path: Path) -> Path:
    """An array in a group, which names arrays of other groups by their paths, as netCDF-4 and CF 1.8 have it."""
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("y", 3)
        file.createDimension("x", 4)
        for folder, name, attributes in (
            ("g", "lat", {"units": "degrees_north", "bounds": "lat"}),
            ("h", "lon", {"units": "degrees_east", "ancillary_variables": "/d/t"}),
            ("d/error", "sd", {"long_name": "deviation"}),
            ("d", "t", GROUPS),
        ):
            variable = file.createGroup(folder).createVariable(name, "f4", ("y", "x"))
            variable[:] = np.arange(12.0).reshape(3, 4) + len(folder)
            variable.setncatts(attributes)
        file["d"].createVariable("sd", "f4", ("y",))[:] = 7
        file.createVariable("crs", "i4").setncatts({"grid_mapping_name": "latitude_longitude", "epsg_code": "EPSG:4258"})
    return path


def as_zarr(source: Path, target: Path) -> Path:
    """The same groups as a Zarr store, written by zarr-python."""

    def copy(group: Any, made: zarr.Group) -> None:
        for name, variable in group.variables.items():
            array = made.create_array(name, data=np.asarray(variable[...]), dimension_names=list(variable.dimensions))
            array.attrs.update({key: variable.getncattr(key) for key in variable.ncattrs() if key != "_FillValue"})
        for name, below in group.groups.items():
            copy(below, made.create_group(name))

    with netCDF4.Dataset(source) as file:
        copy(file, zarr.create_group(target))
    return target


@pytest.mark.parametrize("kind", ["netcdf", "zarr"])
def test_arrays_named_by_paths_are_in_the_file_and_attributes_name_them(
    tmp_path: Path, mount: MountFunction, kind: str
) -> None:
    source = grouped(tmp_path / "s.nc")
    if kind == "zarr":
        source = as_zarr(source, tmp_path / "s.zarr")
    daemon = mount(source, "--layout", "files")
    daemon.allow(r"left out of t\.nc: (/gone|\.\./\.\./x): t names it")
    mounted = daemon.path
    with netCDF4.Dataset(mounted / "d" / "t.nc") as file:
        assert set(file.variables) == {"t", "lat", "lon", "crs", "d_error_sd"}, "d/sd is another array, and not named"
        assert {name: file["t"].getncattr(name) for name in GROUPS} == {
            "coordinates": "lat lon", "grid_mapping": "crs: lat lon", "ancillary_variables": "d_error_sd /gone ../../x",
        }  # fmt: skip
        assert file["lon"].ancillary_variables == "t"
        assert (file["lat"][0, 0], file["d_error_sd"][0, 0], file["lon"].dimensions) == (1, 7, ("y", "x"))
        said = " ".join(file.fsbridge_left_out)
        assert "/gone: t names it" in said
        assert "../../x: t names it" in said
    with xarray.open_dataset(mounted / "d" / "t.nc", engine="netcdf4") as dataset:
        assert set(dataset["t"].coords) == {"lat", "lon"}
    shown = subprocess.run(["ncdump", "-h", str(mounted / "d" / "t.nc")], check=True, capture_output=True, text=True).stdout
    assert 't:coordinates = "lat lon" ;' in shown


def test_p6_an_attribute_that_names_very_many_arrays_is_refused(tmp_path: Path) -> None:
    names = " ".join(f"/gone{number}" for number in range(20_000))
    zarr.create_array(tmp_path / "s.zarr/t", data=np.arange(3.0), dimension_names=["x"], attributes={"coordinates": names})
    with (
        VirtualTree(Config(str(tmp_path / "s.zarr"), "", layout="files", files=("nc",))) as tree,
        pytest.raises(FsbridgeError, match="t and what it names are looked for at more than 10000 places"),
    ):
        tree.open("t.nc")
