"""A mount goes on when its package is removed: everything reads as before.

The package and all libraries are links in a folder of their own, which goes away. Not here: real packages
(`scripts/package-check`), Python's own library.
"""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
import pytest
import zarr
from mounting import mounted
from numcodecs import PCodec
from paths import ROOT
from waiting import until

PICTURES = (np.arange(3 * 64 * 64) % 251).astype("u1").reshape(3, 64, 64)
CURVE = np.sqrt(np.arange(200.0))
LOADED = "all is loaded that requests may need"


def zarr_store(place: Path, zarr_format: Literal[2, 3] = 3) -> None:
    group = zarr.open_group(place, mode="w", zarr_format=zarr_format)
    names: list[dict[str, Any]] = (
        [{}, {}] if zarr_format == 2 else [{"dimension_names": "zyx"}, {"dimension_names": ["time"]}]
    )
    group.create_array("pictures", data=PICTURES, chunks=(1, 64, 64), **names[0])
    group.create_array("curve", data=CURVE, chunks=(50,), **names[1])
    times = group.create_array("time", data=np.arange(200), chunks=(50,), **names[1])
    times.attrs["units"] = "days since 2000-01-01"
    if zarr_format == 2:
        group.create_array("rare", data=CURVE, chunks=(50,), compressors=PCodec())


def hdf5_file(place: Path) -> None:
    with h5py.File(place, "w") as file:
        file.create_dataset("pictures", data=PICTURES, chunks=(1, 64, 64), compression="gzip")
        file.create_dataset("table", data=np.array([(1, 2.0), (3, 4.0)], dtype=[("a", "i4"), ("b", "f8")]))
        file.create_dataset("words", data=["x", "yz"], dtype=h5py.string_dtype())
        file["curve"] = CURVE
        file["reference"] = file["curve"].ref


def collection(place: Path) -> None:
    place.mkdir()
    zarr_store(place / "a.zarr")
    zarr_store(place / "b.zarr", 2)
    hdf5_file(place / "c.h5")


STORES: dict[str, Callable[[Path], None]] = {
    "a.zarr": zarr_store,
    "b.zarr": lambda place: zarr_store(place, 2),
    "c.h5": hdf5_file,
    "several": collection,
}


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder."""
    return {
        os.path.relpath(os.path.join(above, name), folder): Path(above, name).read_bytes()
        for above, _, names in os.walk(folder)
        for name in names
    }


@pytest.fixture
def libraries(tmp_path: Path) -> Path:
    """A folder with the package and with links to all that is installed."""
    folder = tmp_path / "libraries"
    folder.mkdir()
    for there in site.getsitepackages():
        for entry in os.scandir(there):
            if not entry.name.endswith(".pth") and "fsbridge" not in entry.name:
                (folder / entry.name).symlink_to(entry.path)
    shutil.copytree(ROOT / "fsbridge", folder / "fsbridge", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.mark.parametrize("name", STORES)
def test_everything_reads_when_the_package_has_gone(name: str, tmp_path: Path, libraries: Path) -> None:
    STORES[name](tmp_path / name)
    python = os.path.join(sys.base_prefix, "bin", f"python3.{sys.version_info[1]}")
    options = ["--layout", "zarr3,zarr2,n5,files", "--files", "all", "--log-level", "debug"]
    daemons, logs, points = [], [], []
    for number in range(2):
        points.append(tmp_path / f"point{number}")
        points[-1].mkdir()
        logs.append(tmp_path / f"log{number}")
        words = [python, "-m", "fsbridge", "mount", "-f", *options, str(tmp_path / name), str(points[-1])]
        environment = {**os.environ, "PYTHONPATH": str(libraries), "PYTHONDONTWRITEBYTECODE": "1"}
        with open(logs[-1], "wb") as log:
            daemons.append(subprocess.Popen(words, env=environment, stderr=log, cwd="/"))
    try:
        until(lambda: all(LOADED in log.read_text() for log in logs))
        right = contents(points[0])
        shutil.rmtree(libraries)
        found = contents(points[1])
    finally:
        for daemon in daemons:
            daemon.terminate()
            daemon.wait(20)
    assert found.keys() == right.keys()
    assert [path for path in right if found[path] != right[path]] == []
    assert {"nii", "tif", "h5", "nc", "png", "csv", "html"} <= {path.rpartition(".")[2] for path in right}
    lines = [line for line in logs[1].read_text().splitlines() if " WARNING " in line or " ERROR " in line]
    assert [line for line in lines if "is left out of the layout n5" not in line] == []
    assert not any(mounted(point) for point in points)
