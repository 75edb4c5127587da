"""The promises of docs/semantics.md where whole arrays are files, on real mounts: every file, what is made when it is
opened, and virtual HDF5 files.

P7 under hanging stores: tests/faults/test_faults.py. More of P2, P6, P8, P9 and P12: test_files_mount.py, test_h5_mount.py.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import random
import shutil
import signal
import struct
import threading
from pathlib import Path
from typing import Any

import h5py
import numcodecs
import numpy as np
import pytest
import zarr
from conftest import MountFunction
from mounting import Mount
from observing import Canary, ends_honestly, errno_of, files_of, grows_nothing, memory, read_as_large_as_it_says, snapshot
from posix_checks import check
from promised_store import promised_store, write_zarr

SHAPE = (35, 27)
MIB = 1 << 20
ALL = ("--layout", "files", "--files", "all")


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
def shared(values: np.ndarray[Any, Any], module_mount: MountFunction, tmp_path_factory: pytest.TempPathFactory) -> Mount:
    """A mount of such a store, for tests that only read."""
    return module_mount(promised_store(tmp_path_factory.mktemp("shared") / "store.zarr", values), *ALL)


def test_p1_nothing_changes(shared: Mount) -> None:
    before = snapshot(Path(shared.source))
    for file in ("a.json", "a.npy", "a.ome.tif", "a.csv", "a.h5", "store.h5", "a[3:9,::2].nrrd"):
        assert check(shared / file, shared.path) >= 50, file
    assert snapshot(Path(shared.source)) == before
    for path in (shared.path, *shared.path.rglob("*")):
        assert path.stat().st_mode & 0o222 == 0


def test_p2_size_is_truth(shared: Mount) -> None:
    rng = random.Random(2)
    regions = [shared / f"a[{region}].{suffix}" for region in ("3", "1:30:7,::-2", "5:5") for suffix in ("npy", "raw", "h5")]
    paths = files_of(shared.path) + regions
    assert len(paths) > 20
    for path in paths:
        read_as_large_as_it_says(path, rng)


def test_p2_an_array_of_two_to_the_62_bytes(tmp_path: Path, mount: MountFunction) -> None:
    group = zarr.create_group(tmp_path / "s.zarr")
    group.create_array("a", shape=(2**31, 2**31), chunks=(2**10, 2**10), dtype="u1", fill_value=7)
    tree = mount(tmp_path / "s.zarr", *ALL)
    assert (tree / "a.raw").stat().st_size == 2**62
    assert (tree / "a.npy").stat().st_size == 2**62 + 128
    with open(tree / "a.npy", "rb") as file:
        for place in (128, 2**61, 2**62 + 100):
            assert os.pread(file.fileno(), 4, place) == bytes([7] * 4)
    np.testing.assert_array_equal(np.load(tree / f"a[{2**31 - 3}:,{2**30}].npy"), [7, 7, 7])


def test_p3_absent_is_enoent_and_damage_is_not(store: Path, values: np.ndarray[Any, Any], mount: MountFunction) -> None:
    (store / "a/1.1").unlink()
    (store / "a/2.2").write_bytes(b"not zlib")
    tree = mount(store, "--layout", "files")
    tree.allow(r"a/2\.2: ")
    for name in ("b.npy", "a.jpg", "a[99].npy", "a[0", "a[x].npy", "a.slices/0099.tif", "b.h5"):
        assert errno_of((tree / name).stat) == errno.ENOENT, name
    for name in ("a.npy", "a.raw", "a.csv", "a[20:,20:].npy", "a.png"):
        assert errno_of((tree / name).read_bytes) in (errno.EIO, errno.ENOENT if name == "a.png" else errno.EIO), name
    expected = values.copy()
    expected[10:20, 10:20] = 0
    np.testing.assert_array_equal(np.load(tree / "a[:20].npy"), expected[:20])
    assert {"a.json", "a.npy"} <= set(os.listdir(tree))
    assert tree.told(r"a/2\.2: zlib: ")


def test_p4_links_that_lead_out_are_not_followed(tmp_path: Path, store: Path, mount: MountFunction) -> None:
    write_zarr(tmp_path / "secret", np.full((10, 10), 42, np.int32))
    (store / "out").symlink_to(tmp_path / "secret")
    (store / "a/0.0").unlink()
    (store / "a/0.0").symlink_to(tmp_path / "secret/0.0")
    tree = mount(store, *ALL)
    tree.allow("")
    secret = struct.pack("<i", 42) * 3
    for name in ("a.npy", "a.h5", "store.h5", "a[0:5,0:5].raw", "out.npy", "out.h5"):
        with contextlib.suppress(OSError):
            assert secret not in (tree / name).read_bytes(), name
    assert errno_of((tree / "a[0:5,0:5].raw").read_bytes) in (errno.EACCES, errno.EIO)
    assert (tree / "a[10:].npy").stat().st_size == 128 + 25 * 27 * 4


def test_p5_pickles_are_never_executed(tmp_path: Path, store: Path, mount: MountFunction) -> None:
    canary = tmp_path / "canary"
    (store / "objects").mkdir()
    (store / "objects/.zarray").write_text(
        '{"zarr_format": 2, "shape": [1, 1], "chunks": [1, 1], "dtype": "|O", "order": "C", "fill_value": null,'
        ' "compressor": null, "filters": [{"id": "vlen-utf8"}, {"id": "pickle", "protocol": 4}]}'
    )
    (store / "objects/0.0").write_bytes(pickle.dumps(Canary(canary)))
    tree = mount(store, "--layout", "files")
    tree.allow("objects")
    for suffix in ("npy", "txt", "csv", "h5"):
        assert errno_of((tree / f"objects.{suffix}").read_bytes) is not None
    with h5py.File(tree / "store.h5") as file:
        assert list(file) == ["a"]
        assert "objects" in file.attrs["fsbridge_left_out"][0]
    assert not canary.exists()


def test_p6_memory_stays_within_the_budget(tmp_path: Path, mount: MountFunction) -> None:
    """Eight readers of the same 192 MiB as five files, planes across the chunks among them, through a cache of 64 MiB."""
    values = np.zeros((48, 1024, 1024), np.int32)
    values[:] = np.arange(1, 49)[:, None, None]
    write_zarr(tmp_path / "big.zarr", values, (16, 256, 256), compressors=numcodecs.Zstd(1))
    expected = {"npy": 128 + values.nbytes, "raw": values.nbytes}
    del values
    tree = mount(tmp_path / "big.zarr", "--cache-size", "64M", "--spill-dir", str(tmp_path), "--layout", "files")
    problems: list[str] = []

    def reader(number: int) -> None:
        name = ("big.npy", "big.raw", "big.h5", "big.ome.tif", "big[:,:,::5].npy")[number % 5]
        with open(tree / name, "rb", buffering=0) as file:
            total = sum(len(part) for part in iter(lambda: file.read(MIB), b""))
        if total != expected.get(name.rpartition(".")[2] if "[" not in name else "", (tree / name).stat().st_size):
            problems.append(name)

    threads = [threading.Thread(target=reader, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert memory(tree.process.pid, "VmHWM") <= (64 + 150) * MIB


def test_p8_bad_neighbours(store: Path, values: np.ndarray[Any, Any], mount: MountFunction) -> None:
    for name in ("broken", "odd", "huge"):
        write_zarr(store / name, values)
    (store / "broken/.zarray").write_text("{")
    (store / "odd/.zarray").write_text((store / "a/.zarray").read_text().replace('"zlib"', '"unknown"'))
    (store / "huge/.zarray").write_text(
        (store / "a/.zarray").read_text().replace("[35,", f"[{2**62},").replace("35,", f"{2**62},")
    )
    tree = mount(store, *ALL)
    tree.allow(r"broken|odd|unknown|huge")
    assert {"a.npy", "odd.json", "huge.json"} <= set(os.listdir(tree))
    np.testing.assert_array_equal(np.load(tree / "a.npy"), values)
    assert errno_of((tree / "odd.npy").read_bytes) == errno.EOPNOTSUPP
    assert errno_of((tree / "huge.npy").stat) == errno.ENOENT
    assert errno_of((tree / "broken.json").read_bytes) == errno.EIO
    with h5py.File(tree / "store.h5") as file:
        np.testing.assert_array_equal(file["a"][()], values)
        named = " ".join(file.attrs["fsbridge_left_out"])
        assert "broken" in named
        assert "huge" in named
        assert errno_of(lambda: file["odd"][()]) is not None


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
    group["g"].attrs["changed"] = True  # type: ignore[index]
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_p10_an_end_is_unmounted_and_a_crash_is_no_empty_tree(
    store: Path, mount: MountFunction, number: signal.Signals
) -> None:
    tree = mount(store, "--layout", "files")
    (tree / "store.h5").read_bytes()  # a process was started for it
    ends_honestly(tree, tree / "a.npy", number)


def test_p11_nothing_grows(store: Path, mount: MountFunction) -> None:
    """Files, regions, planes, virtual HDF5 files and names of nothing, again and again."""
    tree = mount(store, *ALL)
    paths = [*files_of(tree.path), tree / "a[3:9].npy", tree / "a[::2,5].h5", tree / "store.h5"]

    def use(rounds: int) -> None:
        for _ in range(rounds):
            for path in paths:
                path.read_bytes()
            os.listdir(tree)
            errno_of((tree / "a[x].npy").stat)

    grows_nothing(tree, use, (5, 15), 16 * MIB)


def test_p12_every_file_has_the_elements(shared: Mount, values: np.ndarray[Any, Any]) -> None:
    """Read by numpy and h5py; what the programs of each field read: test_files_mount.py, scripts/legacy-check."""
    for _ in range(2):
        np.testing.assert_array_equal(np.load(shared / "a.npy"), values)
        np.testing.assert_array_equal(np.fromfile(shared / "a.raw", "<i4").reshape(SHAPE), values)
        np.testing.assert_array_equal(np.loadtxt(shared / "a.csv", delimiter=",", dtype="i4", skiprows=1), values)
        for name in ("a.h5", "store.h5"):
            with h5py.File(shared / name) as file:
                np.testing.assert_array_equal(file["a"][()], values)
