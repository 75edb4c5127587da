"""The model: what every format is read into and every layout is made from.

Small protocols and frozen dataclasses only. Not here: what describes an array (`metadata.py`), any I/O, any format's
spelling (`formats/`), any file name of the tree (`layouts/`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias, overload

from fsbridge.metadata import JSON, ArrayMetadata, Index
from fsbridge.owner import Owner, Owners


class ChunkInfo(NamedTuple):
    """One stored chunk.

    `version` changes whenever the stored bytes may have changed (P9); `stored` is the stored size in bytes (0: not known
    without more I/O), `mtime_ns` the stored object's. `location` belongs to the format (byte range, filter mask, ...).
    `settled`: a change from now on shows in the version (False just after one, within a tick of the store's clock).
    `owner`: whose the stored object is.
    """

    version: Hashable
    stored: int
    mtime_ns: int
    location: Any = None
    settled: bool = True
    owner: Owner | None = None


@dataclass(frozen=True, slots=True)
class Batch(Sequence[tuple[int, int]]):
    """Stored chunks below a prefix, as the store was at the time `asked` (`time.monotonic`): of an earlier listing, perhaps.

    Each of `pairs` is the next coordinate and an mtime in ns. `owner`: of all of them; None: different ones, or not known.
    """

    pairs: Sequence[tuple[int, int]]
    asked: float
    owner: Owner | None = None

    def __len__(self) -> int:
        return len(self.pairs)

    @overload
    def __getitem__(self, index: int) -> tuple[int, int]: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[tuple[int, int]]: ...

    def __getitem__(self, index: int | slice) -> tuple[int, int] | Sequence[tuple[int, int]]:
        return self.pairs[index]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self.pairs)


class Chunks(Protocol):
    """The stored chunks of one array: blocking, thread-safe. Missing chunks are NotFound, damaged ones CorruptData."""

    def find(self, index: Index) -> ChunkInfo:
        """The stored chunk at `index` as of now."""

    def find_prefix(self, prefix: Index) -> int:
        """mtime (ns) of the set of stored chunks that begin with `prefix` (shorter than the rank); NotFound if none."""

    def scan(self, prefix: Index) -> Iterator[Sequence[tuple[int, int]]]:
        """What is stored below `prefix`, in batches: the next coordinate, with its mtime in ns.

        Each coordinate once, in a stable order, sorted within a batch; never a coordinate outside the grid. An empty batch
        says that the store is still at work; a `Batch` may be older than the call.
        """

    def read_into(self, index: Index, info: ChunkInfo, out: memoryview) -> None:
        """Decode a chunk of known size into exactly `out` (writable, contiguous bytes of any alignment).

        Raises Stale when the stored chunk is no longer the one of `info`.
        """

    def read_all(self, index: Index, info: ChunkInfo, limit: int) -> bytes | bytearray | memoryview:
        """Decode a chunk whose size is not known beforehand (`chunk_bytes` is None).

        CorruptData or TooLarge if it has more than `limit` bytes, and then without having made many more.
        """

    def read_range(self, index: Index, info: ChunkInfo, start: int, stop: int) -> bytes | None:
        """Bytes [start, stop) of the decoded chunk without decoding all of it; None where the codec allows no short cut."""

    def size(self, index: Index, info: ChunkInfo) -> int:
        """Decoded size in bytes of a chunk whose `chunk_bytes` is None (may have to decode it)."""

    def count(self) -> int:
        """Number of stored chunks (may have to scan them all); raises the damage that it meets on the way."""


class OpenChunk(Protocol):
    """A stored chunk that is read at once, without being looked for again. Closed by whoever opened it."""

    @property
    def info(self) -> ChunkInfo: ...

    def read_into(self, out: memoryview) -> None:
        """As `Chunks.read_into`."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class FoundChunk:
    """An `OpenChunk` of any chunks: nothing is held open, so reading finds it once more."""

    chunks: Chunks
    index: Index
    info: ChunkInfo

    def read_into(self, out: memoryview) -> None:
        self.chunks.read_into(self.index, self.info, out)

    def close(self) -> None:
        """Nothing is held."""


def open_chunk(chunks: Chunks, index: Index, beside: OpenChunk | None = None) -> OpenChunk:
    """The chunk at `index` as of now, or as of when `beside` was opened, by the same thread and not closed yet, if both are
    in one stored object. Chunks that can hold one open have a method `hold`; errors as of `Chunks.find`.
    """
    held: Callable[[Index, OpenChunk | None], OpenChunk | None] | None = getattr(chunks, "hold", None)
    return (None if held is None else held(index, beside)) or FoundChunk(chunks, index, chunks.find(index))


class Child(NamedTuple):
    """A member of a group as a listing gives it: nothing has been read of it yet.

    `link` is a symlink's target. `owner`: who may look into it, the same as `Owners.directory`; None: not known here.
    """

    name: str
    mtime_ns: int
    link: str | None = None
    owner: Owner | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """A link of the source: `target` is the POSIX path, relative to the group that holds it, in model names.

    Components are separated by `/`; a name that itself contains `/` cannot be a link's target.
    """

    target: str

    kind: ClassVar[Literal["link"]] = "link"


class Brief(NamedTuple):
    """What a listing tells of an array: `metadata`, `version` and `mtime_ns` are the array's, `touched_ns` its chunks'.

    `shared`: the metadata are those of others, too.
    """

    metadata: ArrayMetadata
    version: Hashable
    mtime_ns: int
    touched_ns: int
    shared: bool


class Group(Protocol):
    """An opened group; each call sees the store as it is now. Blocking, thread-safe."""

    @property
    def kind(self) -> Literal["group"]: ...

    @property
    def mtime_ns(self) -> int:
        """Modification time of the stored group."""

    def attributes(self) -> Mapping[str, JSON]:
        """User attributes as JSON values."""

    def native(self) -> Mapping[str, JSON]:
        """The source's own metadata documents by name."""

    def children(self) -> Iterator[Child]:
        """Members, streaming, in a stable order; names are the source's own, unescaped (surrogates: undecodable bytes)."""

    def child(self, name: str) -> Node:
        """The member `name`, opened; NotFound if there is none, CorruptData or Unsupported if it cannot be shown."""


class Array(Protocol):
    """An opened array: an immutable view of one version of its metadata, and its chunks as they are now."""

    @property
    def kind(self) -> Literal["array"]: ...

    @property
    def metadata(self) -> ArrayMetadata: ...

    @property
    def version(self) -> Hashable:
        """Equal versions have equal metadata."""

    @property
    def mtime_ns(self) -> int:
        """Modification time of the metadata."""

    @property
    def chunks(self) -> Chunks: ...

    def current(self) -> bool:
        """Whether the store still holds this version of the metadata (blocking)."""

    @property
    def at_once(self) -> AtOnce | None:
        """Makes contexts in which `current`, and `find` and `read_into` of the chunks, raise WouldWait instead of waiting.

        For the event loop's thread. None: they may always wait.
        """

    @property
    def fetch(self) -> Callable[[Index], object] | None:
        """Has a chunk's stored bytes sent before anybody asks, and raises nothing; None where only decoding needs them."""


AtOnce: TypeAlias = Callable[[], AbstractContextManager[None]]

Node: TypeAlias = Group | Array | Link


def at_once(node: Group | Array) -> AtOnce | None:
    """`Array.at_once` of an array; groups that can be asked without waiting have the same, and `current`, too."""
    found: AtOnce | None = getattr(node, "at_once", None)
    return found


def owners(node: Group | Array) -> Owners:
    """Who may look into a group or array and read its metadata; sources that know it have a method `owners`."""
    found: Callable[[], Owners] = getattr(node, "owners", Owners)
    return found()


def brief(group: Group, name: str) -> Brief | None:
    """Of a member that is an array, without opening it; groups that can tell have such a method. None: it must be opened."""
    found: Callable[[str], Brief | None] | None = getattr(group, "brief", None)
    return None if found is None else found(name)


def prefix_owner(chunks: Chunks, prefix: Index) -> Owner | None:
    """Who may look at what is stored below `prefix` (shorter than the rank); chunks that know it have such a method."""
    found: Callable[[Index], Owner | None] | None = getattr(chunks, "prefix_owner", None)
    return None if found is None else found(prefix)


def absent(chunks: Chunks, indices: Sequence[Index]) -> Collection[Index]:
    """Those of many chunks that are not stored as of now, as far as that is told at once; chunks that can have a method."""
    found: Callable[[Sequence[Index]], Collection[Index]] | None = getattr(chunks, "absent", None)
    return () if found is None else found(indices)


def touched_ns(chunks: Chunks) -> int:
    """mtime (ns) of what holds the stored chunks, whether or not there are any; 0 where that is what holds the metadata."""
    found: Callable[[], int] | None = getattr(chunks, "touched_ns", None)
    return 0 if found is None else found()


def directory_ns(node: Group | Array) -> int:
    """mtime (ns) of a node as a directory, as `Child` has it: an array's is not its metadata's where the store has one."""
    found: Callable[[], int] | None = getattr(node, "directory_ns", None)
    return node.mtime_ns if found is None else found()


def commit(chunks: Chunks) -> Hashable:
    """What is another one whenever many chunks have changed at once: by a commit, or because another directory has taken
    the place of the array's. None where chunks change one by one."""
    found: Callable[[], Hashable] | None = getattr(chunks, "commit", None)
    return None if found is None else found()


def as_array(node: Node) -> Array | None:
    """`node` if it is an array."""
    return node if node.kind == "array" else None


class Source(Protocol):
    """An opened hierarchy of some format."""

    @property
    def format(self) -> str:
        """Name of the format, as `--format` takes it."""

    @property
    def root(self) -> Group | Array: ...

    def format_at(self, path: Sequence[str]) -> str:
        """The format of what was opened at `path`: `format`, or in a collection that of the member it belongs to."""

    def close(self) -> None:
        """Release descriptors and child processes."""
