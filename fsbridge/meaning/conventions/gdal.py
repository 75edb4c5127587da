"""GDAL's Zarr driver: `_CRS`, with well-known text, PROJJSON, or the address of a code."""

from __future__ import annotations

from dataclasses import replace

from fsbridge.meaning import Meaning, System
from fsbridge.meaning.convention import Convention, Written
from fsbridge.meaning.systems import epsg_code, system_of_projjson, system_of_wkt


def _array(written: Written, known: Meaning) -> Meaning:
    own = written.attributes.get("_CRS")
    if known.system is not None or not isinstance(own, dict):
        return known
    by_text = system_of_wkt(own.get("wkt")) or system_of_projjson(own.get("projjson"))
    return replace(known, system=by_text or System(epsg_code(own.get("url")), None))


GDAL = Convention("GDAL", _array)
