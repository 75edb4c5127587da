"""`NAME.slices/`: planes are numbered, and of the present version, on real mounts.

More of planes: test_files_mount.py (their bytes), test_freshness.py (what was listed before a change).
"""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import tifffile
import zarr
from mounting import MountFunction
from observing import memory

MIB = 1 << 20


def test_p6_a_listing_of_many_planes_takes_no_memory_for_each(tmp_path: Path, mount: MountFunction) -> None:
    zarr.create_array(tmp_path / "s.zarr", name="a", shape=(100_000, 4, 4), chunks=(1000, 4, 4), dtype="u1", fill_value=7)
    tree = mount(tmp_path / "s.zarr", "--layout", "files")
    assert "a.json" in os.listdir(tree)
    before = memory(tree.process.pid, "VmRSS")
    names = [entry.name for entry in os.scandir(tree / "a.slices") if entry.stat().st_size > 16]
    assert (names[0], names[-1], len(names)) == ("00000.tif", "99999.tif", 100_000)
    assert memory(tree.process.pid, "VmHWM") - before < 20 * MIB
    assert (tifffile.imread(tree / "a.slices/54321.tif") == 7).all()


def test_p9_planes_below_directories_are_of_the_present_version(tmp_path: Path, mount: MountFunction) -> None:
    array = zarr.create_array(tmp_path / "s.zarr", shape=(2, 3, 4, 5, 6), chunks=(1, 3, 2, 5, 6), dtype="u2")
    values = np.arange(array.size, dtype="u2").reshape(array.shape)
    array[:] = values
    folder = mount(tmp_path / "s.zarr", "--layout", "files") / "s.slices"
    listed = [sorted(os.listdir(folder / path)) for path in (".", "0001", "0001/0002")]
    assert listed == [["0000", "0001"], ["0000", "0001", "0002"], [f"{i:04}.tif" for i in range(4)]]
    held = os.open(folder / "0001/0002", os.O_RDONLY)
    try:
        for added in (0, 100):
            array[:] = values + added
            for t, c, z in np.ndindex(2, 3, 4):
                path = folder / f"{t:04}/{c:04}/{z:04}"
                np.testing.assert_array_equal(np.load(f"{path}.npy"), values[t, c, z] + added)
                np.testing.assert_array_equal(tifffile.imread(f"{path}.tif"), values[t, c, z] + added)
            for suffix in ("npy", "tif"):  # a working directory shows what is new, too
                with open(os.open(f"0003.{suffix}", os.O_RDONLY, dir_fd=held), "rb") as file:
                    found = np.load(file) if suffix == "npy" else tifffile.imread(io.BytesIO(file.read()))
                np.testing.assert_array_equal(found, values[1, 2, 3] + added)
    finally:
        os.close(held)
    for name in ("0002", "0001.tif", "001", "0001/0003", "0001/0002/0004.tif", "0001/0002/0003", "0001/0002/0003.h5"):
        assert not (folder / name).exists()


def test_p9_an_open_after_a_stale_one_is_not_the_first_to_see_a_change(tmp_path: Path, mount: MountFunction) -> None:
    """The kernel looks a stale path up once more: the document, and then a chunk that was read with it, are replaced."""
    array = zarr.create_array(
        tmp_path / "s.zarr", name="a", shape=(4, 6, 6), chunks=(2, 6, 6), dtype="i4", compressors=None, fill_value=0
    )
    array[...] = 1
    tree = mount(tmp_path / "s.zarr", "--layout", "files", "--metadata-ttl", "60")
    document, chunk = tmp_path / "s.zarr/a/zarr.json", tmp_path / "s.zarr/a/c/0/0/0"
    for number, name in enumerate(("a.npy", "a[0].npy", "a.slices/0000.npy", "a.slices/0000.tif", "a.h5"), 2):
        with open(tree / name, "rb") as before:
            before.read()
            array = zarr.open_array(tmp_path / "s.zarr/a")
            array.attrs["number"] = number
            os.utime(document, ns=(number * 10**9, number * 10**9))
            with open(tree / "a.nrrd", "rb") as other:
                other.read()
                new = tmp_path / "new"
                new.write_bytes(np.full((2, 6, 6), number, "<i4").tobytes())
                os.rename(new, chunk)
                with open(tree / name, "rb") as after:
                    assert np.full(6, number, "<i4").tobytes() in after.read(), name
