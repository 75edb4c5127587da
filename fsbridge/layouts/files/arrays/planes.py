"""`NAME.slices`: one file for each plane of an array, in a directory for each further axis.

A plane's node is made from its number and not kept, because a movie has millions. Not here: what the files hold
(`nodes.py`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from fsbridge.errors import NotFound
from fsbridge.layouts.chunks import Numbering
from fsbridge.layouts.files.arrays.nodes import ArrayFile
from fsbridge.layouts.files.arrays.open_array import OpenArray
from fsbridge.layouts.files.arrays.selection import Selection, select_all
from fsbridge.layouts.files.filetypes import FILE_TYPES, reasons
from fsbridge.metadata import Index
from fsbridge.threads.forking import cached_property
from fsbridge.tree import AnyNode, Attrs, Directory, Entry, File, Handle, Space

_LISTED_TYPES = ("tif", "png", "npy")
"""A listing shows planes in the first of these that can hold them."""

_SUFFIXES = tuple(suffix for suffix, one in FILE_TYPES.items() if one.plan is not None)
"""Suffixes of plane files. The number of a file's node depends on its place here."""

_BATCH_ENTRIES = 1000


class PlaneSpace(Numbering, Space):
    """All files of planes, and their directories, of one version of an array, or of a region of it.

    A file's coordinates are those of its plane and the number of its suffix. Nothing is prefetched: a plane consists of
    chunks that its neighbours use too, so most are decoded already.
    """

    def __init__(self, array: OpenArray, selection: Selection | None) -> None:
        """`selection`: the region; None: the whole array. NotFound for fewer than three dimensions."""
        self.array = array
        self.version: Hashable = array.version
        self.identity = ("planes", array.names, selection, self.version)
        self._region = rest = select_all(array.metadata.shape) if selection is None else selection
        dimensions = []
        while len((view := array.make_view(rest)).shape) > 2:
            dimensions.append(rest.kept[view.picture[0]])
            rest = rest.cut_at(dimensions[-1], 0)
        if not dimensions:
            raise NotFound(f"{array.name}: a series of planes needs three dimensions")
        self._dimensions = tuple(dimensions)
        super().__init__((*(self._region.picks[dimension].length for dimension in dimensions), len(_SUFFIXES)))

    @property
    def depth(self) -> int:
        """The number of coordinates of a plane, one for each dimension except rows and columns."""
        return len(self._dimensions)

    @cached_property
    def listed_suffix(self) -> str | None:
        """The suffix of the planes in a listing; None if no file type that is listed can hold them."""
        fits = reasons(self.array.make_view(self.make_selection((0,) * self.depth)))
        return next((suffix for suffix in _LISTED_TYPES if fits[suffix] is None), None)

    def make_selection(self, at: Index) -> Selection:
        """Return the region that consists of the plane at the coordinates `at`."""
        selection = self._region
        for dimension, coordinate in zip(self._dimensions, at, strict=True):
            selection = selection.cut_at(dimension, coordinate)
        return selection

    def spell_coordinate(self, axis: int, coordinate: int) -> str:
        """Return a coordinate as names have it, with leading zeros. `axis`: its number among a plane's coordinates."""
        return f"{coordinate:0{max(4, len(str(self.counts[axis] - 1)))}d}"

    def node(self, position: int) -> AnyNode:
        """Return the node at `position`."""
        at = self.prefix(position)
        return PlaneFile(self, at[:-1], _SUFFIXES[at[-1]]) if len(at) == self.rank else SlicesDirectory(self, at)

    def name(self, position: int) -> str:
        """Return the path of the node at `position` below `NAME.slices`."""
        at = self.prefix(position)
        path = "/".join(self.spell_coordinate(axis, coordinate) for axis, coordinate in enumerate(at[: self.depth]))
        return f"{path}.{_SUFFIXES[at[-1]]}" if len(at) == self.rank else path


