"""Files of one array say the same of its elements: signedness and missing elements, by the readers of each file type."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, Literal, cast

import h5py
import nibabel
import numpy as np
import pytest
import SimpleITK
import tifffile
import zarr

from fsbridge.config import Config
from fsbridge.mount.lifecycle import open_tree
from fsbridge.tree import File


def read_files(store: Path, *names: str) -> dict[str, bytes]:
    """The bytes of files of a store; their sizes are known before (P2)."""
    tree, read = open_tree(Config(str(store), "/nowhere", layout="files")), {}
    for name in names:
        file = cast(File, tree.root.lookup(name.encode()))
        size, handle = file.measure().size, file.open()
        read[name] = bytes(handle.read(0, handle.size))
        handle.close()
        assert len(read[name]) == size
    return read


def write_store(path: Path, values: Any, fill: int = 0, **attributes: Any) -> Path:
    """Write an array as xarray does, big-endian numbers in Zarr v2."""
    version: Literal[2, 3] = 2 if values.dtype.str[0] == ">" else 3
    names: dict[str, Any] = {"dimension_names": ["y", "x"]} if version == 3 else {}
    named = attributes if names else {**attributes, "_ARRAY_DIMENSIONS": ["y", "x"]}
    group = zarr.open_group(path, mode="w", zarr_format=version)
    made = group.create_array("a", shape=values.shape, dtype=values.dtype, fill_value=fill, attributes=named, **names)
    made[...] = values
    return path


@pytest.mark.parametrize("order", ["<", ">"])
def test_p12_unsigned_numbers_in_a_signed_type_are_unsigned_in_all_files(order: str, tmp_path: Path) -> None:
    meant = (np.arange(24, dtype="u2") * 2800).reshape(4, 6)
    values = meant.astype(f"{order}u2").view(f"{order}i2")
    write_store(tmp_path / "s", values, -1, _Unsigned="true", _FillValue=-1, scale_factor=0.01)
    wanted = ("npy", "raw", "tif", "ome.tif", "nii", "nrrd", "mha", "png", "envi.hdr", "csv", "json", "h5", "preview.png")
    found = {
        name[2:]: content for name, content in read_files(tmp_path / "s", *(f"a.{suffix}" for suffix in wanted)).items()
    }
    np.testing.assert_array_equal(np.load(io.BytesIO(found["npy"])), meant)
    np.testing.assert_array_equal(np.frombuffer(found["raw"], f"{order}u2").reshape(4, 6), meant)
    for suffix in ("tif", "ome.tif"):
        with tifffile.TiffFile(io.BytesIO(found[suffix])) as file:
            np.testing.assert_array_equal(file.asarray(), meant)
            nodata = file.pages.first.tags.get(42113)
            assert suffix != "tif" or (nodata is not None and nodata.value == "65535")
    image: Any = nibabel.Nifti1Image.from_bytes(found["nii"])
    np.testing.assert_array_equal(np.asarray(image.dataobj.get_unscaled()).T, meant)
    for suffix in ("nrrd", "mha", "png"):
        (tmp_path / f"a.{suffix}").write_bytes(found[suffix])
        np.testing.assert_array_equal(SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(tmp_path / f"a.{suffix}"))), meant)
    assert b"data type = 12\n" in found["envi.hdr"]
    assert b"data ignore value = 65535\n" in found["envi.hdr"]
    rows = [[int(cell) for cell in line.split(",")] for line in found["csv"].decode().splitlines()[1:]]
    np.testing.assert_array_equal(rows, meant)
    assert json.loads(found["json"])["dtype"] == f"{order}u2"
    with h5py.File(io.BytesIO(found["h5"])) as h5:
        np.testing.assert_array_equal(h5["a"][()], values)
        assert h5["a"].attrs["_Unsigned"] == "true"


def test_a_missing_value_alone_is_missing_in_all_files(tmp_path: Path) -> None:
    values = np.array([[1, 0, -999], [4, 5, 6]], "<i2")
    write_store(tmp_path / "s", values, missing_value=-999)
    found = read_files(tmp_path / "s", "a.tif", "a.envi.hdr", "a.csv", "a.preview.png")
    with tifffile.TiffFile(io.BytesIO(found["a.tif"])) as file:
        assert file.pages.first.tags[42113].value == "-999"
    assert b"data ignore value = -999\n" in found["a.envi.hdr"]
    assert found["a.csv"].splitlines()[1:] == [b"1,0,", b"4,5,6"]


def test_a_fill_value_of_zero_is_no_missing_element(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "s", mode="w", zarr_format=2)
    array = group.create_array("a", shape=(2, 3), dtype="<u2", fill_value=0, attributes={"_ARRAY_DIMENSIONS": ["y", "x"]})
    array[...] = [[0, 1, 2], [3, 4, 5]]
    found = read_files(tmp_path / "s", "a.tif", "a.envi.hdr", "a.csv")
    with tifffile.TiffFile(io.BytesIO(found["a.tif"])) as file:
        assert 42113 not in file.pages.first.tags
    assert b"ignore value" not in found["a.envi.hdr"]
    assert found["a.csv"].splitlines()[1:] == [b"0,1,2", b"3,4,5"]
