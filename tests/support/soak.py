"""The promises for as long as there is time: a line for each, with what was done, how often, and what came of it.

    python tests/support/soak.py [SECONDS]      prints a table; exit code 1 when a promise broke

Real mounts of real stores, each in a time of its own. Not here: the many short tests of each promise (`test_promises.py`).
"""

from __future__ import annotations

import contextlib
import errno
import logging
import mmap
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fuzz_stores
import numpy as np
import zarr
from forking import environment
from mounting import Mount, command, mounted
from observing import files_of
from small_stores import FORMATS, files

MIB = 1 << 20
SHORT = 120
"""Seconds of the short form, which is part of scripts/check."""
SEEDS, OPERATIONS = 3, 50_000
"""The long form: random readers of each layout, and the least that each does."""


class Soak:
    """A scratch folder and its mounts."""

    def __init__(self, seconds: float, seed: int) -> None:
        self.seconds = seconds
        self.random = random.Random(seed)
        self.folder = Path(tempfile.mkdtemp(prefix="fsbridge-soak-"))
        self._number = 0

    def place(self, name: str) -> Path:
        self._number += 1
        path = self.folder / f"{name}-{self._number}"
        path.mkdir()
        return path

    @contextlib.contextmanager
    def mount(self, source: Path, *options: str) -> Iterator[Mount]:
        tree = Mount(source, self.place("mount"), options)
        tree.allow("WARNING")
        try:
            yield tree
        finally:
            tree.stop()

    @property
    def long(self) -> bool:
        return self.seconds > 2 * SHORT

    def until(self, share: float, least: int = 1) -> Iterator[int]:
        """Numbers until this share of the time is over; in the long form at least so many."""
        end, number = time.monotonic() + self.seconds * share, 0
        while not number or (self.long and number < least) or time.monotonic() < end:
            yield number
            number += 1


