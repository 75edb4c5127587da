"""Sample data of a Hangar repository: found by a backend record, decoded, and checked against its digest.

HDF5_00 (rows of flat datasets), HDF5_01 (slices of datasets of natural shape), NUMPY_10 (rows of `.npy` files) and
LMDB_30/31 (str, bytes). Our own HDF5 format reads HDF5 files, so it handles filters and skipped filters; LMDB values come
from the child process. A sample is an array of one chunk, which is read whole, because the digest is that of the whole.
Not here: trees and records.
"""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from tokenize import TokenError
from typing import Any, cast

import numpy as np

from fsbridge.asking import Locks
from fsbridge.config import Config
from fsbridge.errors import CorruptData, FsbridgeError, NotFound, Stale, TooLarge, Unsupported
from fsbridge.formats.hangar.records import LITERAL_ERRORS, RowRecord, Schema, TextRecord
from fsbridge.formats.hangar.repository import HangarRepository
from fsbridge.formats.small import OneChunk
from fsbridge.lru import LRU
from fsbridge.metadata import Index
from fsbridge.model import Array, ChunkInfo, Group, Source, as_array
from fsbridge.store import Key, Stat

OPEN_FILES = 256
"""Most HDF5 files that are kept open with their chunk addresses in memory.

Hangar writes one file per writer session and column. Idle files hold no process (`hdf5.file`).
"""
NPY_HEADER_BYTES = 4096
"""Bytes that are read of a `.npy` file to parse its header. numpy pads real headers to 128 bytes."""


class Backends:
    """Reads samples by record."""

    def __init__(self, repository: HangarRepository, open_file: Callable[[str], Source], config: Config) -> None:
        self.repository = repository
        self.limit = config.max_chunk
        self._digest = _make_digester() if config.verify else None
        self._files = _Files(open_file)
        self._headers: LRU[tuple[str, Hashable], _Npy] = LRU(OPEN_FILES)

    def close(self) -> None:
        """Close all HDF5 files."""
        self._files.close()

    def path(self, record: RowRecord | TextRecord) -> str:
        """Return the file of a record, relative to the repository's folder."""
        name = {"00": "{}.hdf5", "01": "{}.hdf5", "10": "{}.npy", "30": "{}/data.mdb", "31": "{}/data.mdb"}[record.backend]
        return f"data/{record.backend}/{name.format(record.uid)}"

    def stat(self, record: RowRecord | TextRecord) -> Stat:
        """Return the stat of the record's file.

        Raises CorruptData if it is missing, because the record says that it exists.
        """
        try:
            return self.repository.stat(self.path(record))
        except NotFound:
            raise CorruptData(f"{self.repository.place(self.path(record))} is missing") from None

    def read_text(self, record: TextRecord) -> bytes:
        """Return the stored bytes of a str or bytes sample, checked."""
        value = self.repository.get(self.path(record), record.key.encode("ascii"))
        if value is None:
            raise CorruptData(f"{self.repository.place(self.path(record))}: has no value under {record.key!r}")
        self._verify(record, value)
        if record.backend == "30":
            try:
                value.decode("utf-8")
            except UnicodeDecodeError:
                raise CorruptData(f"{self.repository.place(self.path(record))}: {record.key!r} is not UTF-8") from None
        return value

    def read_rows(self, record: RowRecord, schema: Schema, out: memoryview) -> None:
        """Fill `out`, exactly the sample's bytes, and check them."""
        sample = np.frombuffer(out, schema.dtype or np.uint8).reshape(record.shape)
        try:
            if record.backend == "10":
                self._read_npy(record, sample)
            else:
                self._read_hdf5(record, sample)
        except FsbridgeError as error:
            raise error.at(self.repository.place(self.path(record))) from None
        self._verify(record, out)

    def _read_npy(self, record: RowRecord, sample: np.ndarray[Any, Any]) -> None:
        key = Key.parse(self.path(record))
        stat = self.stat(record)
        header = self._headers.get((key, stat.version))
        if header is None:
            raw, stat = self.repository.store.read_range(key, 0, min(NPY_HEADER_BYTES, stat.size))
            header = self._headers.put((key, stat.version), _Npy.parse(raw))
        header.check(record, sample)
        size = math.prod(header.shape[1:]) * header.dtype.itemsize
        if size > self.limit:
            raise TooLarge(f"a row has {size} bytes, the limit is {self.limit}")
        raw, _ = self.repository.store.read_range(key, header.start + record.index * size, size)
        row = np.frombuffer(raw, header.dtype).reshape(header.shape[1:])
        sample[...] = row[tuple(slice(0, extent) for extent in record.shape)]

    def _read_hdf5(self, record: RowRecord, sample: np.ndarray[Any, Any]) -> None:
        path = self.path(record)
        array = self._files.dataset(self.repository.place(path), self.stat(record).version, record.dataset)
        target = sample.reshape(-1) if record.backend == "00" else sample
        if record.backend == "01" and not record.shape:
            target = sample.reshape(1)  # Hangar stores a 0-D sample as a row of one element
        metadata = array.metadata
        stored = metadata.dtype.numpy
        if stored != sample.dtype and not _has_same_layout(metadata.dtype.itemsize, sample.dtype):
            native = metadata.dtype.native
            raise CorruptData(f"dataset {record.dataset} has elements of {native}, and the column of {sample.dtype}")
        if len(metadata.shape) != target.ndim + 1 or any(
            need > have for need, have in zip((record.index + 1, *target.shape), metadata.shape, strict=True)
        ):
            raise CorruptData(f"dataset {record.dataset} has no row {record.index} of shape {list(target.shape)}")
        read_row(array, record.index, target, self.limit)

    def _verify(self, record: RowRecord | TextRecord, data: bytes | memoryview) -> None:
        if self._digest is None:
            return
        digest = self._digest(data)
        if digest != record.checksum:
            place = self.repository.place(self.path(record))
            raise CorruptData(f"{place}: the sample's xxhash64 is {digest}, its record says {record.checksum}")


