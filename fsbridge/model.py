"""The model: what every format is read into and every layout is made from.

Frozen dataclasses and small protocols only. Not here: any I/O, any format's spelling (`formats/`), any file name of the
tree (`layouts/`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias, overload

import numpy as np

from fsbridge.errors import CorruptData
from fsbridge.owner import Owner, Owners

JSON: TypeAlias = Any
"""A parsed JSON value: None, bool, int, float, str, list or dict."""

Index: TypeAlias = tuple[int, ...]
"""A chunk's grid position, one coordinate per dimension, in the array's own dimension order."""

MAX_RANK = 32
"""TensorStore's kMaxRank; numpy 2 allows 64, nothing real comes near either."""

MAX_EXTENT = 2**63 - 1


@dataclass(frozen=True, slots=True)
class DataType:
    """One element, as the decoded chunk bytes hold it.

    `name`: the Zarr v3 `data_type` that describes it (a string or `{"name", "configuration"}`).
    `itemsize`: bytes of one element; 0 for variable length.
    `endian`: byte order of the decoded bytes; None where there is none (one-byte and opaque types, variable length).
    `serializer`: the Zarr v3 array-to-bytes codec that describes a decoded chunk.
    `numpy`: the same bytes as a numpy dtype (byte order included); None where numpy has no such type.
    `native`: how the source itself spells the type; differs from `name` where Zarr has no such type.
    `element`: of an optional element, what it is when it is there; None for all other types.
    """

    name: JSON
    itemsize: int
    endian: Literal["little", "big"] | None
    native: str
    numpy: np.dtype[Any] | None = None
    serializer: Literal["bytes", "vlen-utf8", "vlen-bytes", "optional"] = "bytes"
    element: DataType | None = None


