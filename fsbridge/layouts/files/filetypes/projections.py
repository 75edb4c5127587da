"""Map projections by their parameters, as keys of GeoTIFF, and as ESRI's well-known text, which ENVI has.

Not here: systems with a code of EPSG (`geometry.py`), what a source says of its projection (`meaning/`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fsbridge.meaning import Method, Projection


class _Words(NamedTuple):
    """How a method of projection is called. `kind`: GeoTIFF's number; `name`: ESRI's name.

    `latitude`, `longitude`: GeoTIFF's keys for the origin.
    """

    kind: int
    latitude: int
    longitude: int
    name: str


_LATITUDE, _LONGITUDE = 3081, 3080
_WORDS: Mapping[Method, _Words] = {
    "Albers": _Words(11, _LATITUDE, _LONGITUDE, "Albers"),
    "Lambert azimuthal": _Words(10, 3089, 3088, "Lambert_Azimuthal_Equal_Area"),
    "Lambert conic": _Words(8, 3085, 3084, "Lambert_Conformal_Conic"),
    "Mercator": _Words(7, _LATITUDE, _LONGITUDE, "Mercator"),
    "polar stereographic": _Words(15, _LATITUDE, 3095, "Stereographic"),
    "transverse Mercator": _Words(1, _LATITUDE, _LONGITUDE, "Transverse_Mercator"),
}

_OWN = 32767
"""The code of what has none."""

_DEGREE, _METER = 9102, 9001


def geotiff_keys(projection: Projection) -> Sequence[tuple[int, int | float]]:
    """Return the GeoTIFF keys that describe a projection and its ellipsoid, with their values, sorted by key."""
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


def esri_text(projection: Projection) -> str | None:
    """Return a projection as ESRI's well-known text; None if that cannot express it."""
    name, parallels, scale = _WORDS[projection.method].name, projection.parallels, projection.scale
    if projection.method == "Mercator" and not parallels:
        return None
    if projection.method == "polar stereographic" and parallels:
        name += "_North_Pole" if projection.latitude > 0 else "_South_Pole"
    said = {
        "False_Easting": projection.easting,
        "False_Northing": projection.northing,
        "Central_Meridian": projection.longitude,
        **{f"Standard_Parallel_{i}": parallel for i, parallel in enumerate(parallels, 1)},
        **({} if scale is None else {"Scale_Factor": scale}),
        **({} if len(parallels) == 1 else {"Latitude_Of_Origin": projection.latitude}),
    }
    words = "".join(f'PARAMETER["{key}",{value!r}],' for key, value in said.items())
    figure = f'SPHEROID["unknown",{projection.radius!r},{projection.flattening!r}]'
    earth = f'GEOGCS["unknown",DATUM["unknown",{figure}],PRIMEM["Greenwich",0.0],UNIT["Degree",0.0174532925199433]]'
    return f'PROJCS["unknown",{earth},PROJECTION["{name}"],{words}UNIT["Meter",1.0]]'
