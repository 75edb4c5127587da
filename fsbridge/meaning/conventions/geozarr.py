"""GeoZarr's conventions `proj:` and `spatial:`, of an array or of the group above, and `proj:epsg` of EOPF.

A transformation is an affine one with six numbers a to f: x = a * column + b * row + c, y = d * column + e * row + f.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fsbridge.meaning import Attributes, Axes, Meaning, System
from fsbridge.meaning.attributes import numbers
from fsbridge.meaning.convention import Convention, Written, sensible, stepped
from fsbridge.meaning.systems import system_of, system_of_projjson, system_of_wkt

_SHAPE, _DIMENSIONS, _NODE = "spatial:shape", "spatial:dimensions", "node"
_TRANSFORMS = ("spatial:transform", "proj:transform")


def _array(written: Written, known: Meaning) -> Meaning:
    for attributes in (written.attributes, *written.groups[:1]):
        if known.system is None:
            known = replace(known, system=_system(attributes))
        six = next((found for name in _TRANSFORMS if (found := _six(attributes.get(name))) is not None), None)
        if six is not None:
            known = replace(known, axes=_placed(written, known.axes, attributes, six))
    return known


def _system(attributes: Attributes) -> System | None:
    by_text = system_of_wkt(attributes.get("proj:wkt2")) or system_of_projjson(attributes.get("proj:projjson"))
    return by_text or next(
        (found for name in ("proj:code", "proj:epsg") if (found := system_of(attributes.get(name)))), None
    )


def _six(value: object) -> list[float] | None:
    """Return the six numbers of an affine transformation, also from a whole matrix, row by row."""
    return numbers(value[:6] if isinstance(value, list) and len(value) in (6, 9) else None, 6)


def _placed(written: Written, axes: Axes, attributes: Attributes, six: Sequence[float]) -> Axes:
    """Return the axes with the spacing of the transformation, if it is that of this array and has no rotation."""
    names = attributes.get(_DIMENSIONS, ["y", "x"])
    places = [i for name in names for i, axis in enumerate(axes) if axis.name == name] if isinstance(names, list) else []
    if len(places) != 2 or six[1] or six[3]:
        return axes
    row, column = places
    if attributes.get(_SHAPE, (shape := [written.metadata.shape[i] for i in places])) != shape:
        return axes  # that of another level
    placed, half = list(axes), 0.0 if attributes.get("spatial:registration") == _NODE else 0.5
    placed[row] = stepped(axes[row], six[4], six[5] + half * six[4], "northing")
    placed[column] = stepped(axes[column], six[0], six[2] + half * six[0], "easting")
    return sensible(tuple(placed))


GEOZARR = Convention("GeoZarr", _array)
