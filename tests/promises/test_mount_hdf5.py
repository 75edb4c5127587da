"""HDF5 files through real mounts, read by zarr-python in its own process and compared with h5py's own reading.

The files are what others wrote: PyTables' and h5py's test data as their wheels ship them, and samples made with h5py.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin  # noqa: F401 - h5py needs its filters to be the oracle of blosc files
import numpy as np
import pytest
from hdf5_files import foreign_files
from mounting import Mount
from nwb_data import unpack
from observing import errno_of
from paths import DATA
from readers import read

MountFunction = Callable[..., Mount]


NOT_FOLLOWED = "--allow-external .* permits reading it|not there"


def datasets(group: h5py.Group, path: str = "") -> Iterator[tuple[str, h5py.Dataset]]:
    """Datasets by path, hard links only."""
    for name in group:
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            continue
        found = group[name]
        if isinstance(found, h5py.Group):
            yield from datasets(found, f"{path}{name}/")
        elif isinstance(found, h5py.Dataset):
            yield f"{path}{name}", found


def assert_same(found: Any, expected: Any) -> None:
    """Check for equal values whatever the byte order; for types that Zarr lacks, for equal bytes."""
    found, expected = np.asarray(found), np.asarray(expected)
    if expected.dtype.fields:
        for name in expected.dtype.names or ():
            assert_same(found[name], expected[name])
    elif found.dtype.kind == "V" or expected.dtype.kind == "V":
        assert found.tobytes() == expected.tobytes()
    elif expected.dtype.kind == "S" and found.dtype.kind in "UT":
        assert str(found).encode() == bytes(expected)
    elif expected.dtype.kind == "O":
        assert found.shape == expected.shape
        for one, other in zip(found.ravel(), expected.ravel(), strict=True):
            assert_element(one, other)
    else:
        np.testing.assert_array_equal(found, expected)


def assert_element(found: Any, expected: Any) -> None:
    """One element of variable length: text, or the bytes of a sequence."""
    if isinstance(expected, bytes):
        assert str(found).encode() == expected
    elif isinstance(expected, np.ndarray):
        assert bytes(found) == expected.tobytes()
    else:
        assert str(found) == expected


def h5py_values(dataset: h5py.Dataset) -> Any:
    """All elements; None where h5py has no numpy type or filter for them, or they hold references."""
    try:
        if dataset.shape is None or _has_lzo(dataset):
            return None
        if h5py.check_ref_dtype(dataset.dtype) or _nested_objects(dataset.dtype):
            return None
        return dataset[()]
    except (TypeError, ValueError):
        return None


def _has_lzo(dataset: h5py.Dataset) -> bool:
    """Tell whether h5py's HDF5 lacks the filter."""
    plist = dataset.id.get_create_plist()
    return any(plist.get_filter(i)[0] == 305 for i in range(plist.get_nfilters()))


def _nested_objects(dtype: np.dtype[Any]) -> bool:
    if dtype.kind == "O":
        base = h5py.check_vlen_dtype(dtype)
        return base is not None and np.dtype(base).hasobject
    return dtype.hasobject


def test_p12_files_of_pytables_and_h5py_equal_what_h5py_reads(tmp_path: Path, mount: MountFunction) -> None:
    """P12: the 45 files of PyTables and those of h5py, mounted as a collection, equal what h5py reads."""
    folder = tmp_path / "collection"
    folder.mkdir()
    for path in foreign_files():
        shutil.copy(path, folder / path.name)
    assert compare_collection(folder, mount) > 150


def test_p12_files_of_old_pynwb_releases(tmp_path: Path, mount: MountFunction) -> None:
    """P12: the back-compatibility files of pynwb's own tests (written by pynwb 1.0.2 to 3.0.0; licence inside)."""
    assert compare_collection(unpack("back_compat", tmp_path / "collection"), mount) > 150


def compare_collection(folder: Path, mount: MountFunction) -> int:
    """Compare each dataset of the HDF5 files in `folder`, read through a mount, with h5py's reading. Return their number."""
    mounted = mount(folder)
    mounted.allow(NOT_FOLLOWED)
    found = read(mounted, "zarr", timeout=280)
    compared = 0
    for path in sorted(path for path in folder.iterdir() if h5py.is_hdf5(path)):
        with h5py.File(path, "r", locking=False) as file:
            for name, dataset in datasets(file):
                member = found.pop(f"{path.name}/{name}")
                assert member.error is None, (path.name, name, member.error)
                expected = h5py_values(dataset)
                if expected is not None:
                    assert_same(member.values, expected)
                    compared += 1
    assert all(member.values is None for member in found.values()), "arrays that h5py does not know"
    return compared


