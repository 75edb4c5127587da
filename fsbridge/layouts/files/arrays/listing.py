"""Directory entries of an array's files: names, sizes and times, from its metadata alone. No file is made for them.

Most arrays of a store resemble others, so sizes are computed once for all arrays that share their metadata. Not here: the
files (`nodes.py`), their names (`names.py`), which file types fit (`filetypes/__init__.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import NamedTuple, TypeAlias, cast

from fsbridge.layouts.axes import Coordinate
from fsbridge.layouts.conventions import element_unit, greatest, missing_value, packing
from fsbridge.layouts.files.arrays.description import Described, Length, is_plain, length
from fsbridge.layouts.files.arrays.extents import View
from fsbridge.layouts.files.arrays.names import SLICES, Neighbours
from fsbridge.layouts.files.arrays.nodes import ArrayFile, DescriptionFile, described_version, file_version, planned
from fsbridge.layouts.files.arrays.open_array import OpenArray, Shared
from fsbridge.layouts.files.arrays.selection import whole
from fsbridge.layouts.files.filetypes import ALIASES, FILE_TYPES, Alike, listed, reasons
from fsbridge.layouts.files.filetypes.geometry import georeference
from fsbridge.layouts.files.h5.nodes import H5Array
from fsbridge.layouts.files.looks.rows import Rows
from fsbridge.metadata import ArrayMetadata, Axes, Axis
from fsbridge.model import Brief
from fsbridge.tree import AnyNode, Attrs, Entry

Again: TypeAlias = Callable[[], DescriptionFile | None]
"""Returns the present description of an array; None if the array no longer exists."""


class _SharedLengths(NamedTuple):
    """Sizes of files that arrays share if they have plain names and the same metadata and axes.

    `description`: of `NAME.json`; `files`: of the other files, by suffix.

    A length is None if it must be found for each array. `alike`: the key of one of the arrays.
    """

    alike: Described
    description: Length | None
    files: tuple[tuple[str, Length | None], ...]


def listed_files(
    array: OpenArray, wanted: Sequence[str], name: bytes, others: Neighbours, again: Again, rows: Rows | None = None
) -> list[Entry]:
    """The entries of an array's files. Files with names that something else has taken are left out.

    `rows`: collects the array for the group's page.
    """
    if array.metadata.attributes_error is not None:
        return list(_unsized_files(array, wanted, name, others, again))
    lengths, mtime_ns = _shared_lengths(array.shared, array.view(), wanted), array.mtime_ns()
    if rows is not None:
        rows.array(array.view(), lengths.alike)
    entries = [_description_entry(array, name + b".json", others, again, lengths)]
    for suffix, bytes_of in lengths.files:
        if not others.leave(array.name, suffix):
            continue
        file = name + b"." + suffix.encode()
        if bytes_of is not None:
            attrs = Attrs("file", bytes_of.of(array.name), mtime_ns)
            version = file_version(suffix, None, array.version)
            entries.append(Entry(file, attrs, partial(ArrayFile, array, suffix), version))
        else:
            entries.append((H5Array(array) if suffix == "h5" else ArrayFile(array, suffix)).entry(file, mtime_ns))
    return entries


def _unsized_files(
    array: OpenArray, wanted: Sequence[str], name: bytes, others: Neighbours, again: Again
) -> Iterator[Entry]:
    """Yield the entries of an array whose attributes cannot be read: opening a file that needs them raises the reason."""
    mtime_ns = array.mtime_ns()
    yield _unsized(name, "json", mtime_ns, partial(DescriptionFile, array, others.collisions(array.name), again))
    for suffix in listed(array.view(), wanted):
        if others.leave(array.name, suffix):
            opener = partial(H5Array, array) if suffix == "h5" else partial(ArrayFile, array, suffix)
            yield _unsized(name, suffix, mtime_ns, opener)


def listed_briefly(
    shared: Shared,
    found: Brief,
    names: tuple[str, ...],
    axes: Axes,
    x_first: bool,
    coordinate: Coordinate,
    wanted: Sequence[str],
    name: bytes,
    others: Neighbours,
    opener: Callable[[str], AnyNode],
    rows: Rows | None = None,
) -> list[Entry] | None:
    """Return the directory entries of an array that is not open yet, or None if only opening the array tells them.

    `names`: the path of the array; `opener(suffix)`: opens one of its files.
    """
    array = names[-1]
    if not is_plain(array) or others.collisions(array):
        return None
    most = greatest(found.metadata)
    view = View(array, found.metadata, whole(found.metadata.shape), axes, x_first, None, False, most, coordinate)
    lengths = _shared_lengths(shared, view, wanted) if found.shared else _of_its_own(view, wanted)
    if lengths.description is None:
        return None
    if rows is not None:
        rows.array(view, lengths.alike)
    identity, version = shared.named(names, found.version)
    mtime_ns = max(found.mtime_ns, found.chunks_mtime_ns)
    attrs = Attrs("file", lengths.description.of(array), found.mtime_ns)
    entries = [Entry(name + b".json", attrs, partial(opener, "json"), described_version(identity, ()))]
    for suffix, bytes_of in lengths.files:
        if bytes_of is None:
            return None
        if others.leave(array, suffix):
            attrs = Attrs("file", bytes_of.of(array), mtime_ns)
            of_file = file_version(suffix, None, version)
            entries.append(Entry(name + b"." + suffix.encode(), attrs, partial(opener, suffix), of_file))
    return entries


def file_names(name: str, metadata: ArrayMetadata, wanted: Sequence[str]) -> dict[str, list[str]]:
    """Return an array's files, those listed and those that only open by name: see `directories.Layout`."""
    selection = whole(metadata.shape)
    view = View(name, metadata, selection, (Axis(),) * len(metadata.shape), False)
    shown = ["json", *listed(view, wanted)]
    fits = [suffix for suffix, reason in reasons(view).items() if reason is None and suffix not in shown]
    series = [f"{name}.{SLICES}/"] if len(metadata.shape) > 2 else []
    aliases = [alias for alias, suffix in ALIASES.items() if suffix in (*shown, *fits)]
    unlisted = [*(f"{name}.{suffix}" for suffix in (*fits, *aliases)), *series]
    return {"files": [f"{name}.{suffix}" for suffix in shown], "by name": unlisted}


