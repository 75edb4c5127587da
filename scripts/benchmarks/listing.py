"""Rows about names: find, find -size, ls -l and du over many chunk files, and how costs grow. Not here: reading."""

from __future__ import annotations

import math
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial

from benchmarks import data, mounts
from benchmarks.programs import together
from benchmarks.rounds import Bound, Contender, Pair, Row, Samples, alternate
from benchmarks.settings import Settings

COMMANDS = {
    "find": ["find"],
    "find -size": ["find", "-size", "+1M"],
    "ls -l": ["ls", "-lR"],
    "du": ["du", "-s"],
}
STORES = {
    "list 100k flat": ((100_000,), "."),
    "list 100k nested": ((100, 1000), "/"),
    "list 100k dotted": ((100, 1000), "."),
    "list 1M dotted": ((1000, 1000), "."),
}
EDGE = 8
"""Elements of a byte per dimension of a chunk."""

GROWTH = (1_000, 10_000, 100_000, 1_000_000)
WANTED = {"find": (12, 6), "du": (4, 3), "ls -l": (2.5, 2)}
"""How many times as long as on tmpfs the first and the second run may take at most."""


def names() -> list[str]:
    """Row names in the order they run."""
    return [*STORES, "growth chunks", "growth size"]


def rows(settings: Settings) -> Iterator[Row]:
    """Run the rows that are wanted."""
    for name, (shape, separator) in STORES.items():
        if settings.wants(name):
            yield listing(settings, name, shape, separator)
    if settings.wants("growth chunks"):
        yield growth_chunks(settings)
    if settings.wants("growth size"):
        yield growth_size(settings)


def listing(settings: Settings, name: str, shape: tuple[int, ...], separator: str) -> Row:
    """Each command twice in a fresh mount, and once on the same tree in memory and in a fresh mount of the floor."""
    shape = (settings.count(shape[0]), *shape[1:]) if len(shape) == 1 else (settings.count(shape[0] * 10) // 10, *shape[1:])
    count = math.prod(shape)
    path = settings.place("listed.zarr")
    data.flat_zarr2(path, shape, EDGE, separator, count)
    with settings.scratch("/dev/shm") as twin:
        data.plain_files(os.path.join(twin, "c"), shape, EDGE ** len(shape), count)
        seconds: dict[str, float] = {}

        def first(command: list[str], key: str) -> Callable[[], float]:
            def run() -> float:
                with mounts.Mounted(path) as mount:
                    began = _timed(command, mount.path, count)
                    seconds[key] = _timed(command, mount.path, count)
                    return began

            return run

        def on_the_floor(command: list[str]) -> Callable[[], float]:
            def run() -> float:
                with mounts.Floor(twin) as floor:
                    return _timed(command, floor.path, count)

            return run

        contenders: list[Contender] = []
        for key, command in COMMANDS.items():
            contenders += [
                Contender(f"{key}: first", first(command, key)),
                Contender(f"{key}: second", partial(seconds.__getitem__, key)),
                Contender(f"{key}: tmpfs", partial(_timed, command, twin, count)),
                Contender(f"{key}: floor", on_the_floor(command)),
            ]
        samples = alternate(contenders, settings.rounds, settings.say)
    settings.remove(path)
    pairs = [
        Pair(f"{key}: {run}", f"{key}: tmpfs", _target(name, key, run))
        for key in COMMANDS
        for run in ("first", "second", "floor")
    ]
    return Row(f"{name} ({count} files)", "s", None, samples, pairs, [Bound(key) for key in samples])


def _target(name: str, command: str, run: str) -> float | None:
    if "100k" not in name or command not in WANTED or run == "floor":
        return None
    first, second = WANTED[command]
    return 1 / (first if run == "first" else second)


def _timed(command: list[str], path: str, least: int) -> float:
    start = time.monotonic()
    done = subprocess.run([command[0], os.path.join(path, "c"), *command[1:]], stdout=subprocess.PIPE, check=True)
    seconds = time.monotonic() - start
    if command == ["find"] and done.stdout.count(b"\n") <= least:
        raise RuntimeError(f"find shows {done.stdout.count(10)} of more than {least} names")
    return seconds


def growth_chunks(settings: Settings) -> Row:
    """Start, first chunk and listing of arrays with 10^3 to 10^6 stored chunks in one flat directory."""
    samples: Samples = {}
    for size in GROWTH:
        count = settings.count(size)
        shape = (max(1, count // 1000), min(count, 1000))
        path = settings.place("growing.zarr")
        data.flat_zarr2(path, shape, EDGE, ".", math.prod(shape))
        for _ in range(settings.rounds):
            settings.say(f"growth: {math.prod(shape)} chunks")
            for key, value in _costs(path, f"c/{shape[0] - 1}/{shape[1] - 1}").items():
                samples.setdefault(f"{math.prod(shape)} chunks: {key}", []).append(value)
        settings.remove(path)
    return Row("growth chunks", "ms, us or MB", None, samples, bounds=[Bound(key) for key in samples])


def growth_size(settings: Settings) -> Row:
    """Listings of arrays of growing extent with few stored chunks."""
    samples: Samples = {}
    for bits in (10, 20, 30, 40):
        path = settings.place("growing.zarr")
        data.flat_zarr2(path, (2 ** (bits - 3), 2**10), EDGE, ".", 10)
        for _ in range(settings.rounds):
            settings.say(f"growth: extent 2^{bits}")
            for key, value in _costs(path, "c/0/9").items():
                samples.setdefault(f"extent 2^{bits}: {key}", []).append(value)
        settings.remove(path)
    return Row("growth size", "ms, us or MB", None, samples, bounds=[Bound(key) for key in samples])


def _costs(path: str, chunk: str) -> dict[str, float]:
    start = mounts.start_up(path) * 1e3
    with mounts.Mounted(path) as mount:
        idle = mount.memory()[0]
        target = os.path.join(mount.path, chunk)
        read = together("random_reads", [{"path": target, "offsets": [0], "size": 64, "before": "page cache"}])
        began = time.monotonic()
        with open(target, "rb", buffering=0) as file:
            file.read(64)
        opened = (time.monotonic() - began) * 1e6
        began = time.monotonic()
        listed = subprocess.run(["find", os.path.join(mount.path, "c"), "-type", "f"], capture_output=True, check=True)
        seconds = time.monotonic() - began
        files = max(1, listed.stdout.count(b"\n"))
        assert read[1][0]["bytes"] == 64
        return {
            "start (ms)": start,
            "open and read a chunk (us)": opened,
            "find (us per chunk)": seconds / files * 1e6,
            "idle memory (MB)": idle,
            "memory after find (MB)": mount.memory()[0],
        }
