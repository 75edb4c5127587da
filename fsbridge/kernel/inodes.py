"""The inode table: which node of the tree a number of the kernel stands for, and how often the kernel knows it.

Two kinds of numbers. Ordinary nodes get one number each and are remembered from their first lookup to the kernel's last
`forget`. Nodes of a `Space` (the chunk tree of one array version) get `base + position` out of a range that the space
owns: one record and one lookup count for all of them, so ten million listed chunk files cost nothing. Numbers are never
given twice.

The identity of an ordinary node is (parent, name, version): another version is another inode, so the kernel never mixes
the pages of two. The kernel may know a million of them, so only those used last are kept open; the others are parked: their
parent and name are remembered, and they are opened again when they are used. Not here: FUSE replies, handles. Not
thread-safe: the event loop's thread owns the table; only `open` of what `find` gives and `known_base` are for other threads.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeAlias, cast

from fsbridge.errors import Stale
from fsbridge.tree import AnyNode, Directory, Entry, Kind, Ready, Space, let_go

ROOT = 1

MAX_SPACE = 1 << 40
"""Positions of the largest space that gets a range: 2^63 / 2^40 leaves room for eight million such ranges in one mount."""

OPENED_NODES = 4096
"""Nodes and spaces that stay open: an array takes about 8 KiB with its metadata and its space, a parked one under 1 KiB."""

_Key: TypeAlias = tuple[int, bytes] | tuple[Space, int]


class Record:
    """One ordinary inode. `node` is None until somebody uses a node that a listing has merely named, and while it is parked.

    `above` is the record of the directory it is in; None when that has none, and then the node is never parked.
    """

    __slots__ = ("above", "count", "inode", "key", "kind", "name", "node", "opener", "parent", "version")

    def __init__(self, inode: int, key: _Key, parent: int, name: bytes, kind: Kind, above: Record | None) -> None:
        self.inode = inode
        self.key = key
        self.parent = parent
        self.name = name
        self.kind: Kind = kind
        self.above = above
        self.count = 0
        self.node: AnyNode | None = None
        self.opener: Callable[[], AnyNode] | None = None
        self.version: Hashable = None

    @property
    def versioned(self) -> bool:
        """Whether this inode stands for one version of its content only."""
        return self.version is not None

    def open(self) -> AnyNode:
        """The node, opened now if need be. May block; safe on several threads (the first node wins)."""
        node = self.node
        if node is None:
            opener = self.opener
            if opener is not None:
                node = opener()
            else:
                assert self.above is not None
                node = cast(Directory, self.above.open()).lookup(self.name)
            if self.version is None:
                self.version = node.version
            # What a listing has named as a directory asks the store when it is used, and is one for as long as it is there.
            told = opener is not None and self.kind == "directory"
            if node.version != self.version or not (told or node.attrs().kind == self.kind):
                raise Stale(f"{self.name.decode('utf-8', 'replace')}: changed since it was listed")
            found = self.node  # another thread's, perhaps
            if found is not None:
                return found
            self.node = node
        return node

    @property
    def is_open(self) -> bool:
        """Whether it takes no other record to open it."""
        return self.node is not None or self.opener is not None

    def park(self) -> None:
        """Forget the node; `open` finds it again."""
        let_go(self.node)
        self.node = self.opener = None


class _Range:
    """The numbers of one space: `base` to `base + size - 1`. `parent` is the directory it was first seen in."""

    __slots__ = ("above", "base", "count", "identity", "parent", "size", "space")

    def __init__(self, base: int, space: Space, parent: int, above: Record | None) -> None:
        self.base = base
        self.size = space.size
        self.identity = space.identity
        self.space: Space | None = space
        self.parent = parent
        self.above = above
        self.count = 0

    def open(self) -> Space:
        """The space, which is its directory's; Stale when that has another one by now. May block."""
        space = self.space
        if space is None:
            assert self.above is not None
            directory = cast(Directory, self.above.open())
            directory.attrs()  # a directory has the space of what it has last looked at
            space = directory.space
            if space is None or space.identity != self.identity:
                raise Stale(f"{self.above.name.decode('utf-8', 'replace')}: changed since it was last used")
            self.space = space
        return space

    @property
    def is_open(self) -> bool:
        """Whether it takes no record to open it."""
        return self.space is not None

    def park(self) -> None:
        """Forget the space; `open` finds it again."""
        self.space = None


