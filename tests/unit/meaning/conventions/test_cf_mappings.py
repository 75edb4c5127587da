"""Codes of grid mappings: their parameters are those that GDAL and PROJ have for the code."""

from __future__ import annotations

import re
from typing import Any

import pytest
import rasterio.crs

from fsbridge.meaning import Projection, System
from fsbridge.meaning.conventions.cf import system_of_mapping
from fsbridge.meaning.conventions.cf_mappings import _CODES, code_of_mapping, projection_of_mapping

NAMES = {
    "latitude_of_center": "latitude_of_projection_origin",
    "longitude_of_center": "longitude_of_projection_origin",
    "scale_factor": "scale_factor_at_central_meridian",
    "central_meridian": "longitude_of_central_meridian",
    "latitude_of_origin": "latitude_of_projection_origin",
}
"""Names of CF by those of well-known text."""
POLAR = {"central_meridian": "straight_vertical_longitude_from_pole", "latitude_of_origin": "standard_parallel"}


@pytest.mark.parametrize("code", [code for code, *_ in _CODES if code < 32602 or code in (32633, 32701, 32760)])
def test_each_code_has_the_parameters_of_gdal(code: int) -> None:
    wkt = rasterio.crs.CRS.from_epsg(code).to_wkt()
    kind = re.findall(r'PROJECTION\["(\w+)"', wkt)[0].lower()
    written = {name: float(value) for name, value in re.findall(r'PARAMETER\["(\w+)",([-+.\d]+)\]', wkt)}
    given: dict[str, float | str] = {
        (POLAR if kind == "polar_stereographic" else {}).get(name) or NAMES.get(name, name): value
        for name, value in written.items()
    }
    if kind == "polar_stereographic":
        given["latitude_of_projection_origin"] = 90.0 if written["latitude_of_origin"] > 0 else -90.0
    major, flattening = map(float, re.findall(r'SPHEROID\["[^"]*",([.\d]+),([.\d]+)', wkt)[0])
    given |= {"grid_mapping_name": kind, "semi_major_axis": major, "inverse_flattening": flattening}
    assert code_of_mapping(given) == code
    for change in (
        {"false_easting": 1.0},
        {"semi_major_axis": 6371229.0},
        {"grid_mapping_name": "albers_conical_equal_area"},
    ):
        assert code_of_mapping({**given, **change}) is None
    assert code_of_mapping({name: value for name, value in given.items() if name != "semi_major_axis"}) is None


CONE: dict[str, Any] = {
    "grid_mapping_name": "lambert_conformal_conic", "standard_parallel": [25.0, 40.0],
    "longitude_of_central_meridian": -97.0, "latitude_of_projection_origin": 30.0,
    "semi_major_axis": 6378137.0, "inverse_flattening": 298.25, "prime_meridian_name": "Greenwich",
}  # fmt: skip
POLE: dict[str, Any] = {
    "grid_mapping_name": "polar_stereographic", "latitude_of_projection_origin": 90.0, "earth_radius": 6371229.0,
    "straight_vertical_longitude_from_pole": -30.0, "standard_parallel": [60.0],
}  # fmt: skip


def test_a_projection_has_all_its_parameters() -> None:
    cone = Projection("Lambert conic", 30.0, -97.0, 0.0, 0.0, 6378137.0, 298.25, (25.0, 40.0))
    assert projection_of_mapping(CONE) == cone
    assert projection_of_mapping(CONE | {"false_easting": 5, "towgs84": [0.0] * 3}) == cone._replace(easting=5.0)
    assert projection_of_mapping(CONE | {"standard_parallel": 30.0}) == cone._replace(parallels=(30.0, 30.0))
    pole = Projection("polar stereographic", 90.0, -30.0, 0.0, 0.0, 6371229.0, 0.0, (60.0,))
    assert projection_of_mapping(POLE) == pole
    scaled = {name: value for name, value in POLE.items() if name != "standard_parallel"}
    scaled["scale_factor_at_projection_origin"] = 0.994
    assert projection_of_mapping(scaled) == pole._replace(parallels=(), scale=0.994)


@pytest.mark.parametrize(
    "change",
    [{"standard_parallel": 25.0}, {"standard_parallel": [25.0, -25.0]}, {"standard_parallel": [1.0, 2.0, 3.0]},
     {"standard_parallel": [25.0, "40"]}, {"longitude_of_central_meridian": None}, {"inverse_flattening": None},
     {"inverse_flattening": 0.0034},
     {"semi_major_axis": -1.0}, {"longitude_of_prime_meridian": 2.33}, {"prime_meridian_name": "Paris"},
     {"horizontal_datum_name": "NAD27"}, {"spatial_ref": 'PROJCS["a",GEOGCS["a",DATUM["North_American_1927",1]]]'},
     {"crs_wkt": 'PROJCRS["a",BASEGEOGCRS["a",DATUM["OSGB 1936",1]]]'},
     {"towgs84": [1.0, 0.0, 0.0]},
     {"grid_mapping_name": "geostationary"}, {"grid_mapping_name": 7}, {"false_easting": "5"},
     {"latitude_of_projection_origin": []}],
)  # fmt: skip
def test_a_projection_that_lacks_something_is_none(change: dict[str, Any]) -> None:
    assert projection_of_mapping(CONE | change) is None


@pytest.mark.parametrize(
    "change",
    [{"standard_parallel": -60.0}, {"latitude_of_projection_origin": 80.0}, {"scale_factor_at_projection_origin": 0.9},
     {"standard_parallel": []}],
)  # fmt: skip
def test_a_polar_projection_does_not_contradict_itself(change: dict[str, Any]) -> None:
    assert projection_of_mapping(POLE | change) is None


def test_a_text_without_a_code_has_the_projection_of_the_parameters() -> None:
    text = 'PROJCS["own",GEOGCS["own",DATUM["WGS_1984"]],PROJECTION["Lambert_Conformal_Conic_2SP"]]'
    assert system_of_mapping({**CONE, "crs_wkt": text}) == System(None, False, projection_of_mapping(CONE))
    assert system_of_mapping({**CONE, "epsg_code": 3395}) == System(3395, False)
