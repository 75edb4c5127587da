"""`OpenArray`: one version of an array as its files share it, with its axes; and what all files of one mount share.

Not here: which files there are (`layout.py`), their bytes (`nodes.py`).
"""

from __future__ import annotations

import itertools
import math
import os
import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, cast
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from fsbridge.config import MIB, Config
from fsbridge.decoded import ArrayVersion, DecodedArray, UsedChunks
from fsbridge.errors import FsbridgeError, Stale, TooLarge
from fsbridge.layouts.files.arrays.extents import Label, Labels, View
from fsbridge.layouts.files.arrays.made import MadeFiles
from fsbridge.layouts.files.arrays.selection import Selection, select_all
from fsbridge.layouts.files.elements.pieces import SLAB_LIMITS, FoundChunks, Known, SlabLimits
from fsbridge.layouts.files.elements.reading import ElementReader
from fsbridge.layouts.files.elements.spill import Spill
from fsbridge.layouts.files.elements.supply import ChunkSupply
from fsbridge.layouts.members import Context, SourceMember
from fsbridge.layouts.surroundings import Key, Look, Surroundings, is_as_used
from fsbridge.lru import LRU
from fsbridge.meaning import Axes, Meaning, Path, Values
from fsbridge.meaning.kinds import is_time
from fsbridge.meaning.times import is_since
from fsbridge.meaning.units import symbol
from fsbridge.model import Array
from fsbridge.threads.forking import cached_property
from fsbridge.threads.workers import Workers

P = TypeVar("P")

_WHOLE_BYTES = 256 * MIB
"""Most bytes of elements in memory at once. A limit is needed because a document can declare elements of a GB each (P6)."""

_LISTED_ARRAYS = 4096
"""Most arrays that keep their number before anything of them is read, so that the next listing shows the same files."""

MOST_LABELS = 1 << 24
"""Most labels of a dimension, as many as a table has elements. An array without elements may claim any number of rows."""

VARIABLE_BYTES = 64 * MIB
"""Most bytes of elements of variable length in memory, which are Python objects."""

GENERATED_BYTES = 64 * MIB
"""Most bytes of a file that is made as a whole when it is opened."""


class Sizes(NamedTuple):
    """The sizes of the files of all arrays that have the key `alike`.

    `described`: size of `NAME.json` without the text of the attributes, None if it cannot be told without them; `files`:
    sizes of the other files by suffix, None if a size is not known before the file is made.
    """

    alike: Hashable
    described: int | None
    files: Sequence[tuple[str, int | None]]


class _Listed(NamedTuple):
    """What is remembered of an array that was listed.

    `used`: versions of what was read around it; `number`: the number that its `OpenArray` had.
    """

    version: Hashable
    used: dict[Key, Hashable]
    number: int


@dataclass(frozen=True, slots=True)
class SharedLimits:
    """Limits of what the files of one mount share."""

    kept_arrays: int = 256
    """Arrays kept although the kernel no longer refers to them, so that a second look-up gives the same object."""
    slabs: SlabLimits = SLAB_LIMITS


SHARED_LIMITS = SharedLimits()


class Shared:
    """What all files of one mount share."""

    def __init__(self, config: Config, limits: SharedLimits = SHARED_LIMITS) -> None:
        self.config = config
        self.limits = limits
        self.helpers = Workers("helper", (os.cpu_count() or 1) - 1)
        self.spill = Spill(config.spill_dir, config.spill_size)
        self.generated_limit = min(GENERATED_BYTES, config.max_chunk)
        self.made = MadeFiles(config.cache_size)
        self.sizes: LRU[Hashable, Sizes] = LRU(limits.kept_arrays)
        """What files of arrays that are alike cost (`listing.py`)."""
        self.numbers = itertools.count(1)
        """A number for each version of an array, and of its chunks, that is met."""
        self._parts: dict[object, Any] = {}
        self._lock = threading.Lock()
        self._known: WeakValueDictionary[tuple[str, ...], OpenArray] = WeakValueDictionary()
        self._recent: deque[OpenArray] = deque(maxlen=limits.kept_arrays)
        self._listed: LRU[tuple[str, ...], _Listed] = LRU(_LISTED_ARRAYS)

    def find_part(self, kind: Callable[[Config], P]) -> P:
        """Return the one object of class `kind` that all files of a type share. Make it when it is first asked for."""
        with self._lock:
            if kind not in self._parts:
                self._parts[kind] = kind(self.config)
            return cast(P, self._parts[kind])

    def find_array(self, context: Context, names: tuple[str, ...], name: str, array: Array, look: Look) -> OpenArray:
        """Return the array at the path `names`.

        It is the same object while its version and its surroundings stay the same, so that the kernel keeps the pages of its
        files.
        """
        known, listed = self._known.get(names), self._listed.get(names)
        if known is not None and known.array.version == array.version and known.surroundings.is_current(look):
            return known
        if listed is not None and (listed.version != array.version or not is_as_used(listed.used, look)):
            listed = None
        with self._lock:
            other = self._known.get(names)
            if other is not None and other is not known and other.array.version == array.version:
                return other  # another thread has just opened it
            surroundings = Surroundings(look)
            if listed is not None:
                surroundings.used.update(listed.used)
            number = next(self.numbers) if listed is None else listed.number
            self._listed.put(names, _Listed(array.version, surroundings.used, number))
            open_array = self._known[names] = OpenArray(self, context, names, name, array, surroundings, number)
            self._recent.append(open_array)
            return open_array

    def find_newest(self, array: OpenArray) -> OpenArray:
        """Return the array that was opened last at the path of `array`: `array` itself, unless its metadata has changed."""
        with self._lock:
            return self._known.get(array.names, array)

    def note_reading(self, array: OpenArray) -> None:
        """Note that the array was read.

        If it is dropped from memory it then gets another number, because chunks may have changed.
        """
        self._listed.drop(array.names)


