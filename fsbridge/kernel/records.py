"""Entries of the inode table for nodes and spaces in use: how each is opened, and opened again after it was parked.

Not here: numbers and counts (`inode_rows.py`), which of them stay open (`inodes.py`). `open` is for any thread, the rest for
the event loop's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeAlias, cast

from fsbridge.errors import Stale
from fsbridge.kernel.inode_rows import KINDS, Row
from fsbridge.tree import AnyNode, Directory, Space


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
            # What a listing has named as a directory asks the store when it is used, and is one for as long as it is there.
            told = opener is not None and self.kind == "directory"
            if node.version != self.version or not (told or node.attrs().kind == self.kind):
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
            directory.attrs()  # a directory has the space of what it has last looked at
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
    """A node of a space that is parked; `node` is None until it is opened."""

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
