"""What stands around arrays and tells what they mean: attributes of groups, and arrays beside with coordinates.

A `Look` is what one question finds around the arrays of a group. `Surroundings` are what the files of one array have used of
it. They have a version, and are current as long as everything that they used is unchanged and may still be read. What was
read is kept by version and not by age: a look compares the versions of all that is needed, and reads what has changed.

Not here: what attributes and coordinates mean (`meaning/`), names of files (`files/arrays/names.py`).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Hashable, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fsbridge.asking import holding
from fsbridge.decoded import ArrayVersion
from fsbridge.errors import PASSING, FsbridgeError, Unsupported
from fsbridge.layouts.files.arrays.selection import Pick, Selection, select_all
from fsbridge.layouts.files.elements.pieces import FoundChunks
from fsbridge.layouts.files.elements.reading import ElementReader
from fsbridge.layouts.files.elements.spill import Spill
from fsbridge.layouts.files.elements.supply import ChunkSupply
from fsbridge.layouts.members import GROUPS_ABOVE, Context, SourceMember, array_at
from fsbridge.lru import LRU
from fsbridge.meaning import Attributes, Meaning, Path, Values
from fsbridge.meaning.convention import Written
from fsbridge.meaning.conventions.cf import can_be_bounds
from fsbridge.meaning.conventions.xarray import zarr2_attributes
from fsbridge.meaning.reading import PARTICULAR, read_array
from fsbridge.metadata import ArrayMetadata
from fsbridge.model import Array, Group, Node, as_array
from fsbridge.threads.forking import cached_property
from fsbridge.threads.workers import Workers

T = TypeVar("T")

COORDINATE_VALUES = 65536
"""Most elements of a coordinate that is read. A longer coordinate gives its unit, but no spacing."""

LABEL_BYTES = 16 << 20
"""Most bytes of labels of variable length, which are Python objects while a table is made."""

_ALIKE = 256
"""Most results of one look that arrays with the same metadata share."""

Key: TypeAlias = str | Path | bool
"""What a look has a part under: an array beside under its name, a group under its path from the root."""

_GROUPS, _MEMBERS = True, False
"""The keys of the groups above, and of the names of the members of the nearest one."""

_MOST_MEMBERS = 256
"""Most members that a group may have if their names are read."""


class Variable(NamedTuple):
    """Elements and attributes of a coordinate, or of its bounds."""

    values: NDArray[np.generic]
    attributes: Attributes


class _ArrayBeside(NamedTuple):
    """An array of the group. `values`: its elements; None if they are not numbers, or too many."""

    array: Array
    values: NDArray[np.generic] | None


class _Part(NamedTuple):
    """Something around arrays, as it was read. Parts with equal `version` have equal content.

    `content`: attributes of the groups above or of another group, names of members, or an `_ArrayBeside`; None if there is
    nothing that can be read. `is_current` is false also if that is not known.
    """

    version: Hashable
    content: Sequence[Attributes] | Attributes | _ArrayBeside | Sequence[str] | None
    is_current: Callable[[], bool]


_NOTHING = _Part(None, None, lambda: False)


class Look:
    """What is found around the arrays of a group. Each part is looked at when it is first needed, and only once.

    A part that has not changed since the last look is not read again. Thread-safe.
    """

    def __init__(self, context: Context, group: SourceMember | None) -> None:
        """`group`: the group of the arrays; None for an array that is the root."""
        self._context = context
        self.group = group
        self._last = context.last_look(() if group is None else group.names)
        self._parts: dict[Key, _Part] = {}
        self._lock = threading.RLock()  # one for each look, because a store may hang
        self.alike: LRU[Hashable, tuple[ArrayMetadata, object, dict[Key, Hashable]]] = LRU(_ALIKE)
        """What arrays with the same metadata share, see `Surroundings.share`."""

    def renew(self) -> Look:
        """Return a new look around the same group."""
        return Look(self._context, self.group)

    def current(self) -> bool:
        """True if nothing that was found has changed."""
        parts, look = list(self._parts.items()), self.renew()
        return all(look.part(name).version == part.version for name, part in parts)

    @cached_property
    def impartial(self) -> bool:
        """True if the groups above describe all members alike."""
        groups = cast(Sequence[Attributes], self.part(_GROUPS).content)
        return all(PARTICULAR.isdisjoint(attributes) for attributes in groups)

    def part(self, key: Key) -> _Part:
        """Read the part with a key, once. Raises errors that may pass."""
        part = self._parts.get(key)
        if part is not None:
            return part
        with holding(self._lock):
            part = self._parts.get(key) or cast(_Part | None, self._last.get(key))
            if part is None or (key not in self._parts and not self._is_current(part)):
                part = self._read(key)
            self._parts[key] = self._last[key] = part
            return part

    def _read(self, key: Key) -> _Part:
        if isinstance(key, bool):
            return self._read_groups() if key is _GROUPS else self._read_members()
        return self._read_array(key) if isinstance(key, str) else self._read_group(key)

    def _is_current(self, part: _Part) -> bool:
        try:
            return self._context.config.immutable or part.is_current()
        except (FsbridgeError, OSError):
            return False

    def _read_groups(self) -> _Part:
        """Read the attributes of the group and of those above it. A damaged group counts as having none."""
        all_attributes: list[Attributes] = []
        versions: list[tuple[Group | None, Hashable]] = []
        member = self.group
        while member is not None and len(all_attributes) <= GROUPS_ABOVE:
            group, version, attributes = None, None, cast(Attributes, {})
            try:
                group = member.group()
                version = group.version  # before they are read, so that a change meanwhile shows as another version
                attributes = group.attributes()
            except PASSING:
                raise  # else a header would lack what the attributes say
            except FsbridgeError:
                pass  # damaged attributes are an error only where they are shown themselves
            all_attributes.append(attributes)
            versions.append((group, version))
            member = member.above

        def is_current() -> bool:
            return all(group is not None and group.version == version for group, version in versions)

        return _Part(hash(repr(all_attributes)), all_attributes, is_current)

    def _read_members(self) -> _Part:
        """Read the names of the group's members. A group with too many counts as having none."""
        try:
            group = None if self.group is None else self.group.group()
            if group is None:
                return _NOTHING
            version = group.listing_version
            names = [child.name for child in islice(group.children(), _MOST_MEMBERS + 1)]
        except PASSING:
            raise  # else a header would lack what an array beside says
        except FsbridgeError:
            return _NOTHING
        kept_names = names if len(names) <= _MOST_MEMBERS else []
        return _Part(tuple(kept_names), kept_names, lambda: group.listing_version == version)

    def _read_group(self, path: Path) -> _Part:
        above = self.group
        try:
            group = _node(above, True, path)
            if not isinstance(group, Group):
                return _NOTHING
            version, attributes = group.version, group.attributes()
        except PASSING:
            raise  # else a header would lack what the attributes say
        except FsbridgeError:
            return _NOTHING  # damaged attributes are an error only where they are shown themselves

        def is_current() -> bool:
            now = _node(above, True, path)
            return isinstance(now, Group) and now.version == version

        return _Part(hash(repr(attributes)), attributes, is_current)

    def _read_array(self, name: str) -> _Part:
        try:
            pair = array_at(self.group, name)
            if pair is None:
                return _NOTHING
            array = pair[1]
            array.metadata.shown_attributes()
            values, version = self._values(array)
        except PASSING:
            raise  # else a header would lack the coordinate
        except FsbridgeError:
            return _NOTHING  # an unreadable coordinate is an error only where it is shown itself
        said = None if values is None else hash(values.tobytes())
        is_current = array.current if version is None else version.current
        return _Part((array.version, said), _ArrayBeside(array, values), is_current)

    def _values(self, array: Array) -> tuple[NDArray[np.generic] | None, ArrayVersion | None]:
        """Return all elements of an array in C order, and the version read.

        Both are None if the array has more than two dimensions, too many elements, or elements that are no numbers.
        """
        metadata = array.metadata
        dtype, shape = metadata.dtype.numpy, metadata.shape
        if dtype is None or dtype.kind not in "iuf" or metadata.varlength:
            return None, None
        if len(shape) > 2 or math.prod(shape) > 2 * COORDINATE_VALUES:
            return None, None
        return self._elements(array, select_all(shape))

    def label(self, name: str, length: int, pick: Pick) -> tuple[NDArray[Any], Values] | None:
        """Return picked elements of the array `name` of the group, and what they mean.

        None unless the array has length `length`.

        They are always read anew, so that they are no part of the version.
        """
        try:
            array = None if self.group is None else as_array(self.group.group().child(name))
            if array is None or array.metadata.shape[:1] != (length,):
                return None
            metadata = array.metadata
            meaning = read_array(Written(metadata)).values
            if len(metadata.shape) != (2 if meaning.characters else 1) or metadata.dtype.serializer == "vlen-bytes":
                return None
            rest = (Pick(0, 1, extent) for extent in metadata.shape[1:])
            return self._elements(array, Selection((pick._replace(dropped=False), *rest)))[0], meaning
        except PASSING:
            raise  # else a table would lack the column
        except FsbridgeError:
            return None  # an unreadable coordinate is an error only where it is shown itself

    def words(self, from_root: bool, path: Path) -> NDArray[Any] | None:
        """Return the elements of an array at a path from the root, or else from the group; None if it cannot be read.

        The array has one dimension, or a single element. It is always read anew.
        """
        try:
            node = _node(self.group, from_root, path)
            array = None if node is None else as_array(node)
            if array is None or len(array.metadata.shape) > 1 or array.metadata.dtype.serializer == "vlen-bytes":
                return None
            return self._elements(array, select_all(array.metadata.shape))[0].reshape(-1)
        except PASSING:
            raise
        except FsbridgeError:
            return None  # the numbers are shown

    def _elements(self, array: Array, selection: Selection) -> tuple[NDArray[Any], ArrayVersion]:
        """Return elements of an array, and the version read."""
        metadata, order = array.metadata, range(len(selection.picks))
        version = self._context.share_chunks(array).whole()
        supply = ChunkSupply(FoundChunks(version), selection, order, Workers("helper", 0), Spill("/", 0))
        reader = ElementReader(metadata, selection, order, supply, self._context.cache.budget)
        if not metadata.dtype.itemsize:
            return reader.read_objects(LABEL_BYTES), version
        if metadata.dtype.numpy is None:
            raise Unsupported(f"numpy has no type for {metadata.dtype.native}")
        return reader.read(0, selection.size).view(metadata.dtype.numpy).reshape(selection.shape), version