class OpenArray:
    """An array with one version of its metadata, and all that its files need: axes, regions, elements. Thread-safe."""

    def __init__(
        self,
        shared: Shared,
        context: Context,
        names: tuple[str, ...],
        name: str,
        array: Array,
        surroundings: Surroundings,
        number: int,
    ) -> None:
        """`number`: no other version of the array has it, and listings have used it for this one."""
        self.shared = shared
        self.names = names
        self.name = name
        """What its files are called."""
        self.array = array
        self.metadata = array.metadata
        self.surroundings = surroundings
        self.x_first = context.format_at(names).first_axis_fastest
        self._context = context
        self._lock = threading.Lock()
        self._whole: ArrayVersion | None = None
        self._found: tuple[ArrayVersion | None, Known] = None, {}
        self._number = self._version = number
        self._view: View | None = None

    @cached_property
    def chunks(self) -> DecodedArray:
        """The array's chunks, which other layouts show too. A listing does not need them."""
        return self._context.share_chunks(self.array, self.names)

    @property
    def identity(self) -> Hashable:
        """Equal identities mean that the metadata, and all that is known about the axes, are the same. Does not block."""
        return self.array.version if self.shared.config.immutable else self._number

    @property
    def version(self) -> Hashable:
        """Equal versions mean that the files had the same bytes each time they were opened. Does not block."""
        return self.array.version if self.shared.config.immutable else (self.array.version, self._version)

    def current(self, version: Hashable) -> ArrayVersion:
        """Return the present version of the array and its chunks. Stale if the array no longer has the given version."""
        self.shared.note_reading(self)
        latest = self.chunks.whole()
        with self._lock:
            if self._whole is not latest:
                known, self._whole = self._whole, latest
                if known is not None and not self.shared.config.immutable:
                    self._version = next(self.shared.numbers)
        if self.version != version:
            raise Stale("chunks of the array have changed since they were read")
        return latest

    def check(self, version: Hashable) -> ArrayVersion:
        """Return what `current` returns. Stale also if anything around the array that its files show has changed."""
        present = self.current(version)
        if not self.surroundings.is_current():
            raise Stale("something around the array that describes it has changed")
        return present

    def find_used_chunks(self, version: Hashable) -> UsedChunks | None:
        """Return the chunks that readers of `version` have used, for `resume`; None if they have used none.

        Stale if one of these chunks has changed.
        """
        with self._lock:
            present, same = self._whole, self.version == version
        if not same:
            raise Stale("chunks of the array have changed since they were read")
        return None if present is None or self.shared.config.immutable else present.used_chunks()

    def resume(self, version: Hashable, used_chunks: UsedChunks | None) -> None:
        """Go on as an array that was dropped from memory and opened again; Stale if one of its used chunks has changed."""
        present = self.current(version)
        if used_chunks is not None:
            present.resume(used_chunks)

    def find_version(self) -> Hashable:
        """Return the version of the array as it is now; Stale if its metadata has changed since it was opened."""
        try:
            self.current(self.version)
        except Stale:
            self.current(self.version)  # passes if only chunks have changed: the version is new
        return self.version

    def settle(self) -> None:
        """Find out the present version of the array that is at this path now (`tree.Node.settle`)."""
        self.shared.find_newest(self).find_version()

    @cached_property
    def meaning(self) -> Meaning:
        """What the metadata, and the surroundings of the array, say about its axes and its elements."""
        return self.surroundings.meaning(self.metadata, self.names, self.x_first)

    @property
    def axes(self) -> Axes:
        """The array's axes, in its own order."""
        return self.meaning.axes

    def find_mtime_ns(self) -> int:
        """Return the mtime of the metadata or of the directory of chunks, whichever is later.

        Rewriting a chunk in place may change neither.
        """
        try:
            return max(self.array.mtime_ns, self.array.chunks.mtime_ns())
        except FsbridgeError:  # the time of the chunks is not known
            return self.array.mtime_ns

    def make_view(self, selection: Selection | None = None, name: str | None = None) -> View:
        """Return the array, or a region of it, as file types see it."""
        if selection is None and name is None and self._view is not None:
            return self._view
        chosen = selection or select_all(self.metadata.shape)
        view = View(name or self.name, self.metadata, chosen, self.meaning, self.x_first)
        if selection is None and name is None:
            self._view = view
        return view

    def open_beside(self, group: SourceMember, name: str, array: Array) -> OpenArray:
        """Open another array, which is a member of `group`."""
        return self.shared.find_array(self._context, (*group.names, name), name, array, Look(self._context, group))

    def find_labels(self, view: View, dimensions: Sequence[int]) -> Labels:
        """Return the labels of the given dimensions of a view, as far as they have any; no labels at all without dimensions.

        Labels are the elements of another array, or for rows of a series their times.
        """
        labels: dict[int, Label] = {}
        for dimension in dimensions:
            axis, number = view.axes[dimension], view.selection.kept[dimension]
            name, pick = self.meaning.coordinates.get(number, axis.name), view.selection.picks[number]
            if name is None or "/" in name or name == self.name:
                continue
            if pick.length > MOST_LABELS:
                raise TooLarge(f"{self.name} has {pick.length:,} places along {name}, too many for a table; take a region")
            beside = self.surroundings.label(name, self.metadata.shape[number], pick)
            unit = None if is_since(axis.unit) else symbol(axis.unit)
            if beside is not None:
                labels[dimension] = Label(axis.name or name, *beside, None if name == axis.name else unit)
            elif not dimension and axis.scale is not None and axis.unit is not None and is_time(axis):
                times = axis.offset + axis.scale * np.arange(pick.length)
                labels[dimension] = Label(name, times, Values(unit=axis.unit, calendar=axis.calendar), unit)
        return Labels(self.name, labels, self._read_words() if dimensions else {})

    def _read_words(self) -> dict[Path, NDArray[Any]]:
        """Return the words that numbers stand for, by field. A field is left out if one of its numbers has no word."""
        shape, dtype = self.metadata.shape, self.metadata.dtype.numpy
        wanted = self.meaning.values.words if dtype is not None else {}
        texts = {
            path: self.surroundings.words(*place) for path, place in wanted.items() if _find_field(dtype, path).kind in "iu"
        }
        words = {path: listed for path, listed in texts.items() if listed is not None}
        if not any(words):
            return words
        if math.prod(shape) * self.metadata.dtype.itemsize > self.shared.generated_limit:
            return {}
        elements = self.read_elements(self.current(self.version), select_all(shape), range(len(shape)))
        return {path: listed for path, listed in words.items() if _fit(_select_column(elements, path), len(listed))}

    def make_reader(
        self, version: ArrayVersion, selection: Selection, order: Sequence[int]
    ) -> tuple[ElementReader, ChunkSupply]:
        """Return a reader of a region, and its supply of chunks. `order`: the region's dimensions, slowest first.

        TooLarge if there is no room for a band of chunks.
        """
        kept = selection.kept
        dropped = [i for i, pick in enumerate(selection.picks) if pick.dropped]
        full = (*dropped, *(kept[i] for i in order))
        with self._lock:
            if self._found[0] is not version:
                self._found = version, {}
            known = self._found[1]
        chunks = FoundChunks(version, known)
        supply = ChunkSupply(chunks, selection, full, self.shared.helpers, self.shared.spill, self.shared.limits.slabs)
        room, read_ahead = self.chunks.cache.budget, self.shared.config.read_ahead
        return ElementReader(supply.metadata, selection, order, supply, room, read_ahead), supply

    def read_elements(
        self, version: ArrayVersion, selection: Selection, order: Sequence[int], most: int = VARIABLE_BYTES
    ) -> NDArray[Any]:
        """Read all elements of a region, for files that are made as a whole.

        `order`: the region's dimensions, slowest first.

        TooLarge if they have more than `_WHOLE_BYTES`, or more than `most` bytes if they have a variable length.
        """
        nbytes = selection.size * self.metadata.dtype.itemsize
        if nbytes > _WHOLE_BYTES:
            raise TooLarge(f"the elements have {nbytes} bytes, and a file that is made as a whole holds {_WHOLE_BYTES}")
        reader, supply = self.make_reader(version, selection, order)
        try:
            if not self.metadata.dtype.itemsize:
                return reader.read_objects(most)
            elements = reader.read(0, selection.size)
            dtype = self.make_view().dtype
            return elements.view(dtype if dtype is not None else elements.dtype).reshape(reader.shape)
        finally:
            supply.close()


def _select_column(elements: NDArray[Any], path: Path) -> NDArray[Any]:
    for name in path:
        elements = elements[name]
    return elements


def _fit(numbers: NDArray[Any], count: int) -> bool:
    """True if each number is at least -1, which means no word, and below `count`."""
    return not numbers.size or (int(numbers.min()) >= -1 and int(numbers.max()) < count)


def _find_field(dtype: np.dtype[Any] | None, path: Path) -> np.dtype[Any]:
    """Return the type of the field at `path`, which is the type itself if the path is empty."""
    assert dtype is not None
    for name in path:
        dtype = dtype[name]
    return dtype
