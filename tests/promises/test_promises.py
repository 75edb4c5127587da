"""The promises of docs/semantics.md, by number, on real mounts. Some have whole files of their own:

P3 and P8 for every codec: test_damage.py. P5 in the source text: test_layers.py. P9: test_freshness.py. P12: test_oracle.py.
"""

from __future__ import annotations

import errno
import json
import os
import pickle
import random
import re
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import forking
import numcodecs
import numpy as np
import pytest
import zarr
from conftest import MountFunction
from mounting import Mount, await_disconnected, mounted
from observing import Canary, errno_of, gauges, grows_nothing, memory, own_memory, read_as_large_as_it_says, snapshot
from promised_chunks import SHAPE, chunk
from promised_store import promised_store, write_zarr
from waiting import until

MIB = 1 << 20


@pytest.fixture(scope="module")
def values() -> np.ndarray:
    values = np.random.default_rng(1).integers(0, 99, SHAPE, np.int32)
    values.setflags(write=False)
    return values


@pytest.fixture
def store(tmp_path: Path, values: np.ndarray) -> Path:
    """A group with an array `a` of 4 x 3 chunks, keys `a/0.0` to `a/3.2`."""
    return promised_store(tmp_path / "store.zarr", values)


@pytest.fixture(scope="module")
def shared(values: np.ndarray, module_mount: MountFunction, tmp_path_factory: pytest.TempPathFactory) -> Mount:
    """A mount of such a store, for tests that only read."""
    return module_mount(promised_store(tmp_path_factory.mktemp("shared") / "store.zarr", values))


# --- P1


def test_p1_every_change_is_erofs_and_the_store_stays_as_it_was(shared: Mount) -> None:
    before = snapshot(Path(shared.source))
    file, folder, absent = str(shared / "a/c/0/0"), str(shared / "a"), str(shared / "new")
    changes: dict[str, Callable[[], Any]] = {
        "open for writing": lambda: os.open(file, os.O_WRONLY),
        "open for both": lambda: os.open(file, os.O_RDWR),
        "truncating open": lambda: os.open(file, os.O_WRONLY | os.O_TRUNC),
        "create": lambda: os.open(absent, os.O_WRONLY | os.O_CREAT),
        "mkdir": lambda: os.mkdir(absent),
        "mknod": lambda: os.mknod(absent, 0o600 | stat.S_IFIFO),
        "symlink": lambda: os.symlink("x", absent),
        "link": lambda: os.link(file, absent),
        "unlink": lambda: os.unlink(file),
        "rmdir": lambda: os.rmdir(folder),
        "rename": lambda: os.rename(file, absent),
        "chmod": lambda: os.chmod(file, 0o600),
        "chown": lambda: os.chown(file, 1, 1),
        "utime": lambda: os.utime(file),
        "truncate": lambda: os.truncate(file, 0),
        "setxattr": lambda: os.setxattr(file, "user.x", b"1"),
        "removexattr": lambda: os.removexattr(file, "user.x"),
    }
    assert {name: errno_of(change) for name, change in changes.items()} == dict.fromkeys(changes, errno.EROFS)
    for path in shared.path.rglob("*"):
        if path.is_file():
            path.read_bytes()
    assert snapshot(Path(shared.source)) == before


# --- P2


def test_p2_size_is_truth(shared: Mount) -> None:
    rng = random.Random(2)
    files = [path for path in shared.path.rglob("*") if path.is_file()]
    assert len(files) == 2 + 12
    for path in files:
        read_as_large_as_it_says(path, rng)


# --- P3


def test_p3_absent_is_enoent_and_nothing_else_is(store: Path, values: np.ndarray, mount: MountFunction) -> None:
    (store / "a/1.1").unlink()
    (store / "a/2.2").write_bytes(b"not zlib")
    tree = mount(store)
    tree.allow(r"/a/2\.2: ")
    assert errno_of(lambda: (tree / "a/c/1/1").read_bytes()) == errno.ENOENT
    assert errno_of(lambda: (tree / "a/c/9/9").stat()) == errno.ENOENT
    assert errno_of(lambda: (tree / "a/c/2/2").read_bytes()) == errno.EIO
    assert sorted(os.listdir(tree / "a/c/1")) == ["0", "2"]
    assert "2" in os.listdir(tree / "a/c/2"), "a damaged chunk is listed: it is there"
    assert (tree / "a/c/3/2").read_bytes() == chunk(values, 3, 2)
    told = tree.told(re.escape(f"{store}/a/2.2: zlib: "))
    assert told == tree.log(), "one line, which names the object in the store, and the reason"


