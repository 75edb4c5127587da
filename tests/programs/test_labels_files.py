"""Labels of 64 bits in files for programs that know no more than 32: what is told to fit, and what does not."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any

import mrcfile
import nibabel
import numpy as np
import pytest
import SimpleITK
import tifffile
import zarr
from mounting import MountFunction

VALUES = np.arange(2 * 6 * 7, dtype="<u8").reshape(2, 6, 7) * 40_000_000
SMALL = VALUES // 1_000_000
"""Labels of 16 bits."""


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    root = zarr.open_group(tmp_path / "l.zarr", mode="w", zarr_format=2)
    stores: dict[str, tuple[np.ndarray[Any, Any], dict[str, Any]]] = {
        "told": (VALUES, {"maxId": int(VALUES.max())}),
        "small": (SMALL, {"maxId": int(SMALL.max())}),
        "range": (SMALL.astype("<i8"), {"actual_range": [0, int(SMALL.max())]}),
        "signed": (SMALL.astype("<i8") - 1, {"maxId": int(SMALL.max())}),
        "untold": (VALUES, {}),
        "wrong": (VALUES + np.uint64(2**32), {"maxId": 5}),
        "huge": (VALUES, {"maxId": 2**32}),
    }
    for name, (values, attributes) in stores.items():
        array = root.create_array(name, shape=values.shape, chunks=(1, 6, 4), dtype=values.dtype, attributes=attributes)
        array[...] = values
    paintera = root.create_group("paintera", attributes={"maxId": int(VALUES.max()), "painteraData": {"type": "label"}})
    paintera.create_array("s0", shape=VALUES.shape, chunks=(2, 6, 7), dtype="<u8")[...] = VALUES
    return tmp_path / "l.zarr"


def read(file: Path) -> np.ndarray[Any, Any]:
    """The elements as a program of the field reads them."""
    name, found = file.name, None
    if name.endswith(".nii"):
        found = np.asarray(nibabel.Nifti1Image.from_filename(file).dataobj).T
    if name.endswith(".nrrd"):
        found = SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(file)))
    if name.endswith(".mrc"):
        found = mrcfile.read(file)
    return np.asarray(tifffile.imread(file) if found is None else found)


@pytest.mark.filterwarnings("ignore:Setting the dtype on a NumPy array:DeprecationWarning")  # mrcfile 1.5.4, numpy 2.5
def test_p12_labels_that_are_declared_to_fit_have_32_bits(labels: Path, mount: MountFunction) -> None:
    mounted = mount(labels, "--layout", "files", "--files", "all").path
    sizes = {entry.name: entry.stat().st_size for entry in os.scandir(mounted) if entry.is_file()}
    for name, values, suffixes in (
        ("told", VALUES, ("tif", "ome.tif", "nii", "nrrd")),
        ("small", SMALL, ("tif", "ome.tif", "nii", "nrrd", "mrc")),
        ("range", SMALL, ("tif", "ome.tif", "nii", "nrrd", "mrc")),
        ("paintera/s0", VALUES, ("tif", "ome.tif", "nii", "nrrd")),
    ):
        for suffix in suffixes:
            found = read(mounted / f"{name}.{suffix}")
            assert found.dtype.str[1:] == ("u2" if suffix == "mrc" else "u4"), (name, suffix)
            np.testing.assert_array_equal(found, values)
            if "/" not in name:
                assert sizes[f"{name}.{suffix}"] == (mounted / f"{name}.{suffix}").stat().st_size
    np.testing.assert_array_equal(np.load(mounted / "told.npy"), VALUES)
    assert not (mounted / "told.mrc").exists()
    part = read(mounted / "told[1,::-2,1:].tif")
    np.testing.assert_array_equal(part, VALUES[1, ::-2, 1:])


def test_labels_without_a_description_keep_their_bits(labels: Path, mount: MountFunction) -> None:
    mounted = mount(labels, "--layout", "files", "--files", "all").path
    for name in ("untold", "signed", "huge"):
        for suffix in ("nrrd", "tif"):
            assert read(mounted / f"{name}.{suffix}").dtype.itemsize == 8
    assert "untold.u32.tif" not in os.listdir(mounted)
    np.testing.assert_array_equal(read(mounted / "untold.u32.tif"), VALUES)


def test_p3_a_label_that_does_not_fit_is_an_error_that_names_it(labels: Path, mount: MountFunction) -> None:
    mounted = mount(labels, "--layout", "files", "--files", "all")
    mounted.allow("which uint32 cannot hold")
    for name, value in (("wrong.tif", 2**32), ("signed.u32.tif", -1), ("wrong.nrrd", 2**32)):
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            (mounted.path / name).read_bytes()
        assert mounted.told(re.escape(f"element [0, 0, 0] is {value}, which uint32 cannot hold"))
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        (mounted.path / "wrong[1:,::-1,2].u32.tif").read_bytes()
    assert mounted.told(re.escape(f"element [1, 5, 2] is {int(VALUES[1, 5, 2]) + 2**32}, which"))
