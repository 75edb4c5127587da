"""What the kernel side may know of a mounted tree: directories, files, links, their attributes and names.

A layout builds these nodes from the model; `kernel/filesystem.py` turns them into replies. Not here: stores, codecs,
formats, inode numbers of the kernel. A method may block unless it says otherwise. The kernel side calls it on the
event loop first, where `asking` forbids it to wait, and again on a worker thread when it raises WouldWait.

Identity. A node is identified by its parent, its name and its `version`: when the version changes it becomes a new node
with a new inode, so the kernel's page cache never mixes two versions. Nodes of a `Space` are numbered instead of
remembered, because a listing of ten million chunk files must not cost ten million objects.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, overload

from fsbridge.errors import CorruptData, NameTooLong

Buffer: TypeAlias = bytes | memoryview
Kind: TypeAlias = Literal["directory", "file", "link"]

MAX_NAME = 255
"""NAME_MAX of Linux, in bytes."""


class Attrs(NamedTuple):
    """What `stat` shows. `size` is in bytes; None: only `File.measure` finds it out (chunks of variable length)."""

    kind: Kind
    size: int | None
    mtime_ns: int


class Node(ABC):
    """Anything with a name in the tree."""

    __slots__ = ()

    if TYPE_CHECKING:  # an attribute or a property

        @property
        @abstractmethod
        def version(self) -> Hashable:
            """Equal versions of the same path are the same node (does not block)."""

    @abstractmethod
    def attrs(self) -> Attrs: ...

    # What only some nodes have or can do: each default is right for all others

    @property
    def slot(self) -> tuple[Space, int] | None:
        """Space and position of a numbered node; None for all others (does not block)."""
        return None

    def xattrs(self) -> Mapping[str, bytes]:
        """Return the extended attributes by full name (`user.fsbridge.format`)."""
        return {}

    def let_go(self) -> None:
        """Break reference cycles, because the kernel has forgotten the node.

        Its memory is then free at once; the collector would free the nodes of a large tree too late.
        """
        return

    def settle(self) -> None:
        """Find out the present version, after a look-up has found another one than the node's, or after a Stale opening.

        The kernel looks the node up again, and no more than once: the open that follows must not be the first to see a
        change. Only for nodes whose version may be outdated although they were not opened. May block, and raise what an open
        does.
        """
        return


class Ready:
    """An opener of a node that exists already, so it never waits."""

    __slots__ = ("node",)

    def __init__(self, node: AnyNode) -> None:
        self.node = node

    def __call__(self) -> AnyNode:
        return self.node


class Entry(NamedTuple):
    """A member of a directory, before it has been looked up.

    `node` is the position in the directory's space, or a function that opens the node, or None if the node must be looked
    up. A listing opens nothing: the function is called when the node is used, at most once per lookup. `version` is that
    node's version, if the listing knows it.
    """

    name: bytes
    attrs: Attrs
    node: int | Callable[[], AnyNode] | None
    version: Hashable = None


class Unsettled:
    """A version just after a change, which a further change might not alter. It equals nothing, so no two opens share it."""

    __slots__ = ("version",)

    def __init__(self, version: Hashable) -> None:
        self.version = version


class Dated(list[Entry]):
    """A batch of a listing that was true at the time `asked` (`time.monotonic`). It may be of an earlier listing."""

    __slots__ = ("asked",)

    def __init__(self, entries: Iterable[Entry], asked: float) -> None:
        super().__init__(entries)
        self.asked = asked


@dataclass(frozen=True, slots=True)
class Numbered(Sequence[Entry]):
    """A dated batch of entries that differ in a number and an mtime only; long listings need no object for each.

    Each of `pairs` is a number and an mtime in ns. The number's decimal spelling is the name, `first` plus it the position.
    `asked`: as for `Dated`; the kernel side sets it.
    """

    kind: Kind
    size: int
    first: int
    pairs: Sequence[tuple[int, int]]
    asked: float = -math.inf

    def __len__(self) -> int:
        return len(self.pairs)

    @overload
    def __getitem__(self, index: int) -> Entry: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Entry]: ...

    def __getitem__(self, index: int | slice) -> Entry | Sequence[Entry]:
        if isinstance(index, slice):
            return replace(self, pairs=self.pairs[index])
        number, mtime_ns = self.pairs[index]
        return Entry(b"%d" % number, Attrs(self.kind, self.size, mtime_ns), self.first + number)


class Contents(ABC):
    """What one listing shows of a directory."""

    __slots__ = ()

    @property
    def space(self) -> Space | None:
        """The space that integer `Entry.node` positions refer to (does not block)."""
        return None

    @property
    def extent(self) -> int:
        """Estimate the number of members, 0 if it is not known yet (does not block)."""
        return 0

    @abstractmethod
    def entries(self) -> Iterator[Sequence[Entry]]:
        """Yield all members in batches, each name once, in a stable order while nothing changes.

        An empty batch says that the directory is still at work, so that a long wait is not taken for a hang.
        """


class Directory(Node, Contents):
    """A directory. It is read-only, and what it contains may change between two calls."""

    __slots__ = ()

    version: Hashable = None  # mostly it stays the same node, whatever it contains

    @abstractmethod
    def lookup(self, name: bytes) -> AnyNode:
        """Return the member `name`; NotFound if there is none."""

    def refresh(self) -> Contents:
        """Return what a new listing shows: this directory, or fresh contents if another space may have replaced its own."""
        return self


class Handle(ABC):
    """An open file: one version of its bytes."""

    __slots__ = ()

    size: int
    """Bytes of this version of the file; every read is checked against it."""
    version: Hashable
    """Versions of equal bytes may be equal: they share the kernel's page cache."""

    @abstractmethod
    def read(self, offset: int, size: int) -> Buffer:
        """Return exactly the bytes [offset, min(offset + size, file size)), or raise an error (Stale, CorruptData, ...)."""

    def peek(self, offset: int, size: int) -> Buffer | None:
        """Return the bytes if they are in memory, else None. Never blocks; called on the event loop."""
        return None

    @property
    def window(self) -> int:
        """Return how many bytes to prefetch at a time for a sequential reader (does not block).

        0: nothing is prefetched, because the bytes come all at once or `Space.prefetch` makes them ready.
        """
        return 0

    def prefetch(self, start: int, stop: int) -> None:
        """Make bytes [start, stop) ready before they are asked for, as far as there is room. Raises the errors of `read`."""
        return

    def close(self) -> None:
        """Give up what the handle holds. Never blocks; called on the event loop."""
        return


