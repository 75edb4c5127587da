"""P9 on real mounts: a new open sees the store as it is, an open file never two versions. Not here: other promises."""

from __future__ import annotations

import errno
import os
import shutil
import struct
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from mounting import MountFunction
from observing import bytes_or_none, errno_of, files_of
from promised_store import VALUES, promised_store, write_zarr
from promised_views import CHUNKED, VIEWS, View, each
from waiting import until


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return promised_store(tmp_path / "store.zarr")


# In every layout


@each(VIEWS)
def test_p9_a_new_open_sees_the_store_as_it_is(store: Path, mount: MountFunction, view: View) -> None:
    tree = mount(store, *view.options)
    for round_number in range(5):
        new = VALUES + round_number
        zarr.open_array(store / "a", mode="r+")[...] = new
        for place in ((1, 2), (3, 1)):
            assert (tree / view.chunk("a", *place)).read_bytes() == view.content(new, *place)
    assert (tree / view.chunk("a", 3, 2)).read_bytes() == view.content(VALUES + 4, 3, 2)
    (store / "a/1.2").unlink()
    assert bytes_or_none(tree / view.chunk("a", 1, 2)) == view.hole(VALUES, 1, 2)
    left = view.listing((i, j) for i in range(4) for j in range(3) if (i, j) != (1, 2))
    until(lambda: {str(path.relative_to(tree.path)) for path in files_of(tree.path)} == left)


@each(VIEWS)
def test_p9_an_open_file_never_mixes_two_versions(tmp_path: Path, mount: MountFunction, view: View) -> None:
    """A file of many read requests is rewritten while it is read: what comes is the old version whole, or ESTALE."""
    edges = (512, 512)
    old, new = np.full(edges, 1, np.int32), np.full(edges, 2, np.int32)
    for name, values in (("s.zarr", old), ("other.zarr", new)):
        zarr.create_group(tmp_path / name, zarr_format=2)
        write_zarr(tmp_path / name / "a", values, edges)
    path = mount(tmp_path / "s.zarr", *view.options) / view.chunk("a", 0, 0, edges=edges)
    whole = view.content(old, 0, 0, edges=edges)
    with open(path, "rb", buffering=0) as file:
        assert os.pread(file.fileno(), 4096, 0) == whole[:4096]
        (tmp_path / "other.zarr/a/0.0").rename(tmp_path / "s.zarr/a/0.0")
        seen: list[bytes] = []
        code = errno_of(lambda: seen.extend(os.pread(file.fileno(), 65536, at) for at in range(0, len(whole), 65536)))
        assert code in (None, errno.ESTALE)
        assert b"".join(seen) == whole[: len(b"".join(seen))]
    assert path.read_bytes() == view.content(new, 0, 0, edges=edges)


def all_listed_are_there(folder: Path) -> bool:
    """Tell if each listed file has its size; a listing may be a second old, and name what is gone."""
    try:
        return all(len(path.read_bytes()) == path.stat().st_size for path in files_of(folder))
    except FileNotFoundError:
        return False


@each(CHUNKED)
def test_p9_an_array_of_another_shape_then_a_group_take_the_place_of_the_old(
    store: Path, mount: MountFunction, view: View
) -> None:
    """Sizes, listings and contents are those of what is there now, also in a working directory."""
    tree = mount(store, *view.options)
    assert (tree / view.chunk("a", 0, 0)).read_bytes() == view.content(VALUES, 0, 0)
    os.listdir(tree / "a")
    inside = os.open(tree / "a", os.O_RDONLY)
    try:
        small = np.arange(1, 13, dtype="<i2").reshape(3, 4)
        shutil.rmtree(store / "a")
        write_zarr(store / "a", small, (2, 4))
        last = tree / view.chunk("a", 1, 0)
        until(lambda: errno_of(last.stat) is None and last.stat().st_size < 100)
        assert small[2].astype(">i2" if view.turned else "<i2").tobytes() in last.read_bytes()
        until(lambda: all_listed_are_there(tree / "a"))
        assert os.path.basename(view.document) in os.listdir(inside)
        shutil.rmtree(store / "a")
        zarr.create_group(store / "a/inner", zarr_format=2)
        until(lambda: os.path.isdir(tree / "a/inner"))
        until(lambda: "inner" in os.listdir(tree / "a"))
    finally:
        os.close(inside)


# Of some layouts


