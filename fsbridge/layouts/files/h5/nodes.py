"""`NAME.h5` in the tree: of an array, with a size known without making it, and of a group. Not here: what is in them."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import NamedTuple

from fsbridge.asking import before_waiting, holding
from fsbridge.config import MIB, Config
from fsbridge.decoded import UsedChunks
from fsbridge.errors import FsbridgeError, NotFound, Stale, TimedOut
from fsbridge.layouts.files.arrays.element_bytes import WINDOW_BYTES, ElementBytes
from fsbridge.layouts.files.arrays.made import Room
from fsbridge.layouts.files.arrays.open_array import OpenArray
from fsbridge.layouts.files.arrays.selection import Selection
from fsbridge.layouts.files.filetypes.text import MAX_TEXTS
from fsbridge.layouts.files.h5.making import FILES_AT_A_TIME, Making
from fsbridge.layouts.files.h5.specification import choose_storage
from fsbridge.layouts.files.h5.twin import Opened, Part, Twin, compute_size, make_array_twin
from fsbridge.layouts.files.h5.walk import Walked
from fsbridge.lru import Recent
from fsbridge.tree import Attrs, Buffer, Entry, File, Handle


@dataclass(frozen=True, slots=True)
class KeptLimits:
    """How much is kept of the virtual files of groups."""

    files: int = 16
    """Most files besides the latest one."""
    file_bytes: int = 64 * MIB
    """Most bytes of these files. The file of a thousand datasets takes 1.5 MB."""
    arrays: int = 1024
    """Most arrays read through one file that are watched for changes. With more, each open gets pages of its own."""
    readers: int = 64
    """Most arrays of one open file for which a reader is kept."""


_LIMITS = KeptLimits()
_numbers = itertools.count(1)


class H5Array(File):
    """An array, or a region of it, as an HDF5 file."""

    def __init__(self, array: OpenArray, selection: Selection | None = None, name: str | None = None) -> None:
        """Raise NotFound if the elements have different sizes, or the file would be too large."""
        self.array = array
        self.view = array.make_view(selection, name)
        self.version = ("h5", selection, array.version)
        self._array_version = array.version
        items = choose_storage(self.view).items
        size = compute_size(self.view)
        texts = items and self.view.selection.size > MAX_TEXTS
        if array.metadata.varlength or texts or size >= 2**62:
            raise NotFound(f"{self.view.name}.h5: the blocks have varying numbers of elements, or the elements are too many")
        self._size = None if items else size
        self._lock = threading.Lock()
        self._twin: Twin | None = None

    def entry(self, name: bytes, mtime_ns: int) -> Entry:
        """Return the file as a member of a listing."""
        return Entry(name, Attrs("file", self._size, mtime_ns), lambda: self, self.version)

    def attrs(self) -> Attrs:
        return Attrs("file", self._size, self.array.find_mtime_ns())

    def measure(self) -> Attrs:
        return Attrs("file", self._make_once().size, self.array.find_mtime_ns())

    def open(self) -> H5Handle:
        """Open the file, with a skeleton that is made once and then cached; Stale if the array has changed."""
        self.array.check(self._array_version)
        return H5Handle(self._make_once(), self.version, lambda part: part.open(), lambda part: part.open())

    def settle(self) -> None:
        self.array.settle()

    def _make_once(self) -> Twin:
        before_waiting()
        with self._lock:
            if self._twin is None:
                twin = make_array_twin(self.array, self.view, self.array.current(self._array_version), self._array_version)
                self.array.current(self._array_version)  # the HDF5 file has not changed while it was asked
                self._twin = twin
            return self._twin


class H5Files:
    """The virtual files that show several arrays. Each is made once, and kept until something that it shows has changed."""

    def __init__(self, config: Config, limits: KeptLimits = _LIMITS) -> None:
        self.room = Room(FILES_AT_A_TIME)
        self._patience = config.read_deadline * 0.9  # so that a request can still say that the file is being made
        self._limits = limits
        self._lock = threading.Lock()
        self._files: OrderedDict[Hashable, _Slot] = OrderedDict()

    def find(self, key: Hashable, making: Callable[[], Making]) -> H5Group:
        """Return the file kept under `key`, or start to make it.

        It shows the store as it is now, and may not be finished yet.
        """
        with self._lock:
            slot = self._files.setdefault(key, _Slot())
            self._files.move_to_end(key)
        try:
            return slot.find(making, self._patience, self._limits)
        finally:
            self._forget()

    def _forget(self) -> None:
        """Drop the least recently used files until the others are within the limits."""
        with self._lock:
            weight = sum(slot.weight for slot in self._files.values())
            for key, slot in list(self._files.items())[:-1]:
                if len(self._files) <= self._limits.files and weight <= self._limits.file_bytes:
                    return
                if not slot.busy:
                    weight -= slot.weight
                    del self._files[key]


class _Slot:
    """Holds one virtual file. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._file: H5Group | None = None

    @property
    def weight(self) -> int:
        """Bytes of memory that the file takes, roughly."""
        file = self._file
        return 0 if file is None or file.making.result is None else file.making.result.weight

    @property
    def busy(self) -> bool:
        """True if the file is being made."""
        return self._file is not None and not self._file.making.over

    def find(self, start: Callable[[], Making], patience: float, limits: KeptLimits) -> H5Group:
        """Return the present file: the kept one if it is still current, else a new one."""
        with holding(self._lock):
            file = self._file
            if file is not None and (not file.making.over or file.current()):
                return file
            if file is not None and file.making.result is not None and file.making.result.current():
                making = file.making  # only elements have changed, so the skeleton is still good
            else:
                making = start()
            self._file = H5Group(making, patience, limits)
            return self._file


