"""Missing and packed elements are told of in the spelling that xarray and netCDF read, of whatever source."""

from __future__ import annotations

import base64
import json
import math
import os
import struct
import subprocess
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray
import zarr
from fake_model import fake_array
from mounting import MountFunction

from fsbridge.layouts.zarr2 import array_attributes, array_document
from fsbridge.layouts.zarr3 import array_document as zarr3_document


def double(value: float) -> str:
    """Encode a number as xarray writes it into Zarr v3."""
    return base64.b64encode(struct.pack("<d", value)).decode()


@pytest.mark.parametrize(
    ("dtype", "told", "shown"),
    [
        ("<f4", [-9999.0], double(-9999.0)),
        (">f8", [math.nan], double(math.nan)),
        ("<f8", "NaN", double(math.nan)),
        ("<f8", ["-Infinity"], double(-math.inf)),
        ("<f4", 7, double(7.0)),
        ("<f8", double(2.5), double(2.5)),
        ("<i2", [-999], -999),
        ("<i2", -999.0, -999),
        ("<u8", [2**64 - 1], 2**64 - 1),
        ("<f8", "none", "none"),
        ("<f8", [1.0, 2.0], [1.0, 2.0]),
        ("<i4", [math.nan], ["NaN"]),
        ("<i4", "1", "1"),
        ("?", [True], [True]),
        ("<c8", [1.0], [1.0]),
    ],
)
def test_p12_what_stands_for_missing_elements_as_xarray_reads_it_in_zarr_v3(dtype: str, told: Any, shown: Any) -> None:
    array = fake_array(np.ones(3, dtype), (2,), attributes={"_FillValue": told, "units": "K"})
    assert json.loads(zarr3_document(array.metadata))["attributes"] == {"_FillValue": shown, "units": "K"}


def test_other_attributes_of_a_zarr_v3_source_stay_as_they_are() -> None:
    attributes = {"_FillValue": [1.0], "scale_factor": [0.5], "missing_value": -9.0}
    array = fake_array(np.ones(3, "<f8"), (2,), attributes=attributes, native={"zarr.json": {}})
    assert json.loads(zarr3_document(array.metadata))["attributes"] == {**attributes, "_FillValue": double(1.0)}


@pytest.mark.parametrize("native", [{}, {".zarray": {}}])
def test_a_scalar_has_the_names_of_no_dimensions(native: dict[str, Any]) -> None:
    """xarray opens nothing of a Zarr v2 group where one array lacks them."""
    array = fake_array(np.array(1, "<f8"), (), native=native)
    assert array_attributes(array.metadata) == ({} if native else {"_ARRAY_DIMENSIONS": []})


def test_p12_attributes_of_a_netcdf_file_are_those_that_xarray_writes(tmp_path: Path, mount: MountFunction) -> None:
    with h5py.File(tmp_path / "a.nc", "w") as file:
        file.create_dataset("t", data=np.array([1, -9999], "f4")).attrs["_FillValue"] = np.array([-9999], "f4")
        file["t"].attrs["scale_factor"] = np.array([0.5])
        file["t"].attrs["valid_range"] = np.array([1.0])
    mounted = mount(tmp_path / "a.nc", "--layout", "zarr3,zarr2").path
    rest = {"scale_factor": 0.5, "valid_range": [1.0]}
    assert json.loads((mounted / "zarr3/t/zarr.json").read_text())["attributes"] == {"_FillValue": double(-9999.0), **rest}
    assert json.loads((mounted / "zarr2/t/.zattrs").read_text()) == {"_FillValue": [-9999.0], **rest}


def test_p12_the_fill_value_of_zarr_v2_becomes_an_attribute(tmp_path: Path, mount: MountFunction) -> None:
    """There their fill value says it, which in Zarr v3 and HDF5 xarray takes for nothing but a fill value."""
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=2)
    for name, dtype, fill in (
        ("packed", ">i2", -999),
        ("real", "<f4", 0.1),
        ("zero", "<u2", 0),
        ("nan", "<f4", math.nan),
        ("none", "<i2", None),
    ):
        array = group.create_array(name, shape=(3,), chunks=(2,), dtype=dtype, fill_value=fill)
        array.attrs["_ARRAY_DIMENSIONS"] = ["x"]
    group.create_array("nameless", shape=(3,), chunks=(2,), dtype="<i2", fill_value=-999)
    mounted = mount(tmp_path / "a.zarr", "--layout", "zarr3,zarr2,files")
    shown = {name: json.loads((mounted / f"zarr3/{name}/zarr.json").read_text())["attributes"] for name in group}
    assert {name: attributes.get("_FillValue") for name, attributes in shown.items()} == {
        "packed": -999,
        "real": double(float(np.float32(0.1))),
        "zero": 0,
        "nan": None,
        "none": None,
        "nameless": None,
    }
    command = ["ncdump", "-v", "packed", str(mounted / "files/a.h5")]
    assert " packed = _, _, _ ;" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert json.loads((mounted / "zarr2/packed/.zattrs").read_text()) == {"_ARRAY_DIMENSIONS": ["x"]}
    for name in ("packed", "real"):
        for path in (f"{name}.h5", "a.h5"):
            with h5py.File(mounted / "files" / path) as file:
                assert file[name].attrs["_FillValue"] == file[name].fillvalue
                assert file[name].attrs["_FillValue"].dtype == file[name].dtype.newbyteorder("="), "netCDF knows no other"
    with h5py.File(mounted / "files/a.h5") as file:
        assert [name for name in file if "_FillValue" in file[name].attrs] == ["packed", "real"]