def test_p9_metadata_and_members_appear_change_and_go(store: Path, mount: MountFunction) -> None:
    tree = mount(store)
    assert '"made": "here"' in (tree / "zarr.json").read_text()
    zarr.open_group(store, mode="r+").attrs["made"] = "there"
    until(lambda: '"made": "there"' in (tree / "zarr.json").read_text())
    write_zarr(store / "late", VALUES.astype(np.int16))
    until(lambda: (tree / "late/zarr.json").exists())
    assert np.array_equal(zarr.open_array(tree / "late", mode="r")[...], VALUES)
    (store / "a/0.0").unlink()
    until(lambda: not (tree / "a/c/0/0").exists())
    until(lambda: sorted(os.listdir(tree / "a/c/0")) == ["1", "2"])


def test_p9_a_rewritten_chunk_is_listed_with_its_new_time(tmp_path: Path, mount: MountFunction) -> None:
    """A listing may show an earlier one's times for a while; a look-up sees a chunk as it is, and then listings do."""
    write_zarr(tmp_path / "s.zarr", np.arange(12).reshape(3, 4), (1, 1))
    tree = mount(tmp_path / "s.zarr", "--metadata-ttl", "2")

    def listed() -> dict[str, int]:
        with os.scandir(tree / "c/1") as entries:
            return {entry.name: entry.stat().st_mtime_ns for entry in entries}

    before = listed()
    assert sorted(before) == ["0", "1", "2", "3"]
    os.utime(tmp_path / "s.zarr/1.2", ns=(5, 5))
    os.utime(tmp_path / "s.zarr/2.2", ns=(6, 6))
    assert (tree / "c/2/2").stat().st_mtime_ns == 6
    until(lambda: listed() == {**before, "2": 5})
    os.utime(tmp_path / "s.zarr/1.2", ns=(7, 7))
    until(lambda: (tree / "c/1/2").stat().st_mtime_ns == 7)
    assert listed() == {**before, "2": 7}


def test_p12_times_before_1970_are_shown(tmp_path: Path, mount: MountFunction) -> None:
    write_zarr(tmp_path / "s.zarr", np.arange(4).reshape(2, 2), (1, 1))
    times = {"0": -1, "1": -1_500_000_000}
    for column, time_ns in times.items():
        os.utime(tmp_path / f"s.zarr/1.{column}", ns=(0, time_ns))
    tree = mount(tmp_path / "s.zarr")
    with os.scandir(tree / "c/1") as entries:
        assert {entry.name: entry.stat().st_mtime_ns for entry in entries} == times
    assert (tree / "c/1/0").stat().st_mtime_ns == -1


@pytest.mark.parametrize("layout", ["zarr3", "zarr2", "n5"])
@pytest.mark.parametrize("separator", [".", "/"])
def test_p8_a_chunk_of_the_far_future_hides_no_other(
    tmp_path: Path, mount: MountFunction, separator: str, layout: str
) -> None:
    """Times in ns that need more than 64 bits: after the year 2262."""
    write_zarr(
        tmp_path / "s.zarr", np.arange(1, 5).reshape(2, 2), (1, 1), chunk_key_encoding={"name": "v2", "separator": separator}
    )
    time_ns = 11_000_000_000 * 10**9
    os.utime(tmp_path / f"s.zarr/1{separator}0", ns=(0, time_ns))
    options = ["--chunk-separator", separator] if layout == "zarr2" else []
    tree = mount(tmp_path / "s.zarr", "--layout", layout, *options)
    folder, name = {"zarr3": ("c/1", "0"), "n5": ("0", "1")}.get(layout, (".", "1.0") if separator == "." else ("1", "0"))
    with os.scandir(tree / folder) as entries:
        assert {entry.name: entry.stat().st_mtime_ns == time_ns for entry in entries}[name]
    assert (tree / folder / name).stat().st_mtime_ns == time_ns
    assert len(os.listdir(tree / folder)) > 1


def test_p9_an_array_of_another_shape_takes_the_place_of_the_old(store: Path, mount: MountFunction) -> None:
    tree = mount(store)
    assert (tree / "a/c/0/0").stat().st_size == 400
    zarr.create_array(store / "a", shape=(6,), chunks=(3,), dtype="<f8", zarr_format=2, overwrite=True)[...] = np.arange(6)
    until(lambda: os.path.isfile(tree / "a/c/1"))
    assert np.array_equal(np.fromfile(tree / "a/c/1", "<f8"), [3, 4, 5])
    assert zarr.open_array(tree / "a", mode="r").shape == (6,)


GRID = {"shape": (8, 8), "chunks": (2, 2), "dtype": "<u2"}
FLAT = {"shape": (8,), "chunks": (2,), "dtype": "<u2"}


