"""A worked example of a small source format: a directory of `.npy` files, each an array of one chunk.

A format is one module like this one, below `fsbridge/formats/`, and a line of `FORMATS` in `registry.py`, which is
`FORMAT` here. Files that hold Python objects (P5) or have Fortran's order of elements are Unsupported. Not here: the test of
the format (`tests/unit/formats/test_registry.py`).
"""

from __future__ import annotations

import io
import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib import format as npy

from fsbridge.errors import CorruptData, FsbridgeError, NotFound, TooLarge, Unsupported
from fsbridge.formats import dtypes
from fsbridge.formats.format import CandidateDirectory, CandidateFile, HierarchyPlace, RegisteredFormat
from fsbridge.formats.small import OneChunk, read_object_range
from fsbridge.metadata import JSON, ArrayMetadata, ChunkGrid, Format, Index
from fsbridge.model import Array, Child, ChunkInfo, Group, Node, Source
from fsbridge.store import Key, Store

NPY_FOLDER = Format("npy-folder", access="store")
HEADER_BYTES = 4096
"""Bytes that are read to parse a header. numpy pads real headers to 128 bytes."""


def is_npy_folder(found: CandidateDirectory | CandidateFile) -> bool:
    """Tell whether a directory holds `.npy` files and nothing else."""
    if not isinstance(found, CandidateDirectory):
        return False
    names = [entry.name for entry in found.store.list(found.key)]
    return bool(names) and all(name.endswith(".npy") for name in names)


def open_npy_folder(place: HierarchyPlace) -> NpyFolder:
    """Open the directory at a key of a store."""
    assert place.store is not None
    return NpyFolder(place.store, place.key, place.owned)


FORMAT = RegisteredFormat(NPY_FOLDER, is_npy_folder, open_npy_folder)


class NpyFolder(Source):
    """`model.Source`: the directory. The store is closed with it if `owned`."""

    format = NPY_FOLDER
    root: NpyGroup

    def __init__(self, store: Store, key: Key, owned: bool) -> None:
        self._store, self._owned = store, owned
        self.root = NpyGroup(store, key)

    def close(self) -> None:
        if self._owned:
            self._store.close()


@dataclass(frozen=True, slots=True)
class NpyGroup(Group):
    """`model.Group`: the files as they are now. An array is named like its file, without the suffix."""

    store: Store
    key: Key

    @property
    def mtime_ns(self) -> int:
        return self.store.stat(self.key).mtime_ns

    def attributes(self) -> Mapping[str, JSON]:
        return {}

    def children(self) -> Iterator[Child]:
        for entry in self.store.list(self.key, stats=True):
            if entry.name.endswith(".npy") and entry.stat is not None:
                yield Child(entry.name.removesuffix(".npy"), entry.stat.mtime_ns)

    def child(self, name: str) -> Node:
        return open_array(self.store, self.key / f"{name}.npy")


@dataclass(frozen=True, slots=True)
class NpyChunks(OneChunk):
    """`model.Chunks`: the elements behind the header, stored as they are, so that any part can be read by itself."""

    store: Store
    key: Key
    start: int
    nbytes: int

    def stored(self) -> ChunkInfo:
        stat = self.store.stat(self.key)
        return ChunkInfo(stat.version, self.nbytes, stat.mtime_ns, None, stat.settled)

    def read_into(self, index: Index, info: ChunkInfo, out: memoryview) -> None:
        out[:] = read_object_range(self.store, self.key, info, self.start, len(out))

    def read_all(self, index: Index, info: ChunkInfo, limit: int) -> bytes:
        if self.nbytes > limit:
            raise TooLarge(f"{self.place}: {self.nbytes} bytes, the limit is {limit}")
        return read_object_range(self.store, self.key, info, self.start, self.nbytes)

    def read_range(self, index: Index, info: ChunkInfo, start: int, stop: int) -> bytes:
        return read_object_range(self.store, self.key, info, self.start + start, stop - start)

    def size(self, index: Index, info: ChunkInfo) -> int:
        return self.nbytes


@dataclass(frozen=True, slots=True)
class NpyArray(Array):
    """`model.Array`: one version of a file."""

    metadata: ArrayMetadata
    chunks: NpyChunks
    version: Hashable
    mtime_ns: int

    def current(self) -> bool:
        try:
            return self.chunks.stored().version == self.version
        except NotFound:
            return False


def open_array(store: Store, key: Key) -> NpyArray:
    """Return the array in the file at `key`. Raises NotFound, CorruptData or Unsupported."""
    place = store.describe(key)
    size = store.stat(key).size
    head, stat = store.read_range(key, 0, min(size, HEADER_BYTES))
    try:
        dtype, shape, start = _header(head)
        described = dtypes.data_type(dtype)
    except FsbridgeError as error:
        raise error.at(place) from None
    nbytes = math.prod(shape) * dtype.itemsize
    if stat.size != start + nbytes:
        raise CorruptData(f"{place}: {stat.size} bytes, where its header describes {start + nbytes}")
    metadata = ArrayMetadata(ChunkGrid(shape, tuple(max(1, extent) for extent in shape)), described, codec="npy")
    return NpyArray(metadata, NpyChunks(place, shape, store, key, start, nbytes), stat.version, stat.mtime_ns)


def _header(head: bytes) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    """Return dtype, shape, and the offset of the elements."""
    file = io.BytesIO(head)
    try:
        version = npy.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise Unsupported(f"version {version} of the npy format")
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, is_fortran, dtype = read(file)
    except (ValueError, SyntaxError) as error:
        raise CorruptData(f"no npy header: {error}") from None
    if is_fortran and len(shape) > 1:
        raise Unsupported("an array in Fortran's order")
    if dtype.hasobject:
        raise Unsupported("an array of Python objects")
    return dtype, shape, file.tell()