class H5Group(File):
    """A group with everything below it, as one HDF5 file. Its size is only known after the file has been made."""

    def __init__(self, making: Making, patience: float, limits: KeptLimits = _LIMITS) -> None:
        """`patience`: for how many seconds `measure` waits until the file has been made."""
        self.making = making
        self.version = ("h5", next(_numbers))
        self._patience = patience
        self._limits = limits
        self._lock = threading.Lock()
        self._read = Recent[int, Opened](limits.arrays)  # by offset, arrays that were read
        self._left: dict[int, _Left] = {}  # arrays that were read and then dropped: some 500 bytes each

    @property
    def walked(self) -> Walked:
        """The finished file and what it was made of.

        Raises TimedOut while it is being made, and the error if it cannot be made.
        """
        return self.making.wait(self._patience)

    def current(self) -> bool:
        """True if the file shows the store as it is now; False if it could not be made."""
        before_waiting()  # because everything that the file was made of is checked
        return self.making.result is not None and self.making.result.current() and self._is_as_read()

    def _is_as_read(self) -> bool:
        """True if no array that was read through the file has changed since, and none was dropped from memory."""
        with self._lock:
            read = self._read.values()
        try:
            for opened in read:
                opened.array.current(opened.version)
        except TimedOut:
            raise  # it does not tell that anything has changed
        except FsbridgeError:
            return False
        return not self._left

    def attrs(self) -> Attrs:
        return _attrs(self.walked) if self.making.over else Attrs("file", None, 0)

    def measure(self) -> Attrs:
        return _attrs(self.walked)

    def open(self) -> H5Handle:
        """Open the file; Stale if anything below the group has changed."""
        walked = self.walked
        if not self.current():
            raise Stale("the group has changed since its file was made")
        return H5Handle(
            walked.twin, self.version, self._open_part, lambda part: self._read.peek(part.start), self._limits.readers
        )

    def _open_part(self, part: Part) -> Opened:
        """Open the array of a part, in one version for all readers of this file, because they share the kernel's pages."""
        while True:
            with self._lock:
                if (known := self._read.get(part.start)) is not None:
                    return known
                left = self._left.get(part.start)
            opening = part.open()
            if left is not None:
                left.resume(opening)
            with self._lock:
                if self._left.get(part.start) is not left:
                    continue  # another thread has read and dropped the array meanwhile
                if (known := self._read.get(part.start)) is None:
                    known = opening
                    self._left.update((start, _Left.note(opened)) for start, opened in self._read.put(part.start, known))
                return known


class _Left(NamedTuple):
    """What is remembered of an array that was read through the file and then dropped from memory.

    `used_chunks`: see `OpenArray.find_used_chunks`. `changed`: the array had changed before it was dropped.
    """

    identity: Hashable
    version: Hashable
    used_chunks: UsedChunks | None
    changed: bool = False

    @classmethod
    def note(cls, opened: Opened) -> _Left:
        array, _, version = opened
        try:
            return cls(array.identity, version, array.find_used_chunks(version))
        except Stale:
            return cls(array.identity, version, None, True)

    def resume(self, opening: Opened) -> None:
        """Let the same array, opened again as `opening`, continue. Stale if anything that was read of it has changed."""
        array, _, version = opening
        if self.changed or (array.identity == self.identity and version != self.version):
            raise Stale(f"{array.name!r} has changed since it was read")
        array.resume(version, self.used_chunks)