def memory(tree: Mount, name: str) -> int:
    """MiB of the daemon."""
    text = Path(f"/proc/{tree.process.pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith(name + ":")).split()[1]) >> 10


def descriptors(tree: Mount) -> int:
    return len(os.listdir(f"/proc/{tree.process.pid}/fd"))


def fsx(soak: Soak) -> str:
    """Random reads and maps of every file, in every layout, against what was read once from a mount of its own."""
    values = np.random.default_rng(0).integers(0, 2**31, (256, 256), np.int32)
    store = soak.place("fsx")
    zarr.create_group(store, zarr_format=3)
    kinds: dict[str, dict[str, Any]] = {"gzip": {}, "shards": {"shards": (128, 128)}, "raw": {"compressors": None}}
    for name, of_kind in kinds.items():
        zarr.create_array(store / name, data=values, chunks=(64, 64), **of_kind)
    layouts = ("zarr3", "zarr2", "n5", "files")
    done = dict.fromkeys(((layout, seed) for layout in layouts for seed in range(SEEDS)), 0)
    options = ("--layout", ",".join(layouts))
    with soak.mount(store, *options) as first, soak.mount(store, *options, "--cache-size", "16M") as second:
        right = {path.relative_to(first.path): path.read_bytes() for path in files_of(first.path)}
        paths = {layout: [path for path in right if path.parts[0] == layout] for layout in layouts}
        dice = {key: random.Random(f"{key} {soak.random.random()}") for key in done}
        for number in soak.until(0.15, least=len(done) * OPERATIONS // 70):
            key = list(done)[number % len(done)]
            path = dice[key].choice(paths[key[0]])
            done[key] += _read_at_random(second.path / path, right[path], dice[key])
    assert not soak.long or min(done.values()) >= OPERATIONS, done
    return f"{sum(done.values()):,} reads and maps of {len(right)} files; of each layout and seed {min(done.values()):,}"


def _read_at_random(path: Path, data: bytes, dice: random.Random) -> int:
    """Seventy reads and maps of a file; every second time the kernel's pages of it are dropped before."""
    with open(path, "rb", buffering=0) as file:
        if dice.random() < 0.5:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        assert os.fstat(file.fileno()).st_size == len(data), path
        for _ in range(50):
            at, size = dice.randrange(len(data) + 1), dice.choice((1, 13, 4096, 70_000))
            assert os.pread(file.fileno(), size, at) == data[at : at + size], f"{path} at {at}"
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view:
            for _ in range(20):
                at = dice.randrange(len(data))
                assert view[at : at + 100] == data[at : at + 100], f"{path} mapped at {at}"
    return 70


def rewriting(soak: Soak) -> str:
    """Chunks of one value are replaced by rename while readers check that each read has one value only."""
    size, store = 256 * 1024, soak.place("rewritten")
    zarr.create_array(store, shape=(4 * size,), chunks=(size,), dtype="u1", compressors=None)[...] = 1
    stop, reads, stale = threading.Event(), [0] * 4, [0] * 4
    wrong: list[str] = []

    def reader(number: int, tree: Mount) -> None:
        while not stop.is_set():
            try:
                with open(tree.path / f"c/{number % 4}", "rb", buffering=0) as file:
                    data = file.read()
                    while len(data) < size:
                        data += file.read() or b"?"
                if data != data[:1] * size:
                    wrong.append(f"{len(set(data))} values in {len(data)} bytes")
                reads[number] += 1
            except OSError as error:
                stale[number] += 1
                if error.errno != errno.ESTALE:
                    wrong.append(str(error))

    with soak.mount(store) as tree:
        threads = [threading.Thread(target=reader, args=(number, tree)) for number in range(4)]
        for thread in threads:
            thread.start()
        rewrites = 0
        for rewrites in soak.until(0.1):
            (store / "new").write_bytes(bytes([rewrites % 255 + 1]) * size)
            os.rename(store / "new", store / f"c/{rewrites % 4}")
            time.sleep(0.002)
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong, wrong[0]
    return f"{rewrites:,} rewrites, {sum(reads):,} reads, {sum(stale):,} told that the file is stale"


def hanging(soak: Soak) -> str:
    """A store inside a collection hangs (it is a stopped mount); its neighbour is read meanwhile."""
    stores = soak.place("collection")
    for path in (inner := soak.place("inner"), stores / "healthy"):
        zarr.create_array(path / "x", data=np.arange(1, 101, dtype="u1"), chunks=(1,), compressors=None)
        zarr.create_group(path, zarr_format=3)
    point = stores / "hung"
    point.mkdir()
    daemon = subprocess.Popen(command("mount", "-f", inner, point), env=environment(), stdin=subprocess.DEVNULL)
    worst = longest = 0.0
    try:
        while not mounted(point):
            assert daemon.poll() is None
            time.sleep(0.05)
        with soak.mount(stores) as tree:
            assert (tree.path / "hung/x/c/1").read_bytes() == b"\2"
            assert (tree.path / "healthy/x/c/1").read_bytes() == b"\2"
            time.sleep(1.5)
            daemon.send_signal(signal.SIGSTOP)
            codes: list[int | None] = []

            def reader(number: int) -> None:
                nonlocal longest
                begin = time.monotonic()
                try:
                    (tree.path / f"hung/x/c/{number}").read_bytes()
                except OSError as error:
                    codes.append(error.errno)
                longest = max(longest, time.monotonic() - begin)

            readers = [threading.Thread(target=reader, args=(number,), daemon=True) for number in range(16)]
            for thread in readers:
                thread.start()
            time.sleep(0.5)
            count = 0
            while any(thread.is_alive() for thread in readers):
                begin = time.monotonic()
                assert (tree.path / f"healthy/x/c/{count % 100}").read_bytes() == bytes([count % 100 + 1])
                worst = max(worst, time.monotonic() - begin)
                count += 1
                time.sleep(0.05)
            daemon.send_signal(signal.SIGCONT)
            assert codes == [errno.ETIMEDOUT] * 16, codes
            assert longest < 25, f"the last reader waited {longest:.0f} s"
            assert worst < 10, f"a neighbour waited {worst:.1f} s"
            tree.stop()
    finally:
        daemon.send_signal(signal.SIGCONT)
        daemon.terminate()
        daemon.wait(20)
    return f"16 readers refused after at most {longest:.0f} s, {count} reads next to them took {worst:.2f} s at most"


def mutated(soak: Soak) -> str:
    """Mutated documents, HDF5 and zip files and databases, until the time is over."""
    done = 0
    for round_number in soak.until(0.2):
        kind = list(fuzz_stores.KINDS)[round_number % len(fuzz_stores.KINDS)]
        count = 200 if soak.long else 20
        fuzz_stores.fuzz(kind, soak.random.randrange(1 << 30), count)
        done += count
    return f"{done:,} stores of {len(fuzz_stores.KINDS)} kinds"


def cycles(soak: Soak) -> str:
    """Mount, read, unmount."""
    store = soak.place("cycled")
    zarr.create_array(store, data=np.arange(10), chunks=(5,))
    done = 0
    for done in soak.until(0.1, least=200):
        with soak.mount(store) as tree:
            assert len(os.listdir(tree.path / "c")) == 2
        shutil.rmtree(tree.path.parent)
        if done >= 199:
            break
    return f"{done + 1} mounts"


def forgotten(soak: Soak) -> str:
    """Look-ups of many names, until the kernel is told to forget them."""
    store = soak.place("names")
    zarr.create_array(store, shape=(10_000_000,), chunks=(1,), dtype="u1", compressors=None)
    (store / "c").mkdir()
    for number in range(5000):
        (store / f"c/{number}").write_bytes(b"1")
    with soak.mount(store) as tree:
        os.listdir(tree.path / "c")
        start, before, looked = descriptors(tree), memory(tree, "VmRSS"), 0
        for _ in soak.until(0.1, least=500):
            for number in range(2000):
                name = soak.random.randrange(5000 if number % 2 else 10_000_000)
                with contextlib.suppress(FileNotFoundError):
                    os.stat(tree.path / f"c/{name}")
            looked += 2000
            if looked >= 1_000_000:
                break
        if os.geteuid() == 0:  # this mount's names only, unlike drop_caches
            subprocess.run(["mount", "-i", "-o", "remount,ro", tree.path], check=True)
        os.listdir(tree.path)
        grown, more = memory(tree, "VmRSS") - before, descriptors(tree) - start
        assert grown < 20, f"{grown} MiB grown"
        assert more <= 0, f"{more} descriptors more"
    return f"{looked:,} look-ups: {grown:+} MiB, {more:+} descriptors"


def large(soak: Soak) -> str:
    """64 readers, each of a chunk of 64 MiB of its own."""
    store = soak.place("large")
    array: Any = zarr.create_array(store, shape=(64, 64 * MIB), chunks=(1, 64 * MIB), dtype="u1")
    first = np.random.default_rng(0).integers(0, 256, (1, 64 * MIB), np.uint8)  # as large stored as decoded
    array[0:1] = first
    right = first.tobytes()
    for number in range(1, 64):
        (store / f"c/{number}").mkdir()
        os.link(store / "c/0/0", store / f"c/{number}/0")
    wrong: list[str] = []
    with soak.mount(store) as tree:

        def reader(number: int) -> None:
            try:
                with open(tree.path / f"c/{number}/0", "rb", buffering=0) as file:
                    for at in range(0, 64 * MIB, 8 * MIB):
                        begin = at + soak.random.randrange(MIB)
                        if os.pread(file.fileno(), 4096, begin) != right[begin : begin + 4096]:
                            wrong.append(f"chunk {number} at {begin}")
            except OSError as error:
                wrong.append(f"chunk {number}: {error}")

        threads = [threading.Thread(target=reader, args=(number,)) for number in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        peak = memory(tree, "VmHWM")
    assert not wrong, wrong[0]
    assert peak <= 256 + 150, f"{peak} MiB"
    return f"64 readers of 64 MiB: {peak} MiB at most, promised 406"


def few_descriptors(soak: Soak) -> str:
    """A daemon that may open 64 files only."""
    store = soak.place("few")
    zarr.create_array(store, data=np.arange(1, 1001), chunks=(1,))
    with soak.mount(store) as tree:
        subprocess.run(["prlimit", "--pid", str(tree.process.pid), "--nofile=64:64"], check=True)
        good = failed = 0
        for _ in soak.until(0.03):
            with contextlib.ExitStack() as stack:
                for _ in range(300):
                    name = tree.path / f"c/{soak.random.randrange(1000)}"
                    try:
                        assert stack.enter_context(open(name, "rb")).read(8) == (int(name.name) + 1).to_bytes(8, "little")
                        good += 1
                    except OSError:
                        failed += 1
        assert tree.alive
    return f"{good:,} reads with 300 files open, {failed} refused"


def failing_reads(soak: Soak) -> str:
    """One read of a hundred fails in the store."""
    from faulty_store import FaultyStore, Plan

    from fsbridge.config import Config
    from fsbridge.decoded.cache import ChunkCache
    from fsbridge.formats.open import Opening
    from fsbridge.layouts import root_directory
    from fsbridge.store.local import LocalStore

    logging.disable(logging.CRITICAL)
    stores = {}
    for name in ("n5", "zarr2", "zarr3", "sharded"):
        FORMATS[name][1](path := soak.place(name))
        stores[name] = path
    right: dict[str, dict[bytes, Any]] = {}
    read = failed = 0
    for number in soak.until(0.08):
        name = list(stores)[number % len(stores)]
        plan = Plan(number, {"fail": 0.01 if name in right else 0.0})
        config = Config("store", "", metadata_ttl=0.0)
        plan.on = False
        source = Opening().open_in_store(FORMATS[name][0], FaultyStore(LocalStore(str(stores[name])), plan), config)
        root = root_directory(source, config, ChunkCache(MIB))
        plan.on = True
        found = dict(files(root))
        source.close()
        right.setdefault(name, found)
        for place, data in found.items():
            if isinstance(data, Exception):
                failed += 1
            else:
                assert data == right[name][place], (name, place)
                read += 1
    assert read
    return f"{read:,} files right, {failed:,} failed, none wrong"


ROWS: list[tuple[str, Callable[[Soak], str]]] = [
    ("P2, P12", fsx),
    ("P9", rewriting),
    ("P7, P8", hanging),
    ("P3, P8", mutated),
    ("P10", cycles),
    ("P11", forgotten),
    ("P6", large),
    ("P8", few_descriptors),
    ("P3", failing_reads),
]


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3600.0
    soak, broken = Soak(seconds, int(time.time())), 0
    print("| promise | what was done | number | result |\n| --- | --- | --- | --- |", flush=True)
    try:
        for promise, row in ROWS:
            what = (row.__doc__ or "").strip().rstrip(".")
            try:
                number, result = row(soak), "kept"
            except Exception as error:
                broken += 1
                number, result = (str(error).splitlines() or [type(error).__name__])[0][:200], "**broken**"
                traceback.print_exc()
            print(f"| {promise} | {what} | {number} | {result} |", flush=True)
    finally:
        shutil.rmtree(soak.folder, ignore_errors=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
