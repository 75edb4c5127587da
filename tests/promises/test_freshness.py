"""P9 on real mounts: a new open sees the store as it is, an open file never two versions. Not here: other promises."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from conftest import MountFunction
from observing import errno_of
from promised_chunks import SHAPE, chunk
from promised_store import promised_store, write_zarr
from waiting import until


@pytest.fixture(scope="module")
def values() -> np.ndarray:
    values = np.random.default_rng(1).integers(0, 99, SHAPE, np.int32)
    values.setflags(write=False)
    return values


@pytest.fixture
def store(tmp_path: Path, values: np.ndarray) -> Path:
    """A group with an array `a` of 4 x 3 chunks, keys `a/0.0` to `a/3.2`."""
    return promised_store(tmp_path / "store.zarr", values)


# --- P9


def test_p9_a_new_open_sees_the_store_as_it_is(store: Path, values: np.ndarray, mount: MountFunction) -> None:
    tree = mount(store)
    path = tree / "a/c/1/2"
    for round_number in range(5):
        new = values + round_number
        zarr.open_array(store / "a", mode="r+")[...] = new
        until(lambda new=new: path.read_bytes() == chunk(new, 1, 2))  # type: ignore[misc]
    assert (tree / "a/c/3/2").read_bytes() == chunk(values + 4, 3, 2)


def test_p9_an_open_file_never_mixes_two_versions(tmp_path: Path, mount: MountFunction) -> None:
    """A file of many read requests is rewritten while it is read: what comes is the old version whole, or ESTALE."""
    side = 512
    old, new = np.full((side, side), 1, np.int32), np.full((side, side), 2, np.int32)
    write_zarr(tmp_path / "s.zarr", old, (side, side))
    tree = mount(tmp_path / "s.zarr")
    with open(tree / "c/0/0", "rb", buffering=0) as file:
        assert os.pread(file.fileno(), 4096, 0) == old.tobytes()[:4096]
        replacement = tmp_path / "new"
        write_zarr(tmp_path / "other.zarr", new, (side, side))
        os.rename(tmp_path / "other.zarr/0.0", replacement)
        os.rename(replacement, tmp_path / "s.zarr/0.0")
        seen: list[bytes] = []
        code = errno_of(lambda: seen.extend(os.pread(file.fileno(), 65536, at) for at in range(0, 4 * side * side, 65536)))
        assert code in (None, errno.ESTALE)
        assert b"".join(seen) == old.tobytes()[: len(b"".join(seen))]
    until(lambda: (tree / "c/0/0").read_bytes() == new.tobytes())


def test_p9_metadata_and_members_appear_change_and_go(store: Path, values: np.ndarray, mount: MountFunction) -> None:
    tree = mount(store)
    assert '"made": "here"' in (tree / "zarr.json").read_text()
    zarr.open_group(store, mode="r+").attrs["made"] = "there"
    until(lambda: '"made": "there"' in (tree / "zarr.json").read_text())
    write_zarr(store / "late", values.astype(np.int16))
    until(lambda: (tree / "late/zarr.json").exists())
    assert np.array_equal(zarr.open_array(tree / "late", mode="r")[...], values)
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


CHUNKED = {"shape": (8, 8), "chunks": (2, 2), "dtype": "<u2"}
FLAT = {"shape": (8,), "chunks": (2,), "dtype": "<u2"}


@pytest.mark.parametrize(
    ("old", "new", "before", "after"),
    [
        (CHUNKED, CHUNKED | {"shards": (4, 4)}, "0/0", "1/1"),
        (CHUNKED | {"shards": (4, 4)}, CHUNKED, "0/0", "0/0"),
        (CHUNKED | {"shards": (8, 8)}, CHUNKED | {"shards": (2, 2)}, "0/0", "0/0"),
        (CHUNKED, CHUNKED | {"chunk_key_encoding": {"name": "default", "separator": "."}}, "0/0", "0/0"),
        (FLAT, CHUNKED, "0", "1/1"),
        (CHUNKED, FLAT, "0/0", "0"),
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
