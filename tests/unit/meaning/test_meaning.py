"""What groups mean: levels of images, plates, tables, columns with an encoding; and nonsense means nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_model import fake_array
from numpy.typing import NDArray

from fsbridge.meaning import Attributes, Channel, Columns, EncodedColumn, Field, GroupMeaning, Image
from fsbridge.meaning.convention import Written
from fsbridge.meaning.conventions.ome import MOST_SIDE
from fsbridge.meaning.reading import read_array, read_group

SIDES = {"rows": [{"name": "A"}, {"name": "B"}], "columns": [{"name": "1"}]}
WELLS = [{"path": "B/1", "rowIndex": 1, "columnIndex": 0}]


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [({"multiscales": [{"datasets": [{"path": "0"}, {"path": "a/1/"}]}]}, (("0",), ("a", "1"))),
     ({"ome": {"multiscales": [{"datasets": [{"path": "0"}]}]}, "multiscales": 7}, (("0",),))],
)  # fmt: skip
def test_levels_are_paths_below_the_group(attributes: dict[str, Any], expected: Any) -> None:
    assert read_group(attributes) == GroupMeaning(images=(expected,))


@pytest.mark.parametrize("path", ["..", "a/../b", "", None, "\ud800", "a//b"])
def test_p4_a_level_elsewhere_is_none(path: Any) -> None:
    assert read_group({"multiscales": [{"datasets": [{"path": path}]}]}) == GroupMeaning()


def test_a_plate_makes_sense_or_is_none() -> None:
    plate = read_group({"plate": {"name": "p", **SIDES, "wells": WELLS}}).plate
    assert plate is not None
    assert (plate.name, plate.rows, plate.columns, plate.wells) == ("p", ("A", "B"), ("1",), ((("B", "1"), 1, 0),))
    assert read_group({"plate": {**SIDES, "wells": [{"path": "B/1"}]}}).plate == plate._replace(name=None), "before 0.4"
    many = [{"name": str(i)} for i in range(MOST_SIDE + 1)]
    changes: list[dict[str, Any]] = [
        {"wells": [*WELLS, *WELLS]}, {"wells": [{"path": "../B"}]}, {"rows": []}, {"rows": many}, {"wells": 7},
    ]  # fmt: skip
    for change in changes:
        assert read_group({"plate": {**SIDES, "wells": WELLS, **change}}).plate is None
    assert read_group({"well": {"images": [{"path": "0"}, {"path": ".."}, 7]}}).fields == (Field(("0",)),)


@pytest.mark.parametrize(
    ("attributes", "columns", "encoded"),
    [({"colnames": ["a", "b"], "neurodata_type": "DynamicTable"}, Columns(("a", "b"), "id", False), None),
     ({"column-order": ["a"], "_index": "i"}, Columns(("a",), "i", True), None),
     ({"column-order": []}, Columns((), None, True), None), ({"colnames": ["a", 1]}, None, None),
     ({"encoding-type": "categorical"}, None, EncodedColumn(("codes", "categories"), True)),
     ({"encoding-type": "nullable-boolean"}, None, EncodedColumn(("values", "mask"), False)),
     ({"encoding-type": "new"}, None, None)],
)  # fmt: skip
def test_groups_of_tables_name_their_columns(
    attributes: dict[str, Any], columns: Columns | None, encoded: EncodedColumn | None
) -> None:
    assert read_group(attributes) == GroupMeaning(columns=columns, encoded=encoded)


def test_an_array_is_a_level_of_an_image_with_its_channels() -> None:
    channel = {"label": "DAPI", "color": "0000FF", "window": {"start": 1, "end": 5}}
    group = {"multiscales": [{"name": "/", "datasets": [{"path": "0"}, {"path": "1"}]}], "omero": {"channels": [channel, 7]}}
    array = fake_array(np.zeros((2, 3, 3), "u1"), (2, 3, 3)).metadata
    images = [read_array(Written(array, (group, {}), ("img", name))).image for name in "01"]
    assert [image is not None and image.name for image in images] == ["img", "img 1"]
    assert images[0] == Image("img", (Channel("DAPI", (0, 0, 255), (1.0, 5.0)), Channel()))
    assert read_array(Written(array, (group,), ("other",))).image is None
    root = read_array(Written(array, (group,), ("0",))).image
    assert root == images[0]._replace(name=None), "channels of an image without a name"


def test_times_of_events_know_their_units_in_groups_of_nwb_only() -> None:
    array = fake_array(np.zeros(5), (5,)).metadata
    beside: dict[str, tuple[NDArray[np.float64], Attributes]] = {"spike_times_index": (np.array([2.0, 5.0]), {})}
    units = {"neurodata_type": "Units"}
    found = read_array(Written(array, (units,), ("units", "spike_times"), False, beside.get))
    assert (found.values.events, found.values.unit) == (True, "s")
    assert found.ends is not None
    assert found.ends.tolist() == [2, 5]
    assert not read_array(Written(array, ({},), ("units", "spike_times"), False, beside.get)).values.events