def read_row(array: Array, index: int, target: np.ndarray[Any, Any], limit: int) -> None:
    """Fill `target`, of extents e0, e1, ..., with `array[index, :e0, :e1, ...]`. Missing chunks have the fill value."""
    metadata, chunks = array.metadata, array.chunks
    edges = metadata.grid.chunk_shape((0,) * len(metadata.shape))
    if edges[0] != 1 or metadata.order is not None:
        raise Unsupported(f"the dataset has chunks of shape {list(edges)}, but Hangar writes one row a chunk")
    size = math.prod(edges) * target.itemsize
    if size > limit:
        raise TooLarge(f"a stored chunk has {size} bytes, the limit is {limit}")
    whole = target.shape == edges[1:] and target.flags.c_contiguous
    buffer = target.reshape(-1).view(np.uint8).data if whole else memoryview(bytearray(size))
    fill = np.frombuffer(metadata.fill, target.dtype)[0] if isinstance(metadata.fill, bytes) else 0
    ranges = [range(-(-extent // edge)) for extent, edge in zip(target.shape, edges[1:], strict=True)]
    for position in itertools.product(*ranges):
        region = tuple(
            slice(i * edge, min((i + 1) * edge, extent))
            for i, edge, extent in zip(position, edges[1:], target.shape, strict=True)
        )
        try:
            chunks.read_into((index, *position), chunks.find((index, *position)), buffer)
        except NotFound:
            target[region] = fill
            continue
        if not whole:
            chunk = np.frombuffer(buffer, target.dtype).reshape(edges[1:])
            target[region] = chunk[tuple(slice(0, part.stop - part.start) for part in region)]


def _has_same_layout(itemsize: int, dtype: np.dtype[Any]) -> bool:
    """True if a dataset shown as raw bytes holds elements of `dtype`: long double is shown so, because Zarr lacks it."""
    return itemsize == dtype.itemsize > 8 and dtype.kind == "f"


@dataclass(frozen=True, slots=True)
class _Npy:
    """A `.npy` file's header."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int

    @classmethod
    def parse(cls, raw: bytes) -> _Npy:
        """Return the header of a file that begins with `raw`."""
        stream = io.BytesIO(raw)
        try:
            version = np.lib.format.read_magic(stream)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = read(stream, max_header_size=NPY_HEADER_BYTES)
        except (TokenError, *LITERAL_ERRORS) as error:
            raise CorruptData(f"not a .npy file: {error}") from None
        if fortran or dtype.hasobject or not shape or any(extent < 0 for extent in shape):
            raise Unsupported(f"the .npy file holds {dtype} of shape {shape}, not rows in C order as Hangar writes them")
        return cls(dtype, shape, stream.tell())

    def check(self, record: RowRecord, sample: np.ndarray[Any, Any]) -> None:
        """Raise CorruptData unless the sample lies in this file."""
        if self.dtype != sample.dtype:
            raise CorruptData(f"the file has elements of {self.dtype}, and the column of {sample.dtype}")
        if len(self.shape) != sample.ndim + 1 or any(
            need > have for need, have in zip((record.index + 1, *sample.shape), self.shape, strict=True)
        ):
            raise CorruptData(f"shape {list(self.shape)} has no row {record.index} of shape {list(sample.shape)}")


@dataclass(frozen=True, slots=True)
class _File:
    """An opened HDF5 file, and those of its datasets that were used."""

    version: Hashable
    source: Source
    root: Group
    datasets: dict[str, Array] = field(default_factory=dict)


class _Files:
    """Opened HDF5 files by path and version, the most recently used ones. Opening one file delays no other."""

    def __init__(self, open_file: Callable[[str], Source]) -> None:
        self._open_file = open_file
        self._opening: Locks[str] = Locks()
        self._files = LRU[str, _File](OPEN_FILES, lambda file: file.source.close())

    def dataset(self, path: str, version: Hashable, name: str) -> Array:
        """Return the dataset `name` of the file at `path`."""
        file = self._file(path, version)
        array = file.datasets.get(name)
        if array is None:
            try:
                array = as_array(file.root.child(name))
            except NotFound:
                array = None
            if array is None:
                raise CorruptData(f"the file has no dataset {name!r}")
            file.datasets[name] = array
        return array

    def _file(self, path: str, version: Hashable) -> _File:
        with self._opening.of(path):
            known = self._files.get(path)
            if known is None or known.version != version:
                source = self._open_file(path)
                known = self._files.put(path, _File(version, source, cast(Group, source.root)))
            return known

    def close(self) -> None:
        """Close all files."""
        self._files.clear()


def _make_digester() -> Callable[[bytes | memoryview], str]:
    import xxhash

    return lambda data: xxhash.xxh64_hexdigest(data)


ONLY_REMOTE = "its data is only on the remote server; `hangar fetch-data` brings it here"


@dataclass(frozen=True, slots=True)
class SampleChunks(OneChunk):
    """The only chunk of a sample (`model.Chunks`)."""

    backends: Backends
    record: RowRecord | TextRecord
    schema: Schema

    def stored(self) -> ChunkInfo:
        try:
            stat = self.backends.stat(self.record)
        except FsbridgeError as error:
            raise error.at(self.place) from None
        return ChunkInfo((self.record, stat.version), 0, stat.mtime_ns, None, stat.settled)

    def read_into(self, index: Index, info: ChunkInfo, out: memoryview) -> None:
        self.check(index, info)
        if not isinstance(self.record, RowRecord):
            raise Unsupported(f"{self.place} has no fixed size")
        try:
            self.backends.read_rows(self.record, self.schema, out)
        except FsbridgeError as error:
            raise error.at(self.place) from None
        self.check(index, info)

    def read_all(self, index: Index, info: ChunkInfo, limit: int) -> bytes | bytearray:
        if isinstance(self.record, RowRecord):
            out = bytearray(self.size(index, info))
            self.read_into(index, info, memoryview(out))
            return out
        self.check(index, info)
        try:
            value = self.backends.read_text(self.record)
        except FsbridgeError as error:
            raise error.at(self.place) from None
        if len(value) + 8 > limit:
            raise TooLarge(f"the sample has {len(value)} bytes, the limit is {limit}")
        return b"".join([(1).to_bytes(4, "little"), len(value).to_bytes(4, "little"), value])

    def size(self, index: Index, info: ChunkInfo) -> int:
        if self.schema.dtype is not None:
            return math.prod(self.shape) * self.schema.dtype.itemsize
        return len(self.read_all(index, info, self.backends.limit))

    def check(self, index: Index, info: ChunkInfo) -> None:
        if self.find(index).version != info.version:
            raise Stale(f"{self.place}: {self.backends.path(self.record)} changed")


@dataclass(frozen=True, slots=True)
class RemoteChunks(OneChunk):
    """The only chunk of a sample that only the remote server has. It is listed, but reading it raises Unsupported."""

    added_ns: int

    def stored(self) -> ChunkInfo:
        return ChunkInfo("remote", 0, self.added_ns)

    def mtime_ns(self) -> int:
        return 0

    def read_into(self, index: Index, info: ChunkInfo, out: memoryview) -> None:
        raise self._make_error()

    def read_all(self, index: Index, info: ChunkInfo, limit: int) -> bytes:
        raise self._make_error()

    def size(self, index: Index, info: ChunkInfo) -> int:
        raise self._make_error()

    def count(self) -> int:
        """Raise Unsupported, because 0 would say that the sample has the fill value, and 1 that it can be read.

        `fsbridge info` shows the error as the reason.
        """
        raise self._make_error()

    def _make_error(self) -> Unsupported:
        return Unsupported(f"{self.place}: {ONLY_REMOTE}")
