"""What elements stand for: missing and packed ones, signedness, the greatest one; and how HDF5 files say it."""

from __future__ import annotations

import base64
import math
import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import xarray
from fake_model import fake_array
from xarray.backends.zarr import FillValueCoder

from fsbridge.meaning import Axis, Values
from fsbridge.meaning.convention import Written
from fsbridge.meaning.conventions.cf import typed
from fsbridge.meaning.conventions.hdf5 import attributes, is_marker
from fsbridge.meaning.conventions.xarray import comparable, legible, zarr2_fill, zarr3_attributes
from fsbridge.meaning.reading import read_array
from fsbridge.metadata import ArrayMetadata


def values_of(dtype: str, **attributes: Any) -> Values:
    return read_array(Written(fake_array(np.zeros(3, dtype), (3,), attributes=attributes).metadata)).values


def test_the_range_of_packed_numbers_has_another_type() -> None:
    attributes = {"missing_value": -1, "actual_range": [0, 1], "units": "K"}
    assert typed(attributes) == ["missing_value", "actual_range"]
    assert typed(attributes, packed=True) == ["missing_value"]


@pytest.mark.parametrize(
    ("dtype", "said", "signed", "missing"),
    [("<i2", "true", False, (65535, 7)), (">i2", "True", False, (65535, 7)), ("u1", "false", True, (-1, 7)),
     ("<i2", "false", None, (-1, 7)), ("u1", "true", None, (7,)), ("<i4", "perhaps", None, (-1, 7)),
     ("<f4", "true", None, (-1.0, 7.0))],
)  # fmt: skip
def test_unsigned_numbers_are_what_their_attribute_says(
    dtype: str, said: str, signed: bool | None, missing: tuple[float, ...]
) -> None:
    fill = 255 if dtype == "u1" and said == "false" else -1
    values = values_of(dtype, _Unsigned=said, _FillValue=fill, missing_value=[7])
    assert (values.signed, values.missing) == (signed, missing)


def test_missing_elements_are_all_that_attributes_list_if_elements_can_be_them() -> None:
    assert values_of("<i2", _FillValue=[-1], missing_value=[-1, -999, 70000, "x"]).missing == (-1, -999)
    assert values_of("<f4", missing_value="NaN").missing != ()
    assert values_of("<f4", missing_value=1e300).missing == ()
    assert values_of("|S4", missing_value=1).missing == ()


def test_zarr_v2_fills_with_a_missing_value_that_stands_alone() -> None:
    def fill(dtype: str, **attributes: Any) -> bytes | None:
        array = fake_array(np.zeros(3, dtype), (3,), attributes=attributes, dimension_names=("x",))
        return zarr2_fill(array.metadata)

    assert fill("<i2", missing_value=[-999, 7]) == np.int16(-999).tobytes()
    assert fill("<i2", missing_value=-999, _FillValue=5) == np.int16(5).tobytes()
    assert fill("<i2", missing_value="none") is None
    assert fill("<i2", missing_value=[]) is None
    assert fill("|b1", missing_value=1) is None


IN_BASE64 = {value: base64.b64encode(struct.pack("<d", value)).decode() for value in (-9999.0, math.inf, math.nan)}


def metadata_of(dtype: str, native: str, **attributes: Any) -> ArrayMetadata:
    array = fake_array(np.zeros(3, dtype), (3,), attributes=attributes, dimension_names=("x",))
    return replace(array.metadata, native={native: {}})


@pytest.mark.parametrize(
    ("dtype", "written", "spelled"),
    [("<f4", -9999.0, IN_BASE64[-9999.0]), ("<f4", [-9999], IN_BASE64[-9999.0]), ("<f8", "Infinity", IN_BASE64[math.inf]),
     ("<f4", IN_BASE64[-9999.0], IN_BASE64[-9999.0]), ("<i2", [-1], -1), ("<i2", -1.0, -1), ("<i2", -1, -1),
     ("<f4", "nonsense", "nonsense"), ("|b1", True, True)],
)  # fmt: skip
def test_p12_a_marker_of_zarr_v3_is_spelled_as_xarray_reads_it(dtype: str, written: Any, spelled: Any) -> None:
    found = zarr3_attributes(metadata_of(dtype, "zarr.json", _FillValue=written, units="K"))
    assert found == {"_FillValue": spelled, "units": "K"}
    if written != "nonsense":
        FillValueCoder.decode(found["_FillValue"], np.dtype(dtype))


