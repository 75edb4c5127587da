"""What the inode table knows of each inode: a row of numbers, and for nodes and spaces in use a record that opens them.

Each ordinary inode has a row, and each space has one row for its whole range of numbers. For most inodes this row is the
only thing in memory. A million rows as objects in dicts would take a gigabyte, most of it for finding them again. So rows
are columns of numbers and references, in pages sorted by the first column: a row takes only the memory of its values, two
bisections find it, and the memory of an emptied page is freed at once. If there is no memory for a change, nothing is
changed, because columns of different lengths would mix up the rows.

A record tells how a node is opened, and opened again after it was parked. Not here: which of them stay open (`inodes.py`).
`open` is for any thread, the rest for the event loop's.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Hashable, Iterator, MutableSequence
from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar, cast

from fsbridge.errors import Stale
from fsbridge.tree import AnyNode, Directory, Kind, Space

PAGE_ROWS = 512
"""Most rows of a page. A row inserted into a page moves up to that many values in each column."""

P = TypeVar("P", bound=tuple[MutableSequence[Any], ...])


class Columns(Generic[P]):
    """A table of rows with one value per column. The first value, an integer, is the key. `empty` makes an empty page.

    A row is identified by its page and its place there, which are valid until a row is added or removed.
    """

    def __init__(self, empty: Callable[[], P]) -> None:
        self._empty = empty
        self._pages: list[P] = []
        self._lows: list[int] = []  # the first key of each page
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    def last(self, key: int) -> tuple[P, int] | None:
        """Return the last row with a key of at most `key`."""
        number = bisect_right(self._lows, key) - 1
        if number < 0:
            return None
        page = self._pages[number]
        return page, bisect_right(page[0], key) - 1

    def all(self, key: int) -> Iterator[tuple[P, int]]:
        """Yield all rows with that key, the last one first."""
        number = bisect_right(self._lows, key) - 1
        while number >= 0:
            page = self._pages[number]
            row = bisect_right(page[0], key) - 1
            while row >= 0:
                if page[0][row] != key:
                    return
                yield page, row
                row -= 1
            number -= 1

    def add(self, *values: Any) -> tuple[P, int]:
        """Add a row after the rows with the same key."""
        key = values[0]
        number = max(0, bisect_right(self._lows, key) - 1)
        if not self._pages:
            self._begin(0, self._empty(), key)
        page = self._pages[number]
        row = bisect_right(page[0], key)
        if len(page[0]) >= PAGE_ROWS:
            at = row if row == len(page[0]) and page is self._pages[-1] else PAGE_ROWS // 2  # growing keys leave full pages
            below, above = self._part(page, slice(at)), self._part(page, slice(at, None))
            self._begin(number + 1, above, above[0][0] if above[0] else key)
            self._pages[number] = page = below
            if row >= at:
                number, page, row = number + 1, above, row - at
        before = len(page[0])
        try:
            for column, value in zip(page, values, strict=True):
                column.insert(row, value)
        except BaseException:
            for column in page:
                if len(column) > before:
                    del column[row]
            if not before:
                self._end(number)
            raise
        if not row:
            self._lows[number] = key
        self._rows += 1
        return page, row

    def remove(self, page: P, row: int) -> None:
        """Remove a row, and join its page with a neighbour if the two have few rows together."""
        number = bisect_right(self._lows, page[0][row]) - 1
        while self._pages[number] is not page:  # several pages may begin with the same key
            number -= 1
        for column in page:
            del column[row]
        self._rows -= 1
        if not page[0]:
            self._end(number)
            return
        self._lows[number] = page[0][0]
        for lower in (number, number - 1):
            if lower >= 0 and lower + 1 < len(self._pages):
                first, second = self._pages[lower], self._pages[lower + 1]
                if len(first[0]) + len(second[0]) <= PAGE_ROWS // 2:
                    with suppress(MemoryError):  # then they stay apart
                        self._pages[lower] = self._part(first, also=second)
                        self._end(lower + 1)
                    return

    def _part(self, page: P, rows: slice = slice(None), also: P | None = None) -> P:
        """Return a page made of some rows of one page and all rows of another."""
        part = self._empty()
        for column, values in zip(part, page, strict=True):
            column += values[rows]
        for column, values in zip(part, also or (), strict=also is not None):
            column += values
        return part

    def _begin(self, number: int, page: P, low: int) -> None:
        self._pages.insert(number, page)
        try:
            self._lows.insert(number, low)
        except BaseException:
            del self._pages[number]
            raise

    def _end(self, number: int) -> None:
        del self._pages[number], self._lows[number]


KINDS: tuple[Kind, ...] = ("directory", "file", "link")


class Rows(NamedTuple):
    """A page of rows, sorted by first number. A space's row has no name, and its version is the space's identity."""

    numbers: array[int]
    sizes: array[int]
    parents: array[int]
    counts: array[int]
    kinds: bytearray
    names: list[bytes | None]
    versions: list[Hashable]

    @classmethod
    def empty(cls) -> Rows:
        return cls(array("q"), array("q"), array("q"), array("q"), bytearray(), [], [])


class _Hashes(NamedTuple):
    """A page of first numbers by the hash of (parent, name), or of a space's identity."""

    hashes: array[int]
    numbers: array[int]

    @classmethod
    def empty(cls) -> _Hashes:
        return cls(array("q"), array("q"))


