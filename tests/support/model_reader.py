"""Reads whole arrays through the model, as a plain reader of decoded chunks would: for comparing with other readers."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from fsbridge.errors import NotFound
from fsbridge.metadata import ArrayMetadata, Index
from fsbridge.model import Array


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


def read_chunk(array: Array, index: Index) -> np.ndarray[Any, Any]:
    """One decoded chunk, in the dimension order of the array."""
    metadata, chunks = array.metadata, array.chunks
    info = chunks.find(index)
    shape = metadata.grid.chunk_shape(index)
    order = metadata.order or tuple(range(len(shape)))
    size = metadata.chunk_bytes(index)
    if size is None:
        data = bytes(chunks.read_all(index, info, 1 << 26))
        assert chunks.size(index, info) == len(data)
        flat: Any = items(data, metadata)
    else:
        out = bytearray(b"\xa5" * size)
        chunks.read_into(index, info, memoryview(out))
        held, again = chunks.open(index), bytearray(b"\x5a" * size)
        try:
            held.read_into(memoryview(again))
        finally:
            held.close()
        assert (held.info._replace(settled=True), again) == (info._replace(settled=True), out)
        part = chunks.read_range(index, info, size // 3, size // 2)
        assert part is None or part == out[size // 3 : size // 2]
        assert chunks.size(index, info) == size
        assert metadata.dtype.numpy is not None
        flat = np.frombuffer(out, metadata.dtype.numpy)
    stored = flat.reshape([shape[axis] for axis in order])
    return np.asarray(stored.transpose(np.argsort(order)) if order else stored)


def items(data: bytes, metadata: ArrayMetadata) -> np.ndarray[Any, Any]:
    """The elements of a chunk in the vlen encoding."""
    (count,) = struct.unpack_from("<I", data)
    found, position = [], 4
    for _ in range(count):
        (length,) = struct.unpack_from("<I", data, position)
        item = data[position + 4 : position + 4 + length]
        found.append(item.decode() if metadata.dtype.serializer == "vlen-utf8" else item)
        position += 4 + length
    assert position == len(data)
    result = np.empty(count, object)
    result[:] = found
    return result


def fill(metadata: ArrayMetadata) -> Any:
    """The fill value as a value."""
    if metadata.dtype.serializer != "bytes":
        return metadata.fill if metadata.fill is not None else ("" if metadata.dtype.serializer == "vlen-utf8" else b"")
    assert metadata.dtype.numpy is not None
    raw = metadata.fill if metadata.fill is not None else bytes(metadata.dtype.itemsize)
    assert isinstance(raw, bytes)
    return np.frombuffer(raw, metadata.dtype.numpy)[0]


def read_array(array: Array) -> np.ndarray[Any, Any]:
    """The whole array: fill values where nothing is stored; checks that listing and looking agree for every grid cell."""
    metadata = array.metadata
    dtype = metadata.dtype.numpy if metadata.dtype.serializer == "bytes" else np.dtype(object)
    result = np.full(metadata.shape, fill(metadata), dtype)
    listed = list(stored_chunks(array))
    assert array.chunks.count() == len(listed)
    edges = [
        list(itertools.accumulate(edge if isinstance(edge, tuple) else [edge] * count, initial=0))
        for edge, count in zip(metadata.grid.edges, metadata.grid.counts, strict=True)
    ]
    for index in itertools.product(*map(range, metadata.grid.counts)):
        if index not in listed:
            try:
                array.chunks.find(index)
            except NotFound:
                continue
            raise AssertionError(f"chunk {index} is not listed")
        chunk = read_chunk(array, index)
        slices = (slice(edge[i], edge[i] + n) for edge, i, n in zip(edges, index, chunk.shape, strict=True))
        place: tuple[Any, ...] = (*slices, ...)  # the ellipsis keeps a scalar an array
        region = result[place]
        region[...] = chunk[tuple(slice(n) for n in region.shape)]
    return result
