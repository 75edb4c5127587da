"""Grid mappings of CF that are described by their parameters alone (CF conventions, appendix F).

Only a mapping with exactly the parameters of a code of EPSG has it. Others are projections by their parameters, because no
library of map projections is needed to read a store. Not here: mappings with a code or a well-known text (`cf.py`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from fsbridge.meaning import Attributes, Method, Projection
from fsbridge.meaning.attributes import finite, single
from fsbridge.metadata import JSON

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


def _center(latitude: float, longitude: float, easting: float = 0.0, northing: float = 0.0) -> dict[str, float]:
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
    (6931, _EQUAL, _WGS84, _center(90.0, 0.0)),
    (6932, _EQUAL, _WGS84, _center(-90.0, 0.0)),
    (3035, _EQUAL, _GRS80, _center(52.0, 10.0, 4321000.0, 3210000.0)),
    *((32600 + 100 * south + zone, "transverse_mercator", _WGS84, _zone(zone, bool(south)))
      for south in (0, 1) for zone in range(1, 61)),
]  # fmt: skip


def code_of_mapping(mapping: Attributes) -> int | None:
    """Return EPSG's code of a grid mapping; None if its parameters belong to no code, or if one is missing."""
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


class _Wanted(NamedTuple):
    """What a grid mapping must say about a projection. `parallels`: how many standard parallels it may have."""

    method: Method
    longitude: str
    parallels: tuple[int, ...] = (0,)
    scale: str = ""


_PROJECTIONS = {
    "albers_conical_equal_area": _Wanted("Albers", "longitude_of_central_meridian", (2,)),
    _EQUAL: _Wanted("Lambert azimuthal", "longitude_of_projection_origin"),
    "lambert_conformal_conic": _Wanted("Lambert conic", "longitude_of_central_meridian", (1, 2)),
    "mercator": _Wanted("Mercator", "longitude_of_projection_origin", (0, 1), "scale_factor_at_projection_origin"),
    _POLE: _Wanted(
        "polar stereographic", "straight_vertical_longitude_from_pole", (0, 1), "scale_factor_at_projection_origin"
    ),
    "transverse_mercator": _Wanted(
        "transverse Mercator", "longitude_of_central_meridian", scale="scale_factor_at_central_meridian"
    ),
}

_DATUM = re.compile(r'(?:DATUM|ENSEMBLE)\s*\[\s*"([^"]*)"')
_USUAL_DATUM = re.compile(r"(d_)?(unknown|undefined|not.specified|wgs.?(19)?84|world.geodetic.system.1984)", re.IGNORECASE)
"""How the names of the datum of GPS, and of none, begin."""


def projection_of_mapping(mapping: Attributes) -> Projection | None:
    """Return the projection of a grid mapping; None for other kinds, or if a parameter is missing or makes no sense.

    Also None for a cone with one parallel, unless the origin lies on it, because programs take it for different ones; and
    for another datum than that of GPS, because the parameters do not say where its ellipsoid lies.
    """
    wanted, earth = _PROJECTIONS.get(str(mapping.get("grid_mapping_name"))), _earth(mapping)
    if wanted is None or earth is None or _is_moved(mapping):
        return None
    cylinder = wanted.method == "Mercator"
    usual = {"latitude_of_projection_origin": 0.0} if cylinder else {}
    latitude, longitude, easting, northing = (
        finite(single(mapping.get(name, (_USUAL | usual).get(name))))
        for name in ("latitude_of_projection_origin", wanted.longitude, "false_easting", "false_northing")
    )
    scale = finite(single(mapping.get(wanted.scale)))
    parallels = [finite(one) for one in _make_list(mapping, "standard_parallel")]
    known = [one for one in parallels if one is not None and abs(one) <= 90]
    if latitude is None or longitude is None or easting is None or northing is None:
        return None
    if len(known) != len(parallels) or len(known) not in wanted.parallels or (cylinder and latitude):
        return None
    if wanted.scale and (scale or 0) <= 0 and not known:
        return None
    if known and scale not in (None, 1.0):
        return None  # they contradict each other
    if wanted.method == "polar stereographic" and (abs(latitude) != 90 or any(one * latitude <= 0 for one in known)):
        return None
    if max(wanted.parallels) == 2:
        if len(known) == 1 and known[0] == latitude:
            known *= 2
        if len(known) == 1 or not sum(known):
            return None
    return Projection(wanted.method, latitude, longitude, easting, northing, *earth, tuple(known), None if known else scale)


def _is_moved(mapping: Attributes) -> bool:
    """True if the ellipsoid may lie elsewhere than the one of GPS."""
    names = [mapping.get("horizontal_datum_name", "unknown")]
    for name in ("crs_wkt", "spatial_ref"):
        names += _DATUM.findall(str(mapping.get(name)))
    if any(not isinstance(name, str) or _USUAL_DATUM.match(name) is None for name in names):
        return True
    # A `Projection` has no place for these numbers.
    shifted = any(number for name in ("longitude_of_prime_meridian", "towgs84") for number in _make_list(mapping, name))
    return shifted or mapping.get("prime_meridian_name", "Greenwich") != "Greenwich"


def _make_list(mapping: Attributes, name: str) -> Sequence[JSON]:
    written = mapping.get(name, [])
    return written if isinstance(written, list) else [written]


def _earth(mapping: Attributes) -> tuple[float, float] | None:
    """Return semi-major axis and inverse flattening (0 for a sphere); None if one of them is not given."""
    major, minor, flattening, radius = (
        finite(single(mapping.get(name)))
        for name in ("semi_major_axis", "semi_minor_axis", "inverse_flattening", "earth_radius")
    )
    if major is None and minor is None and flattening is None:
        major = minor = radius
    if major is not None and flattening is None and minor is not None and 0 < minor <= major:
        flattening = major / (major - minor) if minor < major else 0.0
    if major is None or flattening is None or major <= 0 or (flattening and flattening <= 1):
        return None
    return major, flattening
