"""Files of one array: those that a name stands for, and the root of a source that is one array.

Not here: how a name is read (`names.py`), planes (`planes.py`), groups (`layout.py`), what the files hold (`nodes.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from fsbridge.asking import before_waiting
from fsbridge.errors import NotFound
from fsbridge.layouts.axes import Attributes
from fsbridge.layouts.directories import ArrayDirectory, PathDirectory
from fsbridge.layouts.files.arrays.listing import listed_files
from fsbridge.layouts.files.arrays.names import SLICES, Neighbours, full_store_name, readings, store_name
from fsbridge.layouts.files.arrays.nodes import ArrayFile, DescriptionFile
from fsbridge.layouts.files.arrays.open_array import OpenArray, Shared, Surroundings
from fsbridge.layouts.files.arrays.planes import PlaneSpace, SlicesDirectory
from fsbridge.layouts.files.arrays.selection import parse_region
from fsbridge.layouts.files.filetypes import FILE_TYPES, reasons
from fsbridge.layouts.files.h5.nodes import H5Array
from fsbridge.layouts.files.looks.group_page import PAGE, array_page
from fsbridge.layouts.nodes import DocumentFile
from fsbridge.model import Array
from fsbridge.tree import AnyNode, Attrs, Entry, escape


class ArrayFiles(ArrayDirectory):
    """An array as a directory of its files."""

    def __init__(self, path: PathDirectory, array: Array, shared: Shared, above: Callable[[], Sequence[Attributes]]) -> None:
        """`above`: attributes of the groups above the array, the nearest first."""
        super().__init__(path, array)
        member, place = path.member, shared.config.place
        name = member.names[-1] if member.names else store_name(place)
        self._opened = shared.array(member.context, member.names, name, array, Surroundings(above, no_array, member.context))
        self._wanted = shared.config.files
        self._store = full_store_name(place)

    def chunk(self, name: bytes) -> AnyNode:
        text = name.decode("utf-8", "surrogateescape")
        for reading in readings(text):
            if reading.array.encode("utf-8", "surrogateescape") == escape(self._opened.name):
                if reading.suffix == "json" and reading.region is None:
                    return self._description()
                return file_of(self._opened, reading.region, reading.suffix, text)
        if text == PAGE.suffix:
            return DocumentFile(self._page_again, self._page(), self._opened.array.mtime_ns)
        raise NotFound(f"{name!r} is no file of this array")

    def chunk_entries(self) -> Iterator[Sequence[Entry]]:
        yield listed_files(self._opened, self._wanted, escape(self._opened.name), Neighbours(), self._again)

        if PAGE.is_listed(self._wanted):
            attrs = Attrs("file", None, self._opened.array.mtime_ns)
            name = PAGE.suffix.encode()
            yield [Entry(name, attrs, partial(self.chunk, name))]

    def _page(self) -> bytes:
        before_waiting()  # because coordinates are read
        return array_page(self._opened, self._store, self.path.member.context.format_at(()).name)

    def _page_again(self) -> bytes | None:
        shown = self.path.present()
        return shown._page() if isinstance(shown, ArrayFiles) else None

    def _description(self) -> DescriptionFile:
        return DescriptionFile(self._opened, (), self._again)

    def _again(self) -> DescriptionFile | None:
        shown = self.path.present()
        return shown._description() if isinstance(shown, ArrayFiles) else None


def no_array(name: str) -> Array:
    """Raise NotFound, because the root's array is the only one."""
    raise NotFound(f"{name!r} is not found: the root of the source is the only array")


log = logging.getLogger(__name__)


def file_of(array: OpenArray, region: str | None, suffix: str, name: str) -> AnyNode:
    """Return the array's file `NAME.suffix`, or `NAME[region].suffix`. NotFound for a bad region, which the log explains."""
    selection = None
    if region is not None:
        try:
            selection = parse_region(region, array.metadata.shape)
        except ValueError as error:
            log.debug("%s names no region of %s: %s", name, array.name, error)
            raise NotFound(f"{name}: {error}") from None
    if suffix == SLICES:
        return SlicesDirectory(PlaneSpace(array, selection))
    if suffix not in FILE_TYPES:
        raise NotFound(f"{name!r} does not end with a known file type")
    at = name.startswith(f"{array.name}@")
    full = None if region is None else f"{array.name}@{region}" if at else f"{array.name}[{region}]"
    return H5Array(array, selection, full) if suffix == "h5" else ArrayFile(array, suffix, selection, full)


def named_file(array: OpenArray, name: str) -> AnyNode | None:
    """Return the file that an array's own name stands for if it ends with a suffix, of the types that can hold the array.

    None if it ends with none.
    """
    suffixes = sorted({own.suffix for own in readings(name) if own.suffix in FILE_TYPES}, key=len)
    if not suffixes:
        return None
    fits = reasons(array.view())
    chosen = [suffix for suffix in suffixes if fits[suffix] is None] or suffixes
    return file_of(array, None, chosen[-1], name)
