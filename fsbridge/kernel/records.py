"""What the inode table knows of each inode: a row of numbers, and for nodes and spaces in use a record that opens them.

Each ordinary inode has a row, and each space has one row for its whole range of numbers. For most inodes this row is the
only thing in memory. A million rows as objects in dicts would take 0.29 GB; as columns of numbers and references they take
0.12 GB. Numbers only grow, so a new row is appended, and a bisection finds it.

A record tells how a node is opened, and opened again after it was parked. Not here: which of them stay open (`inodes.py`).
`open` is for any thread, the rest for the event loop's.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Hashable, Iterator, MutableSequence
from contextlib import suppress
from itertools import compress
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from fsbridge.errors import Stale
from fsbridge.tree import AnyNode, Directory, Kind, Space

LEAST_PLACES = 1024
"""Places in the hash table of few rows. Fewer rows than a third of it are not compacted."""

NO_NAME = -1
"""Stands for the hash of a row that no name leads to. Python gives no object this hash."""

KINDS: tuple[Kind, ...] = ("directory", "file", "link")


class Rows(NamedTuple):
    """Rows in the order of their first numbers. A space's row has no name, and its version is the space's identity.

    `hashes`: of (parent, name), or of a space's identity. A removed row remains with the size 0 until it is compacted.
    """

    numbers: MutableSequence[int]
    sizes: MutableSequence[int]
    parents: MutableSequence[int]
    counts: MutableSequence[int]
    hashes: MutableSequence[int]
    kinds: MutableSequence[int]
    names: MutableSequence[bytes | None]
    versions: MutableSequence[Hashable]

    @classmethod
    def empty(cls) -> Rows:
        return cls(array("q"), array("q"), array("q"), array("q"), array("q"), bytearray(), [], [])

    @property
    def columns(self) -> tuple[MutableSequence[Any], ...]:
        """All columns, for loops over them."""
        return cast(tuple[MutableSequence[Any], ...], self)


Row: TypeAlias = tuple[Rows, int]
"""The rows and the place of one of them. Valid until a row is added or removed."""


class InodeRows:
    """The rows of all inodes of one mount. `next`: the lowest number that was never given to an inode."""

    def __init__(self, next: int, least_places: int = LEAST_PLACES) -> None:
        """`least_places`: see `LEAST_PLACES`."""
        self._least_places = least_places
        self._rows = Rows.empty()
        self._removed = 0
        # A hash table: 1 + the place of a row, or 0, where its hash says or, if that is taken, at the next free place.
        self._table = array("I", bytes(4 * least_places))
        self.next = next

    def __len__(self) -> int:
        return len(self._rows.numbers) - self._removed

    def row(self, number: int) -> Row | None:
        """Return the row of the inode `number`, or of the space that has this number; None if there is none."""
        rows = self._rows
        at = bisect_right(rows.numbers, number) - 1
        return (rows, at) if at >= 0 and number - rows.numbers[at] < rows.sizes[at] else None

    def member(self, parent: int, name: bytes) -> Row | None:
        """Return the latest row of the member `name` of a directory, or None."""
        rows = self._rows
        for at in self._hashed(hash((parent, name))):
            if rows.parents[at] == parent and rows.names[at] == name:
                return rows, at
        return None

    def space(self, identity: Hashable) -> Row | None:
        """Return the row of the space with this identity, or None."""
        rows = self._rows
        for at in self._hashed(hash(identity)):
            if rows.names[at] is None and rows.versions[at] == identity:
                return rows, at
        return None

    def add(self, parent: int, name: bytes | None, kind: Kind, version: Hashable, count: int, size: int = 1) -> Row:
        """Add a row with the next number. `name`: None for a space. First call `mark_outdated` for another row of that name.

        If there is no memory for it, nothing is changed: columns of different lengths would mix up the rows.
        """
        at = len(self._rows.numbers)
        if 3 * at >= 2 * len(self._table):
            self._compact()
            at = len(self._rows.numbers)
        number, size = self.next, max(1, size)
        self.next += size
        key = hash(version) if name is None else hash((parent, name))
        values = number, size, parent, count, key, KINDS.index(kind), name, version
        rows, table, mask = self._rows, self._table, len(self._table) - 1
        try:
            for column, value in zip(rows.columns, values, strict=True):
                column.append(value)
        except BaseException:
            for column in rows.columns:
                del column[at:]
            raise
        place = key & mask
        while table[place] and rows.hashes[table[place] - 1] != NO_NAME:
            place = (place + 1) & mask
        table[place] = at + 1
        return rows, at

    def mark_outdated(self, row: Row) -> None:
        """Forget that the name leads to this row, because it leads to another inode from now on."""
        rows, at = row
        rows.hashes[at] = NO_NAME

    def remove(self, row: Row) -> None:
        """Remove a row, because the kernel has forgotten its number."""
        rows, at = row
        rows.hashes[at], rows.sizes[at], rows.names[at], rows.versions[at] = NO_NAME, 0, None, None
        self._removed += 1
        if 2 * self._removed > len(rows.numbers) >= self._least_places // 3:
            with suppress(MemoryError):  # then a later one compacts them
                self._compact()

    def _hashed(self, key: int) -> Iterator[int]:
        """Yield the places of the rows with that hash."""
        table, hashes, mask = self._table, self._rows.hashes, len(self._table) - 1
        place = key & mask
        while entry := table[place]:
            if hashes[entry - 1] == key:
                yield entry - 1
            place = (place + 1) & mask

    def _compact(self) -> None:
        """Drop the removed rows, and make a hash table for twice as many rows as there are."""
        rows = self._rows
        if self._removed:
            rows = Rows.empty()
            for column, values in zip(rows.columns, self._rows.columns, strict=True):
                column.extend(compress(values, self._rows.sizes))
        length = self._least_places
        while length < 3 * len(rows.numbers):
            length *= 2
        table = array("I", bytes(4 * length))
        _fill(np.asarray(table), np.array(rows.hashes, np.int64))
        self._rows, self._table, self._removed = rows, table, 0

    def path(self, number: int) -> str:
        """Return a node's path inside the mount, for messages; parts that are no longer known are `?`.

        A node that has a number in a space instead of a name is shown as `...` in the directory that the space belongs to.
        """
        names: list[bytes] = []
        while (row := self.row(number)) is not None and row[0].parents[row[1]]:
            names.append(row[0].names[row[1]] or b"...")
            number = row[0].parents[row[1]]
        if row is None:
            if not names:
                return "?"
            names.append(b"?")
        return "/" + b"/".join(reversed(names)).decode("utf-8", "backslashreplace")


def _fill(table: np.ndarray[Any, Any], hashes: np.ndarray[Any, Any]) -> None:
    """Enter all rows with these hashes into an empty hash table: those that do not collide at once, then the others."""
    rows = np.flatnonzero(hashes != NO_NAME)
    places = hashes[rows] & (len(table) - 1)
    while len(rows):
        free = table[places] == 0
        table[places[free]] = rows[free] + 1
        collide = table[places] != rows + 1
        rows, places = rows[collide], (places[collide] + 1) & (len(table) - 1)


class Record:
    """One ordinary inode in use. `node` is None until a name from a listing is first used, and while it is parked.

    `above` is the record of its directory, which opens a parked node again. Without it the node is never parked.
    """

    __slots__ = ("__weakref__", "_learnt", "above", "inode", "kind", "name", "node", "opener", "parent", "version")

    def __init__(self, row: Row, above: Record | None, learnt: deque[Used]) -> None:
        """`learnt`: gets this record each time its node has been opened."""
        rows, at = row
        self.inode = rows.numbers[at]
        self.parent = rows.parents[at]
        self.kind = KINDS[rows.kinds[at]]
        self.name = rows.names[at] or b""
        self.version = rows.versions[at]
        self.above = above
        self.node: AnyNode | None = None
        self.opener: Callable[[], AnyNode] | None = None
        self._learnt = learnt

    @property
    def versioned(self) -> bool:
        """True if this inode stands for only one version of its content."""
        return self.version is not None

    def open(self) -> AnyNode:
        """Return the node, and open it if need be. May block; safe on several threads (all get the node opened first)."""
        node = self.node
        if node is None:
            opener = self.opener
            if opener is not None:
                node = opener()
            else:
                if self.above is None:
                    raise Stale("the node is no longer known")
                node = cast(Directory, self.above.open()).lookup(self.name)
            if self.version is None:
                self.version = node.version
            # A directory from a listing is not asked for its kind: its methods raise errors if it is no longer there.
            listed = opener is not None and self.kind == "directory"
            if node.version != self.version or not (listed or node.attrs().kind == self.kind):
                node.settle()
                raise Stale(f"{self.name.decode('utf-8', 'replace')}: changed since it was listed")
            other = self.node  # another thread's, perhaps
            if other is not None:
                return other
            self.node = node
            self._learnt.append(self)
        return node

    @property
    def is_open(self) -> bool:
        """True if the node can be had without opening the directory above."""
        return self.node is not None or self.opener is not None

    def park(self) -> None:
        """Forget the node; `open` finds it again."""
        if self.node is not None:
            self.node.let_go()
        self.node = self.opener = None


class Range:
    """The numbers of one space in use: `inode` to `inode + size - 1`. `above`: the directory where it was first seen."""

    __slots__ = ("_learnt", "above", "identity", "inode", "space")

    def __init__(self, row: Row, above: Record | None, learnt: deque[Used]) -> None:
        rows, at = row
        self.inode = rows.numbers[at]
        self.identity = rows.versions[at]
        self.above = above
        self.space: Space | None = None
        self._learnt = learnt

    def open(self) -> Space:
        """Return the space, opening its directory if need be; Stale if that has another space by now. May block."""
        space = self.space
        if space is None:
            if self.above is None:
                raise Stale("the array is no longer known")
            directory = cast(Directory, self.above.open())
            directory.attrs()  # this look makes `directory.space` the present one
            space = directory.space
            if space is None or space.identity != self.identity:
                raise Stale(f"{self.above.name.decode('utf-8', 'replace')}: changed since it was last used")
            self.space = space
            self._learnt.append(self)
        return space

    @property
    def is_open(self) -> bool:
        """True if the space can be had without opening its directory."""
        return self.space is not None

    def park(self) -> None:
        """Forget the space; `open` finds it again."""
        self.space = None


Used: TypeAlias = Record | Range


class Parked:
    """Stands for a node of a space that was dropped until it is used again. `node` is None until `open` has found it."""

    __slots__ = ("_owner", "_position", "node")

    def __init__(self, owner: Range, position: int) -> None:
        self._owner = owner
        self._position = position
        self.node: AnyNode | None = None

    def open(self) -> AnyNode:
        """Return the node, and open its space if need be. May block."""
        self.node = self._owner.open().node(self._position)
        return self.node


HELD = (Record, Parked)


def open_node(holder: Record | Parked | AnyNode) -> AnyNode:
    """Return the node of what `InodeTable.find` returned. May block."""
    return holder.open() if isinstance(holder, HELD) else holder