class File(Node):
    """A regular file. If its `version` is None, it may change its bytes, but never its size: the kernel remembers that."""

    __slots__ = ()

    version: Hashable

    @abstractmethod
    def open(self) -> Handle:
        """Open the present version; Stale if the object is no longer the one this node stands for."""

    @property
    def pinned(self) -> File | None:
        """Return the version of a numbered node that a look-up has just found, as a node of its own (does not block).

        This node stands in for the numbered one while an outdated version is open, or if the version is `Unsettled`.
        """
        return None

    def measure(self) -> Attrs:
        """Return `attrs` with the size, even if to find it out takes as long as reading, so that `attrs` has None."""
        return self.attrs()

    @property
    def size_seconds(self) -> float:
        """The most seconds that a request waits for `measure`, if these are fewer than for a read."""
        return math.inf


class Symlink(Node):
    """A symbolic link."""

    __slots__ = ()

    if TYPE_CHECKING:  # an attribute or a property

        @property
        @abstractmethod
        def target(self) -> bytes:
            """The path that the link leads to, as readlink(2) returns it."""


AnyNode: TypeAlias = Directory | File | Symlink


class Space(ABC):
    """Nodes with positions that are computed, not kept in memory: the chunk tree of one array version."""

    __slots__ = ()

    identity: Hashable
    """Spaces of equal identity have the same nodes at the same positions; others never have an equal one."""

    if TYPE_CHECKING:  # an attribute or a property

        @property
        @abstractmethod
        def size(self) -> int:
            """Number of positions."""

    @abstractmethod
    def node(self, position: int) -> AnyNode:
        """Return the node at `position`, whether or not the store has it (does not block)."""

    @abstractmethod
    def name(self, position: int) -> str:
        """Return the path of the node at `position`, below the directory that the space hangs in, for people."""

    @abstractmethod
    def level(self, position: int) -> range:
        """Return the positions of all directories that are as deep as the one at `position` (does not block)."""

    def fetch(self, position: int) -> bool:
        """Prefetch the stored bytes of the file at `position` if they are remote; hardly waits, and raises nothing.

        False if there is nothing to fetch before the file is made ready, because its bytes are local.
        """
        return False

    def prefetch(self, positions: Sequence[int]) -> int | None:
        """Make the files at `positions` ready before they are opened, in this order. What fails is left to its reader.

        Returns the first position for which there was no room; None when there was room for all. May block.
        """
        return None


def escape(name: str) -> bytes:
    """Return a source's name as a file name, reversibly: `%XX` for `/`, `%`, control bytes, and for the names `.` and `..`.

    Bytes that are no UTF-8 (surrogates in `name`) stay as they are. The empty name becomes `%`, which no other name can
    become. Raises NameTooLong above 255 bytes, CorruptData for a lone surrogate that no bytes decode to (JSON can name one).
    """
    try:
        raw = name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise CorruptData(f"{name!r} is no text") from None
    if raw == b"":
        return b"%"
    if raw in (b".", b".."):
        return b"".join(b"%%%02X" % byte for byte in raw)
    if any(byte in _ESCAPED for byte in raw):
        raw = b"".join(b"%%%02X" % byte if byte in _ESCAPED else bytes((byte,)) for byte in raw)
    if len(raw) > MAX_NAME:
        raise NameTooLong(f"the name has {len(raw)} bytes, the limit is {MAX_NAME}: {name[:60]!r}...")
    return raw


def unescape(name: bytes) -> str | None:
    """Return the source's name behind a file name; None if `escape` never makes such a file name."""
    if name == b"%":
        return ""
    parts = name.split(b"%")
    raw = bytearray(parts[0])
    for part in parts[1:]:
        try:
            raw.append(int(part[:2].decode("ascii"), 16))
        except ValueError:
            return None
        raw += part[2:]
    text = bytes(raw).decode("utf-8", "surrogateescape")
    try:
        return text if escape(text) == name else None
    except (NameTooLong, CorruptData):
        return None


_ESCAPED = frozenset(b"/%\x7f") | frozenset(range(0x20))
