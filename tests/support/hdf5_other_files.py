"""Data for HDF5 files to lie in other files. Not here: what of them may be read."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

SECRET = np.arange(100, dtype="<i4") + 7000


def write_outside(folder: Path) -> Path:
    """Write a folder with an HDF5 file and raw data that may not be opened."""
    folder.mkdir()
    with h5py.File(folder / "secret.h5", "w") as file:
        file["secret"] = SECRET
    (folder / "secret.bin").write_bytes(SECRET.tobytes())
    return folder
