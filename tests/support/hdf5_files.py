"""HDF5 files of other programs, and kinds that h5py writes only with its low-level calls. Not here: any test."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import h5py
import numpy as np


def write_pattern(path: Path, files: str, datasets: str) -> None:
    """A virtual dataset that grows by blocks of one row, each from the next file, as a detector writes it."""
    with h5py.File(path, "w", libver="latest") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_fill_value(np.array(-1, "<i8"))
        space = h5py.h5s.create_simple((4, 5), (h5py.h5s.UNLIMITED, 5))
        block = h5py.h5s.create_simple((4, 5), (h5py.h5s.UNLIMITED, 5))
        block.select_hyperslab((0, 0), (h5py.h5s.UNLIMITED, 1), (1, 1), (1, 5))
        plist.set_virtual(block, files.encode(), datasets.encode(), h5py.h5s.create_simple((1, 5)))
        h5py.h5d.create(file.id, b"v", h5py.h5t.STD_I64LE, space, plist)


def foreign_files() -> list[Path]:
    """Test data inside the installed wheels of PyTables and h5py."""
    found: list[Path] = []
    for package, folder in (("tables", "tests"), ("h5py", "tests/data_files")):
        spec = importlib.util.find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        files = sorted((Path(spec.origin).parent / folder).glob("*.h5"))
        assert files, f"{spec.origin}: is not the installed {package}"
        found += files
    return found
