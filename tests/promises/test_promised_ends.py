"""P6, P10 and P11 on real mounts in every layout: what a daemon takes, how it ends, and that its work leaves nothing.

The layouts: promised_views.py. Not here: the other promises (test_promises.py).
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import forking
import numcodecs
import numpy as np
import pytest
import zarr
from mounting import MountFunction, await_disconnected, mounted
from observing import ends_honestly, errno_of, files_of, gauges, grows_nothing, memory, own_memory
from promised_store import promised_store, write_zarr
from promised_views import CHUNKED, FILES, VIEWS, View, each
from waiting import until

MIB = 1 << 20
BIG = np.broadcast_to(np.arange(1, 65, dtype=np.int32)[:, None, None], (64, 1000, 800))
BIG_CHUNKS = (16, 512, 512)
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return promised_store(tmp_path / "store.zarr")


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An array of 16 chunks of 16 MiB. Most reach beyond its end, and each plane is in four of them."""
    root = tmp_path_factory.mktemp("big") / "big.zarr"
    zarr.create_group(root, zarr_format=2)
    write_zarr(root / "a", BIG, BIG_CHUNKS, compressors=numcodecs.Zstd(1))
    return root


# --- P6


@each(CHUNKED)
def test_p6_memory_stays_within_the_budget(big: Path, mount: MountFunction, view: View) -> None:
    """16 threads read two chunks each through a cache of 64 MiB."""
    tree = mount(big, "--cache-size", "64M", *view.options, installed=True)
    places = list(np.ndindex(4, 2, 2))

    def reads_well(number: int) -> bool:
        for place in (places[number], places[number - 5]):
            expected = view.content(BIG, *place, edges=BIG_CHUNKS)
            with open(tree / view.chunk("a", *place, edges=BIG_CHUNKS), "rb", buffering=0) as file:
                for offset in range(0, len(expected) + 1, MIB):
                    if os.pread(file.fileno(), MIB, offset) != expected[offset : offset + MIB]:
                        return False
        return True

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(reads_well, range(16)))
    assert memory(tree.process.pid, "VmHWM") <= (64 + 150) * MIB


def test_p6_memory_stays_within_the_budget_for_whole_arrays(big: Path, tmp_path: Path, mount: MountFunction) -> None:
    """Eight threads read 195 MiB each as five files, planes across the chunks among them, through a cache of 64 MiB."""
    tree = mount(big, "--cache-size", "64M", "--spill-dir", str(tmp_path), *FILES.options, installed=True)
    names = ("a.npy", "a.raw", "a.h5", "a.ome.tif", "a[:,:,::5].npy")
    sizes = {"a.npy": 128 + BIG.nbytes, "a.raw": BIG.nbytes, "a[:,:,::5].npy": 128 + BIG.nbytes // 5}

    def reads_all(number: int) -> bool:
        name = names[number % 5]
        with open(tree / name, "rb", buffering=0) as file:
            total = sum(len(part) for part in iter(lambda: file.read(MIB), b""))
        return total == sizes.get(name, (tree / name).stat().st_size)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(reads_all, range(8)))
    assert memory(tree.process.pid, "VmHWM") <= (64 + 150) * MIB


def test_p6_memory_stays_within_the_budget_for_chunks_of_unknown_size(tmp_path: Path, mount: MountFunction) -> None:
    """12 chunks of 30 MiB of strings, a thousandth of it stored, opened and read at once through a cache of 64 MiB."""
    array = zarr.create_array(
        tmp_path / "texts.zarr", shape=(12 * 30,), chunks=(30,), dtype=str, zarr_format=2, compressors=numcodecs.Zstd(1)
    )
    for i in range(12):
        array[30 * i : 30 * (i + 1)] = np.array([chr(ord("a") + i) * MIB] * 30, object)
    tree = mount(tmp_path / "texts.zarr", "--cache-size", "64M", installed=True)
    expected = [b"\36\0\0\0" + 30 * (b"\0\0\20\0" + bytes([ord("a") + i]) * MIB) for i in range(12)]
    with ThreadPoolExecutor(12) as pool:
        found = pool.map(lambda i: (tree / f"c/{i}").read_bytes() == expected[i], range(12))
    assert all(found)
    peak = memory(tree.process.pid, "VmHWM")
    assert peak <= (64 + 150) * MIB, f"{peak / MIB:.0f} MiB"


def test_p6_a_chunk_above_the_budget_is_refused_not_tried(tmp_path: Path, mount: MountFunction) -> None:
    root = tmp_path / "big.zarr"
    zarr.create_array(root, shape=(2**40, 2**20), chunks=(2**30, 2**20), dtype="<f8", zarr_format=2)
    (root / "0.0").write_bytes(b"x" * 100)
    tree = mount(root)
    tree.allow("WARNING")
    assert (tree / "c/0/0").stat().st_size == 2**53
    with open(tree / "c/0/0", "rb", buffering=0) as file:
        assert errno_of(lambda: os.pread(file.fileno(), 10, 0)) == errno.EFBIG
    tree.told(f"a chunk has {2**53} bytes; the limit is {2**31}, however large the cache is")  # a larger one would not do
    assert tree.alive


