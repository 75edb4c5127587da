"""Fixtures shared by the tests of faults."""

from __future__ import annotations

from pathlib import Path

import h5py
import pytest
from hdf5_other_files import SECRET


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder with an HDF5 file and raw data that may not be opened."""
    folder = tmp_path / "outside"
    folder.mkdir()
    with h5py.File(folder / "secret.h5", "w") as file:
        file["secret"] = SECRET
    (folder / "secret.bin").write_bytes(SECRET.tobytes())
    return folder
