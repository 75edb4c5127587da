"""What HDF5 files say of arrays: which texts have a fixed length, as netCDF's programs want them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_model import fake_array

from fsbridge.layouts.files.arrays.extents import View
from fsbridge.layouts.files.arrays.selection import whole
from fsbridge.layouts.files.h5.specification import dataset
from fsbridge.meaning.convention import Written
from fsbridge.meaning.reading import read_array


@pytest.mark.parametrize(
    ("shape", "names", "attributes", "expected"),
    [((), None, {"grid_mapping_name": "latitude_longitude"}, True), ((2,), ("x",), {"units": "m"}, True),
     ((2,), None, {"title": "a"}, False), ((), None, {"encoding-type": "string"}, False),
     ((2,), ("x",), {"neurodata_type": "VectorData"}, False)],
)  # fmt: skip
def test_texts_of_scalars_and_of_arrays_with_names_have_a_fixed_length_unless_python_programs_read_them(
    shape: tuple[int, ...], names: Any, attributes: dict[str, Any], expected: bool
) -> None:
    """GMT, GDL and Octave fail at a text of variable length, even of the scalar that names the coordinate system."""
    metadata = fake_array(np.zeros(shape), shape, attributes=attributes, dimension_names=names).metadata
    view = View("a", metadata, whole(shape), read_array(Written(metadata)), False)
    assert dataset(view, "/a")["characters"] == expected
