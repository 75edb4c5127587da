"""The small Zarr v2 store on which mounts of every layout show that they keep their promises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import zarr

CHUNKS = (10, 10)


def write_zarr(path: Path, values: Any, chunks: tuple[int, ...] = CHUNKS, **options: Any) -> None:
    options = {"zarr_format": 2, "compressors": numcodecs.Zlib(), **options}
    zarr.create_array(path, shape=values.shape, chunks=chunks, dtype=values.dtype, **options)[...] = values


def promised_store(root: Path, values: np.ndarray[Any, Any]) -> Path:
    """A group with the array `a`; the keys of its chunks begin at `a/0.0`."""
    zarr.create_group(root, zarr_format=2, attributes={"made": "here"})
    write_zarr(root / "a", values)
    return root
