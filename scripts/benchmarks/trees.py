"""Rows about many small things: walking and reading trees of many arrays, many datasets, many files, beside the floor.

The floor is the same tree served from Python dicts by a bare pyfuse3 file system (`floor.py`): what FUSE and Python cost by
themselves. Not here: large chunks (`reading.py`), many chunks of one array (`listing.py`).
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from benchmarks import mounts
from benchmarks.rounds import Bound, Contender, Pair, Row, Samples, alternate
from benchmarks.settings import Settings

COMMANDS = {"find": ["find", "-type", "f"], "du": ["du", "-s"], "ls": ["ls", "-lR"]}
READ = "read every file"

FIRST, SECOND, READING = 1 / 2.5, 1 / 1.3, 1 / 3
HDF5_FIRST, HDF5_SECOND = 1 / 6, 1 / 2
"""What is wanted of the first and of the second run, as a share of the floor's speed."""

KINDS: dict[str, tuple[str, ...]] = {"": (), "lasting ": ("--metadata-ttl", "60"), "immutable ": ("--immutable",)}
"""Mounts that are walked: by default, with metadata that lives longer than two runs, of a store that never changes."""

COLLECTION_SECONDS = 2.0
"""Seconds for `find` over 200 HDF5 files."""

IDLE_MB = 60.0
"""MB of a mount that was not used."""

AFTER_FIND_MB = 100.0
"""MB that `find` over 100,000 arrays may leave behind."""

FORGET_SECONDS = 6.0
"""Seconds until the kernel has told what it forgets, and the daemon has given back what it held for that."""

FORGET_TIMES = 3
"""How often the kernel is told to forget: what was used lately, and the directories above it, outlive the first time."""


def names() -> list[str]:
    """Row names in the order they run."""
    return ["tree 5k arrays", "tree 20k members", "tree depth 10", "tree hdf5", "tree collection", "tree memory"]


