"""N5 as its writers leave it: TensorStore, z5, zarr-python 2, and blocks as the Java code makes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore as ts
import z5py

from fsbridge.config import Config
from fsbridge.formats import open_source
from fsbridge.model import Array, Group, Source
from tests.model_values import array_at, values

TYPES = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float32", "float64"]
TS_COMPRESSIONS: list[dict[str, Any]] = [
    {"type": "raw"},
    {"type": "gzip"},
    {"type": "gzip", "useZlib": True, "level": 3},
    {"type": "bzip2"},
    {"type": "xz"},
    {"type": "zstd", "level": 3},
    *({"type": "blosc", "cname": name, "clevel": 5, "shuffle": s} for name, s in (("lz4", 1), ("zstd", 2), ("blosclz", 0))),
]
SHAPE, BLOCK = (7, 11, 5), (3, 4, 2)


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    return (np.arange(np.prod(shape, dtype=int)) % 251 - (100 if dtype[0] in "if" else 0)).reshape(shape).astype(dtype)


@pytest.fixture
def opened() -> Iterator[list[Source]]:
    sources: list[Source] = []
    yield sources
    for source in sources:
        source.close()


def open_root(path: Path, opened: list[Source]) -> Group | Array:
    source = open_source(str(path), Config(str(path), ""))
    opened.append(source)
    assert source.format == "n5"
    return source.root


def write_ts(path: Path, data: np.ndarray[Any, Any], block: tuple[int, ...], **extra: Any) -> None:
    metadata = {"dimensions": data.shape, "blockSize": block, "dataType": data.dtype.name, **extra}
    spec = {"driver": "n5", "kvstore": {"driver": "file", "path": str(path)}, "metadata": metadata}
    ts.open(spec, create=True).result()[...] = data


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("compression", TS_COMPRESSIONS, ids=lambda c: "-".join(map(str, c.values())))
def test_tensorstore(tmp_path: Path, opened: list[Source], dtype: str, compression: dict[str, Any]) -> None:
    data = numbers(SHAPE, dtype)
    data[:3] = 0  # TensorStore does not store blocks of zeros
    write_ts(tmp_path / "a", data, BLOCK, compression=compression, axes=["x", "y", "z"], units=["nm", "nm", ""])
    array = array_at(open_root(tmp_path, opened), "a")
    assert (array.metadata.shape, array.metadata.grid.edges, array.metadata.order) == (SHAPE, BLOCK, (2, 1, 0))
    assert array.metadata.dtype.name == dtype
    assert array.metadata.dimension_names == ("x", "y", "z")
    assert array.metadata.attributes["units"] == ["nm", "nm", ""]
    assert array.chunks.count() == 18
    assert np.array_equal(values(array), data)


@pytest.mark.parametrize("compression", ["raw", "gzip", "bzip2", "xz", "lz4", "blosc", "zstd"])
@pytest.mark.parametrize("dtype", ["uint8", "int32", "float64"])
def test_z5_writes_truncated_edges(tmp_path: Path, opened: list[Source], compression: str, dtype: str) -> None:
    data = numbers(SHAPE, dtype)
    file = z5py.File(str(tmp_path / "c.n5"), "a")
    try:
        dataset = file.create_dataset("g/h/a", shape=SHAPE, chunks=BLOCK, dtype=dtype, compression=compression)
    except RuntimeError:
        pytest.fail(f"z5 without {compression}")
    dataset[...] = data
    dataset.attrs["resolution"] = [4, 4, 40]
    array = array_at(open_root(tmp_path / "c.n5", opened), "g/h/a")
    assert array.metadata.shape == SHAPE[::-1]
    assert array.metadata.attributes == {"resolution": [4, 4, 40]}
    assert np.array_equal(values(array).transpose(), data)