def test_p3_only_canonical_names_are_chunks(shared: Mount) -> None:
    for name in ["00", "+1", "1_0", "\u0661", "-1", "1.0", " 1", "0x1", "1e0", "01"]:
        assert errno_of(lambda name=name: (shared / f"a/c/{name}").stat()) == errno.ENOENT, name  # type: ignore[misc]
        assert errno_of(lambda name=name: (shared / f"a/c/0/{name}").stat()) == errno.ENOENT, name  # type: ignore[misc]


# --- P4


def test_p4_nothing_outside_is_opened(tmp_path: Path, store: Path, values: np.ndarray, mount: MountFunction) -> None:
    secret = tmp_path / "secret"
    write_zarr(secret / "a", values)
    os.remove(store / "a/0.0")
    os.symlink(secret / "a/0.0", store / "a/0.0")  # absolute
    os.remove(store / "a/0.1")
    os.symlink("../../secret/a/0.1", store / "a/0.1")  # relative, leaving the root
    os.symlink(secret / "a", store / "b")
    os.symlink("../secret/a", store / "d")
    os.symlink("loop", store / "loop")
    os.remove(store / "a/0.2")
    os.symlink("1.1", store / "a/0.2")  # stays beneath the root
    tree = mount(store)
    tree.allow("WARNING")
    for name in ["a/c/0/0", "a/c/0/1", "b/zarr.json", "b/c/0/0", "d/zarr.json", "loop/zarr.json"]:
        code = errno_of(lambda name=name: (tree / name).read_bytes())  # type: ignore[misc]
        assert code in (errno.EACCES, errno.ENOENT, errno.ELOOP, errno.EIO), f"{name}: {code}"
    assert errno_of(lambda: (tree / "a/c/0/0").read_bytes()) != errno.ENOENT, "refused is not absent"
    assert (tree / "a/c/0/2").read_bytes() == chunk(values, 1, 1)
    for name in ["..", "../secret/a/0.0", "a/../../secret/a/0.0"]:
        assert not str(os.path.realpath(tree / name)).startswith(str(secret))


# --- P5


def test_p5_pickles_are_never_executed(tmp_path: Path, store: Path, mount: MountFunction) -> None:
    canary = tmp_path / "canary"
    objects = store / "objects"
    objects.mkdir()
    (objects / ".zarray").write_text(
        '{"zarr_format": 2, "shape": [1], "chunks": [1], "dtype": "|O", "order": "C", "fill_value": null,'
        ' "compressor": null, "filters": [{"id": "vlen-utf8"}, {"id": "pickle", "protocol": 4}]}'
    )
    (objects / "0").write_bytes(pickle.dumps(Canary(canary)))
    tree = mount(store)
    tree.allow("objects")
    code = errno_of(lambda: (tree / "objects/c/0").read_bytes())
    assert code in (errno.EOPNOTSUPP, errno.EIO, errno.ENOENT)
    assert tree.alive
    assert not canary.exists()
    pickle.loads((objects / "0").read_bytes())
    assert canary.exists(), "the pickle was a loaded one"


# --- P6