Row: TypeAlias = tuple[Rows, int]
"""A page and the place in it. Valid until a row is added or removed."""


class InodeRows:
    """The rows. `next`: the first number that was never given."""

    def __init__(self, next: int) -> None:
        self._rows: Columns[Rows] = Columns(Rows.empty)
        self._hashes: Columns[_Hashes] = Columns(_Hashes.empty)
        self.next = next

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, number: int) -> Row | None:
        """Return the row of the inode `number`, or of the space that has this number; None if there is none."""
        row = self._rows.last(number)
        if row is None:
            return None
        rows, at = row
        return row if number - rows.numbers[at] < rows.sizes[at] else None

    def member(self, parent: int, name: bytes) -> Row | None:
        """Return the latest row of the member `name` of a directory, or None."""
        for page, at in self._hashes.all(hash((parent, name))):
            row = rows, place = self._at(page.numbers[at])
            if rows.parents[place] == parent and rows.names[place] == name:
                return row
        return None

    def space(self, identity: Hashable) -> Row | None:
        """Return the row of the space with this identity, or None."""
        for page, at in self._hashes.all(hash(identity)):
            row = rows, place = self._at(page.numbers[at])
            if rows.names[place] is None and rows.versions[place] == identity:
                return row
        return None

    def add(self, parent: int, name: bytes | None, kind: Kind, version: Hashable, count: int, size: int = 1) -> Row:
        """Add a row with the next number. `name`: None for a space. First call `outdated` for another row of that name."""
        number, size = self.next, max(1, size)
        self.next += size
        row = self._rows.add(number, size, parent, count, KINDS.index(kind), name, version)
        try:
            self._hashes.add(hash(version) if name is None else hash((parent, name)), number)
        except BaseException:  # without a hash it could not be found
            self._rows.remove(*row)
            raise
        return row

    def outdated(self, row: Row) -> None:
        """Forget that the name leads to this row, because it leads to another inode from now on."""
        rows, at = row
        name = rows.names[at]
        key, number = hash(rows.versions[at]) if name is None else hash((rows.parents[at], name)), rows.numbers[at]
        for page, at in self._hashes.all(key):
            if page.numbers[at] == number:
                self._hashes.remove(page, at)
                return

    def remove(self, row: Row) -> None:
        """Remove a row, because the kernel has forgotten its number."""
        self.outdated(row)
        self._rows.remove(*row)

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

    def _at(self, number: int) -> Row:
        row = self._rows.last(number)
        assert row is not None
        return row


class Record:
    """One ordinary inode in use. `node` is None until a name from a listing is first used, and while it is parked.

    `above` is the record of its directory, which opens a parked node again. Without it the node is never parked.
    """

    __slots__ = ("__weakref__", "_learnt", "above", "inode", "kind", "name", "node", "opener", "parent", "version")

    def __init__(self, row: Row, above: Record | None, learnt: deque[Used]) -> None:
        """Append this record to `learnt` whenever the node has been opened."""
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
            found = self.node  # another thread's, perhaps
            if found is not None:
                return found
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


def opened(found: Record | Parked | AnyNode) -> AnyNode:
    """Return the node of what `InodeTable.find` returned. May block."""
    return found.open() if isinstance(found, HELD) else found
