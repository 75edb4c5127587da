"""The skeleton of a virtual HDF5 file, written in this process: what HDF5 refuses costs that object alone, and is named."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import h5py
import numpy as np
import pytest

from fsbridge.layouts.files.h5.child import LEFT_OUT
from fsbridge.layouts.files.h5.child.skeleton import Skeleton

ROOT = {"kind": "group", "path": "/", "attributes": {"n": 1}}
NO_SCALES: Mapping[str, Any] = {"made": [], "attached": []}


def written(objects: Sequence[Mapping[str, Any]], left_out: Mapping[str, list[str]]) -> tuple[h5py.File, list[int | None]]:
    skeleton = Skeleton()
    skeleton.add([ROOT, *objects])
    pages, offsets = skeleton.finish(left_out, NO_SCALES)
    pages.seek(0)
    return h5py.File(io.BytesIO(pages.read())), offsets


def dataset(path: str, **described: Any) -> dict[str, Any]:
    return {"kind": "dataset", "path": path, "shape": [3], "dtype": "<f8", **described}


def test_attributes_get_the_type_of_the_elements_if_their_numbers_fit() -> None:
    attributes = {"missing_value": -999, "flag_values": [0, 1, 2], "valid_min": 0.5, "other": 7}
    file, _ = written([dataset("/d", dtype="<i2", attributes=attributes, typed=[*attributes][:3])], {})
    types = {name: np.asarray(value).dtype for name, value in file["d"].attrs.items()}
    assert types == {"missing_value": np.int16, "flag_values": np.int16, "valid_min": np.float64, "other": np.int64}


def test_p3_what_cannot_be_written_is_named_in_its_own_group() -> None:
    group = {"kind": "group", "path": "/g", "attributes": {}}
    bad = [dataset(path, dtype="nonsense") for path in ("/bad", "/g/bad", "/g/worse")]
    items = base64.b64encode(np.arange(3.0).tobytes()).decode()
    file, offsets = written([group, *bad, dataset("/good", items=items)], {"/g": ["other: why"]})
    assert sorted(file) == ["g", "good"]
    assert file["good"][...].tolist() == [0.0, 1.0, 2.0]
    assert [reason.partition(":")[0] for reason in file.attrs[LEFT_OUT]] == ["bad"]
    assert [reason.partition(":")[0] for reason in file["g"].attrs[LEFT_OUT]] == ["other", "bad", "worse"]
    assert offsets == [None] * 6


def test_p12_lists_of_more_dimensions_than_hdf5_has_are_json() -> None:
    deep: Any = 7
    for _ in range(32):
        deep = [deep]
    file, _ = written(
        [{"kind": "group", "path": "/g", "attributes": {"deep": deep, "deeper": [deep], "texts": [["a"], ["b"]]}}], {}
    )
    found = file["g"].attrs
    assert (found["deep"].shape, found["deep"].item()) == ((1,) * 32, 7)
    assert json.loads(found["deeper"]) == [deep]
    assert found["texts"].tolist() == [["a"], ["b"]]


def test_p2_elements_that_are_not_in_the_skeleton_have_pages_of_their_own() -> None:
    datasets = [dataset("/one", bytes=24), dataset("/none", shape=[0], bytes=0), dataset("/two", bytes=24)]
    file, offsets = written(datasets, {})
    places = [offset for offset in offsets if offset is not None]
    assert [offset is None for offset in offsets] == [True, False, True, False]
    assert [offset % 4096 for offset in places] == [0, 0]
    assert abs(places[0] - places[1]) >= 4096
    assert [file[name].id.get_offset() for name in ("one", "two")] == places
    with pytest.raises(ValueError, match="24 bytes of elements, not 25"):
        written([dataset("/one", bytes=25)], {})
