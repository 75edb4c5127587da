"""The stores that are measured: smooth noise like an image's, written by zarr-python, TensorStore and h5py.

Not here: fsbridge. Each `Stored` knows its source, where its array appears in a mount, and its manifest (`decode.py`).
"""

from __future__ import annotations

import itertools
import json
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import decode
from benchmarks.programs import together

SHARD = (1, 4, 2)
"""Chunks of a shard."""

GZIP_LEVEL, ZSTD_LEVEL, BLOSC_LEVEL = 5, 3, 5
StoredRange = tuple[str, str, int, int]


@dataclass(frozen=True)
class Geometry:
    """`slabs` x `tiles` x `tiles` chunks of (edge, flat * edge, flat * edge) elements of two bytes."""

    edge: int
    slabs: int
    flat: int = 4
    tiles: int = 4

    @classmethod
    def of(cls, size: int, chunk: int) -> Geometry:
        """The nearest geometry of at least one slab: chunks of `chunk` bytes, or as many as fit."""
        found = cls(2, 1)
        for flat in (4, 8):
            edge = 2
            while cls(2 * edge, 1, flat).chunk_bytes <= chunk:
                edge *= 2
            fitting = cls(edge, 1, flat)
            if found.chunk_bytes < fitting.chunk_bytes <= chunk:
                found = fitting
        return cls(found.edge, max(1, size // (found.chunk_bytes * found.tiles**2)), found.flat)

    @classmethod
    def cubes(cls, size: int, chunk: int) -> Geometry:
        """A geometry of cubic chunks, eight in each row and column."""
        edge = 2
        while cls(2 * edge, 1, 1).chunk_bytes <= chunk:
            edge *= 2
        return cls(edge, max(1, size // cls(edge, 1, 1, 8).bytes), 1, 8)

    @property
    def chunk(self) -> tuple[int, int, int]:
        return self.edge, self.flat * self.edge, self.flat * self.edge

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.slabs * self.edge, self.tiles * self.chunk[1], self.tiles * self.chunk[2]

    @property
    def shard(self) -> tuple[int, int, int]:
        z, y, x = (chunks * edge for chunks, edge in zip(SHARD, self.chunk, strict=True))
        return z, y, x

    @property
    def chunk_bytes(self) -> int:
        return self.edge**3 * self.flat**2 * 2

    @property
    def bytes(self) -> int:
        return self.slabs * self.tiles**2 * self.chunk_bytes

    def grid(self) -> Iterator[tuple[int, ...]]:
        """All chunk indexes in C order."""
        return itertools.product(range(self.slabs), range(self.tiles), range(self.tiles))


@dataclass(frozen=True)
class Stored:
    """One array on disk. `member`: its path in the mount; `driver`: TensorStore's name for the format."""

    format: str
    codec: str
    geometry: Geometry
    source: str
    member: str
    manifest: str
    driver: str | None

    @property
    def name(self) -> str:
        return f"{self.format} {self.codec}"


def slabs(geometry: Geometry) -> Iterator[NDArray[np.uint16]]:
    """The array's content, one layer of chunks after the other: a smooth field, brightness 1000, and shot noise of it."""
    random = np.random.default_rng(7)
    depth, height, width = geometry.edge, geometry.shape[1], geometry.shape[2]
    coarse = random.random((2, height // 16 + 2, width // 16 + 2))
    rows = np.linspace(0, coarse.shape[1] - 1.001, height)
    columns = np.linspace(0, coarse.shape[2] - 1.001, width)
    smooth = [_stretch(field, rows, columns) for field in coarse]
    noise = random.normal(0, 8, (depth, height, width)).astype(np.float32)
    weights = np.linspace(0, 1, depth, dtype=np.float32)
    slab = np.empty((depth, height, width), np.uint16)
    for z, weight in enumerate(weights):
        slab[z] = 1000 + 600 * ((1 - weight) * smooth[0] + weight * smooth[1]) + noise[z]
    for number in range(geometry.slabs):
        yield np.roll(slab, (17 * number, 31 * number), (1, 2))


def _stretch(field: NDArray[np.float64], rows: NDArray[np.float64], columns: NDArray[np.float64]) -> NDArray[np.float32]:
    """Bilinear interpolation."""
    r, c = rows.astype(int), columns.astype(int)
    fr, fc = (rows - r)[:, None], (columns - c)[None, :]
    top = field[np.ix_(r, c)] * (1 - fc) + field[np.ix_(r, c + 1)] * fc
    bottom = field[np.ix_(r + 1, c)] * (1 - fc) + field[np.ix_(r + 1, c + 1)] * fc
    stretched: NDArray[np.float32] = (top * (1 - fr) + bottom * fr).astype(np.float32)
    return stretched


def make(format_: str, codec: str, geometry: Geometry, directory: str) -> Stored:
    """Write the array, unless an earlier run that kept its data has."""
    name = f"{format_}-{codec}-{geometry.slabs}x{geometry.edge}x{geometry.flat}x{geometry.tiles}".replace("+", "-")
    base = os.path.join(directory, name)
    path, member, driver, write = {
        "zarr2": (f"{base}.zarr", "", "zarr", _zarr2),
        "zarr3": (f"{base}.zarr", "", "zarr3", _zarr3),
        "n5": (f"{base}.n5", "", "n5", _n5),
        "hdf5": (f"{base}.h5", "data", None, _hdf5),
    }[format_]
    stored = Stored(format_, codec, geometry, path, member, f"{base}.json", driver)
    if not os.path.exists(stored.manifest):
        places = write(stored)
        decode.write_manifest(f"{stored.manifest}.part", codec, geometry.chunk_bytes, places)
        os.rename(f"{stored.manifest}.part", stored.manifest)
    return stored


def local_copy(stored: Stored, directory: str) -> tuple[str, list[int]]:
    """The decoded chunks as plain files, and their checksums: made by numcodecs, so it is also the oracle."""
    _, results = together("loop", [{"manifest": stored.manifest, "threads": 1, "copy": directory}])
    return directory, results[0]["crc"]


def warm(directory: str) -> None:
    """Bring every file below `directory` (or the file itself) into the page cache."""
    buffer = bytearray(1 << 20)
    found = [os.path.join(place, name) for place, _, names in os.walk(directory) for name in names] or [directory]
    for path in found:
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def _fill(array: Any, geometry: Geometry) -> None:
    for number, slab in enumerate(slabs(geometry)):
        array[number * geometry.edge : (number + 1) * geometry.edge] = slab


def _zarr2(stored: Stored) -> list[StoredRange]:
    import numcodecs
    import zarr

    compressors: dict[str, numcodecs.abc.Codec | None] = {
        "blosc-lz4": numcodecs.Blosc("lz4", BLOSC_LEVEL, numcodecs.Blosc.SHUFFLE),
        "blosc-zstd": numcodecs.Blosc("zstd", ZSTD_LEVEL, numcodecs.Blosc.SHUFFLE),
        "zstd": numcodecs.Zstd(ZSTD_LEVEL),
        "gzip": numcodecs.GZip(GZIP_LEVEL),
        "raw": None,
    }
    geometry = stored.geometry
    array = zarr.create_array(
        stored.source, shape=geometry.shape, chunks=geometry.chunk, dtype="<u2", zarr_format=2,
        compressors=compressors[stored.codec], overwrite=True,
    )  # fmt: skip
    _fill(array, geometry)
    return _whole_files(stored, ".")


def _zarr3(stored: Stored) -> list[StoredRange]:
    import zarr
    from zarr.abc.codec import BytesBytesCodec
    from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

    compressors: dict[str, BytesBytesCodec | None] = {
        "blosc-lz4": BloscCodec(cname="lz4", clevel=BLOSC_LEVEL, shuffle="shuffle", typesize=2),
        "blosc-zstd": BloscCodec(cname="zstd", clevel=ZSTD_LEVEL, shuffle="shuffle", typesize=2),
        "zstd": ZstdCodec(level=ZSTD_LEVEL),
        "gzip": GzipCodec(level=GZIP_LEVEL),
        "raw": None,
    }
    geometry = stored.geometry
    array = zarr.create_array(
        stored.source, shape=geometry.shape, chunks=geometry.chunk, shards=geometry.shard, dtype="<u2",
        compressors=compressors[stored.codec], overwrite=True,
    )  # fmt: skip
    _fill(array, geometry)
    return [_inner(stored, index) for index in geometry.grid()]


def _inner(stored: Stored, index: tuple[int, ...]) -> StoredRange:
    """An inner chunk by the index at the end of its shard: 8 entries of offset and length, and a CRC-32C."""
    z, y, x = index
    path = f"{stored.source}/c/{z}/{y // SHARD[1]}/{x // SHARD[2]}"
    with open(path, "rb") as file:
        file.seek(-(8 * 16 + 4), os.SEEK_END)
        entries = struct.unpack("<16Q", file.read(8 * 16))
    number = SHARD[2] * (y % SHARD[1]) + x % SHARD[2]
    return _name(index), path, entries[2 * number], entries[2 * number + 1]


def _n5(stored: Stored) -> list[StoredRange]:
    import tensorstore as ts

    compression = {
        "blosc-lz4": {"type": "blosc", "cname": "lz4", "clevel": BLOSC_LEVEL, "shuffle": 1},
        "blosc-zstd": {"type": "blosc", "cname": "zstd", "clevel": ZSTD_LEVEL, "shuffle": 1},
        "zstd": {"type": "zstd", "level": ZSTD_LEVEL},
        "gzip": {"type": "gzip", "level": GZIP_LEVEL},
        "raw": {"type": "raw"},
    }[stored.codec]
    geometry = stored.geometry
    metadata = {
        "dimensions": geometry.shape, "blockSize": geometry.chunk, "dataType": "uint16", "compression": compression,
    }  # fmt: skip
    kvstore = {"driver": "file", "path": stored.source}
    array = ts.open({"driver": "n5", "kvstore": kvstore, "metadata": metadata}, create=True, delete_existing=True).result()
    _fill(array, geometry)
    header = 4 + 4 * len(geometry.chunk)
    return [(name, path, start + header, length - header) for name, path, start, length in _whole_files(stored, "/")]


def _hdf5(stored: Stored) -> list[StoredRange]:
    import h5py

    geometry = stored.geometry
    options: dict[str, Any] = {"compression": "gzip", "compression_opts": GZIP_LEVEL, "shuffle": True}
    with h5py.File(stored.source, "w", libver="latest") as file:
        dataset = file.create_dataset("data", geometry.shape, "<u2", chunks=geometry.chunk, **options)
        _fill(dataset, geometry)
        places = []
        for index in geometry.grid():
            offset = tuple(i * edge for i, edge in zip(index, geometry.chunk, strict=True))
            info = dataset.id.get_chunk_info_by_coord(offset)
            places.append((_name(index), stored.source, info.byte_offset, info.size))
    return places


def _whole_files(stored: Stored, separator: str) -> list[StoredRange]:
    places = []
    for index in stored.geometry.grid():
        path = os.path.join(stored.source, separator.join(map(str, index)))
        places.append((_name(index), path, 0, os.path.getsize(path)))
    return places


def _name(index: tuple[int, ...]) -> str:
    return "/".join(map(str, index))


def flat_zarr2(path: str, shape: tuple[int, ...], chunk: int, separator: str, stored: int) -> None:
    """An uncompressed Zarr v2 array of bytes; its first `stored` chunks exist. For listings: content does not matter."""
    os.makedirs(path)
    document = {
        "zarr_format": 2, "shape": [extent * chunk for extent in shape], "chunks": [chunk] * len(shape), "dtype": "|u1",
        "compressor": None, "fill_value": 0, "order": "C", "filters": None, "dimension_separator": separator,
    }  # fmt: skip
    with open(os.path.join(path, ".zarray"), "w") as file:
        json.dump(document, file)
    _files(path, shape, separator, stored, lambda fd: os.write(fd, bytes(chunk ** len(shape))))


def plain_files(path: str, shape: tuple[int, ...], size: int, stored: int) -> None:
    """The files that a mount of `flat_zarr2` shows, as empty files of the same size."""
    _files(path, shape, "/", stored, lambda fd: os.truncate(fd, size))


def _files(path: str, shape: tuple[int, ...], separator: str, stored: int, fill: Callable[[int], object]) -> None:
    made = ""
    for number in range(stored):
        index = np.unravel_index(number, shape)
        name = os.path.join(path, separator.join(map(str, index)))
        parent = os.path.dirname(name)
        if parent != made:
            os.makedirs(parent, exist_ok=True)
            made = parent
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        fill(fd)
        os.close(fd)
