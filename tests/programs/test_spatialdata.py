"""Stores that SpatialData wrote, in the layouts of either Zarr format: what its own reader needs.

`spatialdata.read_zarr` was seen to read all four combinations, equal to the stores. It is too large for the tests, so they
compare with what it writes itself. Not here: other files of any store (`test_other_files.py`).
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import zarr
from paths import DATA
from tree_walker import written

from fsbridge.config import Config
from fsbridge.meaning.conventions.ome_versions import in_zarr2, in_zarr3
from fsbridge.unmounted import VirtualTree

GROUPS = ("", "images/img", "labels/lab", "points/pts", "shapes/cells", "tables/table", "tables/table/obs")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spatialdata")
    shutil.unpack_archive(DATA / "spatialdata.zip", folder)
    return folder


@pytest.mark.parametrize("source", ["v2", "v3"])
@pytest.mark.parametrize("shown", ["v2", "v3"])
def test_p12_a_mount_is_what_spatialdata_writes_in_that_version(
    stores: Path, tmp_path: Path, source: str, shown: str
) -> None:
    with VirtualTree(Config(str(stores / f"{source}.zarr"), "", layout=f"zarr{shown[1]}")) as opened:
        written(opened.root, tmp_path / "copy")
    copy: Any = zarr.open_group(str(tmp_path / "copy"), mode="r", use_consolidated=False)
    own: Any = zarr.open_group(str(stores / f"{shown}.zarr"), mode="r", use_consolidated=False)
    for path in GROUPS:
        if path == "labels/lab" and source != shown:
            continue  # OME-Zarr 0.5 has no version in `image-label`; SpatialData writes one all the same
        assert dict(copy[path].attrs if path else copy.attrs) == dict(own[path].attrs if path else own.attrs), path
    for path in ("images/img/s0", "images/img/s1", "labels/lab/s0", "tables/table/X"):
        assert copy[path][...].tolist() == own[path][...].tolist()
    parquet = sorted((stores / f"{source}.zarr").rglob("*.parquet*"))
    assert [file.relative_to(tmp_path / "copy") for file in sorted((tmp_path / "copy").rglob("*.parquet*"))] == [
        file.relative_to(stores / f"{source}.zarr") for file in parquet
    ]
    for file in parquet:
        if file.is_file():
            assert (tmp_path / "copy" / file.relative_to(stores / f"{source}.zarr")).read_bytes() == file.read_bytes()
    assert [path.name for path in (tmp_path / "copy/points/pts/points.parquet").iterdir()] == ["part.0.parquet"]


def test_versions_without_an_equivalent_are_unchanged() -> None:
    old = {"spatialdata_attrs": {"version": "0.1", "geos": {}}, "encoding-type": "ngff:shapes"}
    assert in_zarr3(old, ()) == old
    odd: Any = {"spatialdata_attrs": ["0.1"], "version": "0.1"}
    assert in_zarr2(in_zarr3(odd, ())) == json.loads(json.dumps(odd))
