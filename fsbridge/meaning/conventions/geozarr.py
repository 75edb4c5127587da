"""GeoZarr's conventions `proj:` and `spatial:`, of an array or of the group above, and `proj:epsg` of EOPF.

A transformation is an affine one with six numbers a to f: x = a * column + b * row + c, y = d * column + e * row + f.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fsbridge.meaning import Attributes, Meaning, System
from fsbridge.meaning.attributes import numbers
from fsbridge.meaning.convention import Convention, Written, place_on_map
from fsbridge.meaning.systems import system_of, system_of_projjson, system_of_wkt

_SHAPE, _DIMENSIONS, _NODE = "spatial:shape", "spatial:dimensions", "node"


def _array(written: Written, known: Meaning) -> Meaning:
    for attributes in (written.attributes, *written.groups[:1]):
        if known.system is None:
            known = replace(known, system=_system(attributes))
        written_six = (_six(attributes.get(name)) for name in ("spatial:transform", "proj:transform"))
        six = next((numbers for numbers in written_six if numbers is not None), None)
        if six is not None:
            known = _place(written, known, attributes, six)
    return known


def _system(attributes: Attributes) -> System | None:
    by_text = system_of_wkt(attributes.get("proj:wkt2")) or system_of_projjson(attributes.get("proj:projjson"))
    return by_text or next(
        (system for name in ("proj:code", "proj:epsg") if (system := system_of(attributes.get(name)))), None
    )


def _six(value: object) -> list[float] | None:
    """Return the six numbers of an affine transformation, also from a whole matrix, row by row."""
    return numbers(value[:6] if isinstance(value, list) and len(value) in (6, 9) else None, 6)


def _place(written: Written, known: Meaning, attributes: Attributes, six: Sequence[float]) -> Meaning:
    """Add the places of the two dimensions of a map, if the transformation `six` is the one of this array."""
    written_names = attributes.get(_DIMENSIONS, ["y", "x"])
    names = written_names if isinstance(written_names, list) else []
    places = [i for name in names for i, axis in enumerate(known.axes) if axis.name == name]
    if len(places) != 2 or places[0] == places[1]:
        return known
    if attributes.get(_SHAPE, (shape := [written.metadata.shape[i] for i in places])) != shape:
        return known  # that of another level
    half = 0.0 if attributes.get("spatial:registration") == _NODE else 0.5
    a, b, c, d, e, f = six
    return place_on_map(known, places[0], places[1], (a, b, c + half * (a + b), d, e, f + half * (d + e)), of_map=True)


GEOZARR = Convention("GeoZarr", _array)