def rows(settings: Settings) -> Iterator[Row]:
    """Run the rows that are wanted."""
    trees: dict[str, Callable[[str], object]] = {
        "tree 5k arrays": lambda path: _groups(path, 50, settings.count(5000) // 50),
        "tree 20k members": lambda path: _groups(path, 1, settings.count(20_000)),
        "tree depth 10": lambda path: _deep(path, 10, settings.count(500)),
    }
    for name, make in trees.items():
        if settings.wants(name):
            yield walked(settings, name, make, [*COMMANDS, READ], FIRST, SECOND)
    if settings.wants("tree hdf5"):
        count = settings.count(5000)
        yield walked(settings, "tree hdf5", lambda path: _datasets(path, count), ["find"], HDF5_FIRST, HDF5_SECOND, ".h5")
    if settings.wants("tree collection"):
        yield collection(settings)
    if settings.wants("tree memory"):
        yield memory(settings)


def walked(
    settings: Settings,
    name: str,
    make: Callable[[str], object],
    commands: list[str],
    first: float,
    second: float,
    suffix: str = ".zarr",
) -> Row:
    """Each command twice in a fresh mount of each kind, and once on the floor."""
    path = settings.place(f"walked{suffix}")
    make(path)
    contenders: list[Contender] = []
    pairs: list[Pair] = []
    with mounts.Mounted(path) as shown, mounts.Floor(shown.path) as floor:
        for command in commands:
            seconds: dict[str, float] = {}
            for kind, options in KINDS.items():
                contenders += [
                    Contender(f"{command}: {kind}first", _first(command, path, options, seconds, kind)),
                    Contender(f"{command}: {kind}second", partial(seconds.__getitem__, kind)),
                ]
            contenders.append(Contender(f"{command}: floor", partial(_timed, command, floor.path)))
            for kind in KINDS:
                again = second if kind and command != READ else None  # by default the first run outlives what it has shown
                wanted = (READING if command == READ else first, again)
                pairs += [
                    Pair(f"{command}: {kind}{run}", f"{command}: floor", target)
                    for run, target in zip(("first", "second"), wanted, strict=True)
                ]
        samples = alternate(contenders, settings.rounds, settings.say)
    settings.remove(path)
    return Row(name, "s", None, samples, pairs, [Bound(key) for key in samples])


def collection(settings: Settings) -> Row:
    """`find` over a directory of 200 HDF5 files."""
    import h5py

    path = settings.place("collection")
    os.makedirs(path)
    for number in range(settings.count(200)):
        with h5py.File(os.path.join(path, f"{number:03d}.h5"), "w") as file:
            file["group/data"] = np.arange(100).reshape(10, 10)
    samples: Samples = {"find: first": [], "find: second": []}
    for _ in range(settings.rounds):
        settings.say("tree collection")
        with mounts.Mounted(path) as mount:
            for key in samples:
                samples[key].append(_timed("find", mount.path))
    settings.remove(path)
    return Row("tree collection", "s", None, samples, bounds=[Bound(key, COLLECTION_SECONDS) for key in samples])


def memory(settings: Settings) -> Row:
    """Memory before and after `find` over 100,000 arrays, and when the kernel has forgotten them."""
    path = settings.place("many.zarr")
    _groups(path, 100, settings.count(100_000) // 100)
    samples: Samples = {"workers": []}
    limits: dict[str, float | None] = {"workers": IDLE_MB}
    for _ in range(settings.rounds):
        for kind, options in (("", ()), ("--immutable ", ("--immutable",))):
            settings.say(f"tree memory {kind}")
            with mounts.Mounted(path, *options) as mount:
                idle = mount.memory()[0]
                _timed("find", mount.path)
                added = mount.memory()[0] - idle
                _forget()
                left = mount.memory()[0] - idle
            samples["workers"].append(idle)
            samples.setdefault(f"{kind}find over 100,000 arrays adds", []).append(added)
            samples.setdefault(f"{kind}is left when the kernel forgets", []).append(left)
            limits[f"{kind}find over 100,000 arrays adds"] = AFTER_FIND_MB
    settings.remove(path)
    return Row("tree memory", "MB", None, samples, bounds=[Bound(key, limits.get(key)) for key in samples])


def _first(command: str, path: str, options: tuple[str, ...], seconds: dict[str, float], kind: str) -> Callable[[], float]:
    def run() -> float:
        with mounts.Mounted(path, *options) as mount:
            began = _timed(command, mount.path)
            seconds[kind] = _timed(command, mount.path)
            return began

    return run


def _timed(command: str, path: str) -> float:
    start = time.monotonic()
    if command == READ:
        for folder, _, files in os.walk(path):
            for name in files:
                with open(os.path.join(folder, name), "rb", buffering=0) as file:
                    while file.read(1 << 16):
                        pass
    else:
        program, *options = COMMANDS[command]
        subprocess.run([program, path, *options], stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - start


def _forget() -> None:
    """Have the kernel drop names and inodes; only root may."""
    for _ in range(FORGET_TIMES):
        try:
            with open("/proc/sys/vm/drop_caches", "w") as file:
                file.write("2")
        except PermissionError:
            return
        time.sleep(FORGET_SECONDS)


def _array(path: str) -> None:
    """A Zarr v2 array of one chunk of 40 bytes."""
    os.makedirs(os.path.join(path, "0"))
    document = {
        "zarr_format": 2, "shape": [2, 5], "chunks": [2, 5], "dtype": "<i4", "compressor": None, "fill_value": 0,
        "order": "C", "filters": None, "dimension_separator": "/",
    }  # fmt: skip
    with open(os.path.join(path, ".zarray"), "w") as file:
        json.dump(document, file)
    with open(os.path.join(path, ".zattrs"), "w") as file:
        json.dump({"unit": "mV"}, file)
    with open(os.path.join(path, "0/0"), "wb") as chunk:
        chunk.write(np.arange(10, dtype="<i4").tobytes())


def _group(path: str) -> None:
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, ".zgroup"), "w") as file:
        file.write('{"zarr_format": 2}')


def _groups(path: str, groups: int, arrays: int) -> None:
    """`groups` groups of `arrays` arrays each."""
    _group(path)
    for group in range(groups):
        _group(os.path.join(path, f"g{group:03d}"))
        for array in range(max(1, arrays)):
            _array(os.path.join(path, f"g{group:03d}", f"a{array:05d}"))


def _deep(path: str, depth: int, arrays: int) -> None:
    """Arrays `depth` groups deep."""
    _group(path)
    for array in range(arrays):
        place = path
        for level in range(depth):
            place = os.path.join(place, f"g{array if level == 0 else level}")
            _group(place)
        _array(os.path.join(place, "a"))


def _datasets(path: str, count: int) -> None:
    """One HDF5 file of `count` datasets in 50 groups."""
    import h5py

    with h5py.File(path, "w", libver="latest") as file:
        for number in range(count):
            file[f"g{number % 50:02d}/d{number:05d}"] = np.arange(10, dtype="<i4").reshape(2, 5)
