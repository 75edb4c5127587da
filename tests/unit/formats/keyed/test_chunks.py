"""Parts of Blosc chunks: equal to the whole chunk's, for every format, and read without the rest of the chunk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numcodecs
import numpy as np
import pytest
import zarr
from counting_store import CountingStore
from n5_arrays import write_n5
from zarr.codecs import BloscCodec

from fsbridge.config import Config
from fsbridge.errors import CorruptData, Stale
from fsbridge.formats.open import Opening
from fsbridge.model import Array, as_array
from fsbridge.store.local import LocalStore

SIDE = 512
VALUES = np.random.default_rng(3).integers(0, 40, (2 * SIDE, 2 * SIDE)).astype("<u4")


def zarr2(path: Path) -> None:
    codec = numcodecs.Blosc("lz4", blocksize=1 << 16)
    array = zarr.create_array(
        path, shape=VALUES.shape, chunks=(SIDE, SIDE), dtype=VALUES.dtype, compressors=codec, zarr_format=2
    )
    array[...] = VALUES


def zarr3(path: Path) -> None:
    codec = BloscCodec(cname="lz4", shuffle="shuffle", blocksize=1 << 16)
    zarr.create_array(path, shape=VALUES.shape, chunks=(SIDE, SIDE), dtype=VALUES.dtype, compressors=codec)[...] = VALUES


def sharded(path: Path) -> None:
    codec = BloscCodec(cname="zstd", shuffle="bitshuffle", blocksize=1 << 16)
    array = zarr.create_array(
        path, shape=VALUES.shape, chunks=(SIDE, SIDE), shards=VALUES.shape, dtype=VALUES.dtype, compressors=codec
    )
    array[...] = VALUES


def n5(path: Path) -> None:
    compression = {"type": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 1 << 16}
    write_n5(path, VALUES, [SIDE, SIDE], compression)


def opened(path: Path, store: LocalStore | None = None) -> Array:
    config = Config(str(path), "/mnt")
    opening = Opening() if store is None else Opening(folder_store=lambda *_: store)
    array = as_array(opening.source(config.source, config).root)
    assert array is not None
    return array


@pytest.mark.parametrize("make", [zarr2, zarr3, sharded, n5])
def test_ranges_equal_slices_and_read_little(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "a")
    store = CountingStore(str(tmp_path / "a"))
    array = opened(tmp_path / "a", store)
    info = array.chunks.find((1, 1))
    whole = array.chunks.read_all((1, 1), info, 1 << 26)
    assert len(whole) == 4 * SIDE * SIDE
    store.wholes.clear()
    for start, stop in [(0, 1), (0, 4096), (500_000, 504_096), (65_530, 131_080), (len(whole) - 1, len(whole))]:
        store.ranges.clear()
        assert array.chunks.read_range((1, 1), info, start, stop) == whole[start:stop]
        assert sum(store.ranges) < info.stored // 2
    assert not store.wholes


@pytest.mark.parametrize("make", [zarr2, zarr3, sharded, n5])
def test_a_range_of_a_replaced_or_truncated_chunk_is_an_error(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "a")
    array = opened(tmp_path / "a")
    info = array.chunks.find((1, 1))
    files = [path for path in (tmp_path / "a").rglob("*") if path.is_file()]
    stored = next(path for path in files if str(path).endswith("c/0/0" if make is sharded else ("1/1", "1.1")))
    stored.write_bytes(stored.read_bytes()[:-1])
    with pytest.raises((Stale, CorruptData)):
        array.chunks.read_range((1, 1), info, 0, 10)
    with pytest.raises(CorruptData):
        array.chunks.read_range((1, 1), array.chunks.find((1, 1)), 0, 10)
