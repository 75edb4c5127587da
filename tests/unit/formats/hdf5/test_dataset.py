"""Datasets that the file does not cut, in slabs of a few bytes: equal to h5py's reading however they are cut."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from h5py import h5d, h5p, h5s, h5t
from hdf5_model import array, decoded, opened, stored, values

from fsbridge.errors import NotFound
from fsbridge.formats.hdf5.file import HDF5Limits, Pools
from fsbridge.formats.shared import Shared

RANDOM = np.random.default_rng(11)
DTYPES = ["u1", "<u2", ">f8", "S3", np.dtype(("<i2", (3,))), np.dtype([("a", ">i4"), ("b", "u1")])]
SHAPES = [(), (1,), (7,), (0,), (3, 0, 2), (5, 3), (1, 9), (4, 1, 6), (3, 4, 5), (2, 2, 3, 5), (1, 1, 7, 2)]


def random(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    dtype = np.dtype(dtype)
    count = int(np.prod(shape, dtype=int)) * dtype.itemsize
    found: np.ndarray[Any, Any] = RANDOM.integers(1, 100, count, np.uint8).view(dtype.base)
    return found.reshape((*shape, *dtype.shape))


def create(file: h5py.File, name: str, dtype: Any, shape: tuple[int, ...], compact: bool) -> np.ndarray[Any, Any]:
    """A dataset with a fill value, and what h5py reads of it."""
    kind = h5t.py_create(np.dtype(dtype), logical=True)
    plist = h5p.create(h5p.DATASET_CREATE)
    if compact:
        plist.set_layout(h5d.COMPACT)
    if np.dtype(dtype).subdtype is None:
        plist.set_fill_value(random((1,), dtype))
    space = h5s.create_simple(shape) if shape else h5s.create(h5s.SCALAR)
    dataset = h5py.Dataset(h5d.create(file.id, name.encode(), kind, space, plist))
    dataset[...] = random(shape, dtype)
    return np.asarray(dataset[()])


@pytest.mark.parametrize("most", [1, 7, 12, 64, 1 << 20])
def test_slabs_of_any_shape_are_what_h5py_reads(tmp_path: Path, most: int) -> None:
    path, expected = tmp_path / "x.h5", {}
    with h5py.File(path, "w", libver="latest", userblock_size=512) as file:
        for number, (dtype, shape) in enumerate(itertools.product(DTYPES, SHAPES)):
            expected[f"x{number}"] = create(file, f"x{number}", dtype, shape, bool(number % 3))
    with opened(path, Shared(Pools(HDF5Limits(slab_bytes=most)))) as source:
        for name, wanted in expected.items():
            found = array(source, name)
            read = values(found)
            assert read.shape == wanted.shape
            assert read.tobytes() == wanted.astype(read.dtype).tobytes(), f"{name}: {wanted.dtype} {wanted.shape}"
            padding = found.metadata.fill if isinstance(found.metadata.fill, bytes) else bytes(found.metadata.dtype.itemsize)
            for index in stored(found):
                grid = found.metadata.grid
                block = np.frombuffer(decoded(found, index), f"V{len(padding)}").reshape(grid.chunk_shape(index))
                outside = np.ones(block.shape, bool)
                outside[tuple(slice(0, n - i * e) for n, i, e in zip(grid.shape, index, block.shape, strict=True))] = False
                assert set(block[outside].tolist()) <= {padding}
                check_ranges(found, index, block.tobytes())
            with pytest.raises(NotFound):
                found.chunks.find((*grid.counts,) if (grid := found.metadata.grid).shape else (0,))


def check_ranges(found: Any, index: tuple[int, ...], data: bytes) -> None:
    """Every part of a small chunk, and what lies behind it."""
    info = found.chunks.find(index)
    for start, stop in itertools.combinations(range(0, len(data) + 3, 1 + len(data) // 8), 2):
        part = found.chunks.read_range(index, info, start, stop)
        assert part is None or part == data[start:stop]