class SlicesDirectory(Directory):
    """Planes, or directories of planes, along one axis. `at`: coordinates along the axes above this one."""

    __slots__ = ("_at", "_deeper", "extent", "slot", "space", "version")

    extent: int
    slot: tuple[PlaneSpace, int] | None
    space: PlaneSpace

    def __init__(self, space: PlaneSpace, at: Index = ()) -> None:
        self.space = space
        self.slot = (space, space.position(at)) if at else None
        self.version = space.identity
        self.extent = space.counts[len(at)]
        self._at = at
        self._deeper = len(at) + 1 < space.depth

    def attrs(self) -> Attrs:
        return Attrs("directory", 0, self.space.array.find_mtime_ns())

    def lookup(self, name: bytes) -> AnyNode:
        """Return the directory of that name, or the plane as any file type that can hold it."""
        number, dot, suffix = name.decode("ascii", "replace").partition(".")
        at = (*self._at, self._parse_coordinate(number))
        if self._deeper:
            if dot:
                raise NotFound(f"{name!r} has a suffix, but this directory holds only directories of planes")
            return SlicesDirectory(self.space, at)
        if suffix not in _SUFFIXES:
            raise NotFound(f"{name!r} is no plane")
        space = self.space
        if space.array.version != space.version:  # chunks have changed since this directory was made
            return ArrayFile(space.array, suffix, space.make_selection(at), number)
        return PlaneFile(space, at, suffix)

    def settle(self) -> None:
        self.space.array.settle()

    def entries(self) -> Iterator[Sequence[Entry]]:
        """Yield the members.

        Their sizes and times are those of the first plane, because they are the same for all planes.
        """
        space, suffix = self.space, "" if self._deeper else self.space.listed_suffix
        if not self.extent or suffix is None:
            return
        attrs, first, step, ending = self.attrs(), (*self._at, 0), 1, ""
        if suffix:
            attrs = PlaneFile(space, first, suffix).attrs()
            first, step, ending = (*first, _SUFFIXES.index(suffix)), len(_SUFFIXES), f".{suffix}"
        axis, base = len(self._at), space.position(first)
        for start in range(0, self.extent, _BATCH_ENTRIES):
            numbers = range(start, min(start + _BATCH_ENTRIES, self.extent))
            yield [Entry(f"{space.spell_coordinate(axis, i)}{ending}".encode(), attrs, base + i * step) for i in numbers]

    def _parse_coordinate(self, text: str) -> int:
        if text.isascii() and text.isdigit() and int(text) < self.extent:
            coordinate = int(text)
            if text == self.space.spell_coordinate(len(self._at), coordinate):
                return coordinate
        raise NotFound(f"{text!r} is not the number of one of the {self.extent} members")


class PlaneFile(File):
    """One plane as a file of one type. Its header is made late, because often only the node's number is needed."""

    __slots__ = ("_at", "_file", "_space", "_suffix", "version")

    def __init__(self, space: PlaneSpace, at: Index, suffix: str) -> None:
        self.version = space.version
        self._space = space
        self._at = at
        self._suffix = suffix
        self._file: ArrayFile | None = None

    @property
    def slot(self) -> tuple[PlaneSpace, int]:
        return self._space, self._space.position((*self._at, _SUFFIXES.index(self._suffix)))

    def attrs(self) -> Attrs:
        return self._find_file().attrs()

    def measure(self) -> Attrs:
        return self._find_file().measure()

    def open(self) -> Handle:
        """Open the file; Stale if the array's metadata, or a chunk that was used, has changed."""
        return self._find_file().open()

    @property
    def size_seconds(self) -> float:
        return self._find_file().size_seconds

    def settle(self) -> None:
        self._space.array.settle()

    def _find_file(self) -> ArrayFile:
        """Return the file of the plane; NotFound if its type cannot hold the plane."""
        if self._file is None:
            space = self._space
            name = space.spell_coordinate(space.depth - 1, self._at[-1])
            file = ArrayFile(space.array, self._suffix, space.make_selection(self._at), name, space.version)
            file.version = space.version  # kept for each file that was open; the file's number says the rest
            self._file = file
        return self._file
