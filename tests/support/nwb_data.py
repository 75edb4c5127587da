"""The NWB files of tests/data/nwb/, unpacked, and what pynwb reads from them (tests/data/make_nwb.py)."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parents[1] / "data" / "nwb"


def unpack(name: str, folder: Path) -> Path:
    """Unpack `zarr2`, `zarr3` or `hdf5` into `folder`."""
    with tarfile.open(DATA / f"{name}.tar.xz") as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)  # Debian 12's Python has no filters yet
        tar.extractall(folder)
    return folder


def expected_arrays(name: str) -> dict[str, np.ndarray[Any, Any]]:
    """Numeric arrays by path, as pynwb reads them."""
    with np.load(DATA / f"{name}.npz") as archive:
        return dict(archive)


def expected_facts(name: str) -> dict[str, Any]:
    """Texts and references by path, as pynwb reads them."""
    facts: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text())
    return facts
