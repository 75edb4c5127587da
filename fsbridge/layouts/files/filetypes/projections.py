"""Map projections by their parameters, as keys of GeoTIFF.

Not here: systems with a code of EPSG (`geometry.py`), what a source says of its projection (`meaning/`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fsbridge.meaning import Method, Projection


class _Words(NamedTuple):
    """`kind`: the number of the method; `latitude`, `longitude`: the keys of the origin."""

    kind: int
    latitude: int
    longitude: int


_LATITUDE, _LONGITUDE = 3081, 3080
_WORDS: Mapping[Method, _Words] = {
    "Albers": _Words(11, _LATITUDE, _LONGITUDE),
    "Lambert azimuthal": _Words(10, 3089, 3088),
    "Lambert conic": _Words(8, 3085, 3084),
    "Mercator": _Words(7, _LATITUDE, _LONGITUDE),
    "polar stereographic": _Words(15, _LATITUDE, 3095),
    "transverse Mercator": _Words(1, _LATITUDE, _LONGITUDE),
}

_OWN = 32767
"""The code of what has none."""

_DEGREE, _METER = 9102, 9001


def geotiff_keys(projection: Projection) -> Sequence[tuple[int, int | float]]:
    """Return the keys that describe a projection and its ellipsoid, and their values, in ascending order."""
    words, sphere = _WORDS[projection.method], not projection.flattening
    latitude, scale = projection.latitude, projection.scale
    keys: dict[int, int | float] = {
        2048: _OWN,
        2050: _OWN,
        2054: _DEGREE,
        2056: _OWN,
        2057: projection.radius,
        **({2058: projection.radius} if sphere else {2059: projection.flattening}),
        3072: _OWN,
        3074: _OWN,
        3075: words.kind,
        3076: _METER,
    }
    if projection.method == "polar stereographic":  # whose parallel takes the place of the latitude
        latitude, scale = (*projection.parallels, latitude)[0], scale or 1.0
    else:
        keys |= dict(zip((3078, 3079), projection.parallels, strict=False))
    east, north = (3086, 3087) if projection.method == "Lambert conic" else (3082, 3083)
    keys |= {words.latitude: latitude, words.longitude: projection.longitude}
    keys |= {east: projection.easting, north: projection.northing}
    return sorted((keys | ({} if scale is None else {3092: scale})).items())
