"""The fsspec file system: fsspec's own tests of reading, and the field's libraries reading through it, without any mount."""

from __future__ import annotations

import errno
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import h5py
import numpy as np
import pandas
import pytest
import tifffile
import waiting
import xarray
import zarr
from fake_s3 import FakeS3
from fsspec.implementations.dirfs import DirFileSystem
from source_places import numbers, upload, write_each

from fsbridge.errors import SetupError
from fsbridge.unmounted import filesystem


@pytest.fixture(scope="module")
def each(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_each(tmp_path_factory.mktemp("each"))


@pytest.fixture(autouse=True)
def _fresh() -> Any:
    """fsspec remembers file systems by their arguments: another test's store at the same place is another one."""
    yield
    from fsbridge.unmounted.filesystem import FsbridgeFileSystem

    FsbridgeFileSystem.clear_instance_cache()


def files(source: Any, **more: Any) -> Any:
    return fsspec.filesystem("fsbridge", source=source, layout="files", **more)


def test_each_format_is_read_by_numpy(each: dict[str, Path], server: FakeS3) -> None:
    places: list[tuple[str, dict[str, Any]]] = [(str(path), {}) for path in each.values()]
    options = {"anonymous": True, "region": "us-east-1", "endpoint": server.endpoint}
    places += [(url, options) for url in upload(server, each).values()]
    for place, more in places:
        with files(place, **more).open("a/b.npy") as file:
            assert (np.load(file) == numbers()).all(), place


def test_listings_and_walks_have_all_paths(each: dict[str, Path]) -> None:
    fs = files(each["zarr3"])
    assert fs.ls("", detail=False) == ["a", "a.json", "index.html", "store.json"]
    assert fs.ls("a/", detail=False) == fs.find("a") == ["a/b.json", "a/b.npy", "a/index.html"]
    assert fs.find("") == ["a.json", *fs.find("a"), "index.html", "store.json"]
    assert [(top, sorted(folders), sorted(names)) for top, folders, names in fs.walk("")] == [
        ("", ["a"], ["a.json", "index.html", "store.json"]),
        ("a", [], ["b.json", "b.npy", "index.html"]),
    ]
    assert fs.glob("**/*.npy") == ["a/b.npy"]
    info = fs.info("a/b.npy")
    assert (info["type"], info["size"]) == ("file", 128 + numbers().nbytes)
    assert fs.isdir("a")
    assert fs.isfile("a/b.npy")
    assert not fs.exists("a/c.npy")
    assert fs.modified("a/b.npy").year > 2000


def test_any_range_of_a_file_is_that_part_of_it(each: dict[str, Path]) -> None:
    fs = files(each["hdf5"])
    whole = fs.cat_file("a/b.npy")
    assert whole[128:] == numbers().tobytes()
    for start, end in [(0, 6), (None, 6), (-4, None), (100, -100), (10**9, None), (5, 5), (None, None)]:
        assert fs.cat_file("a/b.npy", start, end) == whole[start:end], (start, end)
    assert fs.cat_ranges(["a/b.npy"] * 2, [0, 128], [6, 132]) == [whole[:6], whole[128:132]]
    assert fs.cat("a/b.npy") == whole
    with fs.open("a/b.npy") as file:
        file.seek(-8, 2)
        assert file.read() == whole[-8:]


def test_errors_are_the_mounts(each: dict[str, Path], tmp_path: Path) -> None:
    fs = files(each["n5"])
    with pytest.raises(FileNotFoundError):
        fs.open("nope")
    with pytest.raises(FileNotFoundError):
        fs.ls("a/nope")
    with pytest.raises(IsADirectoryError):
        fs.open("a")
    with pytest.raises(NotADirectoryError):
        fs.info("a/b.npy/c")
    with pytest.raises(SetupError, match="no such file"):
        files(tmp_path / "nope")
    with pytest.raises(ValueError, match="name a source"):
        fsspec.filesystem("fsbridge")


def test_p1_nothing_can_be_changed(each: dict[str, Path]) -> None:
    fs = files(each["zarr2"])
    changes: list[Callable[[], object]] = [
        lambda: fs.open("x", "wb"),
        lambda: fs.mkdir("x"),
        lambda: fs.makedirs("x/y"),
        lambda: fs.rm("a", recursive=True),
        lambda: fs.mv("a", "b"),
        lambda: fs.cp_file("a/b.json", "c"),
        lambda: fs.pipe_file("x", b""),
        lambda: fs.touch("x"),
        lambda: fs.put_file(__file__, "x"),
    ]
    for change in changes:
        with pytest.raises(OSError, match="Read-only") as caught:
            change()
        assert caught.value.errno == errno.EROFS


def test_urls_of_fsspec_open_files_of_a_source(each: dict[str, Path], server: FakeS3) -> None:
    header = b"\x93NUMPY"
    with fsspec.open("fsbridge://a/b.npy", source=each["zarr3"], layout="files") as file:
        assert file.read(6) == header
    with fsspec.open(f"fsbridge://{each['zarr3']}//a/zarr.json") as file:
        assert file.read(1) == b"{"
    with fsspec.open(f"fsbridge://a/b.npy::file://{each['n5']}", layout="files") as file:
        assert file.read(6) == header
    with fsspec.open(f"fsbridge://a/b.npy::{each['n5']}", layout="files") as file:
        assert file.read(6) == header
    url = next(iter(upload(server, {"zarr3": each["zarr3"]}).values()))
    inner = {"anon": True, "client_kwargs": {"region_name": "us-east-1", "endpoint_url": server.endpoint}}
    chained = {"fo": url.removeprefix("s3://"), "target_protocol": "s3", "target_options": inner}  # as fsspec makes it of
    fs = fsspec.filesystem("fsbridge", layout="files", **chained)  # "fsbridge://a/b.npy::s3://..." where s3fs is installed
    assert fs.cat_file("a/b.npy", 0, 6) == header


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is a store itself, and has others in it. The program runs there."""
    zarr.create_array(tmp_path / "wrong", data=np.zeros(3))
    monkeypatch.chdir(tmp_path / "wrong")
    return tmp_path


@pytest.mark.parametrize("url", ["fsbridge://::file://{}", "fsbridge://::{}", "fsbridge::{}", "fsbridge://{}//"])
def test_the_root_of_a_source_that_a_url_names_is_that_source(elsewhere: Path, each: dict[str, Path], url: str) -> None:
    for name in ("hdf5", "zarr2"):
        array = zarr.open_group(url.format(each[name]), mode="r")["a/b"]
        assert isinstance(array, zarr.Array)
        assert (np.asarray(array[...]) == numbers()).all(), name
        fs, path = fsspec.url_to_fs(url.format(each[name]))
        assert (path, sorted(fs.ls(path, detail=False))) == ("", ["a", "zarr.json"])


def test_the_root_of_a_source_that_an_option_names_is_that_source(elsewhere: Path, each: dict[str, Path]) -> None:
    fs, path = fsspec.url_to_fs("fsbridge://", source=each["n5"])
    assert sorted(fs.ls(path, detail=False)) == ["a", "zarr.json"]


@pytest.mark.parametrize("url", ["fsbridge://", "fsbridge:////", "fsbridge:////a", "fsbridge://a", "fsbridge://s3://"])
def test_no_source_is_no_folder_in_which_the_program_runs(elsewhere: Path, url: str) -> None:
    with pytest.raises(ValueError, match="name a source"):
        fsspec.url_to_fs(url)
    for options in ({"source": ""}, {"fo": "", "target_protocol": "file"}, {"fo": ""}):
        with pytest.raises(ValueError, match="the source is empty"):
            fsspec.filesystem("fsbridge", **options)
    with pytest.raises(SetupError, match="names no bucket"):
        fsspec.filesystem("fsbridge", fo="", target_protocol="s3")


def test_of_two_sources_none_is_chosen(elsewhere: Path, each: dict[str, Path]) -> None:
    with pytest.raises(ValueError, match="two sources are named"):
        fsspec.url_to_fs(f"fsbridge://{each['n5']}//::file://{each['zarr3']}")


def test_unknown_options_are_errors(each: dict[str, Path]) -> None:
    for options, said in (
        ({"layuot": "files"}, "no option 'layuot'; did you mean 'layout'"),
        ({"mountpoint": "/mnt"}, "no option 'mountpoint'"),
        ({"log_file": "/tmp/log"}, "no option 'log_file'; known: absent_403, "),
        ({"target_options": {"key": "me"}}, "the inner file system has no option 'key'; known: anon, "),
        ({"target_options": {"client_kwargs": {"region": "x"}}}, "no option 'region'; known: endpoint_url, region_name"),
    ):
        with pytest.raises(TypeError, match=said):
            fsspec.filesystem("fsbridge", source=each["zarr3"], **options)


def test_a_relative_source_lies_in_the_folder_of_the_program_at_that_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fss = []
    for number in (1, 2):
        zarr.create_array(tmp_path / str(number) / "a.zarr", data=np.full(3, number))
        monkeypatch.chdir(tmp_path / str(number))
        fss.append(fsspec.filesystem("fsbridge", source="a.zarr", layout="files"))
    fss += [pickle.loads(pickle.dumps(fs)) for fs in fss]
    assert [np.load(fs.open("a.npy")).tolist() for fs in fss] == [[1, 1, 1], [2, 2, 2]] * 2


def test_a_file_system_can_be_sent_to_another_process(each: dict[str, Path]) -> None:
    fs = pickle.loads(pickle.dumps(files(each["sharded"])))
    assert fs.cat_file("a/b.npy", 0, 6) == b"\x93NUMPY"


def test_zarr_python_reads_the_virtual_hierarchy(each: dict[str, Path]) -> None:
    for name in ("zarr2", "hdf5", "n5", "sharded"):
        fs = fsspec.filesystem("fsbridge", source=each[name])
        store = zarr.storage.FsspecStore.from_mapper(fs.get_mapper(""), read_only=True)
        np.testing.assert_array_equal(np.asarray(zarr.open_array(store, path="a/b", mode="r")[...]), numbers(), name)


def test_xarray_opens_the_virtual_zarr_of_a_netcdf_file(tmp_path: Path) -> None:
    data = xarray.Dataset({"t": (("y", "x"), np.arange(12.0).reshape(3, 4))}, {"x": [1, 2, 3, 4]}, {"title": "a test"})
    data.to_netcdf(tmp_path / "a.h5", engine="netcdf4")
    fs = fsspec.filesystem("fsbridge", source=tmp_path / "a.h5")
    opened = xarray.open_zarr(fs.get_mapper(""), consolidated=False)
    assert opened.t.values.tolist() == data.t.values.tolist()
    assert opened.attrs["title"] == "a test"


def test_h5py_and_pandas_and_tifffile_read_virtual_files(tmp_path: Path) -> None:
    root = zarr.open_group(tmp_path / "a.zarr", mode="w")
    table = np.arange(12, dtype="<i4").reshape(4, 3)
    pictures = np.arange(2 * 16 * 8, dtype="<u2").reshape(2, 16, 8)
    root.create_array("g/table", data=table, chunks=(2, 3))
    root.create_array("g/pictures", data=pictures, chunks=(1, 16, 4))
    fs = fsspec.filesystem("fsbridge", source=tmp_path / "a.zarr", files=("csv", "h5", "tif"))
    with fs.open("g/table.csv") as text:
        assert pandas.read_csv(text).to_numpy().tolist() == table.tolist()
    with fs.open("g/pictures.tif") as file:
        assert (tifffile.imread(file) == pictures).all()
    with fs.open("g/table.h5") as file, h5py.File(file) as hdf5:
        name = next(iter(hdf5))
        assert (hdf5[name][...] == table).all()


def test_a_subdirectory_is_a_file_system(each: dict[str, Path], tmp_path: Path) -> None:
    fs = DirFileSystem("a", files(each["zarr3"]))
    assert fs.ls("", detail=False) == ["b.json", "b.npy", "index.html"]
    files(each["zarr3"]).get("a", str(tmp_path / "copy"), recursive=True)
    assert (np.load(tmp_path / "copy/b.npy") == numbers()).all()


def test_the_class_documents_its_options() -> None:
    """An editor shows this text, and `help` does."""
    documented = set(re.findall(r"`(\w+)`", filesystem.FsbridgeFileSystem.__doc__ or ""))
    taken = filesystem.PLAIN_OPTIONS | filesystem.REMOTE_OPTIONS | {"source", "layout", "files"}
    assert taken - documented == set()
    assert documented - taken - {"zarr3", "zarr2", "n5", "files", "close"} == set()
    assert fsspec.get_filesystem_class("fsbridge") is filesystem.FsbridgeFileSystem


def test_nothing_is_left_of_a_file_system_that_is_closed(each: dict[str, Path]) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    def few_are_left(most: int) -> bool:
        return descriptors() <= most

    def used(place: Path) -> Any:
        fs = files(place)
        assert fs.cat_file("a/b.npy")
        return fs

    for place in each.values():
        before = descriptors()
        fs = used(place)
        reference = weakref.ref(fs)
        assert files(place) is fs
        fs.close()
        with pytest.raises((OSError, ValueError)):
            fs.cat_file("a/b.npy")
        del fs
        assert reference() is None, "fsspec, or something else, still has it"
        waiting.until(partial(few_are_left, before))


LEFT = """
import json, os, sys, threading
from pathlib import Path
import fsspec
from fsbridge.children import starting
from fsbridge.formats.hdf5 import filters

def left():
    tasks = Path("/proc/self/task").iterdir()
    children = [number for task in tasks for number in (task / "children").read_text().split()]
    return [[thread.name for thread in threading.enumerate()], children, len(os.listdir("/proc/self/fd"))]

def open_place(place):
    fs = fsspec.filesystem("fsbridge", source=place, layout="files")
    assert fs.cat_file("a/b.npy")
    return fs

fsspec.get_filesystem_class("fsbridge")
print(json.dumps(left()))
first, *others = sys.argv[1:]
kept = open_place(first)
pid = starting.starter(filters.make_program(())).pid
for place in others:
    open_place(place).close()
    assert starting.starter(filters.make_program(())).pid == pid, "the one that is open needs it"
    assert kept.cat_file("a/b.npy", 0, 1)
kept.close()
kept.close()
for thread in threading.enumerate():
    if thread is not threading.main_thread():
        thread.join(10)
print(json.dumps(left()))
open_place(first).close()
"""


def test_nothing_runs_or_is_open_after_the_last_file_system_is_closed(each: dict[str, Path]) -> None:
    shutil.copyfile(each["hdf5"], each["hdf5"].with_name("second.h5"))
    places = [each["hdf5"], each["hdf5"].with_name("second.h5"), each["zarr3"]]
    words = [sys.executable, "-c", LEFT, *map(str, places)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    before, after = map(json.loads, done.stdout.splitlines())
    assert after == before
    assert after[:2] == [["MainThread"], []]
