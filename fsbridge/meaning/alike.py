"""Whether two groups or arrays say the same in their attributes, whatever formats and libraries have written them. Pure.

Not here: elements, and what only one of two sources has (`unmounted/comparing.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from fsbridge.meaning import Attributes
from fsbridge.meaning.conventions import hdmf, xarray
from fsbridge.meaning.conventions.ome_versions import in_zarr3
from fsbridge.metadata import JSON, ArrayMetadata


def differing_of_groups(one: Attributes, other: Attributes, names: Sequence[str]) -> list[str]:
    """Return the names of attributes that differ between two groups. `names`: the path of both."""
    keys = _differing(one, other)
    newer = _differing(in_zarr3(one, names), in_zarr3(other, names)) if keys else []  # OME-Zarr has them elsewhere in 0.5
    return min(keys, newer, key=len)


def differing_of_arrays(one: ArrayMetadata, other: ArrayMetadata) -> list[str]:
    """Return the names of attributes that differ between two arrays."""
    differences = _differing(xarray.comparable(one, other), xarray.comparable(other, one))
    notes = hdmf.NOTES if are_documents(one, other) else ()
    return [name for name in differences if name not in notes]


def _differing(one: Attributes, other: Attributes) -> list[str]:
    left, right = _plain(one), _plain(other)
    names = sorted(name for name in left.keys() | right.keys() if left.get(name) != right.get(name))
    return [name for name in names if name not in left or name not in right or not _spells(left[name], right[name])]


def _spells(*pair: str) -> bool:
    """True if one value is a text that spells the other one as JSON. HDF5 has objects and lists in this way."""
    for one, other in (pair, pair[::-1]):
        text = json.loads(one)
        if isinstance(text, str) and other.startswith(("{", "[")):
            try:
                return _plain({"": json.loads(text)}) == {"": other}
            except (ValueError, RecursionError):
                return False
    return False


def _plain(attributes: Attributes) -> dict[str, str]:
    """Return the values of attributes as text, so that a NaN equals another NaN."""
    return {name: json.dumps(_value(value), sort_keys=True) for name, value in hdmf.comparable(attributes).items()}


def _value(value: JSON) -> JSON:
    """Return a value in one spelling: 1 for 1.0, and a number for a list of one number, as netCDF has it."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, Mapping):
        return {name: _value(part) for name, part in value.items()}
    if not isinstance(value, list):
        return value
    if len(value) == 1 and isinstance(value[0], int | float) and not isinstance(value[0], bool):
        return _value(value[0])
    return [_value(part) for part in value]


def differing_dimensions(one: ArrayMetadata, other: ArrayMetadata, turned: bool) -> str | None:
    """Return the names of both arrays' dimensions if they differ, else None. A name that one array lacks does not count.

    `turned`: the other array is transposed. `y_1` counts as `y`, because in some files all names must be different.
    """
    names = list(xarray.names_of(one) or ()), list(xarray.names_of(other) or ())[:: -1 if turned else 1]
    differ = any(None not in pair and _first(pair[0]) != _first(pair[1]) for pair in zip(*names, strict=False))
    words = " and ".join(", ".join(map(str, known)) for known in names)
    return words if differ and not hdmf.is_typed(one.attributes) and not hdmf.is_typed(other.attributes) else None


def _first(name: str | None) -> str:
    head, _, number = str(name).rpartition("_")
    return head if head and number.isdecimal() else str(name)


def type_of(metadata: ArrayMetadata) -> JSON:
    """Return the Zarr v3 data type of the values that the elements stand for."""
    if xarray.is_truth(metadata):
        return "bool"
    return "string" if hdmf.is_text(metadata) else metadata.dtype.name


def are_documents(*pair: ArrayMetadata) -> bool:
    """True if one array has structs with references, and the other one the same structs as JSON.

    `document` then makes them comparable.
    """
    compound, fields = (hdmf.is_compound, hdmf.reference_fields)
    return any(compound(one.attributes) and fields(other.attributes) for one, other in (pair, pair[::-1]))


def document(row: Mapping[str, JSON], fields: frozenset[str]) -> JSON:
    """Return a struct as JSON, as compounds of HDF5 with references are shown. `fields`: the fields that hold references."""
    return {name: hdmf.reference(str(value)) if name in fields else value for name, value in row.items()}