def _unsized(name: bytes, suffix: str, mtime_ns: int, opener: Callable[[], AnyNode]) -> Entry:
    return Entry(name + b"." + suffix.encode(), Attrs("file", None, mtime_ns), opener)


def linked_suffixes(array: OpenArray, wanted: Sequence[str], name: str, others: Neighbours) -> list[str]:
    """Return the suffixes of the files that a listing shows, as links, for a link `name` to an array."""
    return ["json", *(suffix for suffix in listed(array.view(), wanted) if others.leave(name, suffix))]


def _description_entry(array: OpenArray, name: bytes, others: Neighbours, again: Again, lengths: _SharedLengths) -> Entry:
    collisions = others.collisions(array.name)
    size = None if collisions or lengths.description is None else lengths.description.of(array.name)
    if size is None:
        file = DescriptionFile(array, collisions, again)
        return Entry(name, file.attrs(), lambda: file, file.version)
    attrs = Attrs("file", size, array.array.mtime_ns)
    return Entry(name, attrs, partial(DescriptionFile, array, (), again, size), described_version(array.identity, ()))


def _shared_lengths(shared: Shared, view: View, wanted: Sequence[str]) -> _SharedLengths:
    key = _key(view, None if is_plain(view.name) else view.name)
    known = shared.alike.get(key)
    if known is None:
        known = shared.alike.put(key, (view.metadata, view.axes, _of_its_own(view, wanted)))
    return cast(_SharedLengths, known[2])


def _of_its_own(view: View, wanted: Sequence[str]) -> _SharedLengths:
    """Return the lengths for an array with metadata of its own."""
    alike = Described(view)
    return _SharedLengths(alike, length(alike), _lengths(_Headed(view, alike), tuple(wanted)))


class _Headed(Alike):
    """A key for a view: equal to another key if the headers of their files differ at most in the array's name.

    The only attributes in headers are the packing, the unit, the missing value, and the geographic reference.
    """

    def __init__(self, view: View, other: Alike) -> None:
        super().__init__(view, other)
        name = None if is_plain(view.name) else view.name
        # `repr`, because 1.0 and 1 are equal but are written differently.
        said = [tell(view.metadata) for tell in (packing, element_unit, missing_value)]
        described = repr((view.axes, said, view.image, georeference(view)))
        self.beside = (*self.beside, view.selection, described, name)


@lru_cache(maxsize=256)
def _lengths(key: _Headed, wanted: tuple[str, ...]) -> tuple[tuple[str, Length | None], ...]:
    """Suffixes of the files, and their lengths."""
    return tuple([(suffix, _length(key.view, suffix)) for suffix in listed(key.view, wanted)])


def _length(view: View, suffix: str) -> Length | None:
    """Return a file's size by the length of the array's name; None if the size depends on anything else."""
    if suffix == "h5":
        return None  # the file has a place for the array's own attributes
    if not FILE_TYPES[suffix].names_array:
        size = planned(view, suffix).size
        return None if size is None else Length(size, 0)
    if not is_plain(view.name):
        return None
    shorter, longer = (planned(replace(view, name=name), suffix).size for name in ("a", "aa"))
    return None if shorter is None or longer is None else Length(2 * shorter - longer, longer - shorter)


def _key(view: View, name: str | None) -> Hashable:
    """Return the key of shared lengths. `name`: given if it is not plain, because some file types cannot hold it."""
    metadata, axes = id(view.metadata), id(view.axes)  # unique while we hold the objects
    return metadata, axes, view.x_first, name, view.image, view.greatest
