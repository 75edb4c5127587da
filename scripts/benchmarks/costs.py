"""Rows about the daemon itself: start-up, idle memory, peak memory while much data streams through. Not here: speed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

from benchmarks import data, mounts
from benchmarks.programs import together
from benchmarks.rounds import Bound, Contender, Row, Samples, alternate
from benchmarks.settings import Settings

STREAMED = 10 << 30
CACHE = 256
"""MiB of `--cache-size` while streaming: the default."""

OVERHEAD = 100.0
"""MB that the process may take besides its cache."""


def names() -> list[str]:
    """Row names in the order they run."""
    return ["start-up", "memory"]


def rows(settings: Settings) -> Iterator[Row]:
    """Run the rows that are wanted."""
    if settings.wants("start-up"):
        yield start_up(settings)
    if settings.wants("memory"):
        yield memory(settings)


def start_up(settings: Settings) -> Row:
    """Exec to mounted, beside what Python itself and the imports that cannot be avoided take."""
    stored = data.make("zarr2", "blosc-lz4", data.Geometry.of(0, 1 << 14), settings.directory)

    def python(code: str) -> float:
        start = os.times().elapsed
        subprocess.run([sys.executable, "-c", code], check=True)
        return (os.times().elapsed - start) * 1e3

    contenders = [
        Contender("exec to mounted", lambda: mounts.start_up(stored.source) * 1e3),
        Contender("python alone", lambda: python("")),
        Contender("python and its imports", lambda: python("import argparse, logging, numpy, trio, pyfuse3")),
    ]
    samples = alternate(contenders, 2 * settings.rounds, settings.say)
    settings.discard(stored)
    return Row("start-up", "ms", None, samples, bounds=[Bound("exec to mounted", 350), *map(Bound, list(samples)[1:])])


def memory(settings: Settings) -> Row:
    """Resident memory after mounting, and its peak while ten times the array's size streams through two readers."""
    geometry = data.Geometry.of(settings.size, settings.chunk)
    stored = data.make("zarr2", "blosc-lz4", geometry, settings.directory)
    times = max(1, min(STREAMED, 10 * settings.size) // geometry.bytes)
    samples: Samples = {"workers": [], f"peak over --cache-size={CACHE}M": [], "streamed GB": [], "daemon s per GB": []}
    with settings.scratch() as scratch:
        long = _repeated(stored, times, os.path.join(scratch, "long.zarr"))
        for _ in range(settings.rounds):
            settings.say(f"memory: streaming {times * geometry.bytes / 1e9:.1f} GB")
            with mounts.Mounted(long, "--cache-size", f"{CACHE}M") as mount:
                samples["workers"].append(mount.memory()[0])
                root = os.path.join(mount.path, "c")
                _, results = together("files", [{"root": root, "part": part, "parts": 2} for part in (0, 1)])
                streamed = sum(result["bytes"] for result in results) / 1e9
                samples[f"peak over --cache-size={CACHE}M"].append(mount.memory()[1] - CACHE * 2**20 / 1e6)
                samples["streamed GB"].append(streamed)
                samples["daemon s per GB"].append(mount.processor() / streamed)
    settings.discard(stored)
    limits = dict.fromkeys(samples) | {"workers": 60.0, f"peak over --cache-size={CACHE}M": OVERHEAD}
    return Row("memory", "MB", None, samples, bounds=[Bound(name, limit) for name, limit in limits.items()])


def _repeated(stored: data.Stored, times: int, path: str) -> str:
    """The array `times` times over, its chunk files hard links to the same few."""
    os.makedirs(path)
    shutil.copy(os.path.join(stored.source, ".zarray"), path)
    document = os.path.join(path, ".zarray")
    with open(document) as file:
        metadata = json.load(file)
    metadata["shape"][0] *= times
    with open(document, "w") as file:
        json.dump(metadata, file)
    for number in range(times):
        for z, y, x in stored.geometry.grid():
            os.link(os.path.join(stored.source, f"{z}.{y}.{x}"), f"{path}/{number * stored.geometry.slabs + z}.{y}.{x}")
    return path
