"""The inode table: which node of the tree a number of the kernel stands for, and how often the kernel knows it.

Two kinds of numbers. Ordinary nodes get one number each and are known from their first lookup to the kernel's last `forget`.
Nodes of a `Space` (the chunk tree of one array version) get `base + position` out of a range that the space owns: one row
and one lookup count for all of them, so ten million listed chunk files cost nothing. Numbers are never given twice.

The identity of an ordinary node is (parent, name, version): another version is another inode, so the kernel never mixes the
pages of two. The kernel may know a million of them, and most have only a row (`records.py`). Those used last have a
`Record` and are kept open. The others are parked: their nodes are dropped, and opened again when they are used.

Not here: FUSE replies, handles. Not thread-safe: the event loop's thread owns the table; only `open` of what `find` gives
and `known_base` are for other threads.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import NamedTuple, cast
from weakref import WeakValueDictionary

from fsbridge.errors import Stale
from fsbridge.kernel.limits import USUAL, KernelLimits
from fsbridge.kernel.records import KINDS, InodeRows, Parked, Range, Record, Row, Used
from fsbridge.tree import AnyNode, Directory, Entry, Kind, Ready, Space

ROOT = 1

MAX_SPACE = 1 << 40
"""Positions of the largest space that gets a range: 2^63 / 2^40 leaves room for eight million such ranges in one mount."""


class Place(NamedTuple):
    """The directory in which an inode was first seen, and its name there. A numbered inode has a `position` instead."""

    parent: int
    name: bytes | None
    position: int


class InodeTable:
    """The table of all inodes of one mount, as the module's text describes."""

    def __init__(
        self,
        root: Directory,
        released: Callable[[int, Space | None], object] = lambda base, space: None,
        limits: KernelLimits = USUAL,
    ) -> None:
        """Make the table. It calls `released` when it parks a space, and when the kernel has forgotten all of a space.

        `released` gets the first number of the range, and the space if it was open.
        """
        self._rows = InodeRows(ROOT)
        self._learnt: deque[Used] = deque()
        self._opened: OrderedDict[int, Used] = OrderedDict()  # the last one used last
        self._spaces: dict[Hashable, Range] = {}  # those of them that are spaces, by identity
        self._last: Range | None = None  # the space used last, as long as no other was used
        self._parked: WeakValueDictionary[int, Record] = WeakValueDictionary()  # a job may be finding out their version
        self._pinned: dict[int, Used] = {}  # those that cannot be opened again
        self._singles: dict[tuple[Space, int], int] = {}  # numbers of nodes of spaces without a range
        self._released = released
        self._opened_nodes = limits.opened_nodes
        self._add(None, 0, b"", "directory", None).node = root

    def __len__(self) -> int:
        return len(self._rows)

    def find(self, inode: int) -> Record | Parked | AnyNode:
        """Return the record of an ordinary inode, or the (perhaps parked) node of a numbered one; Stale if it is unknown."""
        last = self._last
        if last is not None and last.space is not None and 0 <= inode - last.inode < last.space.size:
            return last.space.node(inode - last.inode)
        used = self._find_used(inode)
        self._use(used)
        if isinstance(used, Record):
            return used
        self._last = used
        position = inode - used.inode
        return Parked(used, position) if used.space is None else used.space.node(position)

    def count_looked_up(self, parent: int, name: bytes, node: AnyNode, kind: Kind) -> int:
        """Return the inode of a node that a lookup found, and count one lookup."""
        if node.slot is not None:
            return self._count_numbered(parent, name, *node.slot, kind)
        self._learn()
        row = self._rows.member(parent, name)
        if row is not None and KINDS[row[0].kinds[row[1]]] == kind:
            rows, at = row
            record = self._record(row)
            if record.node is None and record.version is None:
                # only named by a listing so far: none of its content is cached
                rows.versions[at] = record.version = node.version
            if record.version == node.version:
                if record.node is None:  # an opened node stays, and with it its space and what that has learnt
                    record.node = node
                elif record.node is not node:
                    node.let_go()
                rows.counts[at] += 1
                self._use(record)
                return record.inode
        record = self._add(row, parent, name, kind, node.version)
        record.node = node
        self._use(record)
        return record.inode

    def count_listed(self, parent: int, entry: Entry, space: Space | None) -> tuple[int, bool]:
        """Return the inode of a directory entry, and whether the kernel may rely on it; counts one lookup.

        If the listing does not tell the entry's version, the inode may be that of an older one. Then the kernel may not rely
        on it: it must look the name up at the next use.
        """
        name, attrs, node, version = entry
        if isinstance(node, int):
            if space is None:
                raise TypeError(f"{name!r} has a position, its directory has no space")
            return self._count_numbered(parent, name, space, node, attrs.kind), True
        if self._learnt:
            self._learn()
        row = self._rows.member(parent, name)
        if row is not None and KINDS[row[0].kinds[row[1]]] == attrs.kind:
            rows, at = row
            known = rows.versions[at]
            if version is None or known == version:
                rows.counts[at] += 1
                record = self._record(row)
                if node is not None and not record.is_open and (version is not None or known is None):  # it is parked
                    self._name(record, node)
                return record.inode, version is not None or known is None
        if row is not None:
            self._rows.mark_outdated(row)
        record = self._new(self._rows.add(parent, name, attrs.kind, version, 1))
        if node is not None:
            self._name(record, node)
        return record.inode, True

    def base(self, parent: int, space: Space) -> int | None:
        """Return the first number of a space's range, and allocate the range if need be; None if the space is too large.

        The caller must report the numbers that it gives the kernel to `count`, before control returns to the event loop.
        """
        owner = self._range(parent, space)
        return None if owner is None else owner.inode

    def number(self, space: Space, position: int) -> int | None:
        """Return the inode of a numbered node, or None if it has no number yet."""
        base = self.known_base(space)
        if base is None:
            row = self._rows.space(space.identity)
            if row is None:
                return self._singles.get((space, position))
            base = row[0].numbers[row[1]]
        return base + position

    def known_base(self, space: Space) -> int | None:
        """Return the first number of a space's range if the kernel may know one of its numbers, else None.

        Any thread may call it: a number once given never stands for another node.
        """
        owner = self._spaces.get(space.identity)
        return None if owner is None else owner.inode

    def count(self, base: int, lookups: int) -> None:
        """Add the `lookups` of one reply to the count of the range at `base`. A range with a count of 0 is removed."""
        self._count(base, lookups)

    def forget(self, inode: int, lookups: int) -> bool:
        """Count `lookups` references as dropped by the kernel; the last one frees the inode. Unknown numbers are ignored.

        Returns true if the kernel may hold no further reference to it. For a numbered inode that is always so, because only
        the count of its whole range is known.
        """
        if inode == ROOT or self._rows.row(inode) is None:
            return True
        self._count(inode, -lookups)
        return not self._is_named(inode)

    def park(self) -> None:
        """Park all nodes and spaces."""
        self._learn()
        while self._opened:
            self._park(self._opened.popitem()[1])

    def record(self, inode: int) -> Record | None:
        """Return the record of an ordinary inode; None for a numbered or an unknown one."""
        row = self._rows.row(inode)
        return None if row is None or row[0].names[row[1]] is None else self._record(row)

    def member(self, parent: int, name: bytes) -> Record | None:
        """Return the record of the inode that the kernel last got for the member `name`, or None."""
        row = self._rows.member(parent, name)
        return None if row is None else self._record(row)

    def named(self, parent: int, name: bytes) -> int | None:
        """Return the inode that the kernel last got for the member `name`, or None."""
        row = self._rows.member(parent, name)
        return None if row is None else row[0].numbers[row[1]]

    def place(self, inode: int) -> Place | None:
        """Return the place of an inode; None for one that the kernel does not know."""
        row = self._rows.row(inode)
        if row is None:
            return None
        rows, at = row
        return Place(rows.parents[at], rows.names[at], inode - rows.numbers[at])

    def count_again(self, inode: int) -> None:
        """Count one lookup of an inode that the kernel knows already."""
        self._count(inode)

    def knows(self, inode: int) -> bool:
        """True if the kernel may know that inode."""
        return self._rows.row(inode) is not None

    def lookups(self, inode: int) -> int:
        """Return the lookup count of an inode; for a numbered one, that of its whole range."""
        rows, at = self._row(inode)
        return rows.counts[at]

    def parent(self, inode: int) -> int:
        """Return the inode of the directory above; that of the root is the root itself."""
        rows, at = self._row(inode)
        return rows.parents[at] or ROOT

    def path(self, inode: int) -> str:
        """Return a node's path inside the mount, for messages.

        A node that has a number in a space instead of a name is shown as `...` in the directory that the space belongs to.
        """
        return self._rows.path(inode)

    def exact_path(self, inode: int) -> str:
        """Return the path inside the mount, for messages. A numbered node has its own name in it if its space is open."""
        path = self._rows.path(inode)
        if path.endswith("/...") and isinstance(used := self._find_used(inode), Range) and used.space is not None:
            return path[:-3] + used.space.name(inode - used.inode)
        return path

    def _find_used(self, inode: int) -> Used:
        """Return the record of an ordinary inode, or the range that a numbered one belongs to."""
        used = self._opened.get(inode)
        if used is None:
            row = self._row(inode)
            used = self._find_range(row) if row[0].names[row[1]] is None else self._record(row)
        return used

    def _record(self, row: Row) -> Record:
        number = row[0].numbers[row[1]]
        record = self._opened.get(number) or self._pinned.get(number) or (self._parked and self._parked.get(number))
        return cast(Record, record) if record else Record(row, self._above(row), self._learnt)

    def _find_range(self, row: Row) -> Range:
        number = row[0].numbers[row[1]]
        known_range = self._opened.get(number) or self._pinned.get(number)
        return cast(Range, known_range) if known_range else Range(row, self._above(row), self._learnt)

    def _above(self, row: Row) -> Record | None:
        parent = row[0].parents[row[1]]
        record = self._opened.get(parent)
        return record if isinstance(record, Record) else self.record(parent)

    def _add(self, former: Row | None, parent: int, name: bytes, kind: Kind, version: Hashable) -> Record:
        if former is not None:
            self._rows.mark_outdated(former)
        return self._new(self._rows.add(parent, name, kind, version, 1))

    def _new(self, row: Row) -> Record:
        record = Record(row, self._above(row), self._learnt)
        if record.above is None:
            self._pinned[record.inode] = record
        return record

    def _name(self, record: Record, opener: Callable[[], AnyNode]) -> None:
        """Set the function that opens the node, which came from a listing."""
        record.opener = opener
        if isinstance(opener, Ready):
            record.node = opener.node
        self._use(record)

    def _count_numbered(self, parent: int, name: bytes, space: Space, position: int, kind: Kind) -> int:
        owner = self._range(parent, space)
        if owner is not None:
            self._count(owner.inode)
            return owner.inode + position
        number = self._singles.get((space, position))
        if number is None:
            record = Record(self._rows.add(parent, name, kind, None, 0), None, self._learnt)
            record.node = space.node(position)  # its space finds it, so no name is looked up
            number = self._singles[space, position] = record.inode
            self._pinned[number] = record
        self._count(number)
        return number

    def _range(self, parent: int, space: Space) -> Range | None:
        identity = space.identity
        owner = self._spaces.get(identity)
        if owner is None:
            if space.size > MAX_SPACE:
                return None
            owner = self._find_range(self._rows.space(identity) or self._reserve(parent, space))
            self._spaces[identity] = owner
            if owner.above is None:
                self._pinned[owner.inode] = owner
        owner.space = owner.space or space
        self._use(owner)
        return owner

    def _is_named(self, inode: int) -> bool:
        """True if the inode is an ordinary one, which can be opened again by its name."""
        row = self._rows.row(inode)
        return row is not None and row[0].names[row[1]] is not None

    def _reserve(self, parent: int, space: Space) -> Row:
        return self._rows.add(parent, None, "directory", space.identity, 0, space.size)

    def _row(self, number: int) -> Row:
        row = self._rows.row(number)
        if row is None:
            raise Stale(f"inode {number} is unknown")
        return row

    def _count(self, number: int, lookups: int = 1) -> None:
        rows, at = row = self._row(number)
        rows.counts[at] += lookups
        if rows.counts[at] <= 0:
            self._remove(row)

    def _remove(self, row: Row) -> None:
        number, name = row[0].numbers[row[1]], row[0].names[row[1]]
        self._rows.remove(row)
        self._last = None
        used = self._opened.pop(number, None) or self._pinned.pop(number, None)
        if isinstance(used, Record) and used.node is not None and used.node.slot is not None:
            self._singles.pop(used.node.slot, None)
        if used is not None:
            self._park(used)
        elif name is None:
            self._released(number, None)

    def _learn(self) -> None:
        """Record as used the nodes and spaces that other threads have opened."""
        while self._learnt:
            used = self._learnt.popleft()
            row = self._rows.row(used.inode)
            if row is None:  # forgotten meanwhile
                used.park()
                continue
            if isinstance(used, Record):
                row[0].versions[row[1]] = used.version
            if self._opened.get(used.inode, used) is not used:  # parked meanwhile, and in use again since
                continue
            if isinstance(used, Range) and used.space is not None:
                self._spaces[used.identity] = used
            self._use(used)

    def _use(self, used: Used) -> None:
        """Mark a node or space, and what must be opened before it, as used; park the least recently used above the limit."""
        self._last = None
        while used.above is not None:
            self._opened[used.inode] = used
            self._opened.move_to_end(used.inode)
            if used.is_open:
                break
            above = self._opened.get(used.above.inode)
            used.above = used = above if isinstance(above, Record) else used.above
        while len(self._opened) > self._opened_nodes:
            self._park(self._opened.popitem(last=False)[1])

    def _park(self, unused: Used) -> None:
        if isinstance(unused, Record):
            if unused.version is None and unused.kind != "directory":
                self._parked[unused.inode] = unused
            unused.park()
            return
        space = unused.space
        unused.park()
        if space is not None:
            self._spaces.pop(unused.identity, None)  # absent if the space was opened only just now
        self._released(unused.inode, space)
