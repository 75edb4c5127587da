"""The model: what every format is read into and every layout is made from.

Abstract base classes and frozen dataclasses only. What only some formats can do is a method of the base class, and its
default says no. Not here: what describes an array (`metadata.py`), any I/O, any format's spelling (`formats/`), any file
name of the tree (`layouts/`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias

from fsbridge.metadata import JSON, ArrayMetadata, Format, Index, Origin


class ChunkInfo(NamedTuple):
    """What is known of one stored chunk. It holds nothing open, and reading checks that the chunk is still this one.

    `version` changes whenever the stored bytes may have changed (P9); `stored` is the stored size in bytes (0: not known
    without more I/O), `mtime_ns` the stored object's. `location` belongs to the format (byte range, filter mask, ...).
    `settled`: a change from now on shows in the version (False just after one, within a tick of the store's clock).
    `changed_ns`: when the stored object was changed or put there last, or later (`time.time_ns`); 0: not known.
    """

    version: Hashable
    stored: int
    mtime_ns: int
    location: Any = None
    settled: bool = True
    changed_ns: int = 0


Pairs: TypeAlias = Sequence[tuple[int, int]]
"""Stored chunks below a prefix: the next coordinate of each, and an mtime in ns."""


class OpenChunk(NamedTuple):
    """A stored chunk that has been opened, to be read without a second look-up. The caller that opened it closes it.

    It has no decoded bytes: for these `decoded.DecodedChunk` finds the chunk again by its `info`.
    """

    info: ChunkInfo
    read_into: Callable[[memoryview], None]
    """Decodes the chunk as `Chunks.read_into` does."""
    held: Any = None
    """What of the store is held open; None if reading finds the chunk again."""

    def close(self) -> None:
        """Release what is held open."""
        if self.held is not None:
            self.held.close()


class Chunks(ABC):
    """The stored chunks of one array: blocking, thread-safe. Missing chunks are NotFound, damaged ones CorruptData."""

    __slots__ = ()

    @abstractmethod
    def find(self, index: Index) -> ChunkInfo:
        """Return the chunk that is stored at `index` now."""

    @abstractmethod
    def find_prefix(self, prefix: Index) -> int:
        """Return the mtime (ns) of the set of chunks stored below `prefix` (shorter than the rank); NotFound if none are."""

    @abstractmethod
    def scan(self, prefix: Index) -> Iterator[Pairs]:
        """Yield what is stored below `prefix`, in batches.

        Each coordinate comes once, in a stable order, sorted within a batch; none lies outside the grid. An empty batch
        says that the store is still at work.
        """

    @abstractmethod
    def read_into(self, index: Index, info: ChunkInfo, out: memoryview) -> None:
        """Decode a chunk of known size into exactly `out` (writable, contiguous bytes of any alignment).

        Raises Stale when the stored chunk is no longer the one of `info`.
        """

    @abstractmethod
    def read_all(self, index: Index, info: ChunkInfo, limit: int) -> bytes | bytearray | memoryview:
        """Decode a chunk of unknown size (`chunk_bytes` is None).

        CorruptData or TooLarge if it has more than `limit` bytes, and then without having made many more.
        """

    @abstractmethod
    def size(self, index: Index, info: ChunkInfo) -> int:
        """Return the decoded size of a chunk in bytes if `chunk_bytes` is None (may have to decode it)."""

    @abstractmethod
    def count(self) -> int:
        """Return the number of stored chunks (may have to scan them all); raises the damage that it meets on the way."""

    # What only some chunks can do: each default means that these cannot

    def open(self, index: Index, neighbour: OpenChunk | None = None) -> OpenChunk:
        """Open the chunk that is stored at `index` now. Raises what `find` does.

        `neighbour`: a chunk that the same thread has opened and not closed yet. If both are in one stored object that is
        held open, the chunk is the one that was there when `neighbour` was opened.
        """
        info = self.find(index)
        return OpenChunk(info, partial(self.read_into, index, info))

    @property
    def in_parts(self) -> bool:
        """True if some chunk may be decoded in parts (`step`, `read_part`)."""
        return False

    def step(self, index: Index, info: ChunkInfo) -> int | None:
        """Return the decoded size in bytes of the smallest part that can be decoded alone; None: only the whole chunk."""
        return None

    def read_part(self, index: Index, info: ChunkInfo, start: int, out: memoryview) -> None:
        """Fill `out` with decoded bytes of a chunk that has a `step`, from `start` on. Raises what `read_into` raises."""
        raise NotImplementedError

    def read_range(self, index: Index, info: ChunkInfo, start: int, stop: int) -> bytes | None:
        """Return bytes [start, stop) of the decoded chunk without decoding all; None if the codec allows no short cut."""
        return None

    def find_all(self, indices: Sequence[Index]) -> Mapping[Index, ChunkInfo | None]:
        """Return what `find` does for those of the chunks that can be found together; None for one that is not stored."""
        return {}

    def listed_sizes(self, indices: Sequence[Index]) -> Mapping[Index, int]:
        """Return the number of stored bytes of those of the chunks that a remembered listing shows. Makes no request."""
        return {}

    def removed_ns(self, indices: Collection[Index]) -> int:
        """Return when one of these missing chunks may have been removed last, or later (`time.time_ns`); 0: not known.

        Their directory tells: its version changes with each member that comes or goes.
        """
        return 0

    def mtime_ns(self) -> int:
        """Return the mtime (ns) of what holds the stored chunks, even if there are none; 0 if it holds the metadata, too."""
        return 0

    def commit(self) -> Hashable:
        """Return a value that differs whenever many chunks have changed at once.

        They change by a commit, or because another directory has taken the place of the array's. None if chunks change
        one by one.
        """
        return None

    def strays(self) -> Iterator[str]:
        """Describe the stored objects among the chunks that are no chunk of the grid. Blocking; lists them all."""
        return iter(())

    def other_names(self) -> Iterator[Sequence[str]]:
        """Yield names in the array's directory that no chunk or document can have, in batches. Blocking.

        An empty batch says that the store is still at work.
        """
        return iter(())


class Child(NamedTuple):
    """A member of a group as a listing gives it: nothing has been read of it yet.

    `link` is a symlink's target.
    """

    name: str
    mtime_ns: int
    link: str | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """A link of the source: `target` is the POSIX path, relative to the group that holds it, in model names.

    Components are separated by `/`; a name that itself contains `/` cannot be a link's target.
    """

    target: str

    kind: ClassVar[Literal["link"]] = "link"


class OtherFile(NamedTuple):
    """A stored file that belongs to no array or group, as a listing of its directory gives it.

    `size` in bytes; None if it cannot be found out, for example because it is a link that leads nowhere.
    """

    name: str
    size: int | None
    mtime_ns: int


class _GroupOrArray(ABC):  # noqa: B024  # its abstract property is declared for mypy only
    """What groups and arrays have in common."""

    __slots__ = ()

    if TYPE_CHECKING:  # an attribute or a property

        @property
        @abstractmethod
        def mtime_ns(self) -> int:
            """Modification time of the stored group, or of the array's metadata."""

    def directory_ns(self) -> int | None:
        """Return the mtime (ns) that a listing gives for the node's directory (`Child.mtime_ns`). None: use `mtime_ns`."""
        return None

    def skipped(self) -> Iterator[str]:
        """Describe what belongs to the node and is not shown: a reader takes it for absent. Blocking."""
        return iter(())

    def other_file(self, name: str) -> StoredFile | None:
        """Return the present version of a file in the node's directory that belongs to no array or group. Blocking.

        None if there is none.
        """
        return None


class StoredFile(Protocol):
    """One version of a stored file that is shown as it is. Its methods block, and raise Stale if it has changed."""

    @property
    def size(self) -> int: ...

    @property
    def mtime_ns(self) -> int: ...

    @property
    def version(self) -> Hashable: ...

    @property
    def is_remote(self) -> bool:
        """True if reading takes requests, so that `fetch` is worth a call."""

    def settled(self) -> bool:
        """True if any later change of the file shows in its version."""

    def read(self, start: int, length: int) -> bytes | memoryview:
        """Return exactly these bytes of the version."""

    def fetch(self, start: int, length: int) -> None:
        """Prefetch these bytes. Does not wait for them."""


class Group(_GroupOrArray):
    """An opened group; each call sees the store as it is now. Blocking, thread-safe."""

    __slots__ = ()

    kind: ClassVar[Literal["group"]] = "group"

    @abstractmethod
    def attributes(self) -> Mapping[str, JSON]:
        """Return the user attributes as JSON values."""

    @abstractmethod
    def children(self) -> Iterator[Child]:
        """Yield the members in a stable order; names are the source's own, unescaped (surrogates: undecodable bytes)."""

    @abstractmethod
    def child(self, name: str) -> Node:
        """Open the member `name`; NotFound if there is none, CorruptData or Unsupported if it cannot be shown."""

    # What only some groups have or can do

    @property
    def version(self) -> Hashable:
        """Return the version of the group's own documents: equal versions have equal attributes (blocking).

        The default equals nothing.
        """
        return object()

    @property
    def listing_version(self) -> Hashable:
        """Return the version of the group's listing: equal versions have members of the same names (blocking).

        The default equals nothing.
        """
        return object()

    def current(self) -> bool:
        """True if this is still what is at the group's path. False also if only the groups above it can tell (blocking)."""
        return False

    def native(self) -> Mapping[str, JSON]:
        """Return the source's own metadata documents by name."""
        return {}

    def whole_file(self) -> StoredFile | None:
        """Return the HDF5 file that the group is the root of (blocking).

        None if there is none, or if its bytes alone may not be enough for every program that reads HDF5.
        """
        return None

    def listing(self, others: Callable[[OtherFile], object]) -> Iterator[Child]:
        """Yield what `children` does. `others` gets each other file that the same listing of the store comes across."""
        return self.children()

    def is_plain(self) -> bool:
        """True for a directory of other files alone: no document of an array or group lies in it or below. Blocking."""
        return False

    def copies(self) -> int:
        """Return how many members below have copies in the group's own documents (consolidated metadata). Blocking."""
        return 0

    def contradictions(self) -> Iterator[str]:
        """Describe documents of members below that differ from their copy in the group's own documents, or have none."""
        return iter(())

    @property
    def costly(self) -> bool:
        """True if looking for a member takes requests, so that `lacks` is worth a call."""
        return False

    def lacks(self, name: str) -> bool:
        """True if a listing that is already available, and may be old, has no member `name`."""
        return False

    def prefetch(self, members: Iterable[str]) -> None:
        """Prefetch what the documents of the group and of these members say, if they are remote. Does not block."""
        return


class Array(_GroupOrArray):
    """An opened array: an immutable view of one version of its metadata, and its chunks as they are now."""

    __slots__ = ()

    kind: ClassVar[Literal["array"]] = "array"

    metadata: ArrayMetadata
    version: Hashable
    """Equal versions have equal metadata."""
    chunks: Chunks

    @abstractmethod
    def current(self) -> bool:
        """True if the store still holds this version of the metadata (blocking)."""

    @property
    def fetch(self) -> Callable[[Index], object] | None:
        """A function that prefetches a chunk's stored bytes and raises nothing; None if that is of no use."""
        return None

    def watch(self) -> Origin | None:
        """Return something small that tells whether the metadata are current. None: the array itself tells it."""
        return None

    def other_files(self) -> Iterator[Sequence[OtherFile]]:
        """Yield the files in the array's directory that are no chunks and no documents, in batches. Blocking.

        An empty batch says that the store is still at work.
        """
        return iter(())


Node: TypeAlias = Group | Array | Link


def as_array(node: Node) -> Array | None:
    """Return `node` if it is an array, else None."""
    return node if node.kind == "array" else None


class Source(ABC):
    """An opened hierarchy of some format."""

    __slots__ = ()

    if TYPE_CHECKING:  # attributes or properties

        @property
        @abstractmethod
        def format(self) -> Format: ...

        @property
        @abstractmethod
        def root(self) -> Group | Array: ...

    @abstractmethod
    def close(self) -> None:
        """Release descriptors and child processes."""

    def format_at(self, path: Sequence[str]) -> Format:
        """Return the format of what was opened at `path`: in a collection, that of the member that it belongs to."""
        return self.format

    @property
    def remark(self) -> str | None:
        """Return a sentence about what has not been looked at so far; None if there is nothing to say."""
        return None

    @property
    def rests(self) -> bool:
        """True if `rest` may close what the source holds open while its nodes are in use: they open it again."""
        return False

    @property
    def lease(self) -> object:
        """An object that every node of the source references. While it lives, a node may be in use."""
        return self

    def rest(self) -> None:
        """Give up what can be opened again. Does not block."""
        return
