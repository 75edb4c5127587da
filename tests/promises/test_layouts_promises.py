"""The promises of docs/semantics.md on every layout that shows chunks as files, on real mounts.

P7 under hanging stores: tests/faults/test_faults.py. P12: test_layouts_mount.py.
"""

from __future__ import annotations

import errno
import os
import pickle
import random
import shutil
import signal
import stat
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from conftest import MountFunction
from mounting import Mount
from observing import Canary, ends_honestly, errno_of, files_of, grows_nothing, memory, read_as_large_as_it_says, snapshot
from posix_checks import check
from promised_store import CHUNKS, promised_store, write_zarr
from waiting import until

SHAPE = (35, 27)
MIB = 1 << 20


@dataclass(frozen=True)
class Shown:
    """How a layout shows the chunk (i, j) of a C-order array of little-endian integers."""

    name: str
    options: tuple[str, ...]
    document: str
    chunk: Callable[[int, int], str]
    cropped: bool = False

    def content(self, values: np.ndarray[Any, Any], i: int, j: int) -> bytes:
        part = values[i * 10 : (i + 1) * 10, j * 10 : (j + 1) * 10]
        if self.cropped:
            header = struct.pack(">HHII", 0, 2, part.shape[1], part.shape[0])
            return header + part.astype(part.dtype.newbyteorder(">")).tobytes()
        whole = np.zeros(CHUNKS, values.dtype)
        whole[: part.shape[0], : part.shape[1]] = part
        return whole.tobytes()


LAYOUTS = [
    Shown("zarr3", ("--layout", "zarr3"), "zarr.json", lambda i, j: f"c/{i}/{j}"),
    Shown("zarr2", ("--layout", "zarr2"), ".zarray", lambda i, j: f"{i}.{j}"),
    Shown("zarr2-nested", ("--layout", "zarr2", "--chunk-separator", "/"), ".zarray", lambda i, j: f"{i}/{j}"),
    Shown("n5", ("--layout", "n5"), "attributes.json", lambda i, j: f"{j}/{i}", True),
]


@pytest.fixture(scope="module", params=LAYOUTS, ids=[shown.name for shown in LAYOUTS])
def shown(request: pytest.FixtureRequest) -> Shown:
    found: Shown = request.param
    return found


@pytest.fixture(scope="module")
def values() -> np.ndarray[Any, Any]:
    values = np.random.default_rng(1).integers(1, 99, SHAPE, np.int32)
    values.setflags(write=False)
    return values


@pytest.fixture
def store(tmp_path: Path, values: np.ndarray[Any, Any]) -> Path:
    """A group with an array `a` of 4 x 3 chunks, keys `a/0.0` to `a/3.2`."""
    return promised_store(tmp_path / "store.zarr", values)


@pytest.fixture(scope="module")
def shared(
    values: np.ndarray[Any, Any], module_mount: MountFunction, tmp_path_factory: pytest.TempPathFactory, shown: Shown
) -> Mount:
    """A mount of such a store, for tests that only read."""
    return module_mount(promised_store(tmp_path_factory.mktemp("shared") / "store.zarr", values), *shown.options)


def test_posix_and_p1_nothing_changes(shared: Mount, shown: Shown) -> None:
    before = snapshot(Path(shared.source))
    array = shared / "a"
    for file in (shown.document, shown.chunk(0, 0), shown.chunk(3, 2)):
        assert check(array / file, array) >= 50
    assert snapshot(Path(shared.source)) == before
    for path in (shared.path, *shared.path.rglob("*")):
        assert path.stat().st_mode & 0o222 == 0


def test_p2_size_is_truth(shared: Mount, values: np.ndarray[Any, Any], shown: Shown) -> None:
    rng = random.Random(2)
    for path in files_of(shared.path):
        read_as_large_as_it_says(path, rng)
    for i in range(4):
        for j in range(3):
            assert (shared / "a" / shown.chunk(i, j)).read_bytes() == shown.content(values, i, j)


