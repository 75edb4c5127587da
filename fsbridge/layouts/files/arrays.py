"""`OpenArray`: one version of an array as its files share it, with its axes; and what all files of one mount share.

Not here: which files there are (`layout.py`), their bytes (`nodes.py`).
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from fsbridge.config import MIB, Config
from fsbridge.decoded import ArrayVersion, DecodedArray, Touched
from fsbridge.errors import PASSING, FsbridgeError, Stale, TooLarge
from fsbridge.layouts.files.axes import PARTICULAR, Attributes, axes_of
from fsbridge.layouts.files.elements.finding import FoundChunks, Known
from fsbridge.layouts.files.elements.helpers import Helpers
from fsbridge.layouts.files.elements.reading import ElementReader
from fsbridge.layouts.files.elements.spill import Spill
from fsbridge.layouts.files.elements.stored import chunk_owners
from fsbridge.layouts.files.elements.supply import ChunkSupply
from fsbridge.layouts.files.extents import View
from fsbridge.layouts.files.made import MadeFiles
from fsbridge.layouts.files.selection import Selection, whole
from fsbridge.layouts.members import Context
from fsbridge.lru import LRU
from fsbridge.metadata import ArrayMetadata, Axes
from fsbridge.model import Array, Group, owners, prefix_owner, touched_ns
from fsbridge.owner import Owner, entered, restricted

COORDINATE_VALUES = 65536
"""Elements of a coordinate that are looked at: a longer one gives its unit, but no spacing."""

_WHOLE_BYTES = 256 * MIB
"""Bytes of elements that are in memory at once: a few bytes of metadata can tell of texts of a GB each (P6)."""

_KEPT_ARRAYS = 256
"""Arrays remembered beyond what the kernel knows, so that looking one up twice gives the same one."""

_NAMED_ARRAYS = 4096
"""Arrays that listings have told of without opening them, and whose files are the same ones in the next listing."""

GENERATED_BYTES = 64 * MIB
"""Bytes of a file that is made as a whole when it is opened."""

ASKED_CHUNKS = 4096
"""Chunks whose owners are asked before a file of an array is shown to other users."""

_numbers = itertools.count(1)


class Shared:
    """What all files of one mount share."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.helpers = Helpers()
        self.spill = Spill(config.spill_dir, config.spill_size)
        self.generated_limit = min(GENERATED_BYTES, config.max_chunk)
        self.made = MadeFiles(config.cache_size)
        self.alike: LRU[Hashable, tuple[ArrayMetadata, Axes, object]] = LRU(_KEPT_ARRAYS)
        """What a listing has found of arrays that share their metadata and axes (`listing.py`)."""
        self._lock = threading.Lock()
        self._known: WeakValueDictionary[tuple[str, ...], OpenArray] = WeakValueDictionary()
        self._recent: deque[OpenArray] = deque(maxlen=_KEPT_ARRAYS)
        self._named: dict[tuple[str, ...], tuple[Hashable, int]] = {}  # version and number of those that nobody has opened

    def array(self, context: Context, names: tuple[str, ...], name: str, array: Array, above: Surroundings) -> OpenArray:
        """The array at the path `names`: the same object while its version is the same, so that files keep their pages."""
        with self._lock:
            known = self._known.get(names)
            if known is None or known.array.version != array.version:
                version, number = self._named.pop(names, (None, 0))
                number = number if version == array.version else next(_numbers)
                known = self._known[names] = OpenArray(self, context, names, name, array, above, number)
                self._recent.append(known)
            return known

    def named(self, names: tuple[str, ...], version: Hashable) -> tuple[Hashable, Hashable]:
        """`identity` and `token` of that version of the array at the path `names`, be it open or yet to be opened."""
        with self._lock:
            known = self._known.get(names)
            if known is not None and known.array.version == version:
                return known.identity, known.token
            if self.config.immutable:
                return version, (version, ())
            named = self._named.get(names)
            if named is None or named[0] != version:
                if len(self._named) >= _NAMED_ARRAYS:
                    self._named.clear()
                named = self._named[names] = version, next(_numbers)
            return named[1], named


class GroupAbove(NamedTuple):
    """A group above an array. `group` is None where it could not be read, and so has no attributes."""

    attributes: Attributes
    group: Group | None