@dataclass(frozen=True, slots=True)
class ChunkGrid:
    """How an array of `shape` is cut: per dimension one edge length (regular) or the tuple of all its edges (rectilinear).
    Raises CorruptData for impossible shapes.
    """

    shape: tuple[int, ...]
    edges: tuple[int | tuple[int, ...], ...]
    counts: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """Number of grid cells per dimension."""

    def __post_init__(self) -> None:
        if len(self.shape) > MAX_RANK:
            raise CorruptData(f"array of rank {len(self.shape)}: the limit is {MAX_RANK}")
        if len(self.shape) != len(self.edges):
            raise CorruptData(f"shape {list(self.shape)} and chunk shape {list(self.edges)} differ in rank")
        for extent, edge in zip(self.shape, self.edges, strict=True):
            if not 0 <= extent <= MAX_EXTENT:
                raise CorruptData(f"impossible array extent {extent}")
            lengths = edge if isinstance(edge, tuple) else (edge,)
            if any(not 1 <= length <= MAX_EXTENT for length in lengths):
                raise CorruptData(f"impossible chunk extent {edge}")
            if isinstance(edge, tuple) and sum(edge) < extent:
                raise CorruptData(f"chunk edges {list(edge)[:8]} do not cover extent {extent}")
        counts = tuple(
            len(edge) if isinstance(edge, tuple) else -(-extent // edge)
            for extent, edge in zip(self.shape, self.edges, strict=True)
        )
        object.__setattr__(self, "counts", counts)

    @property
    def regular(self) -> bool:
        """Whether every chunk has the same shape."""
        return not any(isinstance(edge, tuple) for edge in self.edges)

    def chunk_shape(self, index: Index) -> tuple[int, ...]:
        """Full shape of the chunk at `index`, also where it overhangs the array."""
        return tuple(edge[i] if isinstance(edge, tuple) else edge for i, edge in zip(index, self.edges, strict=True))

    def elements(self, index: Index) -> int:
        """Number of elements of the full chunk at `index`."""
        return math.prod(self.chunk_shape(index))

    def contains(self, prefix: Index) -> bool:
        """Whether `prefix` (a grid position or its beginning) lies in the grid."""
        return len(prefix) <= len(self.edges) and all(0 <= i < n for i, n in zip(prefix, self.counts, strict=False))


class Axis(NamedTuple):
    """What one dimension of an array means: element i lies at `offset + i * scale`, in `unit` ("nanometer", "second", ...).

    `unit` is folded to one spelling where it is known, else as the source spells it; `scale` is None where none is given.
    """

    name: str | None = None
    unit: str | None = None
    scale: float | None = None
    offset: float = 0.0


Axes: TypeAlias = tuple[Axis, ...]
"""One per dimension, in the array's own dimension order."""


@dataclass(frozen=True, slots=True)
class ArrayMetadata:
    """Everything a reader needs to know of an array except its chunks.

    `order`: memory order of a decoded chunk as a Zarr v3 `transpose` order (None: C order): the decoded bytes are those
    of `numpy.transpose(chunk, order)` in C order.
    `fill`: one element's bytes (fixed-size types, in the decoded byte order), or the str/bytes itself (variable
    length); None where the source has none, which means zeros or the empty element. `fill_spelling`: the same as the Zarr v3
    `fill_value` of a type whose values only its name tells (bfloat16, structs); else None.
    `varlength`: chunk sizes differ although elements have a fixed size (N5's varlength and object blocks).
    `native`: the source's own metadata documents by name, for extended attributes.
    `codec`: the stored codec, for people: `blosc(lz4)`, `gzip+shuffle`.
    `refused`: why chunks are Unsupported; None for an array whose metadata tells that its chunks can be decoded.
    """

    grid: ChunkGrid
    dtype: DataType
    fill: bytes | str | None = None
    fill_spelling: JSON = None
    order: tuple[int, ...] | None = None
    attributes: Mapping[str, JSON] = field(default_factory=dict)
    dimension_names: tuple[str | None, ...] | None = None
    varlength: bool = False
    native: Mapping[str, JSON] = field(default_factory=dict)
    codec: str = "none"
    refused: str | None = None

    def __post_init__(self) -> None:
        rank = len(self.grid.shape)
        if self.order is not None and sorted(self.order) != list(range(rank)):
            raise CorruptData(f"{list(self.order)} is no order of {rank} dimensions")
        if self.dimension_names is not None and len(self.dimension_names) != rank:
            raise CorruptData(f"{len(self.dimension_names)} dimension names for {rank} dimensions")
        if isinstance(self.fill, bytes) and self.dtype.itemsize and len(self.fill) != self.dtype.itemsize:
            raise CorruptData(f"fill value of {len(self.fill)} bytes for elements of {self.dtype.itemsize}")

    @property
    def shape(self) -> tuple[int, ...]:
        """Array shape, in the source's dimension order."""
        return self.grid.shape

    def chunk_bytes(self, index: Index) -> int | None:
        """Decoded size of the chunk at `index` in bytes; None when only its stored bytes can tell."""
        if self.varlength or not self.dtype.itemsize:
            return None
        return self.grid.elements(index) * self.dtype.itemsize


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


def parse_coordinate(name: str | bytes, count: int) -> int | None:
    """The grid coordinate below `count` that `name` spells in decimal, canonically; None for anything else."""
    if not name.isdigit() or not name.isascii() or len(name) > 20:
        return None
    found = int(name)
    return found if found < count and len(str(found)) == len(name) else None


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
        """What is stored below `prefix`, in batches: the next coordinate, with its mtime in ns. Each once, none outside the
        grid, in a stable order, sorted within a batch. An empty batch: the store is at work; a `Batch` may be of before.
        """

    def read_into(self, index: Index, info: ChunkInfo, out: memoryview) -> None:
        """Decode a chunk of known size into exactly `out` (writable, contiguous bytes of any alignment); Stale when the
        stored chunk is no longer the one of `info`.
        """

    def read_all(self, index: Index, info: ChunkInfo) -> bytes:
        """Decode a chunk whose size is not known beforehand (`chunk_bytes` is None)."""

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


def open_chunk(chunks: Chunks, index: Index) -> OpenChunk:
    """The chunk at `index` as of now. Chunks that can hold one open have a method `hold`; errors as of `Chunks.find`."""
    held: Callable[[Index], OpenChunk | None] | None = getattr(chunks, "hold", None)
    return (None if held is None else held(index)) or FoundChunk(chunks, index, chunks.find(index))


class Child(NamedTuple):
    """A member of a group as a listing gives it: nothing has been read of it yet. `link` is a symlink's target."""

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
        """Makes contexts in which `current`, `find` and `read_into` of the chunks raise WouldWait instead of waiting."""

    @property
    def fetch(self) -> Callable[[Index], object] | None:
        """Has a chunk's stored bytes sent before anybody asks, and raises nothing; None where only decoding needs them."""


AtOnce: TypeAlias = Callable[[], AbstractContextManager[None]]

Node: TypeAlias = Group | Array | Link


def owners(node: Group | Array) -> Owners:
    """Who may look into a group or array and read its metadata; sources that know it have a method `owners`."""
    found: Callable[[], Owners] = getattr(node, "owners", Owners)
    return found()


def prefix_owner(chunks: Chunks, prefix: Index) -> Owner | None:
    """Who may look at what is stored below `prefix` (shorter than the rank); chunks that know it have such a method."""
    found: Callable[[Index], Owner | None] | None = getattr(chunks, "prefix_owner", None)
    return None if found is None else found(prefix)


def touched_ns(chunks: Chunks) -> int:
    """mtime (ns) of what holds the stored chunks, whether or not there are any; 0 where that is what holds the metadata."""
    found: Callable[[], int] | None = getattr(chunks, "touched_ns", None)
    return 0 if found is None else found()


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
