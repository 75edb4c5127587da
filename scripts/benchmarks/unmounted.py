"""A row about what needs no mount: export, verify and digest of one array, each the whole command with its start.

Not here: the same bytes read through a mount (`reading.py`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks import data, mounts
from benchmarks.programs import together
from benchmarks.rounds import Contender, Pair, Row, alternate
from benchmarks.settings import Settings

VERIFIED, EXPORTED = 0.9, 1.0
"""Wanted of a loop of two threads that only decodes, and of `cp -r` of the mount."""


def names() -> list[str]:
    """Row names in the order they run."""
    return ["without a mount"]


def rows(settings: Settings) -> Iterator[Row]:
    """Run the row if it is wanted."""
    if settings.wants("without a mount"):
        yield without_a_mount(settings)


def without_a_mount(settings: Settings) -> Row:
    """The commands, and beside them a loop that decodes every chunk, and a copy of a fresh mount."""
    geometry = data.Geometry.of(settings.size, settings.chunk)
    stored = data.make("zarr2", "blosc-lz4", geometry, settings.directory)
    data.warm(stored.source)

    def command(*words: str) -> float:
        begun = time.perf_counter()
        done = subprocess.run([sys.executable, "-m", "fsbridge", *words, "--quiet"], stdout=subprocess.DEVNULL)
        if done.returncode:
            raise RuntimeError(f"fsbridge {words[0]} ended with {done.returncode}")
        return time.perf_counter() - begun

    def export() -> float:
        with settings.scratch() as folder:
            return command("export", stored.source, os.path.join(folder, "out"))

    def copy() -> float:
        with settings.scratch() as folder, mounts.Mounted(stored.source) as mount:
            begun = time.perf_counter()
            shutil.copytree(mount.path, os.path.join(folder, "out"), copy_function=shutil.copyfile)
            os.sync()  # as the export does
            return time.perf_counter() - begun

    contenders = [
        Contender("verify", lambda: command("verify", stored.source)),
        Contender("digest", lambda: command("digest", stored.source)),
        Contender("loop x2", lambda: together("loop", [{"manifest": stored.manifest, "threads": 2}])[0]),
        Contender("export", export),
        Contender("copy of a mount", copy),
    ]
    samples = alternate(contenders, settings.rounds, settings.say)
    settings.discard(stored)
    pairs = [Pair("verify", "loop x2", VERIFIED), Pair("digest", "loop x2"), Pair("export", "copy of a mount", EXPORTED)]
    return Row("without a mount", "MB/s", geometry.bytes / 1e6, samples, pairs, notes=["commands with their start"])
