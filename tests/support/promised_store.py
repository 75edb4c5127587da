"""The small Zarr v2 store on which mounts of every layout show that they keep their promises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import zarr

CHUNKS = (10, 10)
VALUES = np.random.default_rng(1).integers(1, 99, (35, 27), np.int32)
VALUES.setflags(write=False)


def write_zarr(path: Path, values: Any, chunks: tuple[int, ...] = CHUNKS, **options: Any) -> None:
    options = {"zarr_format": 2, "compressors": numcodecs.Zlib(), **options}
    zarr.create_array(path, shape=values.shape, chunks=chunks, dtype=values.dtype, **options)[...] = values


def promised_store(root: Path) -> Path:
    """A group with the array `a` of 4 x 3 chunks of VALUES, keys `a/0.0` to `a/3.2`."""
    zarr.create_group(root, zarr_format=2, attributes={"made": "here"})
    write_zarr(root / "a", VALUES)
    return root