def test_p12_a_netcdf_4_file(mount: MountFunction) -> None:
    """P12: what the netCDF library wrote (tests/data/make_netcdf.py), with the names of its dimensions."""
    path = DATA / "netcdf.nc"
    mounted = mount(path)
    found = read(mounted, "zarr")
    with h5py.File(path, "r", locking=False) as file:
        for name, dataset in datasets(file):
            if not bytes(dataset.attrs.get("NAME", b"")).startswith(b"This is a netCDF dimension but not"):
                assert_same(found[name].values, h5py_values(dataset))
    assert "station" not in found  # a dimension without a variable is no array, and no coordinate of zeros
    np.testing.assert_array_equal(found["temperature"].values, np.arange(180, dtype="<f4").reshape(9, 20))
    np.testing.assert_array_equal(found["counts"].values, np.arange(27).reshape(9, 3))
    names = {"temperature": ["time", "lat"], "counts": ["time", "station"], "lat": ["lat"], "inner/flags": ["lat"]}
    for array, expected in names.items():
        assert json.loads((mounted / array / "zarr.json").read_bytes())["dimension_names"] == expected


def test_unsupported_filter_is_eopnotsupp(tmp_path: Path, mount: MountFunction) -> None:
    """A chunk with an unavailable filter is EOPNOTSUPP, with a log line that names filter and chunk. Metadata is shown."""
    with h5py.File(tmp_path / "jpeg.h5", "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((10,))
        plist.set_filter(32019, h5py.h5z.FLAG_OPTIONAL)
        space = h5py.h5s.create_simple((20,))
        h5py.h5d.create(file.id, b"x", h5py.h5t.STD_I32LE, space, plist).write_direct_chunk((0,), b"compressed?")
    mounted = mount(tmp_path / "jpeg.h5")
    mounted.allow(r"JPEG \(32019\)")
    assert json.loads((mounted / "x/zarr.json").read_bytes())["node_type"] == "array"
    chunk = mounted / "x/c/0"
    assert chunk.stat().st_size == 40
    with pytest.raises(OSError, match="supported") as raised:
        chunk.read_bytes()
    assert raised.value.errno == errno.EOPNOTSUPP
    assert mounted.told("x.*JPEG|JPEG.*x")


def write_sample(path: Path) -> None:
    """One file with what users have: chunks, strings, compounds, scales, references, links, unwritten data."""
    random = np.random.default_rng(3)
    with h5py.File(path, "w") as file:
        file.attrs["title"], file.attrs["bad"] = "sample", np.nan
        raw = file.create_dataset(
            "volumes/raw",
            data=random.integers(0, 255, (20, 30, 40)).astype("u1"),
            chunks=(8, 8, 16),
            compression="gzip",
            shuffle=True,
            fletcher32=True,
        )
        raw.dims[0].label = "z"
        raw.attrs["source"] = file["volumes"].ref
        file.create_dataset("volumes/sparse", (100, 100), ">f4", chunks=(10, 10), fillvalue=-1)[5, 5] = 2
        file["contiguous"] = random.standard_normal((300, 7))
        file["big"] = np.arange(50, dtype=">i8").reshape(5, 10)
        file["table"] = np.array([(1, 2.5, b"ab"), (3, 4.5, b"c")], [("n", ">i4"), ("x", "<f8"), ("s", "S4")])
        file["words"] = np.array(["", "wörd", "x" * 100], object)
        file["lists"] = np.zeros((), "<i4")
        file["flags"] = np.array([True, False, True])
        file["complex"] = np.array([1 + 2j, 3 - 4j])
        file["scalar"], file["half"] = 4.5, np.array([1.5, 2.5], "f2")
        file["null"] = h5py.Empty("f4")
        file["volumes/link"] = h5py.SoftLink("/table")
        for name in ("..", "zarr.json", "c", "a\x01b", "%41", "ä b"):
            file.create_dataset("names/" + name if name != ".." else b"names/..", data=[1])
        file["names"].create_group(b"bad\xff")
        file["names"].create_group("x" * 300)


def test_p12_every_kind_of_data(tmp_path: Path, mount: MountFunction) -> None:
    """P12: a file's datasets read by zarr-python equal h5py's; attributes, dimension names and fill values come along."""
    path = tmp_path / "sample.h5"
    write_sample(path)
    mounted = mount(path)
    mounted.allow("x" * 40)
    members = read(mounted, "zarr")
    with h5py.File(path) as file:
        for part in (
            "volumes/raw",
            "volumes/sparse",
            "contiguous",
            "big",
            "table",
            "words",
            "lists",
            "flags",
            "complex",
            "scalar",
            "half",
        ):
            member = members[part]
            assert member.error is None, (part, member.error)
            assert_same(member.values, file[part].asstr()[()] if part == "words" else file[part][()])
        raw = members["volumes/raw"]
        assert raw.dimension_names == ("z", None, None)
        assert raw.chunks == (8, 8, 16)
        assert raw.attributes == {"source": {"_REFERENCE": {"source": ".", "path": "/volumes"}}}
        assert members["volumes/sparse"].fill == -1
    assert json.loads((mounted / "zarr.json").read_bytes())["attributes"] == {"bad": "NaN", "title": "sample"}
    assert os.readlink(mounted / "volumes/link") == "../table"
    assert (mounted / "volumes/link/zarr.json").read_bytes() == (mounted / "table/zarr.json").read_bytes()
    assert sorted(os.listdir(mounted / "volumes/sparse/c")) == ["0"]
    assert not (mounted / "null/c").exists() or os.listdir(mounted / "null/c") == []


def test_p8_names_and_cycles(tmp_path: Path, mount: MountFunction) -> None:
    """P8: odd names are listed and readable, 300 bytes are hidden. A cycle of hard links ends with ELOOP."""
    path = tmp_path / "sample.h5"
    write_sample(path)
    with h5py.File(path, "a") as file:
        file["volumes/cycle"] = file["volumes"]
    mounted = mount(path)
    mounted.allow("x" * 40)
    mounted.allow("more than 64 nested groups")
    names = set(os.listdir(os.fsencode(mounted / "names")))
    assert len(names) == 8
    assert {b"zarr.json", b"a%01b", b"%2541", "ä b".encode(), b"bad\xff"} <= names
    for name in names - {b"zarr.json", b"bad\xff"}:
        folder = os.path.join(os.fsencode(mounted / "names"), name)
        with open(os.path.join(folder, b"c/0"), "rb") as file:
            assert file.read() == np.array([1]).tobytes()
    assert (mounted / "volumes/cycle/cycle/raw/zarr.json").exists()
    deep = mounted / "volumes" / "/".join(["cycle"] * 80)
    with pytest.raises(OSError, match=r".") as raised:
        os.stat(deep)
    assert raised.value.errno == errno.ELOOP


def test_p8_dead_child_costs_no_mount(tmp_path: Path, mount: MountFunction) -> None:
    """P8: the HDF5 process is killed while the mount is in use; the next question gets another."""
    path = tmp_path / "sample.h5"
    write_sample(path)
    mounted = mount(path)
    mounted.allow(r"HDF5 process|the child process ended \(SIGKILL\)")
    mounted.allow("x" * 40)
    assert (mounted / "table/c/0").read_bytes()
    for _ in range(3):
        for child in Path("/proc").glob("[0-9]*"):
            try:
                arguments = (child / "cmdline").read_bytes()
                parent = int((child / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):
                continue
            if b"fsbridge.formats.hdf5.child.worker" in arguments and parent == mounted.process.pid:
                os.kill(int(child.name), signal.SIGKILL)
        assert errno_of(lambda: os.listdir(mounted / "volumes/raw/c")) in (None, errno.EIO)
        assert sorted(os.listdir(mounted / "volumes/raw/c")) == ["0", "1", "2"]
    assert mounted.alive


def test_p9_directories_follow_a_file_that_changes(tmp_path: Path, mount: MountFunction) -> None:
    """P9: a listing begun a TTL after the file was written to or replaced is of the new file."""
    path = tmp_path / "x.h5"

    def write(rows: int, mode: str) -> None:
        with h5py.File(path, mode) as file:
            if mode == "w":
                file.create_dataset("x", (rows,), "i8", maxshape=(None,), chunks=(10,))
            file["x"].resize((rows,))
            file["x"][:] = rows

    write(40, "w")
    mounted = mount(path)
    chunks = mounted / "x/c"
    for rows in (50, 60, 20):
        write(rows, "r+")
        time.sleep(1.0)
        assert sorted(os.listdir(chunks)) == [str(i) for i in range(rows // 10)]
        assert np.frombuffer((chunks / "1").read_bytes(), "<i8").tolist() == [rows] * 10
        path.rename(tmp_path / "old.h5")
        shutil.copy(tmp_path / "old.h5", path)
        assert len(os.listdir(chunks)) == rows // 10
    path.unlink()
    time.sleep(1.0)
    with pytest.raises(OSError, match="Stale file handle"):
        os.listdir(chunks)
