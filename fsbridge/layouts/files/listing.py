"""The files of an array as a listing tells of them: names, sizes and times, from its metadata alone and without making any.

Most arrays of a store are like others of it; what is told of them is found once for those that share their metadata. Not
here: the files (`nodes.py`), their names (`names.py`), which formats fit (`fitting.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias, cast

from fsbridge.layouts.files.arrays import OpenArray
from fsbridge.layouts.files.description import Length, length
from fsbridge.layouts.files.fitting import listed
from fsbridge.layouts.files.h5.nodes import H5Array
from fsbridge.layouts.files.names import Neighbours
from fsbridge.layouts.files.nodes import ArrayFile, DescriptionFile, described_version, file_version, planned
from fsbridge.tree import Attrs, Entry

Again: TypeAlias = Callable[[], DescriptionFile | None]
"""Finds the description of an array anew; None when there is no such array any more."""

_NAMELESS = frozenset(("npy", "raw"))
"""Formats whose files say nothing of the array's name: arrays that are alike have files of the same size."""


class _Told(NamedTuple):
    """Of arrays with the same metadata and axes: the length of their descriptions, their files' suffixes and sizes.

    A size is None where it must be found for each array.
    """

    description: Length | None
    files: tuple[tuple[str, int | None], ...]


def listed_files(array: OpenArray, wanted: Sequence[str], name: bytes, others: Neighbours, again: Again) -> list[Entry]:
    """The entries of an array's files; those whose names something else has taken are left out."""
    told, mtime_ns = _told(array, wanted), array.mtime_ns()
    entries = [_description_entry(array, name + b".json", others, again, told)]
    for suffix, size in told.files:
        if not others.leave(array.name, suffix):
            continue
        file = name + b"." + suffix.encode()
        if size is not None:
            version = file_version(suffix, None, array.token)
            entries.append(
                Entry(file, Attrs("file", size, mtime_ns, array.owner), partial(ArrayFile, array, suffix), version)
            )
        else:
            entries.append((H5Array(array) if suffix == "h5" else ArrayFile(array, suffix)).entry(file, mtime_ns))
    return entries


def _description_entry(array: OpenArray, name: bytes, others: Neighbours, again: Again, told: _Told) -> Entry:
    collisions = others.collisions(array.name)
    size = None if collisions or told.description is None else told.description.of(array.name)
    if size is None:
        file = DescriptionFile(array, collisions, again)
        return Entry(name, file.attrs(), lambda: file, file.version)
    attrs = Attrs("file", size, array.array.mtime_ns, array.owner)
    return Entry(name, attrs, partial(DescriptionFile, array, (), again, size), described_version(array, ()))


def _told(array: OpenArray, wanted: Sequence[str]) -> _Told:
    key = id(array.metadata), id(array.axes), array.x_first  # nobody else's while we hold them
    known = array.shared.alike.get(key)
    if known is None:
        view = array.view()
        files = [(suffix, planned(view, suffix).size if suffix in _NAMELESS else None) for suffix in listed(view, wanted)]
        known = array.shared.alike.put(key, (array.metadata, array.axes, _Told(length(view), tuple(files))))
    return cast(_Told, known[2])
