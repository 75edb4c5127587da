"""A group or array of a store, however its path is written: `STORE//PATH`, and `STORE/PATH` where that is one path.

Not here: `SOURCE//PATH` of a mount (`arguments.py`), whose root is there.
"""

from __future__ import annotations

import os
from typing import TypeAlias

from fsbridge.commands import arguments

Place: TypeAlias = tuple[str, tuple[str, ...]]
"""A source, and the names that lead to a member of it."""

NETCDF = ".nc"
"""The name promises no format, because a file of netCDF-3 has it, too. But nothing lies below such a file."""


def split_member(text: str, form: str = "auto") -> Place:
    """Split `text` into the store and the path in it. `form`: the format that the user names, if any.

    Without `//`, the store is the HDF5 or zip file on the way, or the outermost store around a directory. A directory of a
    format that the user names is the store itself.
    """
    source, inside = arguments.split_place(text)
    if "://" in source:
        return _split_url(arguments.resolve_source(source), inside)
    above, names = _split_path(arguments.check_spelling(source), form == "auto")
    return above, (*names, *inside)


def _split_url(url: str, inside: tuple[str, ...]) -> Place:
    """Split a URL after the first name that looks like a store's."""
    from fsbridge.formats.detect import promised

    scheme, _, path = url.rpartition("://")
    parts = path.rstrip("/").split("/")
    for number, name in enumerate(parts[:-1], 1):
        if number > 1 and (promised(name, False) or promised(name, True) or name.endswith(NETCDF)):
            return f"{scheme}://{'/'.join(parts[:number])}", (*parts[number:], *inside)
    return url, inside


def _split_path(path: str, upwards: bool) -> Place:
    names: list[str] = []
    above = path.rstrip("/")
    while above and not os.path.lexists(above):
        above, _, name = above.rpartition("/")
        names.insert(0, name)
    if names and os.path.isfile(above):
        return above, tuple(filter(None, names))
    return _find_store_around(path) if upwards and not names and os.path.isdir(path) else (path, ())


def _find_store_around(path: str) -> Place:
    """Return the outermost store around a directory, as long as each directory on the way belongs to it."""
    from fsbridge.formats.detect import store_around

    whole = arguments.make_absolute(path)
    store = whole
    while (outer := store_around(store)) is not None:
        store = outer
    if store == whole:
        return path, ()
    return store, tuple(os.path.relpath(whole, store).split("/"))
