"""The files of one array: which of them a name stands for, and the root of a source that is one array.

A preview of an array that is a level of a pyramid is made from another of its levels. Not here: how a name is read
(`names.py`), groups (`layout.py`), what the files hold (`nodes.py`), which arrays are levels (`images.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice

from fsbridge.asking import before_waiting
from fsbridge.errors import NotFound
from fsbridge.layouts.directories import ArrayDirectory, PathDirectory
from fsbridge.layouts.files.arrays import OpenArray
from fsbridge.layouts.files.extents import Unfit, View
from fsbridge.layouts.files.filetypes import FILE_TYPES
from fsbridge.layouts.files.filetypes.previews import PICTURE as PREVIEW
from fsbridge.layouts.files.group_page import NAME as PAGE
from fsbridge.layouts.files.group_page import array_page
from fsbridge.layouts.files.groups import OpenGroup
from fsbridge.layouts.files.h5.nodes import H5Array
from fsbridge.layouts.files.images import level_names
from fsbridge.layouts.files.listing import listed_files
from fsbridge.layouts.files.names import SLICES, Neighbours, readings
from fsbridge.layouts.files.nodes import ArrayFile, DescriptionFile
from fsbridge.layouts.files.previews.picture import Preview, picture
from fsbridge.layouts.files.previews.sampling import PIXELS, plane
from fsbridge.layouts.files.selection import parse_region
from fsbridge.layouts.files.slices import PlaneSpace, SlicesDirectory
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


_MOST_MEMBERS = 1000
"""Members of a group among which levels are looked for."""


def level_of(shown: OpenGroup, array: OpenArray) -> OpenArray:
    """Return the level of the array's pyramid that its preview is made of: the array itself if it is in none."""
    found = _levels(shown)
    return _chosen(shown, found[found.index(array.name) :], array) if array.name in found else array


def pyramid_preview(shown: OpenGroup, name: str) -> ArrayFile | None:
    """Return the preview of a group, called `name`, that is a pyramid; None if it is not one."""
    found = _levels(shown)
    if not found:
        return None
    first = shown.opened(found[0], shown.member_array(found[0]))
    return ArrayFile(_chosen(shown, found, first), PREVIEW.suffix, None, name)


def _levels(shown: OpenGroup) -> list[str]:
    members = islice(shown.group.children(), _MOST_MEMBERS)
    return level_names(shown.group.attributes(), lambda: (child.name for child in members))


def _chosen(shown: OpenGroup, names: list[str], finest: OpenArray) -> OpenArray:
    """Return the level to show. `finest` is the first of the levels."""
    before_waiting()
    opened = {names[0]: finest}
    around = shown.fresh()
    for name in names[1:]:
        try:
            level = shown.opened(name, shown.member_array(name), around)
        except NotFound:
            continue
        if not _is_level(level.view(), finest.view()):
            return finest
        opened[name] = level
    try:
        return opened[sufficient(list(opened), lambda name: opened[name].view(), picture)]
    except Unfit:
        return finest


def sufficient(names: Sequence[str], view: Callable[[str], View], preview: Callable[[View], Preview]) -> str:
    """Return the coarsest level that fills a preview, or a coarser one if that level could only show its middle.

    `names` are levels, finest first; at least one.
    """
    chosen = names[-1]
    for name in reversed(names):
        shown = view(name)
        if len(shown.shape) < 2 or (preview(shown).middle and name != names[-1]):
            return chosen
        chosen, parts = name, plane(shown)
        if max(shown.shape[parts.rows], shown.shape[parts.columns]) >= PIXELS:
            return chosen
    return chosen


def _is_level(coarse: View, fine: View) -> bool:
    """True if an array can be a level of another: of the same elements, and not larger along any dimension."""
    if coarse.dtype != fine.dtype or len(coarse.shape) != len(fine.shape):
        return False
    return all(less <= more for less, more in zip(coarse.shape, fine.shape, strict=True))
