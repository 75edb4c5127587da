"""`NAME.h5` in the tree: of an array, whose size is known without making it, and of a group. Not here: what is in them."""

from __future__ import annotations

import itertools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping

from fsbridge.errors import NotFound, Stale
from fsbridge.layouts.files.arrays import OpenArray
from fsbridge.layouts.files.h5.specification import stored
from fsbridge.layouts.files.h5.twin import Part, Twin, array_size, array_twin
from fsbridge.layouts.files.h5.walk import Walk
from fsbridge.layouts.files.headers.text import MAX_TEXTS
from fsbridge.layouts.files.selection import Selection
from fsbridge.layouts.files.source import WINDOW_BYTES, ElementSource
from fsbridge.owner import restricted
from fsbridge.tree import Attrs, Buffer, Deliver, Entry

_KEPT_FILES = 16
"""Virtual files of groups that are remembered: a skeleton of a thousand datasets has 5 MB."""

_OPEN_PARTS = 64
"""Arrays of one open file whose readers are kept."""

_numbers = itertools.count(1)


class H5Array:
    """An array, or a region of it, as an HDF5 file."""

    slot = None
    pinned = None

    def __init__(self, array: OpenArray, selection: Selection | None = None, name: str | None = None) -> None:
        """NotFound where elements have different sizes, or the file would be too large."""
        self.array = array
        self.view = array.view(selection, name)
        self.version: Hashable = ("h5", selection, array.token)
        self._token = array.token
        items = stored(self.view).items
        size = array_size(self.view)
        texts = items and self.view.selection.size > MAX_TEXTS
        if array.metadata.varlength or texts or size >= 2**62:
            raise NotFound(f"{self.view.name}.h5: elements of different sizes, or too many of them")
        self._size = None if items else size
        self._lock = threading.Lock()
        self._twin: Twin | None = None

    def entry(self, name: bytes, mtime_ns: int) -> Entry:
        """This file as a member of a listing."""
        return Entry(name, Attrs("file", self._size, mtime_ns, self.array.owner), lambda: self, self.version)

    def attrs(self) -> Attrs:
        return Attrs("file", self._size, self.array.mtime_ns(), self.array.owner)

    def measured(self) -> Attrs:
        return Attrs("file", self._made().size, self.array.mtime_ns(), self.array.owner)

    def xattrs(self) -> Mapping[str, bytes]:
        return {}

    def open(self) -> H5Handle:
        """Have the skeleton written, once; Stale when the array has changed."""
        self.array.current(self._token)
        return H5Handle(self._made(), self.version)

    def open_at_once(self, deliver: Deliver) -> None:
        """Always left to a worker."""

    def _made(self) -> Twin:
        with self._lock:
            if self._twin is None:
                twin = array_twin(self.array, self.view, self.array.current(self._token))
                self.array.current(self._token)  # what was asked of an HDF5 file meanwhile is of that version, too
                self._twin = twin
            return self._twin


