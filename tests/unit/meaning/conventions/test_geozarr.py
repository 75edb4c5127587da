"""Places on Earth: GeoZarr, EOPF, GDAL and CF say the same of one map; what belongs to another array is left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_model import fake_array

from fsbridge.meaning import Meaning, System
from fsbridge.meaning.convention import Written
from fsbridge.meaning.reading import read_array

SIX = [10.0, 0.0, 300000.0, 0.0, -10.0, 4600020.0]
WKT = 'PROJCRS["WGS 84 / UTM zone 31N",CS[Cartesian,2],LENGTHUNIT["metre",1],ID["EPSG",32631]]'
PROJJSON = {"type": "ProjectedCRS", "id": {"authority": "EPSG", "code": 32631}}
GEOZARR = {"proj:code": "EPSG:32631", "spatial:dimensions": ["y", "x"], "spatial:transform": SIX, "spatial:shape": [4, 5]}
CORNER = "300000.0 10.0 0.0 4600020.0 0.0 -10.0"


def meaning(own: dict[str, Any], *groups: dict[str, Any], names: tuple[str, ...] = ("y", "x"), **beside: Any) -> Meaning:
    array = fake_array(np.zeros((4, 5), "u1"), (4, 5), attributes=own, dimension_names=names)
    return read_array(Written(array.metadata, groups, ("a",), False, beside.get))


@pytest.mark.parametrize(
    "found",
    [meaning(GEOZARR), meaning({}, GEOZARR), meaning({"proj:epsg": 32631, "proj:transform": [*SIX, 0, 0, 1]}),
     meaning({**GEOZARR, "proj:code": None, "proj:projjson": PROJJSON}), meaning({**GEOZARR, "proj:wkt2": WKT}),
     meaning({"grid_mapping": "m"}, m=(None, {"crs_wkt": WKT, "GeoTransform": CORNER}))],
)  # fmt: skip
def test_p12_a_map_has_the_place_that_its_transformation_gives(found: Meaning) -> None:
    assert [(axis.scale, axis.offset) for axis in found.axes] == [(-10.0, 4600015.0), (10.0, 300005.0)]
    assert found.system is not None
    assert found.system.code == 32631
    assert not found.system.geographic


def test_a_transformation_of_another_array_or_that_turns_it_gives_no_place() -> None:
    turned = [10.0, 1.0, 0.0, 1.0, -10.0, 0.0]
    for own in ({**GEOZARR, "spatial:transform": turned}, {**GEOZARR, "spatial:dimensions": ["lat", "lon"]},
                {**GEOZARR, "spatial:transform": [1, 2]}, {**GEOZARR, "spatial:dimensions": 7}):  # fmt: skip
        assert [axis.scale for axis in meaning(own).axes] == [None, None]
    assert [axis.scale for axis in meaning({}, {**GEOZARR, "spatial:shape": [8, 10]}).axes] == [None, None]
    assert [axis.scale for axis in meaning({}, {}, GEOZARR).axes] == [None, None], "a group hands its place to its members"
    mapping = {"crs_wkt": WKT, "GeoTransform": "300000.0 10.0 1.0 4600020.0 0.0 nonsense"}
    assert [axis.scale for axis in meaning({"grid_mapping": "m"}, m=(None, mapping)).axes] == [None, None]


def test_nodes_lie_on_the_corner_and_coordinates_are_believed_first() -> None:
    nodes = meaning({**GEOZARR, "spatial:registration": "node"})
    assert [axis.offset for axis in nodes.axes] == [4600020.0, 300000.0]
    beside = meaning(GEOZARR, x=(np.arange(5) * 20.0, {}))
    assert [axis.scale for axis in beside.axes] == [-10.0, 20.0]


@pytest.mark.parametrize(
    ("own", "system"),
    [({"_CRS": {"projjson": PROJJSON}}, System(32631, False)),
     ({"_CRS": {"projjson": {"type": "VerticalCRS"}}}, System(None, None)),
     ({"proj:code": "EPSG:4326"}, System(4326, True)), ({"proj:code": "IAU:1"}, None),
     ({"proj:projjson": {"type": 7}}, None),
     ({"proj:projjson": {"type": "GeographicCRS", "id": 7}}, System(None, True))],
)  # fmt: skip
def test_systems_are_read_out_of_json(own: dict[str, Any], system: System | None) -> None:
    assert meaning(own).system == system
