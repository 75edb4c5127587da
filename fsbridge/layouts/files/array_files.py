"""The root of a source that is one array: its files, named after the store. Not here: groups (`layout.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from fsbridge.asking import before_waiting
from fsbridge.errors import NotFound
from fsbridge.layouts.directories import ArrayDirectory, PathDirectory
from fsbridge.layouts.files.arrays import OpenArray
from fsbridge.layouts.files.group_page import NAME as PAGE
from fsbridge.layouts.files.group_page import array_page
from fsbridge.layouts.files.listing import listed_files
from fsbridge.layouts.files.named import file_of
from fsbridge.layouts.files.names import Neighbours, readings
from fsbridge.layouts.files.nodes import DescriptionFile
from fsbridge.layouts.nodes import DocumentFile
from fsbridge.model import Array
from fsbridge.tree import AnyNode, Attrs, Entry, escape


class ArrayFiles(ArrayDirectory):
    """An array as a directory of its files."""

    def __init__(self, path: PathDirectory, array: Array, opened: OpenArray, wanted: Sequence[str], store: str) -> None:
        """`store`: name of the whole store, for the title of its page."""
        super().__init__(path, array)
        self._opened = opened
        self._wanted = wanted
        self._store = store

    def chunk(self, name: bytes) -> AnyNode:
        text = name.decode("utf-8", "surrogateescape")
        for reading in readings(text):
            if reading.array.encode("utf-8", "surrogateescape") == escape(self._opened.name):
                if reading.suffix == "json" and reading.region is None:
                    return self._description()
                return file_of(self._opened, reading.region, reading.suffix, text)
        if text == PAGE:
            return DocumentFile(self._page_again, self._page(), self._opened.array.mtime_ns)
        raise NotFound(f"{name!r} is no file of this array")

    def chunk_entries(self) -> Iterator[Sequence[Entry]]:
        yield listed_files(self._opened, self._wanted, escape(self._opened.name), Neighbours(), self._again)

        if "html" in self._wanted:
            attrs = Attrs("file", None, self._opened.array.mtime_ns)
            yield [Entry(PAGE.encode(), attrs, partial(self.chunk, PAGE.encode()))]

    def _page(self) -> bytes:
        before_waiting()  # coordinates are read
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
    raise NotFound(f"{name!r}: there is only one array")