def test_p3_absent_is_enoent_and_damage_is_not(
    store: Path, values: np.ndarray[Any, Any], mount: MountFunction, shown: Shown
) -> None:
    (store / "a/1.1").unlink()
    (store / "a/2.2").write_bytes(b"not zlib")
    tree = mount(store, *shown.options)
    tree.allow(r"a/2\.2: ")
    array = tree / "a"
    assert errno_of((array / shown.chunk(1, 1)).read_bytes) == errno.ENOENT
    assert errno_of((array / shown.chunk(9, 9)).stat) == errno.ENOENT
    assert errno_of((array / shown.chunk(2, 2)).read_bytes) == errno.EIO
    listed = {str(path.relative_to(array)) for path in files_of(array)}
    chunks = {shown.chunk(i, j) for i in range(4) for j in range(3)} - {shown.chunk(1, 1)}
    assert {name for name in listed if not name.startswith((".z", "zarr.json", "attributes"))} == chunks
    assert (array / shown.chunk(3, 2)).read_bytes() == shown.content(values, 3, 2)
    assert tree.told(r"a/2\.2: zlib: ") == tree.log()


def test_p4_links_that_lead_out_are_not_followed(tmp_path: Path, store: Path, mount: MountFunction, shown: Shown) -> None:
    write_zarr(tmp_path / "secret", np.full((10, 10), 42, np.int32))
    (store / "out").symlink_to(tmp_path / "secret")
    (store / "a/0.0").unlink()
    (store / "a/0.0").symlink_to(tmp_path / "secret/0.0")
    tree = mount(store, *shown.options)
    tree.allow("")
    assert errno_of((tree / "a" / shown.chunk(0, 0)).read_bytes) is not None
    assert errno_of(lambda: os.listdir(tree / "out")) is not None


def test_p3_links_that_lead_nowhere_are_listed(tmp_path: Path, store: Path, mount: MountFunction, shown: Shown) -> None:
    """For example, a disk is not mounted now: a mirror of the listing would delete the copy of what was there."""
    for name, target in (("gone", "never"), ("out", "/etc"), (".#lock", "somebody@here"), ("attributes.json", "never")):
        (store / name).symlink_to(target)
    tree = mount(store, *shown.options)
    tree.allow("")
    assert {"a", "gone", "out"} <= set(os.listdir(tree))
    assert ".#lock" not in os.listdir(tree)
    assert errno_of(lambda: os.listdir(tree / "gone")) == errno.EIO
    assert errno_of(lambda: os.listdir(tree / "out")) == errno.EACCES
    assert (tree / "a" / shown.document).read_bytes()


def test_p5_pickles_are_never_executed(tmp_path: Path, store: Path, mount: MountFunction, shown: Shown) -> None:
    canary = tmp_path / "canary"
    (store / "objects").mkdir()
    (store / "objects/.zarray").write_text(
        '{"zarr_format": 2, "shape": [1, 1], "chunks": [1, 1], "dtype": "|O", "order": "C", "fill_value": null,'
        ' "compressor": null, "filters": [{"id": "vlen-utf8"}, {"id": "pickle", "protocol": 4}]}'
    )
    (store / "objects/0.0").write_bytes(pickle.dumps(Canary(canary)))
    tree = mount(store, *shown.options)
    tree.allow("objects")
    code = errno_of(lambda: (tree / "objects" / shown.chunk(0, 0)).read_bytes())
    assert code in (errno.EOPNOTSUPP, errno.EIO, errno.ENOENT)
    assert (tree / "a" / shown.document).read_bytes()
    assert not canary.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_p10_an_end_is_unmounted_and_a_crash_is_no_empty_tree(
    store: Path, mount: MountFunction, shown: Shown, number: signal.Signals
) -> None:
    tree = mount(store, *shown.options)
    ends_honestly(tree, tree / "a" / shown.chunk(0, 0), number)


