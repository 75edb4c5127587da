"""EPSG's codes of frequent grid mappings of CF that are described by their parameters alone (CF conventions, appendix F).

Only a mapping with exactly the parameters of a code has it. All others have no code, because no library of map projections
is needed to read a store. Not here: mappings with a code or a well-known text (`cf.py`).
"""

from __future__ import annotations

from fsbridge.meaning import Attributes
from fsbridge.meaning.attributes import finite, single

_WGS84, _GRS80, _HUGHES = (6378137.0, 298.257223563), (6378137.0, 298.257222101), (6378273.0, 298.279411123)
"""Semi-major axis and inverse flattening."""

_NAMES = (
    "latitude_of_projection_origin", "straight_vertical_longitude_from_pole", "longitude_of_central_meridian",
    "longitude_of_projection_origin", "standard_parallel", "scale_factor_at_central_meridian",
    "scale_factor_at_projection_origin", "false_easting", "false_northing",
)  # fmt: skip
_USUAL = {"false_easting": 0.0, "false_northing": 0.0}

_POLE, _EQUAL = "polar_stereographic", "lambert_azimuthal_equal_area"
_SIDES = {"latitude_of_projection_origin": 90.0}, {"latitude_of_projection_origin": -90.0}


def _polar(south: bool, longitude: float, parallel: float) -> dict[str, float]:
    return {**_SIDES[south], "straight_vertical_longitude_from_pole": longitude, "standard_parallel": parallel}


def _centered(latitude: float, longitude: float, easting: float = 0.0, northing: float = 0.0) -> dict[str, float]:
    return {
        "latitude_of_projection_origin": latitude,
        "longitude_of_projection_origin": longitude,
        "false_easting": easting,
        "false_northing": northing,
    }


def _zone(zone: int, south: bool) -> dict[str, float]:
    return {
        "latitude_of_projection_origin": 0.0,
        "longitude_of_central_meridian": 6.0 * zone - 183.0,
        "scale_factor_at_central_meridian": 0.9996,
        "false_easting": 500000.0,
        "false_northing": 1e7 * south,
    }


_CODES: list[tuple[int, str, tuple[float, float], dict[str, float]]] = [
    (3411, _POLE, _HUGHES, _polar(False, -45.0, 70.0)),
    (3412, _POLE, _HUGHES, _polar(True, 0.0, -70.0)),
    (3413, _POLE, _WGS84, _polar(False, -45.0, 70.0)),
    (3976, _POLE, _WGS84, _polar(True, 0.0, -70.0)),
    (3995, _POLE, _WGS84, _polar(False, 0.0, 71.0)),
    (3031, _POLE, _WGS84, _polar(True, 0.0, -71.0)),
    (6931, _EQUAL, _WGS84, _centered(90.0, 0.0)),
    (6932, _EQUAL, _WGS84, _centered(-90.0, 0.0)),
    (3035, _EQUAL, _GRS80, _centered(52.0, 10.0, 4321000.0, 3210000.0)),
    *((32600 + 100 * south + zone, "transverse_mercator", _WGS84, _zone(zone, bool(south)))
      for south in (0, 1) for zone in range(1, 61)),
]  # fmt: skip


def code_of_mapping(mapping: Attributes) -> int | None:
    """Return the code of a grid mapping; None if its parameters are those of no code, or if one is missing."""
    earth = _earth(mapping)
    written = {name: finite(single(mapping[name])) for name in _NAMES if name in mapping}
    if earth is None or None in written.values():
        return None
    for code, name, figure, wanted in _CODES:
        if mapping.get("grid_mapping_name") != name or figure[0] != earth[0] or abs(figure[1] - earth[1]) > 1e-6:
            continue
        if _USUAL | written == _USUAL | wanted:
            return code
    return None


def _earth(mapping: Attributes) -> tuple[float, float] | None:
    """Return semi-major axis and inverse flattening; None if one of them is not given."""
    major, minor, flattening = (
        finite(single(mapping.get(name))) for name in ("semi_major_axis", "semi_minor_axis", "inverse_flattening")
    )
    if major is not None and flattening is None and minor is not None and minor < major:
        flattening = major / (major - minor)
    return None if major is None or flattening is None else (major, flattening)