@pytest.mark.parametrize(
    ("old", "new", "before", "after"),
    [
        (GRID, GRID | {"shards": (4, 4)}, "0/0", "1/1"),
        (GRID | {"shards": (4, 4)}, GRID, "0/0", "0/0"),
        (GRID | {"shards": (8, 8)}, GRID | {"shards": (2, 2)}, "0/0", "0/0"),
        (GRID, GRID | {"chunk_key_encoding": {"name": "default", "separator": "."}}, "0/0", "0/0"),
        (FLAT, GRID, "0", "1/1"),
        (GRID, FLAT, "0/0", "0"),
    ],
)
def test_p9_a_new_open_sees_an_array_with_another_chunk_layout(
    tmp_path: Path, mount: MountFunction, old: dict[str, Any], new: dict[str, Any], before: str, after: str
) -> None:
    """The kernel still knows the directory of the old ones: what they lack there is neither absent nor damaged."""
    zarr.create_group(tmp_path / "s.zarr")
    for name, kind, value in (("a", old, 1), ("new", new, 2)):
        zarr.create_array(tmp_path / "s.zarr" / name, zarr_format=3, **kind)[...] = value
    tree = mount(tmp_path / "s.zarr", "--metadata-ttl", "60")
    assert set(np.fromfile(tree / "a/c" / before, "<u2")) == {1}
    (tmp_path / "s.zarr/a").rename(tmp_path / "old")
    (tmp_path / "s.zarr/new").rename(tmp_path / "s.zarr/a")
    assert set(np.fromfile(tree / "a/c" / after, "<u2")) == {2}


def test_p9_a_new_open_sees_chunks_with_the_name_of_a_former_member(tmp_path: Path, mount: MountFunction) -> None:
    store = tmp_path / "s.zarr"
    zarr.create_group(store)
    zarr.create_array(store / "a/0", data=np.full((4, 4), 1, "<u2"), chunks=(2, 2))
    zarr.create_array(store / "new", data=np.full((4, 4), 2, "<u2"), chunks=(2, 2))
    tree = mount(store, "--layout", "zarr2", "--chunk-separator", "/", "--metadata-ttl", "60")
    assert set(np.fromfile(tree / "a/0/0/0", "<u2")) == {1}
    (store / "a").rename(tmp_path / "old")
    (store / "new").rename(store / "a")
    assert set(np.fromfile(tree / "a/0/1", "<u2")) == {2}


@pytest.mark.parametrize(("layout", "chunk"), [("zarr2", ".zarray"), ("n5", "0/1")])
def test_p9_a_new_open_is_of_the_array_that_has_taken_a_groups_place(
    tmp_path: Path, mount: MountFunction, layout: str, chunk: str
) -> None:
    store = tmp_path / "s.zarr"
    zarr.create_group(store)
    zarr.create_array(store / "a/k", data=np.full((4, 4), 1, "<u2"), chunks=(2, 2))
    zarr.create_array(store / "new", data=np.full((4, 4), 2, "<u2"), chunks=(2, 2))
    tree = mount(store, "--layout", layout, "--metadata-ttl", "60")
    assert os.listdir(tree / "a")
    assert errno_of((tree / "a" / chunk).read_bytes) == errno.ENOENT
    (store / "a").rename(tmp_path / "old")
    (store / "new").rename(store / "a")
    assert (tree / "a" / chunk).read_bytes()


def test_p9_a_listing_is_of_the_array_that_has_taken_a_groups_place(tmp_path: Path, mount: MountFunction) -> None:
    """Its chunk directories were listed as groups."""
    store = tmp_path / "s.zarr"
    zarr.create_group(store / "a", zarr_format=3)
    zarr.create_array(store / "new", data=np.full((2, 4), 2, "<u2"), chunks=(2, 2))
    tree = mount(store, "--metadata-ttl", "60")
    assert (tree / "a/zarr.json").stat()
    (store / "a").rename(tmp_path / "old")
    (store / "new").rename(store / "a")
    shown = {str(path.relative_to(tree.path)) for path in (tree / "a").rglob("*")}
    assert shown == {"a/zarr.json", "a/c", "a/c/0", "a/c/0/0", "a/c/0/1"}


# In the layout `files`