class Parked:
    """A node of a space that is parked; `node` is None until it is opened."""

    __slots__ = ("_owner", "_position", "node")

    def __init__(self, owner: _Range, position: int) -> None:
        self._owner = owner
        self._position = position
        self.node: AnyNode | None = None

    def open(self) -> AnyNode:
        """The node. May block."""
        self.node = self._owner.open().node(self._position)
        return self.node


class InodeTable:
    """See the module's text."""

    def __init__(self, root: Directory, released: Callable[[Space], object] = lambda space: None) -> None:
        """`released` is told of each space that is parked, or whose last number the kernel has forgotten."""
        record = Record(ROOT, (0, b""), 0, b"", "directory", None)
        record.node = root
        self._records: dict[int, Record] = {ROOT: record}
        self._current: dict[_Key, Record] = {}
        self._ranges: dict[Hashable, _Range] = {}
        self._opened: OrderedDict[int, Record | _Range] = OrderedDict()
        self._bases: list[int] = []
        self._by_base: list[_Range] = []
        self._next = ROOT + 1
        self._released = released

    def __len__(self) -> int:
        return len(self._records) + len(self._ranges)

    def find(self, inode: int) -> Record | Parked | AnyNode:
        """The record of an ordinary inode, or the node of a numbered one; Stale for a number nobody has."""
        record = self._records.get(inode)
        if record is not None:
            self._used(inode, record)
            return record
        owner = self._owner(inode)
        self._used(owner.base, owner)
        space = owner.space
        return Parked(owner, inode - owner.base) if space is None else space.node(inode - owner.base)

    def looked_up(self, parent: int, name: bytes, node: AnyNode, kind: Kind) -> int:
        """The inode of a node that a lookup found; counts one lookup."""
        if node.slot is not None:
            return self._numbered(parent, name, *node.slot, kind)
        key = (parent, name)
        record = self._current.get(key)
        if record is not None and record.kind == kind:
            if record.node is None and record.version is None:
                record.version = node.version  # only named by a listing so far: nothing of it is cached
            if record.version == node.version:
                if record.node is None:  # an opened node stays, and with it its space and what that has learnt
                    record.node = node
                elif record.node is not node:
                    let_go(node)
                self._used(record.inode, record)
                record.count += 1
                return record.inode
        record = self._allocate(key, parent, name, kind)
        record.node = node
        record.version = node.version
        self._used(record.inode, record)
        return record.inode

    def listed(self, parent: int, entry: Entry, space: Space | None) -> tuple[int, bool]:
        """The inode of a directory entry, and whether the kernel may rely on it; counts one lookup.

        False: the listing does not know the entry's version while a version of it is in use, so the next use of the name
        must look it up.
        """
        name, attrs, node, version = entry
        if isinstance(node, int):
            if space is None:
                raise TypeError(f"{name!r} has a position, its directory has no space")
            return self._numbered(parent, name, space, node, attrs.kind), True
        record = self._current.get((parent, name))
        if record is not None and record.kind == attrs.kind and (version is None or record.version == version):
            record.count += 1
            if version is not None and not record.is_open:  # parked: here it is again
                self._named(record, node)
            return record.inode, version is not None or record.version is None
        record = self._allocate((parent, name), parent, name, attrs.kind)
        record.version = version
        self._named(record, node)
        return record.inode, True

    def _named(self, record: Record, opener: Callable[[], AnyNode]) -> None:
        """A listing has told how the node is opened."""
        record.opener = opener
        if isinstance(opener, Ready):
            record.node = opener.node
        self._used(record.inode, record)

    def base(self, parent: int, space: Space) -> int | None:
        """First number of a space's range, allocated if need be; None for a space too large to have one.

        Whoever asks must count what it tells the kernel with `count`, before control returns to the event loop.
        """
        owner = self._range(parent, space)
        return None if owner is None else owner.base

    def number(self, space: Space, position: int) -> int | None:
        """The inode of a numbered node, if there is one."""
        owner = self._ranges.get(space.identity)
        if owner is not None:
            return owner.base + position
        record = self._current.get((space, position))
        return None if record is None else record.inode

    def known_base(self, space: Space) -> int | None:
        """First number of a space's range if the kernel may know one of them. For any thread: numbers are given once."""
        owner = self._ranges.get(space.identity)
        return None if owner is None else owner.base

    def count(self, space: Space, lookups: int) -> None:
        """Count `lookups` replies with numbers of `space` (one listing's worth); a range nobody knows is given up."""
        owner = self._ranges[space.identity]
        owner.count += lookups
        if owner.count <= 0:
            self._release(owner)

    def forget(self, inode: int, lookups: int) -> None:
        """The kernel has dropped `lookups` references; the last one frees the inode. Unknown numbers are ignored."""
        record = self._records.get(inode)
        if record is not None:
            record.count -= lookups
            if record.count <= 0 and inode != ROOT:
                del self._records[inode]
                self._opened.pop(inode, None)
                let_go(record.node)
                if self._current.get(record.key) is record:
                    del self._current[record.key]
            return
        try:
            owner = self._owner(inode)
        except Stale:
            return
        owner.count -= lookups
        if owner.count <= 0:
            self._release(owner)

    def park(self) -> None:
        """Park all nodes and spaces."""
        while self._opened:
            self._park(self._opened.popitem()[1])

    def record(self, inode: int) -> Record | None:
        """The record of an ordinary inode; None for a numbered or an unknown one."""
        return self._records.get(inode)

    def member(self, parent: int, name: bytes) -> Record | None:
        """The record of the member `name` as the kernel was last told of it."""
        return self._current.get((parent, name))

    def knows(self, inode: int) -> bool:
        """Whether the kernel may know that inode."""
        if inode in self._records:
            return True
        index = bisect_right(self._bases, inode) - 1
        return index >= 0 and inode - self._bases[index] < self._by_base[index].size

    def position(self, inode: int) -> int | None:
        """Where a numbered inode is in its space; None for all others."""
        if inode in self._records:
            return None
        index = bisect_right(self._bases, inode) - 1
        return None if index < 0 else inode - self._bases[index]

    def parent(self, inode: int) -> int:
        """The inode of the directory above; the root's is the root."""
        record = self._records.get(inode)
        if record is not None:
            return record.parent or ROOT
        return self._owner(inode).parent

    def path(self, inode: int) -> str:
        """The path inside the mount, for people; of a numbered node the path of the directory its space hangs in."""
        names: list[bytes] = []
        record = self._records.get(inode)
        if record is None:
            try:
                inode = self._owner(inode).parent
            except Stale:
                return "?"
            record = self._records.get(inode)
            names.append(b"...")
        while record is not None and record.inode != ROOT:
            names.append(record.name)
            record = self._records.get(record.parent)
        if record is None:
            names.append(b"?")
        return "/" + b"/".join(reversed(names)).decode("utf-8", "backslashreplace")

    def _allocate(self, key: _Key, parent: int, name: bytes, kind: Kind) -> Record:
        record = Record(self._next, key, parent, name, kind, self._records.get(parent))
        record.count = 1
        self._next += 1
        self._records[record.inode] = record
        self._current[key] = record
        return record

    def _numbered(self, parent: int, name: bytes, space: Space, position: int, kind: Kind) -> int:
        owner = self._range(parent, space)
        if owner is not None:
            owner.count += 1
            return owner.base + position
        record = self._current.get((space, position))
        if record is None:
            record = self._allocate((space, position), parent, name, kind)
            record.above = None  # it hangs on its space, not on its name
            record.node = space.node(position)
        else:
            record.count += 1
        return record.inode

    def _range(self, parent: int, space: Space) -> _Range | None:
        owner = self._ranges.get(space.identity)
        if owner is None and space.size <= MAX_SPACE:
            owner = self._ranges[space.identity] = _Range(self._next, space, parent, self._records.get(parent))
            self._next += max(1, space.size)
            self._bases.append(owner.base)  # numbers only grow, so the list stays sorted
            self._by_base.append(owner)
        if owner is not None:
            owner.space = owner.space or space
            self._used(owner.base, owner)
        return owner

    def _used(self, number: int, used: Record | _Range) -> None:
        """Note that a node or space is in use, with all that must be opened before it, and park what was not for longest."""
        while used.above is not None:
            self._opened[number] = used
            self._opened.move_to_end(number)
            if used.is_open:
                break
            number, used = used.above.inode, used.above
        while len(self._opened) > OPENED_NODES:
            self._park(self._opened.popitem(last=False)[1])

    def _park(self, unused: Record | _Range) -> None:
        space = unused.space if isinstance(unused, _Range) else None
        unused.park()
        if space is not None:
            self._released(space)

    def _release(self, owner: _Range) -> None:
        index = bisect_right(self._bases, owner.base) - 1
        del self._bases[index], self._by_base[index], self._ranges[owner.identity]
        self._opened.pop(owner.base, None)
        self._park(owner)

    def _owner(self, inode: int) -> _Range:
        index = bisect_right(self._bases, inode) - 1
        if index >= 0:
            owner = self._by_base[index]
            if inode - owner.base < owner.size:
                return owner
        raise Stale(f"inode {inode} is unknown")