# --- P10


@each(VIEWS)
@pytest.mark.parametrize("number", SIGNALS, ids=[number.name for number in SIGNALS])
def test_p10_an_end_is_unmounted_and_a_crash_is_no_empty_tree(
    store: Path, mount: MountFunction, view: View, number: signal.Signals
) -> None:
    tree = mount(store, *view.options)
    if view.whole:
        (tree / "store.h5").read_bytes()  # a process is started for it
    ends_honestly(tree, tree / view.chunk("a", 0, 0), number)


@pytest.mark.parametrize("patience", [0.0, 0.002, 0.008])
def test_p10_a_crash_at_the_start_leaves_no_unkillable_process(tmp_path: Path, store: Path, patience: float) -> None:
    """A killed daemon that waited for its own mount would never end, and every other program would wait with it."""
    point = tmp_path / "mnt"
    point.mkdir()
    daemon = forking.start("mount", "--foreground", store, point, start_new_session=True)
    try:
        until(lambda: mounted(point))
        time.sleep(patience)
        daemon.kill()
        daemon.wait(10)
        await_disconnected(point)
        assert errno_of(lambda: os.listdir(point)) == errno.ENOTCONN
    finally:
        subprocess.run(["umount", "-f", "-l", point], check=True)


def test_p10_an_unread_log_delays_no_unmount_and_takes_no_memory(tmp_path: Path) -> None:
    write_zarr(tmp_path / "s.zarr", np.arange(1000, dtype=np.uint8), (1,))
    for i in range(1000):
        (tmp_path / f"s.zarr/{i}").write_bytes(b"not zlib")
    point = tmp_path / ("mnt" + 200 * "-")  # one thousand lines are more than a pipe holds
    point.mkdir()
    daemon = forking.start("mount", "-f", "--log-level", "debug", tmp_path / "s.zarr", point, stderr=subprocess.PIPE)
    try:
        until(lambda: mounted(point))
        for i in range(1000):
            assert errno_of((point / f"c/{i}").read_bytes) == errno.EIO
        daemon.terminate()
        assert daemon.wait(10) == 0
        assert not mounted(point)
    finally:
        daemon.kill()
        daemon.communicate()


# --- P11


@each(VIEWS)
def test_p11_use_leaves_nothing_in_the_daemon(store: Path, mount: MountFunction, view: View) -> None:
    """Files, regions, virtual HDF5 files, directories and names of nothing, again and again."""
    tree = mount(store, *view.options)
    paths = [*files_of(tree.path), *(tree / name for name in view.others)]
    folders = [tree.path, *(path for path in tree.path.rglob("*") if path.is_dir())]

    def use(rounds: int) -> None:
        for _ in range(rounds):
            for path in paths:
                path.read_bytes()
            for folder in folders:
                os.listdir(folder)
            for name in view.absent("a", 2)[-6:]:
                errno_of((tree / name).stat)

    rounds = {"zarr3": (30, 150), "files": (5, 15)}.get(view.name, (10, 40))
    grows_nothing(tree, use, rounds, (16 if view.whole else 8) * MIB)


def test_p11_the_log_grows_with_time_not_with_reads(tmp_path: Path, mount: MountFunction) -> None:
    for name in "ab":
        write_zarr(tmp_path / f"s.zarr/{name}", np.arange(300, dtype=np.uint8), (1,))
        for i in range(300):
            (tmp_path / f"s.zarr/{name}/{i}").write_bytes(b"not zlib")
    tree = mount(tmp_path / "s.zarr")
    tree.allow("WARNING")
    for _ in range(2):
        for i in range(300):
            for name in "ab":
                assert errno_of((tree / f"{name}/c/{i}").read_bytes) == errno.EIO
    tree.process.send_signal(signal.SIGTERM)
    tree.process.wait(10)
    lines = tree.log()
    assert len(lines) == 2 * 100 + 2, "a hundred of each array, and how many more"
    assert sum("more within a minute" in line for line in lines) == 2
    assert any("/a/...: and 200 more" in line or "/a/c: and 200 more" in line for line in lines), lines[-2:]


def test_p11_no_growth_with_many_names_of_nothing(store: Path, mount: MountFunction) -> None:
    """Look-ups that fail must leave nothing behind."""
    tree = mount(store)
    for i in range(500):
        errno_of((tree / f"none-{i}").stat)
    start, resident = gauges(tree), own_memory(tree.process.pid)
    for i in range(4_000):
        errno_of((tree / f"missing-{i}").stat)
    assert all(now <= then + 4 for now, then in zip(gauges(tree), start, strict=True))
    assert own_memory(tree.process.pid) - resident < 4 * MIB
