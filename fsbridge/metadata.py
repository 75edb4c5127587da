"""What a reader needs to know of an array besides its chunks: element type, grid, fill value, attributes.

Frozen dataclasses that exist only if they are valid. Not here: chunks, groups and sources (`model.py`), any I/O, any
format's spelling (`formats/`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from fsbridge.errors import CorruptData, anew

if TYPE_CHECKING:
    import numpy as np

JSON: TypeAlias = Any
"""A parsed JSON value: None, bool, int, float, str, list or dict."""

Index: TypeAlias = tuple[int, ...]
"""A chunk's grid position, one coordinate per dimension, in the array's own dimension order."""

MAX_RANK = 32
"""TensorStore's kMaxRank; numpy 2 allows 64, nothing real comes near either."""

MAX_EXTENT = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Format:
    """Properties of a source's format, so that no code compares names of formats.

    `name`: as `--format` takes it. `suffixes`: ends of names that promise the format; a collection lists a member with such
    a name even if it is broken. `kind`: whether a source is a directory or a file. `access`: where a source may lie: `path`:
    on a local disk; `store`: in any kind of store; `keys`: in any kind of store or in a zip file, even if its root has no
    metadata. `remote`: object storage is possible, too; a file is read there by byte ranges. `first_axis_fastest`: the
    first axis of an array is x, else its last one is. `uniform_chunks`: all chunks of an array have one shape, and texts lie
    in C order, so that any layout can show them.
    """

    name: str
    suffixes: tuple[str, ...] = ()
    kind: Literal["directory", "file"] = "directory"
    access: Literal["keys", "store", "path"] = "keys"
    remote: bool = True
    first_axis_fastest: bool = False
    uniform_chunks: bool = False


