"""The inode table: which node of the tree a number of the kernel stands for, and how often the kernel knows it.

Two kinds of numbers. Ordinary nodes get one number each and are remembered from their first lookup to the kernel's last
`forget`. Nodes of a `Space` (the chunk tree of one array version) get `base + position` out of a range that the space
owns: one record and one lookup count for all of them, so ten million listed chunk files cost nothing. Numbers are never
given twice.

The identity of an ordinary node is (parent, name, version): another version is another inode, so the kernel never mixes
the pages of two. Not here: FUSE replies, handles. Not thread-safe: the event loop's thread owns the table; only
`Record.open` and `known_base` are for other threads too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable
from typing import TypeAlias

from fsbridge.errors import Stale
from fsbridge.tree import AnyNode, Directory, Entry, Kind, Space

ROOT = 1

MAX_SPACE = 1 << 40
"""Positions of the largest space that gets a range: 2^63 / 2^40 leaves room for eight million such ranges in one mount."""

_Key: TypeAlias = tuple[int, bytes] | tuple[Space, int]


class Record:
    """One ordinary inode. `node` is None until somebody uses a node that a listing has merely named."""

    __slots__ = ("count", "inode", "key", "kind", "name", "node", "opener", "parent", "version")

    def __init__(self, inode: int, key: _Key, parent: int, name: bytes, kind: Kind) -> None:
        self.inode = inode
        self.key = key
        self.parent = parent
        self.name = name
        self.kind: Kind = kind
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
            assert self.opener is not None
            node = self.opener()
            if self.version is None:
                self.version = node.version
            if node.version != self.version or node.attrs().kind != self.kind:
                raise Stale(f"{self.name.decode('utf-8', 'replace')}: changed since it was listed")
            if self.node is None:
                self.node = node
            node = self.node
        return node


class _Range:
    """The numbers of one space: `base` to `base + space.size - 1`. `parent` is the directory it was first seen in."""

    __slots__ = ("base", "count", "parent", "space")

    def __init__(self, base: int, space: Space, parent: int) -> None:
        self.base = base
        self.space = space
        self.parent = parent
        self.count = 0


class InodeTable:
    """See the module's text."""

    def __init__(self, root: Directory, released: Callable[[Space], object] = lambda space: None) -> None:
        """`released` is told of each space whose last number the kernel has forgotten."""
        record = Record(ROOT, (0, b""), 0, b"", "directory")
        record.node = root
        self._records: dict[int, Record] = {ROOT: record}
        self._current: dict[_Key, Record] = {}
        self._ranges: dict[Space, _Range] = {}
        self._bases: list[int] = []
        self._by_base: list[_Range] = []
        self._next = ROOT + 1
        self._released = released

    def __len__(self) -> int:
        return len(self._records) + len(self._ranges)

    def find(self, inode: int) -> Record | AnyNode:
        """The record of an ordinary inode, or the node of a numbered one; Stale for a number nobody has."""
        record = self._records.get(inode)
        if record is not None:
            return record
        owner = self._owner(inode)
        return owner.space.node(inode - owner.base)

    def looked_up(self, parent: int, name: bytes, node: AnyNode, kind: Kind) -> int:
        """The inode of a node that a lookup found; counts one lookup."""
        if node.place is not None:
            return self._numbered(parent, name, *node.place, kind)
        key = (parent, name)
        record = self._current.get(key)
        if record is not None and record.kind == kind:
            if record.node is None and record.version is None:
                record.version = node.version  # only named by a listing so far: nothing of it is cached
            if record.version == node.version:
                if record.node is None:  # an opened node stays, and with it its space and their numbers
                    record.node = node
                record.count += 1
                return record.inode
        record = self._allocate(key, parent, name, kind)
        record.node = node
        record.version = node.version
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
            return record.inode, version is not None or record.version is None
        record = self._allocate((parent, name), parent, name, attrs.kind)
        record.opener = node
        record.version = version
        return record.inode, True

    def base(self, parent: int, space: Space) -> int | None:
        """First number of a space's range, allocated if need be; None for a space too large to have one.

        Whoever asks must count what it tells the kernel with `count`, before control returns to the event loop.
        """
        owner = self._range(parent, space)
        return None if owner is None else owner.base

    def number(self, space: Space, position: int) -> int | None:
        """The inode of a numbered node, if there is one."""
        owner = self._ranges.get(space)
        if owner is not None:
            return owner.base + position
        record = self._current.get((space, position))
        return None if record is None else record.inode

    def known_base(self, space: Space) -> int | None:
        """First number of a space's range if the kernel may know one of them. For any thread: numbers are given once."""
        owner = self._ranges.get(space)
        return None if owner is None else owner.base

    def count(self, space: Space, lookups: int) -> None:
        """Count `lookups` replies with numbers of `space` (one listing's worth); a range nobody knows is given up."""
        owner = self._ranges[space]
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
        record = Record(self._next, key, parent, name, kind)
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
            record.node = space.node(position)
        else:
            record.count += 1
        return record.inode

    def _range(self, parent: int, space: Space) -> _Range | None:
        owner = self._ranges.get(space)
        if owner is None and space.size <= MAX_SPACE:
            owner = self._ranges[space] = _Range(self._next, space, parent)
            self._next += max(1, space.size)
            self._bases.append(owner.base)  # numbers only grow, so the list stays sorted
            self._by_base.append(owner)
        return owner

    def _release(self, owner: _Range) -> None:
        index = bisect_right(self._bases, owner.base) - 1
        del self._bases[index], self._by_base[index], self._ranges[owner.space]
        self._released(owner.space)

    def _owner(self, inode: int) -> _Range:
        index = bisect_right(self._bases, inode) - 1
        if index >= 0:
            owner = self._by_base[index]
            if inode - owner.base < owner.space.size:
                return owner
        raise Stale(f"inode {inode} is unknown")
