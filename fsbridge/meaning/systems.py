"""Coordinate reference systems out of well-known text, and out of the many spellings of EPSG's codes. Pure."""

from __future__ import annotations

import re

from fsbridge.meaning import System
from fsbridge.metadata import JSON

WGS84 = 4326

_GEOGRAPHIC = frozenset((WGS84, 4258, 4267, 4269, 4283, 4490, 4612, 4674, 4979))
"""Frequent codes of latitudes and longitudes. Of the others, only the axes tell what they are."""


def system_of_wkt(wkt: JSON) -> System | None:
    """Return the system in a well-known text; None if it is neither geographic nor projected."""
    kind = re.match(r"\s*(GEOG|GEOD|PROJ)[A-Z]*\s*\[", wkt) if isinstance(wkt, str) else None
    if kind is None or not isinstance(wkt, str):
        return None
    last = re.search(r'(?:AUTHORITY|ID)\s*\[\s*"EPSG"\s*,\s*"?([0-9]+)"?\s*\]\s*\]\s*$', wkt)
    return System(None if last is None else epsg_code(last[1]), kind[1] != "PROJ")


def epsg_code(written: JSON) -> int | None:
    """Return EPSG's code from a number, `EPSG:4326`, or an address that ends with it; None for anything else."""
    words = str(written) if isinstance(written, str | int) and not isinstance(written, bool) else ""
    code = re.fullmatch(r"\s*(?:(?:\S*\bepsg)?\S*[:/])?([0-9]{4,5})\s*", words, re.IGNORECASE)
    return int(code[1]) if code is not None and 1024 <= int(code[1]) <= 32766 else None  # the range of EPSG


def system_of(written: JSON) -> System | None:
    """Return the system with a code of EPSG, as `epsg_code` takes it."""
    code = epsg_code(written)
    return None if code is None else System(code, True if code in _GEOGRAPHIC else None)


def system_of_projjson(written: JSON) -> System | None:
    """Return the system of a PROJJSON object; None if it is neither geographic nor projected."""
    kind = str(written.get("type")) if isinstance(written, dict) else ""
    geographic = {"ProjectedCRS": False, "GeographicCRS": True, "GeodeticCRS": True}.get(kind)
    if geographic is None:
        return None
    identity = written.get("id")
    is_epsg = isinstance(identity, dict) and identity.get("authority") == "EPSG"
    return System(epsg_code(identity.get("code")) if is_epsg else None, geographic)