class H5Files:
    """The virtual files of groups: each made once and kept while what it shows is still so."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: OrderedDict[tuple[str, ...], H5Group] = OrderedDict()
        self._making: dict[tuple[str, ...], threading.Lock] = {}

    def find(self, names: tuple[str, ...], walk: Callable[[], Walk], ttl: float, mtime_ns: int) -> H5Group:
        """The file of the group at `names`, as the store is now."""
        with self._lock:
            making = self._making.setdefault(names, threading.Lock())
        with making:
            known = self._files.get(names)
            if known is None or not known.fresh(ttl):
                known = H5Group(walk(), mtime_ns)
                with self._lock:
                    self._files[names] = known
                    self._files.move_to_end(names)
                    if len(self._files) > _KEPT_FILES:
                        self._making.pop(self._files.popitem(last=False)[0], None)
            return known


class H5Group:
    """A group and all below it as one HDF5 file."""

    slot = None
    pinned = None

    def __init__(self, walk: Walk, mtime_ns: int) -> None:
        self._walk = walk
        self._twin = walk.twin()
        self._asked = time.monotonic()
        self._mtime_ns = max([mtime_ns, *(array.array.mtime_ns for array in walk.arrays)])
        found = [array.owner for array in walk.arrays]
        self._owner = restricted(*found) if found else None
        self.version: Hashable = ("h5", next(_numbers))

    def fresh(self, ttl: float) -> bool:
        """Whether it was right within the last `ttl` seconds, or still is."""
        if ttl and time.monotonic() - self._asked < ttl:
            return True
        asked = time.monotonic()
        if not self._walk.current():
            return False
        self._asked = asked
        return True

    def attrs(self) -> Attrs:
        return Attrs("file", self._twin.size, self._mtime_ns, self._owner)

    def measured(self) -> Attrs:
        return self.attrs()

    def xattrs(self) -> Mapping[str, bytes]:
        return {}

    def open(self) -> H5Handle:
        """Stale when anything below the group has changed."""
        if not self.fresh(0.0):
            self._asked = -float("inf")  # the next look-up makes another one
            raise Stale("the group has changed since its file was made")
        return H5Handle(self._twin, self.version)

    def open_at_once(self, deliver: Deliver) -> None:
        """Always left to a worker."""


class H5Handle:
    """An open virtual file: the skeleton is in memory, arrays are opened when somebody reads their elements."""

    __slots__ = ("_lock", "_sources", "_twin", "size", "version")

    def __init__(self, twin: Twin, version: Hashable) -> None:
        self._twin = twin
        self.size = twin.size
        self.version = version
        self._lock = threading.Lock()
        self._sources: OrderedDict[int, ElementSource] = OrderedDict()

    @property
    def window(self) -> int:
        """Bytes to make ready at a time."""
        return WINDOW_BYTES if self.size > WINDOW_BYTES else 0

    def peek(self, offset: int, size: int) -> Buffer | None:
        """What is only skeleton, or has been assembled."""
        stop = min(offset + size, self.size)
        parts = self._twin.within(offset, stop)
        if not parts:
            return self.read(offset, size)
        if len(parts) > 1 or offset < parts[0].start or stop > parts[0].stop:
            return None
        source = self._sources.get(parts[0].start)
        return None if source is None else source.peek(offset - parts[0].start, stop - parts[0].start)

    def read(self, offset: int, size: int) -> Buffer:
        """Elements, over the skeleton, over zeros."""
        stop = min(offset + size, self.size)
        if offset >= stop:
            return b""
        parts = self._twin.within(offset, stop)
        if len(parts) == 1 and parts[0].start <= offset and stop <= parts[0].stop:
            return self._source(parts[0]).read(offset - parts[0].start, stop - parts[0].start)
        out = bytearray(stop - offset)
        self._twin.overlay(out, offset)
        for part in parts:
            low, high = max(offset, part.start), min(stop, part.stop)
            out[low - offset : high - offset] = self._source(part).read(low - part.start, high - part.start)
        return memoryview(out)

    def prefetch(self, start: int, stop: int, deliver: Deliver) -> bool:
        """Decode what the elements in that range need."""
        for part in self._twin.within(start, stop):
            source = self._source(part)
            low, high = max(start, part.start) - part.start, min(stop, part.stop) - part.start
            if not source.prefetch(low, high):
                return False
        return True

    def close(self) -> None:
        """Give back what was spilt."""
        with self._lock:
            for source in self._sources.values():
                source.close()
            self._sources.clear()

    def _source(self, part: Part) -> ElementSource:
        with self._lock:
            known = self._sources.get(part.start)
            if known is None:
                version = part.array.current(part.token)
                reader, supply = part.array.reader(version, part.view.selection, part.elements.order)
                known = ElementSource(part.elements, reader, supply, part.view.dtype, part.array.chunks.cache)
                self._sources[part.start] = known
                if len(self._sources) > _OPEN_PARTS:
                    self._sources.popitem(last=False)
            self._sources.move_to_end(part.start)
            return known