class Surroundings:
    """What stands around the members of a group: attributes of the groups above, and coordinates beside an array."""

    def __init__(self, above: Callable[[], Sequence[GroupAbove]], member: Callable[[str], Array], context: Context) -> None:
        """`above`: the group and those above it, the nearest first; `member` raises NotFound."""
        self._look_above = above
        self._member = member
        self._context = context
        self._coordinates: dict[str, tuple[NDArray[np.float64] | None, Attributes] | None] = {}
        self._axes: LRU[tuple[int, bool], tuple[ArrayMetadata, Axes]] = LRU(_KEPT_ARRAYS)
        self._lock = threading.RLock()  # of this group alone: what is looked for may hang
        self._above: Sequence[GroupAbove] | None = None
        self._impartial: bool | None = None

    @property
    def groups(self) -> Sequence[Attributes]:
        """Attributes of the group and of those above it, the nearest first."""
        return [above.attributes for above in self._groups_above()]

    def _groups_above(self) -> Sequence[GroupAbove]:
        with self._lock:
            if self._above is None:
                self._above = self._look_above()
            return self._above

    @property
    def impartial(self) -> bool:
        """Whether what groups above say holds for every member: those that share their metadata have the same axes."""
        if self._impartial is None:
            self._impartial = all(PARTICULAR.isdisjoint(attributes) for attributes in self.groups)
        return self._impartial

    def axes(self, metadata: ArrayMetadata, names: Sequence[str], x_first: bool, shared: bool = True) -> Axes:
        """The axes of the member at the path `names`, in its own order.

        Found once for members that share their metadata, unless what a group above says may be of one of them only.
        """
        with self._lock:
            if not (shared and self.impartial):
                return axes_of(metadata, self.groups, names, x_first, self.coordinate)
            key = id(metadata), x_first  # nobody else's while we hold it
            known = self._axes.get(key) or self._axes.put(
                key, (metadata, axes_of(metadata, self.groups, (), x_first, self.coordinate))
            )
            return known[1]

    def owners(self, metadata: ArrayMetadata, names: Sequence[str], x_first: bool) -> list[Owner | None]:
        """Whom what tells of a member's axes lets read: nobody is named where the member tells of them itself."""
        coordinates: list[str] = []

        def coordinate(name: str) -> tuple[NDArray[np.float64] | None, Attributes] | None:
            found = self.coordinate(name)
            if found is not None:
                coordinates.append(name)
            return found

        with self._lock:
            axes = axes_of(metadata, self.groups, names, x_first, coordinate)
        if axes == axes_of(metadata, (), names, x_first, lambda name: None):
            return []
        above = [owners(found.group).metadata for found in self._groups_above() if found.group is not None]
        return above + [reading_owner(self._member(name)) for name in coordinates]

    def coordinate(self, name: str) -> tuple[NDArray[np.float64] | None, Attributes] | None:
        """A 1-D array of the group: its values if they are numbers and not too many, and its attributes."""
        if name not in self._coordinates:
            self._coordinates[name] = self._read(name)
        return self._coordinates[name]

    def _read(self, name: str) -> tuple[NDArray[np.float64] | None, Attributes] | None:
        try:
            array = self._member(name)
            metadata = array.metadata
            if len(metadata.shape) > 1:
                return None
            dtype = metadata.dtype.numpy
            if dtype is None or dtype.kind not in "iuf" or metadata.varlength or metadata.shape > (COORDINATE_VALUES,):
                return None, metadata.attributes
            selection = whole(metadata.shape)
            version = self._context.decoded(array).whole()
            supply = ChunkSupply(FoundChunks(version), selection, range(len(metadata.shape)), Helpers(0), Spill("/", 0))
            reader = ElementReader(metadata, selection, range(len(metadata.shape)), supply, self._context.cache.budget)
            return reader.read(0, selection.size).view(dtype).astype(np.float64), metadata.attributes
        except PASSING:
            raise  # a header without what it tells would stay
        except FsbridgeError:
            return None  # a coordinate that cannot be read is its own error, not its neighbours'


def reading_owner(array: Array) -> Owner | None:
    """Who may read an array's metadata and its first `ASKED_CHUNKS` chunks."""
    chunks, rank, found = array.chunks, len(array.metadata.shape), owners(array)
    below = prefix_owner(chunks, ()) if rank else found.directory
    return restricted(found.metadata, entered(below), *chunk_owners(chunks, rank, ASKED_CHUNKS))


