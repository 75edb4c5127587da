"""Files of one array: those that a name stands for, and the root of a source that is one array.

Not here: how a name is read (`names.py`), planes (`planes.py`), groups (`layout.py`), what the files hold (`nodes.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import partial

from fsbridge.asking import before_waiting
from fsbridge.errors import NotFound
from fsbridge.layouts.directories import ArrayDirectory, PathDirectory
from fsbridge.layouts.files.arrays.listing import list_files
from fsbridge.layouts.files.arrays.names import (
    SLICES,
    Neighbours,
    find_full_store_name,
    find_store_name,
    parse_name,
    restore_colons,
)
from fsbridge.layouts.files.arrays.nodes import ArrayFile, DescriptionFile
from fsbridge.layouts.files.arrays.open_array import OpenArray, Shared
from fsbridge.layouts.files.arrays.planes import PlaneSpace, SlicesDirectory
from fsbridge.layouts.files.arrays.selection import parse_region
from fsbridge.layouts.files.filetypes import FILE_TYPES, reasons
from fsbridge.layouts.files.filetypes.h5 import H5, NC
from fsbridge.layouts.files.h5.array_netcdf import make_array_netcdf
from fsbridge.layouts.files.h5.nodes import H5Array
from fsbridge.layouts.files.looks.group_page import PAGE, make_array_page
from fsbridge.layouts.nodes import DocumentFile
from fsbridge.layouts.surroundings import Look
from fsbridge.model import Array
from fsbridge.tree import AnyNode, Attrs, Entry, escape


class ArrayFiles(ArrayDirectory):
    """An array as a directory of its files."""

    def __init__(self, path: PathDirectory, array: Array, shared: Shared) -> None:
        super().__init__(path, array)
        place = shared.config.place
        self._shared = shared
        self._name = path.member.names[-1] if path.member.names else find_store_name(place)
        self._wanted = shared.config.files
        self._store = find_full_store_name(place)

    def _open(self) -> OpenArray:
        """Return the array with its present surroundings."""
        member = self.path.member
        return self._shared.find_array(
            member.context, member.names, self._name, self.array, Look(member.context, member.above)
        )

    def chunk(self, name: bytes) -> AnyNode:
        text, opened = name.decode("utf-8", "surrogateescape"), self._open()
        for reading in parse_name(text):
            if reading.array.encode("utf-8", "surrogateescape") == escape(self._name):
                if reading.suffix == "json" and reading.region is None:
                    return self._describe()
                return find_file(opened, reading.region, reading.suffix, text)
        if text == PAGE.suffix:
            return DocumentFile(self._make_page_again, self._make_page(), self.array.mtime_ns)
        raise NotFound(f"{name!r} is no file of this array")

    def chunk_entries(self) -> Iterator[Sequence[Entry]]:
        yield list_files(self._open(), self._wanted, escape(self._name), Neighbours(), self._describe_again)

        if PAGE.is_listed(self._wanted):
            attrs = Attrs("file", None, self.array.mtime_ns)
            name = PAGE.suffix.encode()
            yield [Entry(name, attrs, partial(self.chunk, name))]

    def _make_page(self) -> bytes:
        before_waiting()  # because coordinates are read
        return make_array_page(self._open(), self._store, self.path.member.context.format_at(()).name)

    def _make_page_again(self) -> bytes | None:
        shown = self.path.refresh()
        return shown._make_page() if isinstance(shown, ArrayFiles) else None

    def _describe(self) -> DescriptionFile:
        return DescriptionFile(self._open(), (), self._describe_again)

    def _describe_again(self) -> DescriptionFile | None:
        shown = self.path.refresh()
        return shown._describe() if isinstance(shown, ArrayFiles) else None


log = logging.getLogger(__name__)


def find_file(array: OpenArray, region: str | None, suffix: str, name: str) -> AnyNode:
    """Return the array's file `NAME.suffix` or, with a `region`, `NAME[region].suffix`.

    NotFound if the array has no such file. For a bad region, the log says what is wrong with it.
    """
    selection = None
    at = name.startswith(f"{array.name}@")
    if region is not None:
        try:
            selection = parse_region(restore_colons(region) if at else region, array.metadata.shape)
        except ValueError as error:
            log.debug("%s names no region of %s: %s", name, array.name, error)
            raise NotFound(f"{name}: {error}") from None
    if suffix == SLICES:
        return SlicesDirectory(PlaneSpace(array, selection))
    if suffix not in FILE_TYPES:
        raise NotFound(f"{name!r} does not end with a known file type")
    full = None if region is None else f"{array.name}@{region}" if at else f"{array.name}[{region}]"
    if suffix == NC.suffix:
        return make_array_netcdf(array, selection, full)
    return H5Array(array, selection, full) if suffix == H5.suffix else ArrayFile(array, suffix, selection, full)


def find_named_file(array: OpenArray, name: str) -> AnyNode | None:
    """Return the file that an array's own name stands for, if it ends with a suffix of a file type; else None.

    Of several such suffixes, the longest counts of a type that can hold the array.
    """
    suffixes = sorted({own.suffix for own in parse_name(name) if own.suffix in FILE_TYPES}, key=len)
    if not suffixes:
        return None
    fits = reasons(array.make_view())
    chosen = [suffix for suffix in suffixes if fits[suffix] is None] or suffixes
    return find_file(array, None, chosen[-1], name)