def test_p6_memory_stays_within_the_budget(tmp_path: Path, mount: MountFunction, shown: Shown) -> None:
    """16 chunks of 16 MiB, the edge ones cropped in n5, read by 8 threads through a cache of 64 MiB."""
    values = np.zeros((16, 3, MIB - 1), np.int32)
    values[:] = np.arange(1, 17)[:, None, None]
    write_zarr(tmp_path / "big.zarr", values, (1, 4, MIB), compressors=numcodecs.Zstd(1))
    del values
    tree = mount(tmp_path / "big.zarr", "--cache-size", "64M", *shown.options)
    files = sorted(path for path in files_of(tree.path) if path.name not in (".zattrs", shown.document))
    assert len(files) == 16
    problems: list[str] = []

    def reader(number: int) -> None:
        for path in files[number::8]:
            with open(path, "rb", buffering=0) as file:
                total = sum(len(part) for part in iter(lambda: file.read(MIB), b""))
            if total != path.stat().st_size:
                problems.append(str(path))

    threads = [threading.Thread(target=reader, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert memory(tree.process.pid, "VmHWM") <= (64 + 150) * MIB


def test_p8_bad_neighbours(store: Path, values: np.ndarray[Any, Any], mount: MountFunction, shown: Shown) -> None:
    for name in ("broken", "odd"):
        write_zarr(store / name, values)
    (store / "broken/.zarray").write_text("{")
    (store / "odd/.zarray").write_text((store / "a/.zarray").read_text().replace('"zlib"', '"unknown"'))
    tree = mount(store, *shown.options)
    tree.allow(r"broken|odd|unknown")
    assert {"a", "broken", "odd"} <= set(os.listdir(tree))
    assert (tree / "a" / shown.chunk(3, 2)).read_bytes() == shown.content(values, 3, 2)
    assert errno_of((tree / "broken" / shown.document).read_bytes) == errno.EIO
    assert errno_of((tree / "odd" / shown.chunk(0, 0)).read_bytes) == errno.EOPNOTSUPP


def test_p9_a_new_open_sees_the_store_as_it_is(
    store: Path, values: np.ndarray[Any, Any], mount: MountFunction, shown: Shown
) -> None:
    tree = mount(store, *shown.options)
    for round_number in range(4):
        new = values + round_number
        zarr.open_array(store / "a", mode="r+")[...] = new
        for i, j in ((1, 2), (3, 1)):
            assert (tree / "a" / shown.chunk(i, j)).read_bytes() == shown.content(new, i, j)
    (store / "a/1.2").unlink()
    assert errno_of((tree / "a" / shown.chunk(1, 2)).read_bytes) == errno.ENOENT
    until(lambda: len(files_of(tree / "a")) == len(files_of(store / "a")) - (shown.name in ("zarr3", "n5")))


def test_p9_an_open_file_never_mixes_two_versions(tmp_path: Path, mount: MountFunction, shown: Shown) -> None:
    """A file of many read requests is rewritten while it is read: what comes is the old version whole, or ESTALE."""
    side = 512
    old, new = np.full((side, side), 1, np.int32), np.full((side, side), 2, np.int32)
    write_zarr(tmp_path / "s.zarr", old, (side, side))
    tree = mount(tmp_path / "s.zarr", *shown.options)
    path = tree / shown.chunk(0, 0)
    whole = path.read_bytes()
    with open(path, "rb", buffering=0) as file:
        assert os.pread(file.fileno(), 4096, 0) == whole[:4096]
        write_zarr(tmp_path / "other.zarr", new, (side, side))
        os.rename(tmp_path / "other.zarr/0.0", tmp_path / "s.zarr/0.0")
        seen: list[bytes] = []
        code = errno_of(lambda: seen.extend(os.pread(file.fileno(), 65536, at) for at in range(0, len(whole), 65536)))
        assert code in (None, errno.ESTALE)
        assert b"".join(seen) == whole[: len(b"".join(seen))]
    assert path.read_bytes() == whole.replace(old[0, :1].tobytes()[:1], new[0, :1].tobytes()[:1])


def all_listed_are_there(folder: Path) -> bool:
    """Tell if each listed file has its size; a listing may be a second old, and name what is gone."""
    try:
        return all(len(path.read_bytes()) == path.stat().st_size for path in files_of(folder))
    except FileNotFoundError:
        return False


def test_p9_an_array_of_another_shape_then_a_group_take_the_place_of_the_old(
    store: Path, values: np.ndarray[Any, Any], mount: MountFunction, shown: Shown
) -> None:
    """Sizes, listings and contents are those of what is there now, also in a working directory."""
    tree = mount(store, *shown.options)
    assert (tree / "a" / shown.chunk(0, 0)).read_bytes() == shown.content(values, 0, 0)
    os.listdir(tree / "a")
    inside = os.open(tree / "a", os.O_RDONLY)
    try:
        small = np.arange(1, 13, dtype="<i2").reshape(3, 4)
        shutil.rmtree(store / "a")
        write_zarr(store / "a", small, (2, 4))
        last = tree / "a" / shown.chunk(1, 0)
        until(lambda: errno_of(last.stat) is None and last.stat().st_size < 100)
        assert small[2].astype(">i2" if shown.cropped else "<i2").tobytes() in last.read_bytes()
        until(lambda: all_listed_are_there(tree / "a"))
        assert shown.document in os.listdir(inside)
        shutil.rmtree(store / "a")
        zarr.create_group(store / "a/inner", zarr_format=2)
        until(lambda: os.path.isdir(tree / "a/inner"))
        until(lambda: "inner" in os.listdir(tree / "a"))
    finally:
        os.close(inside)


def test_p11_nothing_grows(store: Path, mount: MountFunction, shown: Shown) -> None:
    tree = mount(store, *shown.options)
    files = files_of(tree.path)

    def use(rounds: int) -> None:
        for _ in range(rounds):
            for path in files:
                path.read_bytes()
            for folder in (tree.path, *{path.parent for path in files}):
                os.listdir(folder)
            errno_of((tree / "a" / shown.chunk(9, 9)).stat)

    grows_nothing(tree, use, (10, 40), 8 * MIB)


def test_every_layout_at_once(store: Path, values: np.ndarray[Any, Any], mount: MountFunction) -> None:
    """One directory each, and one decoding of a chunk for all."""
    tree = mount(store, "--layout", "files,n5,zarr3,zarr2")
    assert sorted(os.listdir(tree)) == ["files", "n5", "zarr2", "zarr3"]
    assert errno_of((tree / "a").stat) == errno.ENOENT
    assert errno_of((tree / "zarr.json").stat) == errno.ENOENT
    np.testing.assert_array_equal(np.load(tree / "files/a.npy"), values)
    for shown in LAYOUTS:
        if shown.name != "zarr2-nested":
            assert (tree / shown.name / "a" / shown.chunk(3, 2)).read_bytes() == shown.content(values, 3, 2)


def test_directories_have_the_same_time_in_listings_and_by_name(store: Path, mount: MountFunction, shown: Shown) -> None:
    for document in store.rglob("*"):
        if document.is_file():
            os.utime(document, (1e9, 1e9))  # an array's directory is younger than what is in it
    tree = mount(store, *shown.options, "--metadata-ttl", "0.1")
    for folder in [path for path in tree.path.rglob("*") if path.is_dir()]:
        with os.scandir(folder.parent) as entries:
            (entry,) = [entry for entry in entries if entry.name == folder.name]
            listed = entry.stat().st_mtime_ns
        time.sleep(0.2)  # or else the kernel would answer with what the listing has told
        assert folder.stat().st_mtime_ns == listed


def test_p12_netcdf_c_reads_the_layout_zarr2(store: Path, values: np.ndarray[Any, Any], mount: MountFunction) -> None:
    """A reader that stopped at Zarr v2; what else there is of them is in scripts/legacy-check."""
    tree = mount(store, "--layout", "zarr2")
    url = f"file://{tree.path}#mode=zarr,file"
    text = subprocess.run(["ncdump", "-v", "a", url], check=True, capture_output=True, text=True).stdout
    numbers = text.partition("data:")[2].partition("=")[2].replace(";", " ").replace("}", " ").replace(",", " ").split()
    assert [int(number) for number in numbers] == values.ravel().tolist()


@pytest.mark.parametrize("tool", ["cp", "rsync", "tar"])
def test_copies_of_all_layouts_at_once_are_the_stores_themselves(
    tmp_path: Path, store: Path, values: np.ndarray[Any, Any], mount: MountFunction, tool: str
) -> None:
    tree: Mount = mount(store, "--layout", "zarr3,zarr2,n5")
    copy = tmp_path / "copy"
    copy.mkdir()
    words = {
        "cp": ["cp", "-r", f"{tree.path}/.", str(copy)],
        "rsync": ["rsync", "-a", f"{tree.path}/", str(copy)],
        "tar": ["sh", "-c", f"tar -C '{tree.path}' -cS . | tar -C '{copy}' -x"],
    }
    subprocess.run(words[tool], check=True)
    subprocess.run(["diff", "-r", str(tree.path), str(copy)], check=True)
    for form in (2, 3):
        array: Any = zarr.open_array(copy / f"zarr{form}/a", mode="r", zarr_format=form)  # type: ignore[arg-type]
        np.testing.assert_array_equal(array[...], values)
    assert all(stat.S_ISREG(path.stat().st_mode) or path.is_dir() for path in copy.rglob("*"))
