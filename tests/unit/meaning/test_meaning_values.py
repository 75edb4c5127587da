"""What elements stand for: missing and packed ones, signedness, the greatest one; and how HDF5 files say it."""

from __future__ import annotations

from typing import Any

import numpy as np
from fake_model import fake_array

from fsbridge.meaning import Values
from fsbridge.meaning.convention import Written
from fsbridge.meaning.conventions.cf import typed
from fsbridge.meaning.reading import read_array


def values_of(dtype: str, **attributes: Any) -> Values:
    return read_array(Written(fake_array(np.zeros(3, dtype), (3,), attributes=attributes).metadata)).values


def test_the_range_of_packed_numbers_has_another_type() -> None:
    attributes = {"missing_value": -1, "actual_range": [0, 1], "units": "K"}
    assert typed(attributes) == ["missing_value", "actual_range"]
    assert typed(attributes, packed=True) == ["missing_value"]


def test_missing_elements_are_all_that_attributes_list_if_elements_can_be_them() -> None:
    assert values_of("<i2", _FillValue=[-1], missing_value=[-1, -999, 70000, "x"]).missing == (-1, -999)
    assert values_of("<f4", missing_value="NaN").missing != ()
    assert values_of("<f4", missing_value=1e300).missing == ()
    assert values_of("|S4", missing_value=1).missing == ()
