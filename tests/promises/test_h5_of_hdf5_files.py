"""`.h5` files of HDF5 sources: the whole file is the source's own bytes, those of groups and arrays are virtual files."""

from __future__ import annotations

import ctypes
import hashlib
import io
import mmap
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import zarr
from h5py import h5d, h5p, h5s, h5t
from hdf5_children import watched
from mounting import MountFunction
from rich_hdf5_files import WRITERS, h5py_links, h5py_types, netcdf
from tree_walker import read_file
from waiting import until

from fsbridge.children import client
from fsbridge.children.hdf5_functions import ID, MEMORY, find_function
from fsbridge.config import Config
from fsbridge.decoded.cache import ChunkCache
from fsbridge.formats.open import Opening
from fsbridge.formats.shared import Shared
from fsbridge.layouts import root_directory

LINKED = "h5py_links"
"""The writer of a file with a link to another file, so that its bytes alone are not all of it."""


def test_p2_p12_the_whole_file_is_the_source_s_own_bytes(tmp_path: Path, mount: MountFunction) -> None:
    """For every writer: read from end to end, at random places and through `mmap`, and by HDF5's own programs."""
    for name, write in WRITERS.items():
        write(tmp_path / f"{name}.h5")
    tree, places = mount(tmp_path, "--layout", "files"), random.Random(0)
    tree.allow("outside")
    for name in WRITERS:
        source, shown = tmp_path / f"{name}.h5", tree / f"{name}.h5.h5"
        expected = source.read_bytes()
        if name == LINKED:
            assert shown.read_bytes() != expected
            continue
        assert os.stat(shown).st_size == len(expected)
        with open(shown, "rb") as file:
            for _ in range(20):
                start = places.randrange(len(expected))
                assert os.pread(file.fileno(), 1000, start) == expected[start : start + 1000]
            with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as memory:
                assert memory[:] == expected
        assert hashlib.sha256(shown.read_bytes()).digest() == hashlib.sha256(expected).digest()
        with h5py.File(shown) as found, h5py.File(source) as original:
            assert sorted(found) == sorted(original)
        dumps = [subprocess.run(["h5dump", "-H", path], capture_output=True, check=True).stdout for path in (shown, source)]
        assert dumps[0].partition(b"\n")[2] == dumps[1].partition(b"\n")[2]


def test_p9_a_new_open_sees_the_replaced_file_and_an_old_one_is_stale(tmp_path: Path, mount: MountFunction) -> None:
    """Also if the file is written in place. No program reads a mixture."""
    path, large = tmp_path / "store.h5", np.random.default_rng(0).random(3_000_000)

    def write(target: Path, number: int) -> None:
        with h5py.File(target, "w") as file:
            file["large"], file["number"] = large + number, number

    write(path, 0)
    shown = mount(path, "--layout", "files", "--metadata-ttl", "0.1") / "store.h5"
    for number in (1, 2):
        with open(shown, "rb") as old:
            os.pread(old.fileno(), 4096, 0)
            if number == 1:
                write(tmp_path / "new.h5", number)
                os.replace(tmp_path / "new.h5", path)
            else:
                write(path, number)
            with pytest.raises(OSError, match="Stale file handle"):
                os.pread(old.fileno(), 4096, 20_000_000)
        until(lambda: os.stat(shown).st_mtime_ns == os.stat(path).st_mtime_ns)
        with h5py.File(shown) as file:
            assert file["number"][()] == number
    assert shown.read_bytes() == path.read_bytes()


# ---- virtual files of HDF5 sources: of groups, of arrays, and of files that need more than HDF5 alone


@contextmanager
def virtual(source: Path, name: str = "store.h5", shared: Shared | None = None) -> Iterator[h5py.File]:
    """The virtual file `name` in a fresh mount of the source, from which nothing is left out."""
    yield h5py.File(io.BytesIO(made(source, name, shared)))


def made(source: Path, name: str = "store.h5", shared: Shared | None = None) -> bytes:
    config = Config(str(source), "/mnt", layout="files", exclude=("nothing",))
    opened = Opening(shared).source(config.source, config)
    try:
        return read_file(root_directory(opened, config, ChunkCache(1 << 24)), name)
    finally:
        opened.close()


def test_p9_a_virtual_file_is_the_same_whenever_it_is_made(tmp_path: Path) -> None:
    """HDF5 writes the second at which an object is made into it, unless it is told not to."""
    sources = [tmp_path / name / "store.h5" for name in WRITERS]
    for source, write in zip(sources, WRITERS.values(), strict=True):
        source.parent.mkdir()
        write(source)
    before = [made(source) for source in sources]
    begun = int(time.time())
    until(lambda: int(time.time()) > begun)
    for source, found in zip(sources, before, strict=True):
        assert made(source) == found, source