@dataclass(frozen=True, slots=True)
class DataType:
    """The type of one element, as the decoded chunk bytes hold it.

    `name`: the Zarr v3 `data_type` that describes it (a string or `{"name", "configuration"}`).
    `itemsize`: bytes of one element; 0 for variable length.
    `endian`: byte order of the decoded bytes; None if there is none (one-byte and opaque types, variable length).
    `serializer`: the Zarr v3 array-to-bytes codec that describes a decoded chunk.
    `numpy`: the same bytes as a numpy dtype (byte order included); None if numpy has no such type.
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

    Raises CorruptData for impossible shapes, so a ChunkGrid that exists is valid.
    """

    shape: tuple[int, ...]
    edges: tuple[int | tuple[int, ...], ...]
    counts: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """Number of grid cells per dimension."""
    _every: tuple[int, ...] | None = field(init=False, repr=False, compare=False)
    """The shape of every chunk, where all have the same."""

    def __post_init__(self) -> None:
        if len(self.shape) > MAX_RANK:
            raise CorruptData(f"the array has the rank {len(self.shape)}, the limit is {MAX_RANK}")
        if len(self.shape) != len(self.edges):
            raise CorruptData(f"shape {list(self.shape)} and chunk shape {list(self.edges)} differ in rank")
        for extent, edge in zip(self.shape, self.edges, strict=True):
            if not 0 <= extent <= MAX_EXTENT:
                raise CorruptData(f"the array has the impossible extent {extent}")
            lengths = edge if isinstance(edge, tuple) else (edge,)
            if any(not 1 <= length <= MAX_EXTENT for length in lengths):
                raise CorruptData(f"the grid has the impossible chunk extent {edge}")
            if isinstance(edge, tuple) and sum(edge) < extent:
                raise CorruptData(f"chunk edges {list(edge)[:8]} do not cover extent {extent}")
        counts = tuple(
            len(edge) if isinstance(edge, tuple) else -(-extent // edge)
            for extent, edge in zip(self.shape, self.edges, strict=True)
        )
        object.__setattr__(self, "counts", counts)
        every = tuple(edge for edge in self.edges if not isinstance(edge, tuple))
        object.__setattr__(self, "_every", every if len(every) == len(self.edges) else None)

    @property
    def regular(self) -> bool:
        """True if every chunk has the same shape."""
        return self._every is not None

    def chunk_shape(self, index: Index) -> tuple[int, ...]:
        """Return the full shape of the chunk at `index`, also where it overhangs the array."""
        if self._every is not None:
            return self._every
        return tuple(edge[i] if isinstance(edge, tuple) else edge for i, edge in zip(index, self.edges, strict=True))

    def elements(self, index: Index) -> int:
        """Return the number of elements of the full chunk at `index`."""
        return math.prod(self.chunk_shape(index))

    def contains(self, prefix: Index) -> bool:
        """True if `prefix` (a grid position or its beginning) lies in the grid."""
        return len(prefix) <= len(self.edges) and all(0 <= i < n for i, n in zip(prefix, self.counts, strict=False))


@dataclass(frozen=True, slots=True)
class ArrayMetadata:
    """Everything a reader needs to know of an array except its chunks.

    `order`: memory order of a decoded chunk as a Zarr v3 `transpose` order (None: C order): the decoded bytes are those of
    `numpy.transpose(chunk, order)` in C order. `fill`: one element's bytes (fixed-size types, in the decoded byte order), or
    the str/bytes itself (variable length); None if the source has none, which means zeros or the empty element.
    `fill_spelling`: `fill` as a Zarr v3 `fill_value` if only the type's name tells how (bfloat16, structs); else None.
    `varlength`: chunk sizes differ although elements have a fixed size (N5's varlength and object blocks). `native`: the
    source's own metadata documents by name, for extended attributes. `codec`: the stored codec, for people: `blosc(lz4)`,
    `gzip+shuffle`. `refused`: why chunks are Unsupported; None for an array whose metadata tells that its chunks can be
    decoded. `attributes_error`: why `attributes`, which are then empty, cannot be read.
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
    attributes_error: Exception | None = None

    def __post_init__(self) -> None:
        rank = len(self.grid.shape)
        if self.order is not None and sorted(self.order) != list(range(rank)):
            raise CorruptData(f"{list(self.order)} is no order of {rank} dimensions")
        if self.dimension_names is not None and len(self.dimension_names) != rank:
            raise CorruptData(f"the array has {len(self.dimension_names)} dimension names for {rank} dimensions")
        if isinstance(self.fill, bytes) and self.dtype.itemsize and len(self.fill) != self.dtype.itemsize:
            raise CorruptData(f"the fill value has {len(self.fill)} bytes, and an element {self.dtype.itemsize}")

    @property
    def shape(self) -> tuple[int, ...]:
        """Array shape, in the source's dimension order."""
        return self.grid.shape

    def shown_attributes(self) -> Mapping[str, JSON]:
        """Return the attributes for showing them. Raises `attributes_error`: what is unknown must not look absent."""
        if self.attributes_error is not None:
            raise anew(self.attributes_error)
        return self.attributes

    def chunk_bytes(self, index: Index) -> int | None:
        """Return the decoded size of the chunk at `index` in bytes; None if only its stored bytes can tell."""
        if self.varlength or not self.dtype.itemsize:
            return None
        return self.grid.elements(index) * self.dtype.itemsize


def parse_coordinate(name: str | bytes, count: int) -> int | None:
    """Return the grid coordinate below `count` that `name` spells in decimal, canonically; None for anything else."""
    if not name.isdigit() or not name.isascii() or len(name) > 20:
        return None
    coordinate = int(name)
    return coordinate if coordinate < count and len(str(coordinate)) == len(name) else None


def parse_coordinates(names: Sequence[str], count: int) -> list[int]:
    """Return the coordinates of those `names` that `parse_coordinate` takes.

    These are mostly all of them, which a few bulk calls find out much faster.
    """
    try:
        coordinates = list(map(int, names))
    except ValueError:
        coordinates = []
    if coordinates and list(map(str, coordinates)) == names and min(coordinates) >= 0 and max(coordinates) < count:
        return coordinates
    return [value for name in names if (value := parse_coordinate(name, count)) is not None]


class Origin(Protocol):
    """The version of the file, or of whatever else an object was made of. Equal origins give equal answers."""

    def current(self) -> bool:
        """True if the file, or what else the object was made of, still has this version (blocking)."""
