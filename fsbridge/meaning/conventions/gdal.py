"""GDAL's Zarr driver: `_CRS`, with well-known text or with the address of a code."""

from __future__ import annotations

from dataclasses import replace

from fsbridge.meaning import Meaning, System
from fsbridge.meaning.convention import Convention, Written
from fsbridge.meaning.systems import epsg_code, system_of_wkt


def _array(written: Written, known: Meaning) -> Meaning:
    own = written.attributes.get("_CRS")
    if known.system is not None or not isinstance(own, dict):
        return known
    return replace(known, system=system_of_wkt(own.get("wkt")) or System(epsg_code(own.get("url")), None))


GDAL = Convention("GDAL", _array)
