"""`NAME.slices/`: the planes of an array over the last two axes of a picture, a directory for each other axis but the last.

Not here: the files themselves (`nodes.py`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence

from fsbridge.errors import NotFound
from fsbridge.layouts.files.arrays import OpenArray
from fsbridge.layouts.files.fitting import reasons
from fsbridge.layouts.files.headers import MAKERS
from fsbridge.layouts.files.nodes import ArrayFile, file_version
from fsbridge.layouts.files.selection import Selection, whole
from fsbridge.owner import searchable
from fsbridge.tree import AnyNode, Attrs, Entry

_LISTED_FORMATS = ("tif", "png", "npy")
"""A listing shows planes in the first of these that can hold them."""
_BATCH_ENTRIES = 1000


class SlicesDirectory:
    """Planes, or directories of planes, along one axis. `selection` has the axes above it dropped."""

    space = None
    slot = None

    def __init__(self, array: OpenArray, selection: Selection | None = None) -> None:
        """NotFound for an array of fewer than three dimensions."""
        self._array = array
        self._selection = whole(array.metadata.shape) if selection is None else selection
        view = array.view(self._selection)
        if len(view.shape) < 3:
            raise NotFound(f"{array.name}: a series of planes needs three dimensions")
        self._dimension = self._selection.kept[view.picture[0]]
        self.extent = self._selection.picks[self._dimension].length
        self._deeper = len(view.shape) > 3
        self._digits = max(4, len(str(self.extent - 1)))
        self.version: Hashable = slices_version(selection, array.token)

    def attrs(self) -> Attrs:
        return Attrs("directory", 0, self._array.mtime_ns(), searchable(self._array.owner))

    def xattrs(self) -> Mapping[str, bytes]:
        return {}

    def lookup(self, name: bytes) -> AnyNode:
        """A directory or a plane, in any format that can hold it."""
        number, dot, suffix = name.decode("ascii", "replace").partition(".")
        position = self._position(number)
        if self._deeper:
            if dot:
                raise NotFound(f"{name!r}: these are directories of planes")
            return SlicesDirectory(self._array, self._selection.at(self._dimension, position))
        if suffix not in MAKERS:
            raise NotFound(f"{name!r} is no plane")
        return ArrayFile(self._array, suffix, self._selection.at(self._dimension, position), number)

    def present(self) -> SlicesDirectory:
        return self

    def settle(self) -> None:
        self._array.settled()

    def entries(self) -> Iterator[Sequence[Entry]]:
        """Sizes and times are those of the first plane: all planes have the same."""
        if not self.extent:
            return
        mtime_ns = self._array.mtime_ns()
        suffix, attrs = "", Attrs("directory", 0, mtime_ns, searchable(self._array.owner))
        if not self._deeper:
            first = self._selection.at(self._dimension, 0)
            fits = reasons(self._array.view(first))
            suffix = next((suffix for suffix in _LISTED_FORMATS if fits[suffix] is None), "")
            if not suffix:
                return
            attrs = ArrayFile(self._array, suffix, first, "0" * self._digits).attrs()
        for start in range(0, self.extent, _BATCH_ENTRIES):
            yield [self._entry(i, suffix, attrs) for i in range(start, min(start + _BATCH_ENTRIES, self.extent))]

    def _entry(self, position: int, suffix: str, attrs: Attrs) -> Entry:
        name = f"{position:0{self._digits}d}{'.' if suffix else ''}{suffix}".encode()
        selection = self._selection.at(self._dimension, position)
        token = self._array.token
        version = slices_version(selection, token) if self._deeper else file_version(suffix, selection, token)
        return Entry(name, attrs, lambda: self.lookup(name), version)

    def _position(self, text: str) -> int:
        if not text.isdigit() or len(text) != self._digits or int(text) >= self.extent:
            raise NotFound(f"{text!r} is no plane of {self.extent}")
        return int(text)


def slices_version(selection: Selection | None, token: Hashable) -> Hashable:
    """The version of a `SlicesDirectory` of an array of that token."""
    return ("slices", selection, token)