class OpenArray:
    """One version of an array's metadata. Thread-safe."""

    def __init__(
        self,
        shared: Shared,
        context: Context,
        names: tuple[str, ...],
        name: str,
        array: Array,
        above: Surroundings,
        number: int,
    ) -> None:
        """`number`: nobody else's, but of listings that have told of it."""
        self.shared = shared
        self.names = names
        self.name = name
        """What its files are called."""
        self.array = array
        self.metadata = array.metadata
        self.above = above
        self.x_first = context.format_at(names) == "n5"
        self._context = context
        self._lock = threading.Lock()
        self._whole: ArrayVersion | None = None
        self._found: tuple[ArrayVersion | None, Known] = None, OrderedDict()
        self._number = self._token = number
        self._owner: tuple[float, Owner | None] = -math.inf, None
        self._narrower: tuple[Owner | None, ...] = ()
        self._axes: Axes | None = None
        self._view: View | None = None

    @cached_property
    def chunks(self) -> DecodedArray:
        """The array's chunks, which other layouts show too; for a listing they are not needed."""
        return self._context.decoded(self.array, self.names)

    @property
    def identity(self) -> Hashable:
        """Equal identities: the metadata, and what is known of the axes, are the same (does not block)."""
        return self.array.version if self.shared.config.immutable else self._number

    @property
    def token(self) -> Hashable:
        """Equal tokens: the files have had the same bytes whenever they were opened (does not block)."""
        return (self.array.version, self._narrower if self.shared.config.immutable else self._token)

    def current(self, token: Hashable) -> ArrayVersion:
        """The present version of the array with all its chunks; Stale when it is no longer that of `token`."""
        found = self.chunks.whole()
        with self._lock:
            if self._whole is not found:
                known, self._whole, self._narrower = self._whole, found, ()
                if known is not None and not self.shared.config.immutable:
                    self._token = next(_numbers)
        if self.token != token:
            raise Stale("chunks of the array have changed since they were read")
        return found

    def touched(self, token: Hashable) -> Touched | None:
        """The chunks that somebody has used of the version `token`, for `resume`; None: none. Stale if any has changed."""
        with self._lock:
            version, same = self._whole, self.token == token
        if not same:
            raise Stale("chunks of the array have changed since they were read")
        return None if version is None or self.shared.config.immutable else version.touched()

    def resume(self, token: Hashable, touched: Touched | None) -> None:
        """Stale unless what had been `touched` of the array, before it was forgotten, is as it was."""
        version = self.current(token)
        if touched is not None:
            version.resume(touched)

    def settled(self) -> Hashable:
        """The token of the array as it is now; Stale when its metadata is no longer this version's."""
        try:
            self.current(self.token)
        except Stale:
            self.current(self.token)  # another token, if only chunks have changed
        return self.token

    @property
    def axes(self) -> Axes:
        """The array's axes, in its own order."""
        if self._axes is None:
            self._axes = self.above.axes(self.metadata, self.names, self.x_first)
        return self._axes

    @property
    def owner(self) -> Owner | None:
        """Who may read the array (`reading_owner`), what tells of its axes, and chunks that turned out to be for fewer."""
        if not self.shared.config.allow_other:
            return None
        asked, owner = self._owner
        if time.monotonic() - asked >= self.shared.config.metadata_ttl:
            asked = time.monotonic()
            owner = self._asked_owner()
            self._owner = asked, owner
        return restricted(owner, *self._narrower)

    def _narrow(self, owner: Owner | None) -> None:
        """The array's files are for fewer from now on: others, with pages of their own in the kernel."""
        with self._lock:
            if owner in self._narrower:
                return
            self._narrower = (*self._narrower, owner)
            self._found = None, OrderedDict()
            self._token = next(_numbers)

    def _asked_owner(self) -> Owner | None:
        try:
            return restricted(reading_owner(self.array), *self.above.owners(self.metadata, self.names, self.x_first))
        except FsbridgeError:
            return None

    def mtime_ns(self) -> int:
        """The newest of the metadata and of the directory of chunks, no chunk is looked at: one rewritten may not show."""
        try:
            return max(self.array.mtime_ns, touched_ns(self.array.chunks))
        except FsbridgeError:  # it cannot be told
            return self.array.mtime_ns

    def view(self, selection: Selection | None = None, name: str | None = None) -> View:
        """The array, or a region of it, for a format."""
        if selection is None and name is None:
            if self._view is None:
                self._view = View(self.name, self.metadata, whole(self.metadata.shape), self.axes, self.x_first)
            return self._view
        chosen = whole(self.metadata.shape) if selection is None else selection
        return View(name or self.name, self.metadata, chosen, chosen.axes(self.axes), self.x_first)

    def reader(self, version: ArrayVersion, selection: Selection, order: Sequence[int]) -> tuple[ElementReader, ChunkSupply]:
        """Elements of a region in a memory order; TooLarge without room for a band of chunks."""
        kept = selection.kept
        dropped = [i for i, pick in enumerate(selection.picks) if pick.dropped]
        full = (*dropped, *(kept[i] for i in order))
        with self._lock:
            if self._found[0] is not version:
                self._found = version, OrderedDict()
            known = self._found[1]
        config = self.shared.config
        overridden = (config.uid, config.gid, config.umask) != (None, None, None)
        owner = None if overridden else self.owner
        found = FoundChunks(version, known, owner, self._narrow, self._context.together)
        supply = ChunkSupply(found, selection, full, self.shared.helpers, self.shared.spill)
        return ElementReader(supply.metadata, selection, order, supply, self.chunks.cache.budget), supply

    def elements(self, version: ArrayVersion, selection: Selection, order: Sequence[int]) -> NDArray[Any]:
        """All elements of a region, dimensions in `order`: for files that are made as a whole; TooLarge."""
        nbytes = selection.size * self.metadata.dtype.itemsize
        if nbytes > _WHOLE_BYTES:
            raise TooLarge(f"{nbytes} bytes of elements, of which {_WHOLE_BYTES} can be in a file that is made as a whole")
        reader, supply = self.reader(version, selection, order)
        try:
            if not self.metadata.dtype.itemsize:
                return reader.objects()
            found = reader.read(0, selection.size)
            dtype = self.metadata.dtype.numpy
            return found.view(dtype if dtype is not None else found.dtype).reshape(reader.shape)
        finally:
            supply.close()