class Surroundings:
    """What the files of one array have used of its surroundings. Thread-safe."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self.used: dict[Key, Hashable] = {}
        """The version of each part that was used."""

    @property
    def version(self) -> Hashable:
        """Equal versions mean that everything that was used says the same."""
        return frozenset(self.used.copy().items())

    def is_current(self, look: Look | None = None) -> bool:
        """True if everything that was used is still the same. `look`: finds what is there now; None: a new one."""
        return is_as_used(self.used, look or self._look.renew())

    @property
    def group(self) -> SourceMember | None:
        """The group of the array; None if the array is the root."""
        return self._look.group

    @property
    def groups(self) -> Sequence[Attributes]:
        """Attributes of the group and of those above it, the nearest first."""
        return cast(Sequence[Attributes], self._part(_GROUPS).content)

    @property
    def impartial(self) -> bool:
        """True if the groups above describe all members alike, so that arrays with the same metadata mean the same."""
        self._part(_GROUPS)
        return self._look.impartial

    def coordinate(self, name: str) -> tuple[NDArray[np.float64] | None, Attributes] | None:
        """Return values and attributes of a 1-D array of the group, or at a path; None if there is none.

        The values are None if they are no numbers, or too many.
        """
        beside = cast(_ArrayBeside | None, self._part(name).content)
        if beside is None or len(beside.array.metadata.shape) > 1:
            return None
        few = beside.values is not None and beside.values.size <= COORDINATE_VALUES
        values = beside.values.astype(np.float64).reshape(-1) if few and beside.values is not None else None
        return values, beside.array.metadata.shown_attributes()

    def members(self) -> Sequence[str]:
        """Return the names of the members of the group; none if there are too many, or if they cannot be read."""
        return cast(Sequence[str] | None, self._part(_MEMBERS).content) or ()

    def read_distant(self, path: Path) -> Attributes | None:
        """Return the attributes of the group at a path from the root; None if there is none that can be read."""
        return cast(Attributes | None, self._part(path).content)

    def variable(self, name: str) -> Variable | None:
        """Return a 1-D or 2-D array of numbers in the group; None if there is none, or it has too many elements."""
        beside = cast(_ArrayBeside | None, self._part(name).content)
        if beside is None or beside.values is None or not beside.values.ndim:
            return None
        return Variable(beside.values, zarr2_attributes(beside.array.metadata))

    def label(self, name: str, length: int, pick: Pick) -> tuple[NDArray[Any], Values] | None:
        """Return what `Look.label` finds now."""
        return self._look.label(name, length, pick)

    def words(self, from_root: bool, path: Path) -> NDArray[Any] | None:
        """Return what `Look.words` finds now."""
        return self._look.words(from_root, path)

    def meaning(self, metadata: ArrayMetadata, names: Sequence[str], x_first: bool) -> Meaning:
        """Return what the array at the path `names` means."""

        def make() -> Meaning:
            path = () if self._shares(metadata) else names
            return read_array(
                Written(metadata, self.groups, path, x_first, self.coordinate, self.read_distant, self.members)
            )

        return self.share(("meaning", x_first), metadata, make)

    def share(self, kind: Hashable, metadata: ArrayMetadata, make: Callable[[], T]) -> T:
        """Return what `make` makes. All arrays with the same metadata share it within a look.

        If a group above, or an array beside, may describe single members, it is made for each array.
        """
        if not self._shares(metadata):
            return make()
        key = kind, id(metadata)  # unique while we hold the object
        known = self._look.alike.get(key)
        if known is None:
            made = make()
            known = self._look.alike.put(key, (metadata, made, self.used.copy()))
        self.used.update(known[2])
        return cast(T, known[1])

    def _shares(self, metadata: ArrayMetadata) -> bool:
        """True if all arrays with this metadata mean the same in these surroundings."""
        return self.impartial and not can_be_bounds(metadata)

    def _part(self, key: Key) -> _Part:
        part = self._look.part(key)
        self.used[key] = part.version
        return part


def is_as_used(used: dict[Key, Hashable], look: Look) -> bool:
    """True if a look finds the same versions as `used`."""
    return all(look.part(key).version == version for key, version in list(used.items()))


def _node(group: SourceMember | None, from_root: bool, path: Path) -> Node | None:
    """Return the node at a path from the root, or else from the group.

    None if the path leads through something else than groups.
    """
    start = group.root if from_root and group is not None else group
    node: Node | None = None if start is None else start.group()
    for name in path:
        node = node.child(name) if isinstance(node, Group) else None
    return node
