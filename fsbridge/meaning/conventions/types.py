"""What formats say of types that numpy lacks: names of numbers, lists of numbers, padding, and netCDF's texts of letters.

The daemon shows such elements as numbers or bytes (`formats/hdf5/types.py`). Not here: decoding them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from fsbridge.meaning import Meaning, Names, Path
from fsbridge.meaning.attributes import dicts, text
from fsbridge.meaning.convention import Convention, Written
from fsbridge.metadata import JSON, ArrayMetadata

SEQUENCES = "_VLEN"
"""The attribute with the type of the numbers in each element, which the HDF5 format adds."""


def _array(written: Written, known: Meaning) -> Meaning:
    metadata, values = written.metadata, known.values
    native = metadata.native.get("hdf5")
    described = native.get("datatype") if isinstance(native, Mapping) else None
    dtype = metadata.dtype.numpy
    if isinstance(described, Mapping):
        names = dict(_names(described))
        values = replace(values, names={**names, **values.names})
    if dtype is not None and dtype.names is not None:
        document = metadata.native.get(".zarray")
        spelled = document.get("dtype") if isinstance(document, Mapping) else None
        padding = _padding(described) if isinstance(described, Mapping) else _find_gaps(spelled)
        values = replace(values, padding=frozenset(padding))
    if metadata.dtype.serializer == "vlen-bytes":
        values = replace(values, lists=_lists(metadata))
    return replace(known, values=replace(values, characters=_has_letters(metadata)))


def is_plain_bytes(metadata: ArrayMetadata) -> bool:
    """True if the elements are lists of unsigned bytes, which other formats call bytes of variable length."""
    return metadata.dtype.serializer == "vlen-bytes" and metadata.attributes.get(SEQUENCES) == "|u1"


def _names(described: Mapping[str, JSON], path: Path = ()) -> Iterator[tuple[Path, Names]]:
    """Yield the names of an enumeration, also in the fields of compounds and in the elements of lists and array types."""
    if described.get("class") == "enum":
        names = {int(number): str(name) for name, number in described.get("members", ())}
        truth = {name.upper() for name in names.values()} == {"FALSE", "TRUE"}  # R reads only capitals as logical
        yield path, {number: name.upper() for number, name in names.items()} if truth else names
    elif described.get("class") in ("array", "vlen"):
        yield from _names(described["base"], path)
    for name, _, inner in described.get("fields", ()):
        yield from _names(inner, (*path, name))


def _padding(described: Mapping[str, JSON], path: Path = ()) -> Iterator[Path]:
    """Yield the fields that the HDF5 format makes of gaps. They are called `_gap`, followed by a number that is free."""
    while described.get("class") == "array":
        described = described["base"]
    fields = described.get("fields", ())
    taken = {name for name, _, _ in fields}
    gaps = range(2 * len(fields) + 1) if fields else ()
    yield from ((*path, f"_gap{number}") for number in gaps if f"_gap{number}" not in taken)
    for name, _, inner in fields:
        yield from _padding(inner, (*path, name))


def _find_gaps(spelled: JSON, path: Path = ()) -> Iterator[Path]:
    """Yield the paths of gaps in a struct of Zarr v2: fields that numpy writes without a name and reads as `f0`, ..."""
    for number, field in enumerate(spelled if isinstance(spelled, list) else ()):
        name, inner = field[:2] if isinstance(field, list) else (None, None)
        if name == "":
            yield *path, f"f{number}"
        elif isinstance(name, str):
            yield from _find_gaps(inner, (*path, name))


def _lists(metadata: ArrayMetadata) -> str | None:
    """Return the type of the numbers in each element; None if the elements are bytes."""
    if "hdf5" in metadata.native:
        return text(metadata.attributes.get(SEQUENCES))
    filters = dicts(metadata.native.get(".zarray"), "filters")
    return next((text(each.get("dtype")) for each in filters if each.get("id") == "vlen-array"), None)


def _has_letters(metadata: ArrayMetadata) -> bool:
    """True if the last dimension runs along the letters of texts, as xarray reads arrays with named dimensions."""
    dtype, names = metadata.dtype.numpy, metadata.dimension_names
    is_letter = dtype is not None and dtype.kind == "S" and dtype.itemsize == 1
    return is_letter and len(metadata.shape) > 1 and names is not None and names[-1] is not None


TYPES = Convention("types of formats", _array)