def test_p12_the_file_of_a_group_and_of_an_array(tmp_path: Path, mount: MountFunction) -> None:
    """Values, links, labels and scales; references are JSON text, and the axes of array types are dimensions."""
    h5py_links(tmp_path / "links.h5")
    h5py_types(tmp_path / "types.h5")
    tree = mount(tmp_path, "--layout", "files")
    with h5py.File(tree / "links.h5/ordered.h5") as file:
        assert sorted(file) == ["a", "b", "m", "parent", "relative", "z"]
        assert file["relative"] == file["z"]
        assert sorted(file["z"].attrs) == ["r", "s", "t", "u", "v", "w", "x", "y", "z"]
    with h5py.File(tree / "links.h5/image.h5") as file:
        np.testing.assert_array_equal(file["image"][()], np.arange(24).reshape(4, 6))
        assert b'"path": "/image"' in bytes(np.bytes_(file["image"].attrs["region"]))
        assert file["image"].dims[1].label == "x axis"
    with h5py.File(tmp_path / "types.h5") as expected:
        for name in ("nested", "text_2_1", "matrix", "growing", "enum", "carrier", "not_yet", "bits"):
            path = tree / f"types.h5/{name}.h5"
            assert len(path.read_bytes()) == os.stat(path).st_size
            with h5py.File(path) as file:
                assert np.asarray(file[name][()]).tobytes() == np.asarray(expected[name][()]).tobytes(), name
    with h5py.File(tree / "types.h5/matrix[1,:,1:3].h5") as file:
        np.testing.assert_array_equal(file["matrix"][()], np.arange(24).reshape(2, 3, 4)[1, :, 1:3])


def test_p12_netcdf_reads_virtual_files_of_netcdf_files(tmp_path: Path) -> None:
    """They have a scale for each dimension, but not netCDF's notes on the numbers that dimensions have in the source."""
    netcdf(tmp_path / "store.nc")
    (tmp_path / "made.h5").write_bytes(made(tmp_path / "store.nc"))
    with netCDF4.Dataset(tmp_path / "made.h5") as found, netCDF4.Dataset(tmp_path / "store.nc") as expected:
        for name in ("time", "zdata", "a_later", "words", "inner/b"):
            assert found[name].dimensions == expected[name].dimensions, name
            np.testing.assert_array_equal(found[name][...], expected[name][...], err_msg=name)
        assert found["time"].units == expected["time"].units
    with h5py.File(tmp_path / "made.h5") as file:
        assert "zdata" in file
        assert file.visit(lambda name: next((note for note in file[name].attrs if note.startswith("_Net")), None)) is None


def test_p8_integers_of_few_bits_inside_other_types_hide_no_file(tmp_path: Path) -> None:
    """HDF5 2.0 takes types that begin with fewer bits than they leave unused for damage."""
    with h5py.File(tmp_path / "store.h5", "w") as file:
        few = h5t.STD_I32LE.copy()
        few.set_precision(3)
        few.set_offset(20)
        pair = h5t.create(h5t.COMPOUND, 8)
        pair.insert(b"few", 0, few)
        pair.insert(b"two", 4, h5t.array_create(h5t.STD_I16BE, (2,)))
        dataset = h5d.create(file.id, b"few", pair, h5s.create_simple((2,)))
        numbers = np.array([(-3, (1, 2)), (2, (3, 4))], [("few", "<i4"), ("two", ">i2", 2)])
        dataset.write(h5s.ALL, h5s.ALL, numbers, h5t.py_create(numbers.dtype))
    for name in ("store.h5", "few.h5"):
        with virtual(tmp_path / "store.h5", name) as found:
            np.testing.assert_array_equal(found["few"][()], numbers)


def test_p8_a_dataset_that_ends_hdf5_is_left_out_alone(tmp_path: Path) -> None:
    """The file cannot be shown as it is, because nobody knows what the dataset needs. All other members are in it."""
    with h5py.File(tmp_path / "store.h5", "w") as file:
        file["group/bad"], file["group/good"], file["other"] = np.arange(2), np.arange(3), np.arange(4)

    def die(child: client.ChildProcess, question: dict[str, Any]) -> None:
        of_group = question.get("op") == "group" and question.get("path") == ["group"]
        if of_group or question.get("op") == "alone" or question.get("path") == ["group", "bad"]:
            os.kill(child.pid, signal.SIGSEGV)

    with virtual(tmp_path / "store.h5", shared=watched(during=die)) as found:
        assert (sorted(found), list(found["group"])) == (["group", "other"], ["good"])
        assert found["group"].attrs["fsbridge_left_out"][0].startswith("bad: ")
        assert (found["group/good"][()].tolist(), found["other"][()].tolist()) == ([0, 1, 2], [0, 1, 2, 3])


