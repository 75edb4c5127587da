"""Zarr v3 stores made by hand or by TensorStore, and their arrays through the model. Not here: any test."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import tensorstore as ts
from model_reader import read_array

from fsbridge.config import Config
from fsbridge.formats.keyed.hierarchy import KeyedArray, KeyedGroup, KeyedSource
from fsbridge.formats.open import Opening
from fsbridge.model import Array, Group
from fsbridge.store import ROOT, Store
from fsbridge.store.local import LocalStore

NUMBERS = ("bool", *(f"{s}int{b}" for s in ("", "u") for b in (8, 16, 32, 64)), "float16", "float32", "float64", "complex64")
FLOAT8 = ("e3m4", "e4m3b11fnuz", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz")
STRUCT = np.dtype([("a", "<i2"), ("b", "<f8"), ("s", "S3"), ("u", "<U2"), ("n", [("x", "u1"), ("t", "<M8[ns]")])])
SHAPE = (9, 10)

Document = dict[str, Any]


def source(place: Path | str | Store) -> KeyedSource:
    store = place if isinstance(place, Store) else LocalStore(str(place))
    hierarchy = Opening().open_in_store("zarr3", store, Config(store.describe(ROOT), ""))
    assert isinstance(hierarchy, KeyedSource)
    return hierarchy


def root_array(place: Path | str | Store) -> Array:
    root = source(place).root
    assert isinstance(root, KeyedArray)
    return root


def root_group(place: Path | str | Store) -> Group:
    root = source(place).root
    assert isinstance(root, KeyedGroup)
    return root


def values(dtype: np.dtype[Any], shape: tuple[int, ...] = SHAPE, seed: int = 0) -> np.ndarray[Any, Any]:
    """Random elements of any type."""
    rng = np.random.default_rng(seed)
    count = int(np.prod(shape))
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "SUV" and dtype.fields is None:
        letters = rng.integers(97, 123, count * dtype.itemsize // (4 if dtype.kind == "U" else 1))
        return np.frombuffer(letters.astype("u4" if dtype.kind == "U" else "u1"), dtype.newbyteorder("=")).reshape(shape)
    if dtype.fields is not None:
        result = np.empty(shape, dtype)
        for position, name in enumerate(dtype.names or ()):
            result[name] = values(dtype.fields[name][0], shape, seed + position)
        return result
    if dtype.kind == "c":
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)
    if dtype.kind == "f":
        return (rng.normal(size=shape) * 100).astype(dtype)
    return rng.integers(-(2**62), 2**62, shape).astype("i8").view("u8").astype(f"u{dtype.itemsize}").view(dtype)


def write(path: Path, document: Document, chunks: dict[str, bytes] | None = None) -> Path:
    """A store of one hand-written document and chunk files."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "zarr.json").write_text(json.dumps(document))
    for key, data in (chunks or {}).items():
        (path / key).parent.mkdir(parents=True, exist_ok=True)
        (path / key).write_bytes(data)
    return path


def array_document(**changes: Any) -> Document:
    """A document of four int16 in two chunks; a member given as `...` is left out."""
    document: Document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [4],
        "data_type": "int16",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 7,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    }
    return {key: value for key, value in (document | changes).items() if value is not ...}


def int16(*numbers: int) -> bytes:
    return np.array(numbers, "<i2").tobytes()


def check(path: Path | str, expected: Any) -> Array:
    """The array at `path` holds `expected`."""
    array = root_array(path)
    assert array.metadata.shape == expected.shape
    np.testing.assert_array_equal(read_array(array), expected)
    return array


def create_tensorstore(
    path: Path, dtype: str, shape: tuple[int, ...], chunk: list[int], codecs: list[Any], **more: Any
) -> Any:
    metadata = {
        "shape": list(shape),
        "data_type": dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
        "codecs": codecs,
        **more,
    }
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(path)}, "metadata": metadata}
    return ts.open(spec, create=True).result()


def sharded(**changes: Any) -> dict[str, Any]:
    """Eight int16 in two shards of two chunks each, index at the end with crc32c."""
    configuration = {
        "chunk_shape": [2],
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
        "index_location": "end",
        **changes,
    }
    grid = {"name": "regular", "configuration": {"chunk_shape": [4]}}
    codecs = [{"name": "sharding_indexed", "configuration": configuration}]
    return array_document(shape=[8], chunk_grid=grid, codecs=codecs)


def index(*entries: tuple[int, int], crc: bool = True) -> bytes:
    raw = b"".join(struct.pack("<QQ", *entry) for entry in entries)
    return raw + struct.pack("<I", google_crc32c.value(raw)) if crc else raw


GOOD = int16(1, 2) + int16(3, 4)
"""The inner chunks of a shard of `sharded`."""
