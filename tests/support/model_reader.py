"""Reads whole arrays through the model, as a plain reader of decoded chunks would: for comparing with other readers."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from fsbridge.errors import NotFound
from fsbridge.metadata import ArrayMetadata, Index
from fsbridge.model import Array, Group, Node, as_array


def stored_chunks(array: Array) -> Iterator[Index]:
    """The positions of all stored chunks, as nested listings give them."""
    rank = len(array.metadata.shape)
    if not rank:
        try:
            array.chunks.find(())
        except NotFound:
            return
        yield ()
        return

    def below(prefix: Index) -> Iterator[Index]:
        if len(prefix) == rank:
            yield prefix
            return
        seen = set()
        for batch in array.chunks.scan(prefix):
            assert list(batch) == sorted(batch)
            for coordinate, _ in batch:
                assert coordinate not in seen
                seen.add(coordinate)
                if len(prefix) + 1 < rank:
                    array.chunks.find_prefix((*prefix, coordinate))
                yield from below((*prefix, coordinate))

    yield from below(())


def read_bytes(array: Array, index: Index) -> bytes:
    """The bytes of one decoded chunk; each way to read it must give the same."""
    metadata, chunks = array.metadata, array.chunks
    info = chunks.find(index)
    size = metadata.chunk_bytes(index)
    if size is None:
        data = bytes(chunks.read_all(index, info, 1 << 26))
        assert chunks.size(index, info) == len(data)
        return data
    out = bytearray(b"\xa5" * size)
    chunks.read_into(index, info, memoryview(out))
    held, again = chunks.open(index), bytearray(b"\x5a" * size)
    try:
        held.read_into(memoryview(again))
    finally:
        held.close()
    assert (held.info._replace(settled=True), again) == (info._replace(settled=True), out)
    for start, stop in ((size // 3, size // 2), (size // 3, size - size // 4)):
        part = chunks.read_range(index, info, start, stop)
        assert part is None or part == out[start:stop]
    assert chunks.size(index, info) == size
    return bytes(out)


def decode(metadata: ArrayMetadata, index: Index, data: bytes, errors: str = "strict") -> np.ndarray[Any, Any]:
    """The elements of one chunk, in the dimension order of the array; `errors`: of texts that are not UTF-8."""
    shape = metadata.grid.chunk_shape(index)
    order = metadata.order or tuple(range(len(shape)))
    if metadata.dtype.serializer == "bytes":
        flat: np.ndarray[Any, Any] = np.frombuffer(data, metadata.dtype.numpy)
    else:
        text = metadata.dtype.serializer == "vlen-utf8"
        flat = np.empty(math.prod(shape), object)
        flat[:] = [item.decode("utf-8", errors) if text else item for item in split_items(data)]
    stored = flat.reshape([shape[axis] for axis in order])
    return np.asarray(stored.transpose(np.argsort(order)) if order else stored)


def read_chunk(array: Array, index: Index) -> np.ndarray[Any, Any]:
    """One decoded chunk, in the dimension order of the array."""
    return decode(array.metadata, index, read_bytes(array, index))


def split_items(data: bytes) -> list[bytes]:
    """The elements of a chunk in the vlen encoding."""
    (count,) = struct.unpack_from("<I", data)
    found, position = [], 4
    for _ in range(count):
        (length,) = struct.unpack_from("<I", data, position)
        found.append(data[position + 4 : position + 4 + length])
        position += 4 + length
    assert position == len(data)
    return found


def fill(metadata: ArrayMetadata) -> Any:
    """The fill value as a value."""
    if metadata.dtype.serializer != "bytes":
        return metadata.fill if metadata.fill is not None else ("" if metadata.dtype.serializer == "vlen-utf8" else b"")
    assert metadata.dtype.numpy is not None
    raw = metadata.fill if metadata.fill is not None else bytes(metadata.dtype.itemsize)
    assert isinstance(raw, bytes)
    return np.frombuffer(raw, metadata.dtype.numpy)[0]


def make_empty(metadata: ArrayMetadata) -> np.ndarray[Any, Any]:
    """The whole array if nothing is stored: fill values."""
    dtype = metadata.dtype.numpy if metadata.dtype.serializer == "bytes" else np.dtype(object)
    return np.full(metadata.shape, fill(metadata), dtype)


def put_chunk(whole: np.ndarray[Any, Any], metadata: ArrayMetadata, index: Index, chunk: np.ndarray[Any, Any]) -> None:
    """Put the elements of a chunk that are within the array in their place."""
    starts = (
        sum(edge[:i]) if isinstance(edge, tuple) else edge * i for edge, i in zip(metadata.grid.edges, index, strict=True)
    )
    place: tuple[Any, ...] = (*(slice(start, start + n) for start, n in zip(starts, chunk.shape, strict=True)), ...)
    region = whole[place]  # the ellipsis keeps a scalar an array
    region[...] = chunk[tuple(slice(n) for n in region.shape)]


def read_array(array: Array) -> np.ndarray[Any, Any]:
    """The whole array: fill values where nothing is stored; checks that listing and looking agree for every grid cell."""
    result = make_empty(array.metadata)
    listed = list(stored_chunks(array))
    assert array.chunks.count() == len(listed)
    for index in itertools.product(*map(range, array.metadata.grid.counts)):
        if index not in listed:
            try:
                array.chunks.find(index)
            except NotFound:
                continue
            raise AssertionError(f"chunk {index} is not listed")
        put_chunk(result, array.metadata, index, read_chunk(array, index))
    return result


def group_at(group: Node, path: str) -> Group:
    """The group at `path` below a group."""
    node = group
    for name in filter(None, path.split("/")):
        assert node.kind == "group"
        node = node.child(name)
    assert node.kind == "group"
    return node


def array_at(group: object, path: str) -> Array:
    """The array at `path` below a group."""
    node: Any = group
    for name in filter(None, path.split("/")):
        node = node.child(name)
    array = as_array(node)
    assert array is not None
    assert array.current()
    return array