def test_a_marker_is_legible_and_equals_itself_in_any_format() -> None:
    in_zarr3 = metadata_of("<f4", "zarr.json", _FillValue=IN_BASE64[math.nan])
    in_netcdf = metadata_of("<f4", "hdf5", _FillValue=[math.nan], _Netcdf4Dimid=0)
    in_zarr2 = metadata_of("<f4", ".zattrs", _FillValue="NaN", _ARRAY_DIMENSIONS=["x"])
    assert legible(in_zarr3) == {"_FillValue": "NaN"}
    each = (in_zarr3, in_netcdf, in_zarr2)
    assert all(comparable(one, other) == {} for one in each for other in each), "NaN is missing without it"
    marked = metadata_of("<f4", "zarr.json", _FillValue=IN_BASE64[-9999.0])
    assert comparable(marked, in_zarr3) == {"_FillValue": -9999.0}
    assert comparable(metadata_of("<f4", ".zattrs", _ARRAY_DIMENSIONS=["y"]), marked) == {"_ARRAY_DIMENSIONS": ["y"]}


def test_zero_as_fill_value_of_zarr_v2_marks_only_if_the_other_array_has_one() -> None:
    zeros = replace(metadata_of("<f4", ".zarray"), fill=bytes(4))
    assert comparable(zeros, metadata_of("<f4", "hdf5")) == {}
    assert comparable(zeros, metadata_of("<f4", "hdf5", _FillValue=[0.0])) == {"_FillValue": 0.0}
    assert comparable(zeros, metadata_of("<f4", "hdf5", _FillValue=[1.0])) == {"_FillValue": 0.0}


@pytest.mark.parametrize(
    ("dtype", "fill", "attributes", "native", "expected"),
    [("<i2", 0, {}, "zarr.json", False), ("<i2", 0, {"_FillValue": 0}, "zarr.json", True),
     ("<i2", -1, {"_FillValue": 5}, "zarr.json", False), ("<f4", math.nan, {}, "zarr.json", False),
     ("<f4", math.nan, {"_FillValue": "NaN"}, "zarr.json", True), ("<i2", -999, {}, ".zarray", True),
     ("<i2", 0, {}, ".zarray", False), ("<i2", 0, {}, "hdf5", True), ("|S2", b"ab", {}, "zarr.json", True),
     ("|b1", True, {}, "zarr.json", False)],
)  # fmt: skip
def test_a_storage_default_is_no_fill_value_of_hdf5(
    dtype: str, fill: Any, attributes: dict[str, Any], native: str, expected: bool
) -> None:
    metadata = replace(metadata_of(dtype, native, **attributes), fill=np.array(fill, dtype).tobytes())
    assert is_marker(metadata) == expected


@pytest.mark.parametrize("unit", ["D", "h", "m", "s", "ms", "us", "ns"])
def test_p12_dates_in_hdf5_are_dates_for_readers_of_netcdf(unit: str) -> None:
    dates = np.array(["2020-02-29", "NaT", "1969-12-31"], f"<M8[{unit}]")
    said = attributes(metadata_of(f"<M8[{unit}]", "zarr.json"), [Axis("x")])
    variable = xarray.Variable("x", dates.view("<i8"), said)
    decoded = xarray.conventions.decode_cf_variable("t", variable)
    np.testing.assert_array_equal(decoded.values.astype("M8[ns]"), dates.astype("M8[ns]"))
    durations = attributes(metadata_of(f"<m8[{unit}]", "zarr.json"), [Axis("x")])
    assert said["units"] == f"{durations['units']} since 1970-01-01"


def test_dates_in_units_that_netcdf_lacks_or_that_have_units_get_none() -> None:
    for dtype in ("<M8[Y]", "<M8[25s]", "<m8"):
        assert "units" not in attributes(metadata_of(dtype, "zarr.json"), [Axis("x")])
    assert attributes(metadata_of("<M8[s]", "zarr.json", units="mine"), [Axis("x")])["units"] == "mine"


def test_voxels_of_known_size_have_it_in_hdf5_and_maps_have_none() -> None:
    metadata, axis = metadata_of("<u1", "zarr.json"), Axis("x", "nanometer", 4.0)
    assert attributes(metadata, [axis]) == {"element_size_um": [0.004]}
    for other in (axis._replace(scale=-4.0), axis._replace(scale=None), axis._replace(kind="easting"), Axis("x", None, 4.0)):
        assert attributes(metadata, [axis, other]) == {}


def test_what_elements_are_in_words_is_what_climate_files_and_sessions_say() -> None:
    def said(names: tuple[str, ...] = (), group: dict[str, Any] | None = None, **attributes: Any) -> str | None:
        metadata = fake_array(np.zeros(3), (3,), attributes=attributes).metadata
        return read_array(Written(metadata, [group or {}], names)).long_name

    assert said(long_name="Air Temperature", standard_name="air_temperature") == "Air Temperature"
    assert said(standard_name="air_temperature", long_name="") == "air_temperature"
    assert said(long_name=["of one"], units="K") == "of one"
    assert said(long_name=3, description="of no convention") is None
    assert said(neurodata_type="VectorData", description="when a trial began") == "when a trial began"
    assert said(neurodata_type="VectorData", description="no description") is None
    series = {"neurodata_type": "TimeSeries", "description": "position of the animal"}
    assert said(("pos", "data"), series) == "position of the animal"
    assert said(("pos", "timestamps"), series) is None
