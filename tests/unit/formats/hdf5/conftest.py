"""Fixtures shared by the tests of `hdf5`."""

from __future__ import annotations

from pathlib import Path

import pytest
from remote_hdf5_files import write_large


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_large(tmp_path_factory.mktemp("large") / "x.h5")