@pytest.mark.parametrize("name", ["s.raw", "s.h5"])
def test_p9_an_open_file_never_mixes_two_versions_of_a_chunk(name: str, tmp_path: Path, mount: MountFunction) -> None:
    """Chunks are replaced while a file is read to its end: what was used is the old version to its end, or ESTALE."""
    rows, side = 64, 1024
    write_zarr(tmp_path / "s.zarr", np.full((side, side), 1, np.int32), (rows, side))
    tree = mount(tmp_path / "s.zarr", "--layout", "files")
    chunk, start = rows * side * 4, 0
    with open(tree / name, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        while struct.pack("<i", 1) * 16 not in (first := os.pread(file.fileno(), 4096, start)):
            start += 4096  # the skeleton
        zarr.open_array(tmp_path / "s.zarr", mode="r+")[...] = 2
        seen: list[bytes] = [first]
        begun = start + len(first)

        def rest() -> None:
            for place in range(begun, size, 65536):
                seen.append(os.pread(file.fileno(), 65536, place))

        assert errno_of(rest) in (None, errno.ESTALE)
        whole = np.frombuffer(b"".join(seen)[: side * side * 4], "<i4")
        for number in range(0, len(whole), chunk // 4):
            assert len(set(whole[number : number + chunk // 4].tolist()) - {0}) <= 1, number
    content = np.frombuffer((tree / name).read_bytes()[start : start + side * side * 4], "<i4")
    assert (content == 2).all()


@pytest.mark.parametrize("ttl", ["1", "600"])
def test_p9_a_new_open_shows_what_is_new_whatever_was_listed(ttl: str, tmp_path: Path, mount: MountFunction) -> None:
    """The kernel looks up once more what is outdated, and no more: a second change, or a listing that is remembered, must
    not make that look-up outdated, too."""
    group = zarr.create_group(tmp_path / "s.zarr")
    array = group.create_array("g/a", shape=(4, 3, 6), chunks=(2, 3, 2), dtype="u2")
    array[:] = 1
    tree = mount(tmp_path / "s.zarr", "--layout", "files", "--files", "npy,nii,raw,mha,h5", "--metadata-ttl", ttl)
    folder = tree / "g"

    def listed() -> None:
        for directory in (tree.path, folder, folder / "a.slices"):
            assert [entry.stat().st_size for entry in os.scandir(directory)]

    def shows(name: str) -> set[int]:
        return set(np.frombuffer((folder / name).read_bytes()[-array.size * 2 :], "<u2").tolist())

    listed()
    for value, name in enumerate(("a.npy", "a.raw", "a.nii", "a.mha"), start=2):
        array[:] = value
        assert shows(name) == {value}
    zarr.open_group(tmp_path / "s.zarr/g", mode="r+").attrs["changed"] = True
    array.attrs["changed"] = True
    for plane in range(4):
        assert set(np.load(folder / f"a.slices/{plane:04}.npy").flat) == {5}
    listed()
    array.resize((4, 3, 4))
    array[:] = 6
    for plane in range(4):
        assert np.load(folder / f"a.slices/{plane:04}.npy").tolist() == [[6] * 4] * 3
    with h5py.File(tree / "s.h5") as file:
        assert np.all(file["g/a"][()] == 6)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("moved", ["link", "renaming"])
def test_p9_an_open_file_never_mixes_two_snapshots_that_share_their_documents(
    moved: str, version: int, tmp_path: Path, mount: MountFunction
) -> None:
    """Copies of hard links, of which the next has other chunks (`rsync --link-dest`): only their directories tell."""
    rows, side = 64, 1024
    first, second, current = (tmp_path / name for name in ("first", "second", "current"))
    write_zarr(first, np.full((side, side), 1, np.int32), (rows, side), zarr_format=version, compressors=None)
    shutil.copytree(first, second, copy_function=os.link)
    for path in set(files_of(second)) - {second / name for name in (".zarray", ".zattrs", "zarr.json")}:
        path.unlink()
        path.write_bytes(np.full((rows, side), 2, np.int32).tobytes())
    if moved == "link":
        current.symlink_to("first")
    else:
        first.rename(current)
    tree = mount(current, "--layout", "files")
    with open(tree / "current.raw", "rb", buffering=0) as file:
        assert os.pread(file.fileno(), 4, 0) == struct.pack("<i", 1)
        if moved == "link":
            (tmp_path / "next").symlink_to("second")
            (tmp_path / "next").rename(current)
        else:
            current.rename(first)
            second.rename(current)
        assert errno_of(lambda: os.pread(file.fileno(), 4, (side - 1) * side * 4)) == errno.ESTALE
    assert (np.fromfile(tree / "current.raw", "<i4", side * side) == 2).all()


def test_p9_an_array_that_is_removed_is_stale_in_an_open_hdf5_file(tmp_path: Path, mount: MountFunction) -> None:
    """Reading an open file looks up no name, so nothing can be absent."""
    for name in "ab":
        write_zarr(tmp_path / "s" / name, np.full((1024, 1024), 1, np.int32), (64, 1024))
    with open(mount(tmp_path / "s", "--layout", "files", "--format", "zarr2") / "s.h5", "rb", buffering=0) as file:
        assert os.pread(file.fileno(), 4, 0) == b"\x89HDF"
        for name in "ab":
            shutil.rmtree(tmp_path / "s" / name)
        assert errno_of(lambda: os.pread(file.fileno(), 4, 6 << 20)) == errno.ESTALE