def test_p3_what_cannot_be_read_is_named_and_damaged_chunks_are_errors(tmp_path: Path, mount: MountFunction) -> None:
    """In the file of a group. In the whole file HDF5 itself meets the damage."""
    with h5py.File(tmp_path / "store.h5", "w") as file:
        file["g/good"] = np.arange(3)
        file.create_dataset("g/damaged", data=np.arange(1000), chunks=(1000,), compression="gzip")
        file.create_dataset("g/text", data=["x"] * 5, dtype=h5py.string_dtype(), chunks=(5,), compression="gzip")
        place = [file[f"g/{name}"].id.get_chunk_info(0).byte_offset for name in ("damaged", "text")]
    with open(tmp_path / "store.h5", "r+b") as raw:
        for offset in place:
            raw.seek(offset)
            raw.write(b"no zlib")
    tree = mount(tmp_path / "store.h5", "--layout", "files")
    tree.allow("text|damaged")
    with h5py.File(tree / "g.h5") as file:
        assert sorted(file) == ["damaged", "good"]
        assert file.attrs["fsbridge_left_out"][0].startswith("text: ")
        np.testing.assert_array_equal(file["good"][()], [0, 1, 2])
        with pytest.raises(OSError, match=r"Input/output error"):
            file["damaged"][()]
    assert (tree / "store.h5").read_bytes() == (tmp_path / "store.h5").read_bytes()
    with h5py.File(tree / "store.h5") as file, pytest.raises(OSError, match="filter returned failure"):
        file["g/damaged"][()]


def test_p3_array_types_with_a_varied_fill_value_are_raw_bytes(tmp_path: Path, mount: MountFunction) -> None:
    """No other format can say such a fill value."""
    types = {
        "big": h5t.array_create(h5t.STD_I16BE, (2,)),
        "compound": h5t.array_create(h5t.py_create(np.dtype([("x", "<i4"), ("y", "<f4")]), logical=True), (2,)),
        "nested": h5t.array_create(h5t.array_create(h5t.STD_I32LE, (2,)), (3,)),
    }
    set_fill = find_function(h5p, "H5Pset_fill_value", ID, ID, MEMORY)
    path = tmp_path / "store.h5"
    with h5py.File(path, "w") as file:
        for name, kind in types.items():
            size = kind.get_size()
            for chunked in (True, False):
                plist = h5p.create(h5p.DATASET_CREATE)
                if chunked:
                    plist.set_chunk((4,))
                assert set_fill(plist.id, kind.id, ctypes.create_string_buffer(bytes(range(1, size + 1)), size)) >= 0
                full = f"{name}{'' if chunked else ' whole'}".encode()
                found = h5d.create(file.id, full, kind, h5s.create_simple((10,)), plist)
                if chunked:
                    found.write_direct_chunk((4,), bytes(range(100, 100 + 4 * size)))
    tree = mount(path, "--layout", "files,zarr3")
    with h5py.File(path) as file:
        for name in file:
            expected = file[name][...].tobytes()
            array = np.load(tree / f"files/{name}.npy")
            assert array.dtype.kind == "V"
            assert array.tobytes() == expected
            assert np.asarray(zarr.open_array(tree / "zarr3" / name, mode="r")[...]).tobytes() == expected
            with h5py.File(tree / f"files/{name}.h5") as alone:
                assert alone[name][...].tobytes() == expected


def test_p12_data_of_other_files_are_in_the_virtual_file(tmp_path: Path, mount: MountFunction) -> None:
    """Relative names of files would lead nowhere from the mount."""
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x/y"] = np.arange(6)
    with h5py.File(tmp_path / "store.h5", "w") as file:
        file["own"] = np.arange(4)
        file["link"] = h5py.ExternalLink("other.h5", "/x")
        file["gone"] = h5py.ExternalLink("gone.h5", "/x")
    shutil.copy(tmp_path / "store.h5", tmp_path / "copy.h5")
    tree = mount(tmp_path / "store.h5", "--layout", "files", "--allow-external", tmp_path)
    tree.allow("gone")
    with h5py.File(tree / "store.h5") as file:
        assert sorted(file) == ["link", "own"]
        assert file["link/y"][()].tolist() == [0, 1, 2, 3, 4, 5]
        assert file.attrs["fsbridge_left_out"][0].startswith("gone: ")