def _attrs(walked: Walked) -> Attrs:
    return Attrs("file", walked.twin.size, walked.mtime_ns)


class H5Handle(Handle):
    """An open virtual file. Its skeleton is in memory; an array is opened when its elements are read."""

    __slots__ = ("_closed", "_known", "_lock", "_open", "_readers", "_sources", "_twin", "size", "version")

    def __init__(
        self,
        twin: Twin,
        version: Hashable,
        opener: Callable[[Part], Opened],
        known: Callable[[Part], Opened | None],
        readers: int = _LIMITS.readers,
    ) -> None:
        """`opener` opens the array of a part, in one version for all readers of the file.

        `known` returns it only if it is open now.

        `readers`: the largest number of arrays for which a reader is kept.

        A handle must not keep an array of its own: all readers share the kernel's pages, which must not mix versions.
        """
        self._twin = twin
        self._open = opener
        self._known = known
        self._readers = readers
        self.size = twin.size
        self.version = version
        self._lock = threading.Lock()  # held while an array is opened, as long as its store takes
        self._sources: OrderedDict[int, tuple[Opened, ElementBytes]] = OrderedDict()
        self._closed = False

    @property
    def window(self) -> int:
        """Bytes that are prefetched at a time."""
        return WINDOW_BYTES if self.size > WINDOW_BYTES else 0

    def peek(self, offset: int, size: int) -> Buffer | None:
        """Return the bytes if no element has to be decoded for them, else None."""
        stop = min(offset + size, self.size)
        parts = self._twin.find_parts(offset, stop)
        if not parts:
            return self.read(offset, size)
        if len(parts) > 1 or offset < parts[0].start or stop > parts[0].stop:
            return None
        opened, source = self._sources.get(parts[0].start, (None, None))
        if source is None or self._known(parts[0]) != opened:
            return None
        return source.peek(offset - parts[0].start, stop - parts[0].start)

    def read(self, offset: int, size: int) -> Buffer:
        """Return bytes of the file: the skeleton, the elements that lie over it, and zeros everywhere else."""
        stop = min(offset + size, self.size)
        if offset >= stop:
            return b""
        parts = self._twin.find_parts(offset, stop)
        if len(parts) == 1 and parts[0].start <= offset and stop <= parts[0].stop:
            return self._find_source(parts[0]).read(offset - parts[0].start, stop - parts[0].start)
        out = bytearray(stop - offset)
        self._twin.overlay(out, offset)
        for part in parts:
            low, high = max(offset, part.start), min(stop, part.stop)
            out[low - offset : high - offset] = self._find_source(part).read(low - part.start, high - part.start)
        return memoryview(out)

    def prefetch(self, start: int, stop: int) -> None:
        """Decode the chunks of all elements in bytes [start, stop)."""
        for part in self._twin.find_parts(start, stop):
            low, high = max(start, part.start) - part.start, min(stop, part.stop) - part.start
            self._find_source(part).prefetch(low, high)

    def close(self) -> None:
        """Close the readers of all arrays, so that the disk space of what they spilled is free again.

        Does not wait for a thread that is opening an array now: that thread closes its reader itself.
        """
        self._closed = True
        self._close_all_but(0)

    def _close_all_but(self, most: int) -> None:
        """Close the least recently used readers until `most` are left."""
        with contextlib.suppress(KeyError):  # another thread may have closed it
            while len(self._sources) > most:
                self._sources.popitem(last=False)[1][1].close()

    def _find_source(self, part: Part) -> ElementBytes:
        with self._lock:
            opened = self._open(part)
            before, known = self._sources.get(part.start, (None, None))
            if known is None or before != opened:
                array, view, version = opened
                present = array.current(version)
                reader, supply = array.make_reader(present, view.selection, part.elements.order)
                source = ElementBytes(part.elements, reader, supply, view.stored_dtype, array.chunks.cache)
                self._sources[part.start] = opened, source
                if known is not None:
                    known.close()
                self._close_all_but(0 if self._closed else self._readers)
                return source
            with contextlib.suppress(KeyError):  # closed meanwhile
                self._sources.move_to_end(part.start)
            return known
