"""Codes of grid mappings: their parameters are those that GDAL and PROJ have for the code."""

from __future__ import annotations

import re

import pytest
import rasterio.crs

from fsbridge.meaning.conventions.cf_mappings import _CODES, code_of_mapping

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
