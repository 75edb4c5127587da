"""Directory entries of an array's files: names, sizes and times, from its metadata alone. No file is opened for them.

Most arrays of a store resemble others, so sizes are computed once for all arrays that are alike. Not here: the
files (`nodes.py`), their names (`names.py`), which file types fit (`filetypes/__init__.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from fsbridge.layouts.files.arrays.description import (
    is_plain,
    make_description,
    measure_with_attributes,
    measure_without_attributes,
)
from fsbridge.layouts.files.arrays.extents import View
from fsbridge.layouts.files.arrays.names import SLICES, Neighbours
from fsbridge.layouts.files.arrays.nodes import (
    ArrayFile,
    DescriptionFile,
    make_description_version,
    make_file_version,
    make_plan,
)
from fsbridge.layouts.files.arrays.open_array import OpenArray, Sizes
from fsbridge.layouts.files.arrays.selection import select_all
from fsbridge.layouts.files.filetypes import ALIASES, list_suffixes, reasons
from fsbridge.layouts.files.filetypes.geometry import georeference
from fsbridge.layouts.files.filetypes.h5 import H5, NC
from fsbridge.layouts.files.h5.array_netcdf import make_array_netcdf
from fsbridge.layouts.files.h5.nodes import H5Array
from fsbridge.layouts.files.looks.rows import SeenMembers
from fsbridge.meaning.convention import Written
from fsbridge.meaning.reading import read_array
from fsbridge.metadata import ArrayMetadata
from fsbridge.tree import AnyNode, Attrs, Entry

_MADE: Mapping[str, Callable[[OpenArray], AnyNode]] = {H5.suffix: H5Array, NC.suffix: make_array_netcdf}
"""Makes the files that have no plan, by suffix."""

Again: TypeAlias = Callable[[], DescriptionFile | None]
"""Returns the present description of an array; None if the array no longer exists."""


def list_files(
    array: OpenArray, wanted: Sequence[str], name: bytes, others: Neighbours, again: Again, rows: SeenMembers | None = None
) -> list[Entry]:
    """Return the entries of an array's files, without those that something else has the name of.

    `again`: returns the array's present description; `rows`: collects the array for the group's page.
    """
    if array.metadata.attributes_error is not None:
        return list(_list_unsized_files(array, wanted, name, others, again))
    sizes = _find_sizes(array, wanted)
    if rows is not None:
        rows.add_array(array, sizes.alike)
    collisions, mtime_ns = others.find_collisions(array.name), array.find_mtime_ns()
    size = len(make_description(array.make_view(), collisions)) if collisions else sizes.described
    opener = partial(DescriptionFile, array, collisions, again, size)
    attrs, version = Attrs("file", size, array.array.mtime_ns), make_description_version(array.identity, collisions)
    entries = [Entry(name + b".json", attrs, opener, version)]
    for suffix, bytes_of in sizes.files:
        if not others.allow(array.name, suffix):
            continue
        file = name + b"." + suffix.encode()
        if suffix == NC.suffix:
            entries.append(_make_unsized_entry(name, suffix, mtime_ns, partial(make_array_netcdf, array)))
            continue
        if suffix == H5.suffix:
            entries.append(H5Array(array).entry(file, mtime_ns))
            continue
        attrs, version = Attrs("file", bytes_of, mtime_ns), make_file_version(suffix, None, array.version)
        entries.append(Entry(file, attrs, partial(ArrayFile, array, suffix), version))
    return entries


def _list_unsized_files(
    array: OpenArray, wanted: Sequence[str], name: bytes, others: Neighbours, again: Again
) -> Iterator[Entry]:
    """Yield entries without sizes for an array with unreadable attributes. Opening a file that needs these says why."""
    mtime_ns = array.find_mtime_ns()
    yield _make_unsized_entry(
        name, "json", mtime_ns, partial(DescriptionFile, array, others.find_collisions(array.name), again)
    )
    for suffix in list_suffixes(array.make_view(), wanted):
        if others.allow(array.name, suffix):
            opener = partial(_MADE[suffix], array) if suffix in _MADE else partial(ArrayFile, array, suffix)
            yield _make_unsized_entry(name, suffix, mtime_ns, opener)


def list_file_names(name: str, metadata: ArrayMetadata, wanted: Sequence[str]) -> dict[str, list[str]]:
    """Return the names of an array's files: those listed, and those that only open by name (see `directories.Layout`)."""
    selection = select_all(metadata.shape)
    view = View(name, metadata, selection, read_array(Written(metadata)), False)
    shown = ["json", *list_suffixes(view, wanted)]
    fits = [suffix for suffix, reason in reasons(view).items() if reason is None and suffix not in shown]
    series = [f"{name}.{SLICES}/"] if len(metadata.shape) > 2 else []
    aliases = [alias for alias, suffix in ALIASES.items() if suffix in (*shown, *fits)]
    unlisted = [*(f"{name}.{suffix}" for suffix in (*fits, *aliases)), *series]
    return {"files": [f"{name}.{suffix}" for suffix in shown], "by name": unlisted}


def _make_unsized_entry(name: bytes, suffix: str, mtime_ns: int, opener: Callable[[], AnyNode]) -> Entry:
    return Entry(name + b"." + suffix.encode(), Attrs("file", None, mtime_ns), opener)


def list_linked_suffixes(array: OpenArray, wanted: Sequence[str], name: str, others: Neighbours) -> list[str]:
    """Return the suffixes of the files that a listing shows for a link to an array. Each is a link too.

    `name`: of the link.
    """
    return ["json", *(suffix for suffix in list_suffixes(array.make_view(), wanted) if others.allow(name, suffix))]


def _find_sizes(array: OpenArray, wanted: Sequence[str]) -> Sizes:
    """Return the sizes of an array's files.

    They are computed once for all arrays with the same metadata and axes, which most arrays of a store share. For other
    arrays most of the work is done once for each `_make_size_key`.
    """
    name = array.name
    kind = "sizes", array.x_first, len(name) if is_plain(name) else name
    return array.surroundings.share(kind, array.metadata, lambda: _find_own_sizes(array, wanted))


def _find_own_sizes(array: OpenArray, wanted: Sequence[str]) -> Sizes:
    view, shared = array.make_view(), array.shared.sizes
    alike = _make_size_key(view)
    sizes = shared.get(alike) or shared.put(alike, _measure(view, alike, wanted))
    return sizes._replace(described=measure_with_attributes(view, sizes.described))


def _make_size_key(view: View) -> Hashable:
    """Return a key. If two arrays have equal keys, their files have equal sizes, except for the attributes in `NAME.json`.

    The only attributes in headers are the packing, the unit, the missing value, and the geographic reference.
    """
    metadata, dtype, name = view.metadata, view.metadata.dtype, view.name
    uneven = [(dimension, hash(places.tobytes())) for dimension, places in view.meaning.positions.items()]
    said = view.axes, uneven, view.affine, view.meaning.values, georeference(view), view.image
    written = repr((said, dtype.name, metadata.fill_spelling))  # 1.0 and 1 are equal but are written differently
    of_type = dtype.native, dtype.numpy, dtype.itemsize, dtype.endian, dtype.serializer
    of_array = metadata.grid, metadata.order, metadata.fill, metadata.varlength, metadata.codec, metadata.refused
    return len(name) if is_plain(name) else name, view.x_first, of_type, of_array, written


def _measure(view: View, alike: Hashable, wanted: Sequence[str]) -> Sizes:
    files = [(suffix, None if suffix in _MADE else make_plan(view, suffix).size) for suffix in list_suffixes(view, wanted)]
    return Sizes(alike, measure_without_attributes(view), files)
