"""The coordinates in the virtual HDF5 file of one array: the same that the file of the whole store has for it.

Not here: which of them become dimension scales (`dimensions.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from fsbridge.layouts.files.arrays import OpenArray
from fsbridge.layouts.files.extents import View
from fsbridge.layouts.files.h5.dimensions import COORDINATE_VALUES, Labelled, Scales, scales, valued
from fsbridge.layouts.files.h5.specification import Specification, labelled
from fsbridge.metadata import JSON, Axis

ATTRIBUTE_CHARACTERS = 1024
"""Most characters of a coordinate's attribute, because the file's size is fixed before the attribute is read."""

MEANING = frozenset(("units", "calendar", "bounds", "climatology", "standard_name", "axis", "positive", "_FillValue"))
"""Attributes of CF that change the meaning of a coordinate's values."""

ATTRIBUTES = 32
"""Most attributes of a coordinate."""

BOUNDS = ("bounds", "climatology")
"""CF's attributes that name another array with the edges of each cell (CF conventions, 7.1 and 7.4)."""


def scales_beside(array: OpenArray, view: View, path: str, specification: Specification) -> Scales:
    """Add the coordinates of an array to its file, and return its dimension scales.

    An array of an HDF5 file has them only if every dimension has a name.
    """
    label = labelled(view, array.name)
    if label is None:
        return Scales([], [], [])
    if label.from_hdf5:
        label = label._replace(axes=tuple(view.axes), scale=None, from_hdf5=False)
        if any(axis.name is None for axis in view.axes):
            return Scales([], [], [])
    arrays: dict[str, Labelled] = {path: label}
    for position, number in enumerate(view.selection.kept):
        axis = view.axes[position]
        place = f"/{axis.name}"
        if axis.name is None or "/" in axis.name or place in arrays or view.shape[position] > COORDINATE_VALUES:
            continue
        found = array.above.variable(axis.name)
        if found is None or found.values.shape != (array.metadata.shape[number],):
            continue
        pick = view.selection.picks[number]
        rows = [pick.start + pick.step * i for i in range(pick.length)]
        specification.add(**valued(place, found.values[rows], _told(found.attributes)))
        arrays[place] = Labelled((len(rows),), (Axis(axis.name),), None, False)
        for name in (found.attributes.get(word) for word in BOUNDS):
            bounds = array.above.variable(name) if isinstance(name, str) and name and "/" not in name else None
            if bounds is None or bounds.values.shape != (len(found.values), 2) or f"/{name}" in arrays:
                continue
            specification.add(**valued(f"/{name}", bounds.values[rows], _told(bounds.attributes)))
            arrays[f"/{name}"] = Labelled((len(rows), 2), (Axis(axis.name), Axis(None)), None, False)
    made = scales(arrays)
    for item in made.datasets:
        specification.add(**item)
    return made


def _told(attributes: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the attributes that fit into the reserved space. Those in `MEANING` come first."""
    fitting = {
        name: value
        for name, value in attributes.items()
        if len(str(value)) + len(name) <= ATTRIBUTE_CHARACTERS and name != "_ARRAY_DIMENSIONS"
    }
    return dict(sorted(fitting.items(), key=lambda item: item[0] not in MEANING)[:ATTRIBUTES])
