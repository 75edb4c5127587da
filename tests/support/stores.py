"""Stores that fsbridge did not write: one case per writer, compression, data type, memory order, edge and hole.

Every case writes one array into a store of its writer with the writer's own library, and later reads it back from there with
an independent reader: that is the truth which a mount must show. Not here: mounts.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numcodecs
import numpy as np
import tensorstore
import z5py
import zarr
from zarr import codecs

SHAPE = (7, 5, 4)
CHUNKS = (3, 2, 4)
"""Edges in two dimensions; the last chunk of each is cut."""
HOLE = (slice(3, 6), slice(2, 4), slice(0, 4))
"""One chunk that is never written."""
FILL = 9
ATTRIBUTES: dict[str, Any] = {"unit": "nm", "ünï/çødé": [1, 2.5, None, True, {"deep": ["", -1e300, 2**53]}], "empty": {}}

NUMBERS = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float32", "float64"]


@dataclass(frozen=True)
class Case:
    """One array: `write(path)` makes it, `read(path)` is the reference reader; `path` is the array's own folder."""

    store: str
    name: str
    write: Callable[[Path], None]
    read: Callable[[Path], Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    tensorstore: bool = True
    """True if TensorStore's Zarr v3 driver has the data type."""

    @property
    def path(self) -> str:
        return f"{self.store}/{self.name}"


def values(dtype: Any, shape: tuple[int, ...] = SHAPE) -> Any:
    """Every bit pattern equally likely, so that no byte order, sign or NaN payload goes unnoticed; text for text types."""
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(zlib.crc32(repr((dtype.descr, shape)).encode()))
    count = int(np.prod(shape))
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "SU":
        words = ["", "a", "naïve"[: dtype.itemsize if dtype.kind == "S" else None], "zzz"]
        texts = [w.encode("ascii", "replace").decode() if dtype.kind == "S" else w for w in words]
        return np.array([texts[i] for i in rng.integers(0, 4, count)], dtype).reshape(shape)
    return np.frombuffer(rng.bytes(count * dtype.itemsize), dtype).reshape(shape)


def kvstore(path: Path) -> dict[str, str]:
    return {"driver": "file", "path": f"{path}/"}


def read_tensorstore(driver: str) -> Callable[[Path], Any]:
    def read(path: Path) -> Any:
        return tensorstore.open({"driver": driver, "kvstore": kvstore(path)}, open=True).result().read().result()

    return read


def read_zarr(path: Path) -> Any:
    return zarr.open_array(path, mode="r")[...]


def read_z5py(path: Path) -> Any:
    """z5py shows N5 in C order; the mount, like TensorStore, in N5's own order."""
    with z5py.File(str(path.parent), "r", use_zarr_format=False) as file:
        return file[path.name][:].T


def chunk_slices(chunks: tuple[int, ...], shape: tuple[int, ...]) -> list[tuple[slice, ...]]:
    counts = [-(-n // c) for n, c in zip(shape, chunks, strict=True)]
    return [
        tuple(slice(i * c, min((i + 1) * c, n)) for i, c, n in zip(index, chunks, shape, strict=True))
        for index in np.ndindex(*counts)
    ]


def _fill_in(array: Any, data: Any) -> None:
    for where in chunk_slices(CHUNKS, data.shape):
        if where != HOLE:
            array[where] = data[where]


def _tensorstore_case(driver: str, name: str, dtype: str, metadata: dict[str, Any], **spec: Any) -> Case:
    def write(path: Path) -> None:
        array = tensorstore.open(
            {"driver": driver, "kvstore": kvstore(path), "metadata": metadata, **spec}, create=True
        ).result()
        _fill_in(array, values(dtype))

    return Case(f"tensorstore-{driver}", name, write, read_tensorstore(driver))


def _n5_by_tensorstore() -> list[Case]:
    compressions: dict[str, dict[str, Any]] = {
        "raw": {"type": "raw"},
        "gzip": {"type": "gzip"},
        "zlib": {"type": "gzip", "useZlib": True},
        "bzip2": {"type": "bzip2"},
        "xz": {"type": "xz"},
        "zstd": {"type": "zstd"},
        **{
            f"blosc-{cname}": {"type": "blosc", "cname": cname, "clevel": 5, "shuffle": shuffle}
            for cname, shuffle in [("lz4", 1), ("lz4hc", 2), ("blosclz", 0), ("zlib", 1), ("zstd", 2), ("snappy", 1)]
        },
    }
    grid = {"dimensions": list(SHAPE), "blockSize": list(CHUNKS)}
    named = [(f"compression-{k}", "int32", v) for k, v in compressions.items()]
    named += [(f"dtype-{dtype}", dtype, {"type": "raw"}) for dtype in NUMBERS]
    return [
        _tensorstore_case("n5", name, dtype, {**grid, "dataType": dtype, "compression": compression})
        for name, dtype, compression in named
    ]


def _n5_by_z5py() -> list[Case]:
    def case(name: str, dtype: str, **options: Any) -> Case:
        def write(path: Path) -> None:
            with z5py.File(str(path.parent), "a", use_zarr_format=False) as file:
                array = file.create_dataset(path.name, shape=SHAPE, chunks=CHUNKS, dtype=dtype, **options)
                _fill_in(array, values(dtype))
                array.attrs.update({"unit": "nm", "list": [1, 2.5]})

        return Case("z5py-n5", name, write, read_z5py, {"unit": "nm", "list": [1, 2.5]})

    compressions = ["raw", "gzip", "bzip2", "lz4", "blosc", "zstd", "xz"]
    return [
        *(case(f"compression-{c}", "uint16", compression=c) for c in compressions),
        *(case(f"dtype-{dtype}", dtype, compression="gzip") for dtype in NUMBERS),
    ]


def _v2_by_tensorstore() -> list[Case]:
    compressors: dict[str, dict[str, Any] | None] = {
        "none": None,
        "zlib": {"id": "zlib", "level": 4},
        "bz2": {"id": "bz2", "level": 4},
        "zstd": {"id": "zstd", "level": 4},
        "blosc": {"id": "blosc", "cname": "zstd", "clevel": 5, "shuffle": -1},
    }

    def case(name: str, dtype: str, compressor: Any = None, order: str = "C", **metadata: Any) -> Case:
        return _tensorstore_case(
            "zarr",
            name,
            dtype,
            {
                "shape": list(SHAPE),
                "chunks": list(CHUNKS),
                "dtype": np.dtype(dtype).str,
                "fill_value": None,
                "order": order,
                "compressor": compressor,
                **metadata,
            },
        )

    return [
        *(case(f"compressor-{name}", "<i4", compressor) for name, compressor in compressors.items()),
        *(case(f"dtype{np.dtype(dtype).str}", dtype) for dtype in ["<f2", ">f4", ">u8", "<c8", ">c16", "|b1", "|i1"]),
        case("order-F", ">i2", order="F"),
        case("nested", "<u4", dimension_separator="/"),
        case("fill", "<i2", fill_value=FILL),
    ]


STRUCT = np.dtype([("a", "<i4"), ("b", "<f8"), ("c", "S3")])


def _zarr_python_case(
    zarr_format: Literal[2, 3],
    name: str,
    dtype: Any,
    data: Any = None,
    chunks: tuple[int, ...] | None = None,
    tensorstore: bool = True,
    **options: Any,
) -> Case:
    def write(path: Path) -> None:
        content = values(dtype) if data is None else data
        default = CHUNKS if content.ndim == 3 else tuple(max(n // 2, 1) for n in content.shape)
        array = zarr.create_array(
            path,
            shape=content.shape,
            chunks=chunks or default,
            dtype=dtype,
            zarr_format=zarr_format,
            attributes=ATTRIBUTES,
            config={"write_empty_chunks": True},
            **options,
        )
        if content.ndim == 3 and "shards" not in options:
            _fill_in(array, content)
        else:
            array[...] = content

    return Case(f"zarr-python-v{zarr_format}", name, write, read_zarr, ATTRIBUTES, tensorstore)


def _v2_by_zarr_python() -> list[Case]:
    compressors: dict[str, Any] = {
        "none": None,
        "zlib": numcodecs.Zlib(),
        "gzip": numcodecs.GZip(),
        "bz2": numcodecs.BZ2(),
        "lzma": numcodecs.LZMA(),
        "lz4": numcodecs.LZ4(),
        "zstd": numcodecs.Zstd(),
        **{
            f"blosc-{cname}-{shuffle}": numcodecs.Blosc(cname=cname, shuffle=shuffle)
            for cname in ("lz4", "lz4hc", "blosclz", "zlib", "zstd")
            for shuffle in (0, 1, 2)
        },
    }
    filters: dict[str, tuple[str, list[Any]]] = {
        "delta": ("<i4", [numcodecs.Delta("<i4")]),
        "shuffle": ("<i4", [numcodecs.Shuffle(4)]),
        "crc32": ("<i4", [numcodecs.CRC32()]),
        "adler32": ("<i4", [numcodecs.Adler32()]),
        "fletcher32": ("<i4", [numcodecs.Fletcher32()]),
        "delta-shuffle": ("<i2", [numcodecs.Delta("<i2"), numcodecs.Shuffle(2)]),
    }
    kinds = ["|b1", "<f2", ">i2", ">f8", "<c8", ">c16", "<u8"]
    others = ["|S5", "<U4", ">U3", "|V6", "<M8[ns]", "<m8[s]", STRUCT]
    py = _zarr_python_case
    return [
        *(py(2, f"compressor-{name}", "<i4", compressors=compressor) for name, compressor in compressors.items()),
        *(py(2, f"filter-{name}", dtype, filters=chain) for name, (dtype, chain) in filters.items()),
        *(py(2, f"dtype{kind}", kind, compressors=None) for kind in kinds),
        *(py(2, f"dtype-other-{i}", kind, tensorstore=False, compressors=numcodecs.Zlib()) for i, kind in enumerate(others)),
        py(2, "order-F", ">i4", order="F"),
        py(2, "order-F-filter", "<i4", order="F", filters=[numcodecs.Delta("<i4")]),
        py(2, "nested", "<i4", chunk_key_encoding={"name": "v2", "separator": "/"}),
        py(2, "fill", "<i4", fill_value=FILL),
        py(2, "fill-nan", "<f4", fill_value=np.nan),
        py(2, "scalar", "<f8", np.array(2.5)),
        py(2, "zero-length", "<i4", np.zeros((0, 3), "<i4"), chunks=(1, 3)),
        py(2, "one", "<i4", values("<i4", (1,))),
    ]


def _v3_by_zarr_python() -> list[Case]:
    zstd = codecs.ZstdCodec()
    compressors: dict[str, Any] = {
        "none": None,
        "gzip": codecs.GzipCodec(),
        "zstd": zstd,
        "zstd-checksum": codecs.ZstdCodec(checksum=True),
        "crc32c": codecs.Crc32cCodec(),
        **{f"blosc-{c}": codecs.BloscCodec(cname=c) for c in ("lz4", "lz4hc", "blosclz", "zlib", "zstd")},
    }
    py = _zarr_python_case
    transposed = [codecs.TransposeCodec(order=(2, 0, 1))]
    return [
        *(py(3, f"compressor-{name}", "int32", compressors=compressor) for name, compressor in compressors.items()),
        *(py(3, f"dtype-{kind}", kind) for kind in [*NUMBERS, "bool", "float16", "complex64", "complex128"]),
        py(3, "big-endian", "int32", serializer=codecs.BytesCodec(endian="big")),
        py(3, "transpose", "int16", filters=transposed),
        py(3, "v2-keys", "int16", chunk_key_encoding={"name": "v2", "separator": "."}),
        py(3, "dot-keys", "int16", chunk_key_encoding={"name": "default", "separator": "."}),
        py(3, "names", "int16", dimension_names=["z", None, "x"]),
        py(3, "fill", "int16", fill_value=FILL),
        py(3, "scalar", "float64", np.array(2.5)),
        py(3, "shard", "int32", values("int32", (8, 4, 4)), (2, 2, 4), shards=(4, 4, 4)),
        py(3, "shard-zstd", "float32", values("float32", (8, 4, 4)), (4, 2, 2), shards=(8, 4, 4), compressors=zstd),
        py(3, "text", str, np.array(["", "ü", "long " * 50, "x"], dtype=object), tensorstore=False),
    ]


def _v3_by_tensorstore() -> list[Case]:
    def case(name: str, dtype: str, chain: list[Any], chunks: tuple[int, ...] = CHUNKS, **metadata: Any) -> Case:
        return _tensorstore_case(
            "zarr3",
            name,
            dtype,
            {
                "shape": list(SHAPE),
                "data_type": dtype,
                "codecs": chain,
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
                **metadata,
            },
        )

    little = {"name": "bytes", "configuration": {"endian": "little"}}
    big = {"name": "bytes", "configuration": {"endian": "big"}}
    crc = {"name": "crc32c"}

    def shard(index_location: str, *inner: Any) -> dict[str, Any]:
        return {
            "name": "sharding_indexed",
            "configuration": {
                "chunk_shape": list(CHUNKS),
                "codecs": list(inner),
                "index_codecs": [little, crc],
                "index_location": index_location,
            },
        }

    return [
        case("gzip", "int32", [little, {"name": "gzip", "configuration": {"level": 5}}]),
        case("zstd", "int32", [big, {"name": "zstd", "configuration": {"level": 3}}]),
        case("crc32c", "int32", [little, crc]),
        case(
            "blosc",
            "uint16",
            [
                little,
                {
                    "name": "blosc",
                    "configuration": {"cname": "lz4", "clevel": 5, "shuffle": "bitshuffle", "typesize": 2, "blocksize": 0},
                },
            ],
        ),
        case("transpose", "int16", [{"name": "transpose", "configuration": {"order": [1, 2, 0]}}, little]),
        case("shard-end", "int32", [shard("end", little)], (9, 6, 4)),
        case("shard-start", "int32", [shard("start", little, {"name": "gzip", "configuration": {"level": 1}})], (9, 6, 4)),
        case("fill", "int32", [little], fill_value=FILL),
        case("names", "int32", [little], dimension_names=["z", "y", "x"]),
    ]


CASES: list[Case] = [
    *_n5_by_tensorstore(),
    *_n5_by_z5py(),
    *_v2_by_tensorstore(),
    *_v2_by_zarr_python(),
    *_v3_by_zarr_python(),
    *_v3_by_tensorstore(),
]


def write_collection(root: Path, cases: list[Case] = CASES) -> Path:
    """Write all `cases` below `root`, one store per writer and format."""
    for case in cases:
        folder = root / case.store
        if not folder.exists():
            folder.mkdir(parents=True)
            if case.store.startswith("zarr-python"):
                zarr.create_group(folder, zarr_format=2 if case.store.endswith("2") else 3, attributes=ATTRIBUTES)
            elif case.store == "z5py-n5":
                z5py.File(os.fspath(folder), "w", use_zarr_format=False).attrs["made by"] = "z5py"
        case.write(root / case.path)
    return root