def labelled(path: Path) -> None:
    """A Zarr v3 store as xarray writes it: missing elements, real zeros, and chunks of zeros that are not stored."""
    kelvin = np.full((4, 6), 280.0)
    kelvin[0, :3] = np.nan
    kelvin[2:, 3:] = 0.0
    height = np.zeros((4, 6), "<i2")
    height[0, 0] = 7
    variables = {"kelvin": (("y", "x"), kelvin, {"units": "K"}), "height": (("y", "x"), height)}
    encoding = {
        "kelvin": {"dtype": "i2", "scale_factor": 0.01, "_FillValue": -32768, "chunks": (2, 3)},
        "height": {"chunks": (2, 3)},
    }
    xarray.Dataset(variables).to_zarr(path, zarr_format=3, encoding=encoding, consolidated=False)


def open_dataset(path: Path) -> xarray.Dataset:
    return xarray.open_dataset(path, engine="zarr", consolidated=False)


def test_p12_missing_elements_of_zarr_v3_are_missing_in_the_layout_zarr2(tmp_path: Path, mount: MountFunction) -> None:
    labelled(tmp_path / "a.zarr")
    mounted = mount(tmp_path / "a.zarr", "--layout", "zarr2").path
    assert json.loads((mounted / "kelvin/.zarray").read_text())["fill_value"] == -32768
    assert json.loads((mounted / "height/.zarray").read_text())["fill_value"] is None
    assert not (tmp_path / "a.zarr/height/c/1/1").exists()
    assert (mounted / "height/1.1").read_bytes() == bytes(12)
    assert "1.1" in os.listdir(mounted / "height"), "else a copy would lack zeros"
    with open_dataset(tmp_path / "a.zarr") as source, open_dataset(mounted) as shown:
        for name in source.variables:
            np.testing.assert_array_equal(shown[name].values, source[name].values)
        assert np.isnan(shown["kelvin"].values).sum() == 3


def test_p9_a_chunk_that_is_stored_later_takes_the_place_of_its_fill_value(tmp_path: Path, mount: MountFunction) -> None:
    labelled(tmp_path / "a.zarr")
    mounted = mount(tmp_path / "a.zarr", "--layout", "zarr2", "--metadata-ttl", "0").path
    assert (mounted / "height/1.1").read_bytes() == bytes(12)
    zarr.open_array(tmp_path / "a.zarr/height")[2:, 3:] = 5
    assert np.frombuffer((mounted / "height/1.1").read_bytes(), "<i2").tolist() == [5] * 6


@pytest.mark.parametrize(
    ("dtype", "attributes", "names", "fill", "expected"),
    [
        ("<i2", {"_FillValue": -9}, ("x",), b"\0\0", -9),
        ("<i2", {"_FillValue": -9}, None, b"\0\0", -9),
        ("<i2", {"_FillValue": 0}, ("x",), b"\0\0", 0),
        ("<i2", {"_FillValue": 99999}, ("x",), b"\0\0", 0),
        ("<i2", {}, ("x",), b"\0\0", None),
        ("<i2", {}, ("x",), None, None),
        ("<i2", {}, (None,), b"\0\0", 0),
        ("<i2", {}, None, b"\1\0", 1),
        ("<f4", {}, ("x",), np.float32(np.nan).tobytes(), "NaN"),
        ("<f4", {"_FillValue": double(math.nan)}, ("x",), bytes(4), "NaN"),
        ("<f4", {"_FillValue": double(1e20)}, ("x",), bytes(4), float(np.float32(1e20))),
        ("?", {}, ("x",), b"\0", None),
        ("?", {}, None, b"\0", False),
        ("<U1", {}, ("x",), bytes(4), None),
    ],
)
def test_p12_fill_value_of_zarr_v2_is_the_marker_of_missing_elements(
    dtype: str, attributes: dict[str, Any], names: tuple[str | None] | None, fill: bytes | None, expected: Any
) -> None:
    array = fake_array(np.ones(3, dtype), (2,), attributes=attributes, dimension_names=names, fill=fill)
    assert array_document(array.metadata, ".")["fill_value"] == expected


def test_p12_text_false_and_zero_without_dimensions_are_not_missing(tmp_path: Path, mount: MountFunction) -> None:
    """xarray takes whatever equals `fill_value` for missing, of any type."""
    variables = {
        "word": ("x", np.array(["a", "", "c", ""], object)),
        "flag": ("x", np.array([True, False, True, False])),
        "zero": ((), 0.0),
    }
    xarray.Dataset(variables).to_zarr(tmp_path / "a.zarr", zarr_format=3, consolidated=False)
    empty = zarr.open_group(tmp_path / "a.zarr", mode="a")
    empty.create_array("empty", shape=(4,), chunks=(2,), dtype="string", dimension_names=["x"])[:1] = "z"
    mounted = mount(tmp_path / "a.zarr", "--layout", "zarr2").path
    with open_dataset(tmp_path / "a.zarr") as source, open_dataset(mounted) as shown:
        for name in source.variables:
            assert shown[name].values.tolist() == source[name].values.tolist(), name