def test_p6_memory_stays_within_the_budget(tmp_path: Path, mount: MountFunction) -> None:
    """32 chunks of 16 MiB read by 16 threads through a cache of 64 MiB."""
    values = np.zeros((32, 4, MIB), np.int32)
    values[:] = np.arange(1, 33)[:, None, None]
    write_zarr(tmp_path / "big.zarr", values, (1, 4, MIB), compressors=numcodecs.Zstd(1))
    del values
    tree = mount(tmp_path / "big.zarr", "--cache-size", "64M")
    base = memory(tree.process.pid, "VmRSS")
    wrong: list[int] = []

    def reader(number: int) -> None:
        for i in range(number, 32, 16):
            with open(tree / f"c/{i}/0/0", "rb", buffering=0) as file:
                for offset in range(0, 16 * MIB, MIB):
                    if os.pread(file.fileno(), MIB, offset) != (i + 1).to_bytes(4, "little") * (MIB // 4):
                        wrong.append(i)

    threads = [threading.Thread(target=reader, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    peak = memory(tree.process.pid, "VmHWM")
    print(f"{peak / MIB:.0f} MiB, {base / MIB:.0f} MiB at the start")
    assert peak <= (64 + 150) * MIB, f"{peak / MIB:.0f} MiB, {base / MIB:.0f} MiB at the start"


def test_p6_memory_stays_within_the_budget_for_chunks_of_unknown_size(tmp_path: Path, mount: MountFunction) -> None:
    """12 chunks of 30 MiB of strings, a thousandth of it stored, opened and read at once through a cache of 64 MiB."""
    array = zarr.create_array(
        tmp_path / "texts.zarr", shape=(12 * 30,), chunks=(30,), dtype=str, zarr_format=2, compressors=numcodecs.Zstd(1)
    )
    for i in range(12):
        array[30 * i : 30 * (i + 1)] = np.array([chr(ord("a") + i) * MIB] * 30, object)
    tree = mount(tmp_path / "texts.zarr", "--cache-size", "64M")
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
    tree.told(
        f"a chunk of {2**53} bytes; the limit is {2**31}, however large the cache is"
    )  # no size that would not do either
    assert tree.alive


# --- P7


def test_p7_a_pipe_in_place_of_a_chunk_or_document_does_not_exist(store: Path, mount: MountFunction) -> None:
    """Opening a FIFO blocks until it has a writer: a naive reader would hang for ever."""
    (store / "a/0.0").unlink()
    os.mkfifo(store / "a/0.0")
    (store / "b").mkdir()
    os.mkfifo(store / "b/.zarray")
    tree = mount(store)
    tree.allow("a FIFO, socket or device, which fsbridge leaves alone")
    absent = subprocess.run(["cat", tree / "a/c/0/0"], capture_output=True, text=True, timeout=25)
    assert "No such file" in absent.stderr
    group = subprocess.run(["cat", tree / "b/zarr.json"], capture_output=True, text=True, timeout=25)
    assert json.loads(group.stdout)["node_type"] == "group"  # as any directory without documents
    assert len(tree.told("FIFO", 2)) == 2
    assert tree.alive


# --- P8


def test_p8_bad_neighbours(store: Path, values: np.ndarray, mount: MountFunction) -> None:
    valid = {
        "zarr_format": 2,
        "shape": [1],
        "chunks": [1],
        "dtype": "<i4",
        "compressor": None,
        "fill_value": 0,
        "order": "C",
        "filters": None,
    }
    bad = {
        "truncated": b'{"zarr_format": 2, "shape": [4',
        "not-json": b"\xff\xfe\x00",
        "wrong-kind": b"[1, 2]",
        "deep": b"[" * 100_000,
        "rank": json.dumps({**valid, "chunks": [1, 1]}).encode(),
        "negative": json.dumps({**valid, "shape": [-1]}).encode(),
        "codec": json.dumps({**valid, "compressor": {"id": "lossless_audio"}}).encode(),
        "dtype": json.dumps({**valid, "dtype": "<q9"}).encode(),
    }
    for name, document in bad.items():
        (store / name).mkdir()
        (store / name / ".zarray").write_bytes(document)
        (store / name / "0").write_bytes(b"1234")
    os.mkdir(os.fsencode(store) + b"/bad-\xff-name")
    (store / "new\nline").mkdir()
    zarr.create_group(store / "new\nline", zarr_format=2)
    tree = mount(store)
    tree.allow("WARNING")
    listed = os.listdir(os.fsencode(tree))
    assert {b"a", b"zarr.json", *map(os.fsencode, bad)} <= set(listed)
    assert b"new%0Aline" in listed
    for name in bad:
        code = errno_of(lambda name=name: (tree / f"{name}/c/0").read_bytes())  # type: ignore[misc]
        assert code in (errno.EIO, errno.EOPNOTSUPP), f"{name}: {code}"
    walked = {path for path, _, _ in os.walk(os.fsencode(tree))}
    assert os.fsencode(tree / "a/c/3") in walked
    assert (tree / "a/c/3/2").read_bytes() == chunk(values, 3, 2)
    assert tree.alive
    for name in bad:
        tree.told(f"/{name}/(.zarray|0): ")  # when these are written, so is what came before
    assert not [line for line in tree.log() if "unexpected" in line or "Traceback" in line]


def test_p8_names_from_a_store_forge_no_lines_and_command_no_terminal(store: Path, mount: MountFunction) -> None:
    evil = "x\n2026-01-01 00:00:00,000 CRITICAL forged\x1b[2J\x9b2J\u202e"
    os.symlink("/nowhere", store / evil)
    tree = mount(store)
    tree.allow("WARNING")
    os.listdir(tree)
    errno_of(lambda: os.listdir(os.fsencode(tree) + b"/" + os.fsencode(evil.replace("\n", "%0A").replace("\x1b", "%1B"))))
    tree.told("forged")
    text = tree.log_path.read_bytes().decode()
    assert not [line for line in text.splitlines() if not line.startswith("fsbridge: WARNING ")]
    assert all(char.isprintable() or char == "\n" for char in text)
    assert r"x\n2026-01-01 00:00:00,000 CRITICAL forged\x1b[2J\x9b2J\u202e" in text


# --- P10


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_p10_signals_unmount_even_with_open_files(store: Path, mount: MountFunction, number: signal.Signals) -> None:
    tree = mount(store)
    with open(tree / "a/c/0/0", "rb") as file:
        file.read(10)
        sleeper = subprocess.Popen(["sleep", "60"], cwd=tree.path)  # its working directory keeps the mount busy
        try:
            tree.process.send_signal(number)
            assert tree.process.wait(10) == 0
            assert not mounted(tree.path)
        finally:
            sleeper.kill()
            sleeper.wait()


def test_p10_a_crash_leaves_enotconn_never_an_empty_tree(store: Path, mount: MountFunction) -> None:
    tree = mount(store)
    tree.kill()
    assert errno_of(lambda: os.listdir(tree)) == errno.ENOTCONN
    assert errno_of(lambda: (tree / "zarr.json").read_bytes()) == errno.ENOTCONN
    tree.clear()
    assert os.listdir(tree) == []


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
            assert errno_of(lambda i=i: (point / f"c/{i}").read_bytes()) == errno.EIO  # type: ignore[misc]
        daemon.terminate()
        assert daemon.wait(10) == 0
        assert not mounted(point)
    finally:
        daemon.kill()
        daemon.communicate()


# --- P11


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
                assert errno_of(lambda i=i, name=name: (tree / f"{name}/c/{i}").read_bytes()) == errno.EIO  # type: ignore[misc]
    tree.process.send_signal(signal.SIGTERM)
    tree.process.wait(10)
    lines = tree.log()
    assert len(lines) == 2 * 100 + 2, "a hundred of each array, and how many more"
    assert sum("more within a minute" in line for line in lines) == 2
    assert any("/a/...: and 200 more" in line or "/a/c: and 200 more" in line for line in lines), lines[-2:]


def test_p11_nothing_grows(store: Path, mount: MountFunction) -> None:
    tree = mount(store)
    files = [path for path in tree.path.rglob("*") if path.is_file()]

    def use(rounds: int) -> None:
        for _ in range(rounds):
            for path in files:
                path.read_bytes()
            for folder in (tree.path, tree / "a", tree / "a/c", tree / "a/c/2"):
                os.listdir(folder)
            errno_of(lambda: (tree / "a/c/9/9").stat())

    grows_nothing(tree, use, (30, 150), 8 * MIB)


def test_p11_no_growth_with_many_names_of_nothing(store: Path, mount: MountFunction) -> None:
    """Look-ups that fail must leave nothing behind."""
    tree = mount(store)
    for i in range(500):
        errno_of(lambda i=i: os.stat(tree / f"none-{i}"))  # type: ignore[misc]
    start, resident = gauges(tree), own_memory(tree.process.pid)
    for i in range(4_000):
        errno_of(lambda i=i: os.stat(tree / f"missing-{i}"))  # type: ignore[misc]
    assert all(now <= then + 4 for now, then in zip(gauges(tree), start, strict=True))
    assert own_memory(tree.process.pid) - resident < 4 * MIB


# --- P12


def test_p12_two_readers_in_other_processes_agree(shared: Mount, values: np.ndarray) -> None:
    """The rest, writer by writer and codec by codec, is test_oracle.py."""
    from readers import read

    for reader in ("zarr", "tensorstore"):
        assert np.array_equal(read(shared, reader)["a"].values, values)
