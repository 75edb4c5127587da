"""Reads an array through the model, chunk by chunk, into numpy: what a correct Zarr reader of the mount would see."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from fsbridge.metadata import Index
from fsbridge.model import Array, Group, Node, as_array


def stored_chunks(array: Array, prefix: Index = ()) -> Iterator[Index]:
    """Indices of all stored chunks, by listing."""
    rank = len(array.metadata.shape)
    if rank == 0:
        if array.chunks.count():
            yield ()
        return
    for batch in array.chunks.scan(prefix):
        for coordinate, _ in batch:
            if len(prefix) == rank - 1:
                yield (*prefix, coordinate)
            else:
                yield from stored_chunks(array, (*prefix, coordinate))


def chunk_bytes(array: Array, index: Index) -> bytes:
    """The decoded bytes of one stored chunk."""
    info = array.chunks.find(index)
    size = array.metadata.chunk_bytes(index)
    if size is None:
        data = bytes(array.chunks.read_all(index, info, 1 << 26))
        assert array.chunks.size(index, info) == len(data)
        return data
    out = bytearray(b"\xa5" * size)
    array.chunks.read_into(index, info, memoryview(out))
    start, stop = size // 3, size - size // 4
    part = array.chunks.read_range(index, info, start, stop)
    assert part is None or part == out[start:stop]
    return bytes(out)


def values(array: Array) -> np.ndarray[Any, Any]:
    """The whole array in the model's dimension order; missing chunks hold the fill value."""
    metadata = array.metadata
    objects = metadata.dtype.serializer != "bytes"
    dtype = np.dtype(object) if objects else metadata.dtype.numpy
    assert dtype is not None
    result = np.zeros(metadata.shape, dtype)
    if objects:
        empty: str | bytes = "" if metadata.dtype.serializer == "vlen-utf8" else b""
        result[...] = empty if metadata.fill is None else metadata.fill
    elif metadata.fill is not None:
        assert isinstance(metadata.fill, bytes)
        result[...] = np.frombuffer(metadata.fill, dtype)[0]
    for index in stored_chunks(array):
        shape = metadata.grid.chunk_shape(index)
        order = metadata.order or tuple(range(len(shape)))
        data = chunk_bytes(array, index)
        flat = vlen_items(data, metadata.dtype.serializer) if objects else np.frombuffer(data, dtype)
        chunk = flat.reshape([shape[d] for d in order]).transpose(np.argsort(order) if shape else ())
        cells = zip(index, shape, metadata.shape, strict=True)
        where = tuple(slice(i * edge, min((i + 1) * edge, extent)) for i, edge, extent in cells)
        result[where] = chunk[tuple(slice(0, part.stop - part.start) for part in where)]
    return result


def vlen_items(data: bytes, serializer: str) -> np.ndarray[Any, Any]:
    """The items of a vlen encoding, as objects."""
    (count,) = struct.unpack_from("<I", data)
    position = 4
    items = np.empty(count, object)
    for item in range(count):
        (length,) = struct.unpack_from("<I", data, position)
        raw = bytes(data[position + 4 : position + 4 + length])
        assert len(raw) == length
        items[item] = raw.decode() if serializer == "vlen-utf8" else raw
        position += 4 + length
    assert position == len(data)
    return items


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
