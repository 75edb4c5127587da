"""What netCDF-C notes in HDF5 files for itself is in no list of attributes, as its own programs show none of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Literal

import h5py
import netCDF4
import numpy as np
import pytest
import zarr
from tree_walker import walk

from fsbridge.config import Config
from fsbridge.metadata import JSON
from fsbridge.mount.lifecycle import open_tree

NOTES: dict[str, JSON] = {"_Netcdf4Dimid": 1, "_Netcdf4Coordinates": [0, 1], "_nc3_strict": 1, "_NCProperties": "version=2"}
HIDDEN = re.compile(rb"_Netcdf4\w+|_NCProperties|_nc3_strict|REFERENCE_LIST|DIMENSION_LIST")


def find_notes(source: Path, layout: str) -> dict[bytes, list[bytes]]:
    """Hidden names in the documents of a layout, by path; files that are HDF5 themselves have some inside."""
    tree = open_tree(Config(source=str(source), mountpoint="/nowhere", layout=layout))
    try:
        found = {path: content for path, content in walk(tree.root).items() if isinstance(content, bytes)}
        assert found
        own = (b".nc", b".h5")
        return {path: HIDDEN.findall(text) for path, text in found.items() if HIDDEN.search(text) and not path.endswith(own)}
    finally:
        tree.close()


def find_notes_in_lists(source: Path) -> list[bytes]:
    found = []
    for options in (["-a"], ["--json"]):
        command = [sys.executable, "-m", "fsbridge", "info", *options, str(source)]
        found += HIDDEN.findall(subprocess.run(command, check=True, capture_output=True).stdout)
    return found


def test_notes_of_a_netcdf_file_are_in_no_layout(tmp_path: Path) -> None:
    with netCDF4.Dataset(tmp_path / "s.nc", "w", format="NETCDF4_CLASSIC") as file:
        for name, length in (("y", 3), ("x", 4), ("n", 5)):
            file.createDimension(name, length)
        file.createVariable("y", "f4", ("y", "x"))[:] = 1
        file.createVariable("x", "f4", ("x",))[:] = 1
        file.createVariable("t", "i2", ("y", "x"))[:] = 1
    with h5py.File(tmp_path / "s.nc") as raw:
        names = {*raw.attrs, *(name for member in raw.values() for name in member.attrs)}
        assert names >= {*NOTES, "REFERENCE_LIST", "DIMENSION_LIST"}, "netCDF-C has noted them"
    assert [find_notes(tmp_path / "s.nc", layout) for layout in ("files", "zarr2", "zarr3", "n5")] == [{}] * 4
    assert find_notes_in_lists(tmp_path / "s.nc") == []


@pytest.mark.parametrize("version", [2, 3])
def test_notes_that_a_copy_in_zarr_took_along_are_not_shown_to_people(tmp_path: Path, version: Literal[2, 3]) -> None:
    root = zarr.create_group(tmp_path / "s.zarr", zarr_format=version, attributes=NOTES)
    root.create_array("t", data=np.ones((3, 4), "f4"), attributes=NOTES)
    root.create_group("g", attributes=NOTES)
    assert find_notes(tmp_path / "s.zarr", "files") == {}
    assert find_notes_in_lists(tmp_path / "s.zarr") == []
