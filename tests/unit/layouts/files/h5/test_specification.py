"""What HDF5 and netCDF files say of arrays: types, names of attributes that netCDF cannot read, dimensions of texts."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping

import numpy as np
import pytest
from fake_model import fake_array
from numpy.typing import ArrayLike

from fsbridge.layouts.files.arrays.extents import View
from fsbridge.layouts.files.arrays.selection import select_all
from fsbridge.layouts.files.h5.specification import _has_attribute, describe_dataset, describe_labelled
from fsbridge.meaning import Axis
from fsbridge.meaning.convention import Written
from fsbridge.meaning.reading import read_array
from fsbridge.metadata import JSON


def view_of(values: ArrayLike, names: tuple[str, ...] | None = None, attributes: Mapping[str, JSON] | None = None) -> View:
    values = np.asarray(values)
    metadata = fake_array(values, values.shape, attributes=attributes or {}, dimension_names=names).metadata
    return View("a", metadata, select_all(values.shape), read_array(Written(metadata)), False)


def test_truth_values_and_texts_of_a_fixed_length_have_types_of_netcdf() -> None:
    view = view_of([True, False])
    shown, own = describe_dataset(view, "/a", True), describe_dataset(view, "/a")
    assert (shown["dtype"], shown["attributes"]["dtype"], shown["bytes"]) == ("|i1", "bool", 2)
    assert (own["dtype"], own["attributes"]) == ("|b1", {})
    half = view_of(np.zeros(3, ">f2"))
    assert [describe_dataset(half, "/a", netcdf)["dtype"] for netcdf in (True, False)] == [">f4", ">f2"]
    view = view_of(np.array([b"ab", b"abcd"], "S4"), ("station",))
    shown, own = describe_dataset(view, "/a", True), describe_dataset(view, "/a")
    assert (shown["dtype"], shown["shape"], shown["bytes"]) == ("|S1", [2, 4], 8)
    assert (own["dtype"], own["shape"]) == ("|S4", [2])
    label = describe_labelled(view, "a", True)
    assert label is not None
    assert label.axes == (Axis("station"), Axis("string4"))


@pytest.mark.parametrize("name", ["DIMENSION_LIST", "CLASS", "n" * 257, "ü" * 129])
def test_attributes_that_netcdf_cannot_read_are_left_out_by_name(name: str, caplog: pytest.LogCaptureFixture) -> None:
    _has_attribute.cache_clear()
    view = view_of(np.zeros(2), attributes={name: "mine", "title": "kept"})
    assert set(describe_dataset(view, "/a", True)["attributes"]) == {"title"}
    assert f"the attribute '{name[:70]}" in caplog.text
    assert set(describe_dataset(view, "/a")["attributes"]) == {name, "title"}


@pytest.mark.parametrize(
    ("dtype", "said", "expected"),
    [("<i2", {}, None), ("<i2", {"_FillValue": -1}, -1), ("<i2", {"_FillValue": 70000}, None),
     ("<i2", {"_FillValue": "x"}, None), (">f4", {"_FillValue": "NaN"}, math.nan)],
)  # fmt: skip
def test_hdf5_has_a_fill_value_in_netcdf_only_if_an_attribute_says_so(
    dtype: str, said: Mapping[str, JSON], expected: float | None
) -> None:
    fill = describe_dataset(view_of(np.zeros(2, dtype), attributes=said), "/a", True).get("fill")
    if expected is None:
        assert fill is None
    else:
        assert isinstance(fill, str)
        np.testing.assert_array_equal(np.frombuffer(base64.b64decode(fill), dtype), [expected])
