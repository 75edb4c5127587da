"""The files of an array, and their handles.

A file consists of a header and elements, or is made as a whole when it is opened. `NAME.json` describes the array.

Not here: which files there are (`layout.py`), what headers say (`filetypes/`), how elements are read (`element_bytes.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from hashlib import blake2b

import numpy as np

from fsbridge.asking import before_waiting
from fsbridge.decoded import ArrayVersion
from fsbridge.errors import NotFound, Stale, TooLarge
from fsbridge.layouts.files.arrays.description import make_description
from fsbridge.layouts.files.arrays.element_bytes import ElementBytes
from fsbridge.layouts.files.arrays.extents import FileMap, Generated, Labels, Plan, Unfit, View
from fsbridge.layouts.files.arrays.open_array import OpenArray
from fsbridge.layouts.files.arrays.selection import Selection
from fsbridge.layouts.files.filetypes import FILE_TYPES
from fsbridge.layouts.nodes import BytesHandle
from fsbridge.meaning import Values
from fsbridge.tree import Attrs, Buffer, Entry, File, Handle

SAMPLE_SECONDS = 10.0
"""Seconds that a request waits for a preview to be made."""

CELL_BYTES = 32
"""Bytes that a number takes in a text, at most."""


def make_plan(view: View, suffix: str) -> Plan:
    """Return what the file with that suffix consists of; NotFound if its type cannot hold the array.

    Raises the error of attributes that cannot be read, unless the file consists of nothing but elements.
    """
    one = FILE_TYPES[suffix]
    if not one.bare:
        view.metadata.shown_attributes()
    try:
        if not one.quick:
            before_waiting()
        return one.make_plan(view)
    except Unfit as error:
        raise NotFound(f"{view.name}.{suffix}: {error}") from None


class DescriptionFile(File):
    """The file `NAME.json`. If a listing gives the size, the bytes are only made when they are read."""

    __slots__ = ("_again", "_collisions", "_size", "array", "version")

    def __init__(
        self,
        array: OpenArray,
        collisions: Sequence[str],
        again: Callable[[], DescriptionFile | None],
        size: int | None = None,
    ) -> None:
        """`again` returns the file as it is now, or None if it is gone: opening the file must show the present store."""
        self.array = array
        self.version = make_description_version(array.identity, collisions)
        self._collisions = collisions
        self._again = again
        self._size = len(self._make_content()) if size is None else size

    def _make_content(self) -> bytes:
        return make_description(self.array.make_view(), self._collisions)

    def attrs(self) -> Attrs:
        return Attrs("file", self._size, self.array.array.mtime_ns)

    def open(self) -> BytesHandle:
        """Open the file; Stale if the array has changed since this node was made."""
        file = self._again()
        if file is None or file.version != self.version:
            raise Stale("the array's description has changed since the file was looked up")
        file.array.shared.note_reading(file.array)
        return BytesHandle(file._make_content(), self.version)


def make_description_version(identity: Hashable, collisions: Sequence[str]) -> Hashable:
    """Return the version of the `NAME.json` of an array with the `OpenArray.identity` `identity`."""
    return ("json", identity, *collisions)


def make_file_version(suffix: str, selection: Selection | None, version: Hashable) -> Hashable:
    """Return the version of an `ArrayFile` of an array with the `OpenArray.version` `version`."""
    return (suffix, selection, version)


class ArrayFile(File):
    """An array, or a region of it, as a file of one type. A new version of the array gets another inode."""

    __slots__ = ("_array_version", "_plan", "array", "selection", "suffix", "version", "view")

    def __init__(
        self,
        array: OpenArray,
        suffix: str,
        selection: Selection | None = None,
        name: str | None = None,
        version: Hashable = None,
    ) -> None:
        """Raise NotFound if the file type cannot hold the array.

        `name`: the file's name without its suffix, None: the array's; `version`: of the array, None: the present one.
        """
        self.array = array
        self.suffix = suffix
        self.selection = selection
        self._array_version = array.version if version is None else version
        self.version = make_file_version(suffix, selection, self._array_version)
        self.view = array.make_view(selection, name)
        self._plan = make_plan(self.view, suffix)

    def entry(self, name: bytes, mtime_ns: int) -> Entry:
        """Return the file as a member of a listing."""
        return Entry(name, Attrs("file", self._plan.size, mtime_ns), lambda: self, self.version)

    def attrs(self) -> Attrs:
        return Attrs("file", self._plan.size, self.array.find_mtime_ns())

    def measure(self) -> Attrs:
        size = self._plan.size
        if size is None:
            assert isinstance(self._plan, Generated)
            size = len(self._make_once(self._plan)[0])
        return Attrs("file", size, self.array.find_mtime_ns())

    def open(self) -> MapHandle | BytesHandle:
        """Open the file.

        Stale if the metadata, a chunk that was used, or anything else that describes the array has changed.
        """
        if isinstance(self._plan, Generated):
            content, digest = self._make_once(self._plan)
            return self.array.shared.made.make_handle(content, (self.version, digest) if digest else self.version)
        present = self.check_version()
        if self._plan.elements is None:
            return MapHandle(self._plan, self.version)
        reader, supply = self.array.make_reader(present, self.view.selection, self._plan.elements.order)
        source = ElementBytes(self._plan.elements, reader, supply, self.view.dtype, self.array.chunks.cache)
        return MapHandle(self._plan, self.version, source)

    def check_version(self) -> ArrayVersion:
        """Return the version of the array that the file shows. Stale if the array, or what describes it, has changed."""
        bare = FILE_TYPES[self.suffix].bare  # such a file shows nothing of what is around the array
        return self.array.current(self._array_version) if bare else self.array.check(self._array_version)

    def settle(self) -> None:
        self.array.settle()

    @property
    def size_seconds(self) -> float:
        sampled = isinstance(self._plan, Generated) and self._plan.sample is not None
        return SAMPLE_SECONDS if sampled else super().size_seconds

    def _make_once(self, plan: Generated) -> tuple[memoryview, bytes]:
        """Return the bytes of a file that is made as a whole, and a digest of the labels in it.

        The bytes count against the cache while a handle has them.
        """
        before_waiting()
        array, limit, cache = self.array, self.array.shared.generated_limit, self.array.chunks.cache
        present, itemsize = self.check_version(), self.view.metadata.dtype.itemsize
        selection = self.view.selection if plan.sample is None else plan.sample
        labels = array.find_labels(self.view, plan.labelled)
        digest = _digest(labels)
        key = present, self.version, self.view.name, digest  # the version tells of what is around it, too
        content = cache.peek(key)
        if content is not None:
            return content, digest
        taken = selection.size * max(1, itemsize) + sum(label.values.nbytes for label in labels.along.values())
        if taken > limit:
            raise TooLarge(f"{self.view.name}.{self.suffix} needs over {limit} bytes of memory; take a region")

        def make() -> bytes | bytearray:
            content = plan.make(elements.pop(), labels, limit)  # popped, because they may be as large as the file
            if len(content) > limit:
                raise TooLarge(f"{self.view.name}.{self.suffix} has {len(content)} bytes, and the limit is {limit}")
            return content

        most = plan.size or plan.work or (min(limit, selection.size * max(CELL_BYTES, 2 * itemsize)) if itemsize else limit)
        with array.shared.made.room.take(taken + 2 * most):
            content = cache.peek(key)  # another request may have made it meanwhile
            if content is None:
                # Read the elements before reserving the file's memory, which evicts chunks: reading then needs no room.
                elements = [array.read_elements(present, selection, plan.order, limit)]
                content = cache.get_all(key, make, min(most, cache.budget // 2))
            return content, digest


def _digest(labels: Labels) -> bytes:
    """Return a digest of labels; empty if there are none."""
    hasher = blake2b()
    parts = [((dimension, label.name, label.unit, label.meaning), label.values) for dimension, label in labels.along.items()]
    parts += [((-1, ".".join(path), None, Values()), words) for path, words in labels.words.items()]
    for said, values in parts:
        hasher.update(repr((said, values.dtype.str, values.shape)).encode())
        hasher.update(repr(values.tolist()).encode() if values.dtype.kind == "O" else np.ascontiguousarray(values).tobytes())
    return hasher.digest() if parts else b""


class MapHandle(Handle):
    """An open file that consists of elements and of bytes of its own, such as a header."""

    __slots__ = ("_pieces", "_source", "_start", "_stop", "size", "version")

    def __init__(self, plan: FileMap, version: Hashable, source: ElementBytes | None = None) -> None:
        self.size = plan.size
        self.version = version
        self._pieces = plan.pieces
        self._source = source
        self._start = 0 if plan.elements is None else plan.elements.offset
        self._stop = self._start if source is None else self._start + source.size

    @property
    def window(self) -> int:
        """Bytes that are prefetched at a time."""
        return 0 if self._source is None else self._source.window

    def peek(self, offset: int, size: int) -> Buffer | None:
        """Return the bytes if they are the file's own, or elements that have been assembled already; else None."""
        stop = min(offset + size, self.size)
        if offset < self._stop and stop > self._start:
            if self._source is None or offset < self._start or stop > self._stop:
                return None
            return self._source.peek(offset - self._start, stop - self._start)
        return self.read(offset, size)

    def read(self, offset: int, size: int) -> Buffer:
        """Return the bytes. Those that are neither the file's own nor elements are zero."""
        stop = min(offset + size, self.size)
        if offset >= stop:
            return b""
        source = self._source
        if source is not None and offset >= self._start and stop <= self._stop:
            return source.read(offset - self._start, stop - self._start)
        out = bytearray(stop - offset)
        for begin, content in self._pieces:
            low, high = max(offset, begin), min(stop, begin + len(content))
            if low < high:
                out[low - offset : high - offset] = content[low - begin : high - begin]
        low, high = max(offset, self._start), min(stop, self._stop)
        if source is not None and low < high:
            out[low - offset : high - offset] = source.read(low - self._start, high - self._start)
        return memoryview(out)

    def prefetch(self, start: int, stop: int) -> None:
        """Assemble the elements in bytes [start, stop) of the file."""
        low, high = max(start, self._start), min(stop, self._stop)
        if self._source is not None and low < high:
            self._source.prefetch(low - self._start, high - self._start)

    def close(self) -> None:
        """Close the reader of the elements, so that the disk space of what it spilled is free again."""
        if self._source is not None:
            self._source.close()
