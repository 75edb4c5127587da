"""Reads the model of an HDF5 file back into numpy arrays, to be compared with h5py's own reading."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from model_reader import decode, make_empty, put_chunk

from fsbridge.config import Config
from fsbridge.formats.hdf5.arrays import HDF5Array
from fsbridge.formats.hdf5.source import HDF5Group, HDF5Source, open_hdf5
from fsbridge.formats.shared import Shared
from fsbridge.model import Link, as_array


@contextmanager
def opened(path: Path | str, shared: Shared | None = None, **options: Any) -> Iterator[HDF5Source]:
    """The file as a source, closed afterwards."""
    source = open_hdf5(str(path), Config(str(path), "/nowhere", **options), shared)
    try:
        yield source
    finally:
        source.close()


def node(source: HDF5Source, path: str) -> HDF5Group | HDF5Array | Link:
    """The node at `path`, from the root."""
    member: HDF5Group | HDF5Array | Link = source.root
    for part in path.split("/"):
        if part:
            assert isinstance(member, HDF5Group)
            member = member.child(part)
    return member


def array(source: HDF5Source, path: str) -> HDF5Array:
    """The array at `path`."""
    found = node(source, path)
    assert isinstance(found, HDF5Array)
    return found


def group(source: HDF5Source, path: str) -> HDF5Group:
    """The group at `path`."""
    found = node(source, path)
    assert isinstance(found, HDF5Group)
    return found


def stored(found: HDF5Array, prefix: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """The indexes of all stored chunks, found as a walk of the mount would find them."""
    if len(prefix) == len(found.metadata.shape):
        yield prefix
        return
    for batch in found.chunks.scan(prefix):
        for coordinate, mtime_ns in batch:
            assert mtime_ns == found.mtime_ns == found.chunks.find_prefix((*prefix, coordinate))
            yield from stored(found, (*prefix, coordinate))


def decoded(found: HDF5Array, index: tuple[int, ...]) -> bytes:
    """One decoded chunk; reading it as a whole and by range must agree."""
    info = found.chunks.find(index)
    size = found.metadata.chunk_bytes(index)
    if size is None:
        data = bytes(found.chunks.read_all(index, info, 1 << 26))
        assert found.chunks.size(index, info) == len(data)
        return data
    out = bytearray(size)
    found.chunks.read_into(index, info, memoryview(out))
    for start, stop in ((0, size), (size // 3, size - size // 5), (size - 1, size), (size, size)):
        part = found.chunks.read_range(index, info, start, stop)
        assert part is None or part == out[start:stop]
    return bytes(out)


def values(found: HDF5Array) -> np.ndarray[Any, Any]:
    """All elements; text as str, sequences as bytes."""
    whole = make_empty(found.metadata)
    listed = list(stored(found))
    for index in listed:
        put_chunk(whole, found.metadata, index, decode(found.metadata, index, decoded(found, index), "surrogateescape"))
    assert found.chunks.count() == len(listed)
    return whole


def everything(group: HDF5Group, path: str = "") -> Iterator[tuple[str, HDF5Group | HDF5Array | Link]]:
    """All nodes below a group by path."""
    for child in group.children():
        found = group.child(child.name)
        here = f"{path}/{child.name}"
        yield here, found
        assert (child.link is not None) == isinstance(found, Link)
        if isinstance(found, HDF5Group):
            found.attributes()
            yield from everything(found, here)
        elif not isinstance(found, Link):
            assert as_array(found) is found
