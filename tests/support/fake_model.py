"""An in-memory model for tests of layouts: dictionaries as groups, numpy arrays as arrays."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fsbridge.config import Config
from fsbridge.decoded.cache import ChunkCache
from fsbridge.errors import NotFound, Stale
from fsbridge.layouts import root_directory
from fsbridge.metadata import JSON, ArrayMetadata, ChunkGrid, DataType, Format, Index
from fsbridge.model import Array, Child, ChunkInfo, Chunks, Group, Link, Node, Source
from fsbridge.tree import Directory

FAKE = Format("fake")


@dataclass
class FakeChunks(Chunks):
    """Chunks held as bytes by index; `decoded` counts what was decoded."""

    stored: dict[Index, bytes]
    version: int = 0
    decoded: list[Index] = field(default_factory=list)

    def find(self, index: Index) -> ChunkInfo:
        if index not in self.stored:
            raise NotFound(f"chunk {index}")
        return ChunkInfo(self.version, len(self.stored[index]), 7)

    def find_prefix(self, prefix: Index) -> int:
        if not any(index[: len(prefix)] == prefix for index in self.stored):
            raise NotFound(f"prefix {prefix}")
        return 7

    def scan(self, prefix: Index) -> Iterator[Sequence[tuple[int, int]]]:
        level = len(prefix)
        yield [(i, 7) for i in sorted({index[level] for index in self.stored if index[:level] == prefix})]

    def read_into(self, index: Index, info: ChunkInfo, out: memoryview) -> None:
        out[:] = self.read_all(index, info)

    def read_all(self, index: Index, info: ChunkInfo, limit: int = 1 << 30) -> bytes:
        if info.version != self.version:
            raise Stale("fake chunk changed")
        self.decoded.append(index)
        return self.stored[index]

    def read_range(self, index: Index, info: ChunkInfo, start: int, stop: int) -> bytes | None:
        return None

    def size(self, index: Index, info: ChunkInfo) -> int:
        return len(self.stored[index])

    def count(self) -> int:
        return len(self.stored)


@dataclass(eq=False)
class FakeArray(Array):
    """An array; `newest` false makes it outdated."""

    metadata: ArrayMetadata
    chunks: FakeChunks
    version: Hashable = 0
    mtime_ns: int = 5
    newest: bool = True

    def current(self) -> bool:
        return self.newest


def fake_array(values: np.ndarray[Any, Any], chunk_shape: tuple[int, ...], **changes: Any) -> FakeArray:
    """`values` cut into full chunks (edges padded with zeros), little-endian, C order."""
    grid = ChunkGrid(values.shape, chunk_shape)
    stored: dict[Index, bytes] = {}
    for index in itertools.product(*map(range, grid.counts)):
        chunk = np.zeros(chunk_shape, values.dtype)
        where = tuple(slice(i * c, (i + 1) * c) for i, c in zip(index, chunk_shape, strict=True))
        part = values[where]
        chunk[tuple(slice(0, n) for n in part.shape)] = part
        stored[index] = chunk.tobytes()
    dtype = DataType(values.dtype.name, values.dtype.itemsize, "little", values.dtype.str, values.dtype)
    return FakeArray(ArrayMetadata(grid, dtype, **changes), FakeChunks(stored))


@dataclass
class FakeGroup(Group):
    """A group over a dictionary that tests may change."""

    members: dict[str, Node]
    attrs: Mapping[str, JSON] = field(default_factory=dict)
    mtime_ns: int = 3

    def attributes(self) -> Mapping[str, JSON]:
        return self.attrs

    def children(self) -> Iterator[Child]:
        for name, node in self.members.items():
            yield Child(name, 3, node.target if isinstance(node, Link) else None)

    def child(self, name: str) -> Node:
        if name not in self.members:
            raise NotFound(name)
        return self.members[name]


@dataclass
class FakeSource(Source):
    """A source over a root node."""

    root: Any
    format: Format = FAKE

    def close(self) -> None:
        """Nothing to close."""


def tree(root: Any, **changes: Any) -> Directory:
    """The root directory of a mount of `root`."""
    config = Config("fake", "/mnt", **{"metadata_ttl": 0.0, **changes})
    return root_directory(FakeSource(root), config, ChunkCache(config.cache_size))
