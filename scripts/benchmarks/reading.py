"""Rows about reading: chunk files of every format and codec, small chunks, random reads. Not here: listings, memory."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from benchmarks import data, mounts
from benchmarks.programs import together
from benchmarks.rounds import Bound, Contender, Pair, Row, Samples, alternate
from benchmarks.settings import Settings

CODECS = ("blosc-lz4", "blosc-zstd", "zstd", "gzip", "raw")
MATRIX = [
    *[("zarr2", codec) for codec in CODECS],
    *[("zarr3", codec) for codec in CODECS],
    *[("n5", codec) for codec in CODECS],
    ("hdf5", "gzip+shuffle"),
]
SLOW = {"zstd": 2, "gzip": 4, "gzip+shuffle": 4}
"""Codecs with arrays of large chunks that are this many times smaller."""

MIDDLE = 512 * 1024
"""Bytes of the commonest chunks: 64 x 64 x 64 elements of two bytes."""

MIDDLE_MATRIX = [
    ("zarr2", "blosc-lz4"),
    ("zarr3", "blosc-lz4"),
    ("n5", "blosc-lz4"),
    ("zarr2", "zstd"),
    ("hdf5", "gzip+shuffle"),
]

MANY_FILES = 1_000_000
SMALL_FILES = 10_000
SMALL_EDGE = 64
PAGE = 4096
RANDOM_READS = 400
NAMES_OUTLIVED = 1.5
"""Seconds, longer than the kernel may rely on a name by default."""
RESERVE = 0.9
"""`less 10 %`: what a two-thread decode loop may be ahead by."""


def names() -> list[str]:
    """Row names in the order they run."""
    middle = [f"512K {format_} {codec}" for format_, codec in MIDDLE_MATRIX]
    return [*[f"{format_} {codec}" for format_, codec in MATRIX], *middle, "small files", "many small files", "random 4 KiB"]


def rows(settings: Settings) -> Iterator[Row]:
    """Run the rows that are wanted."""
    for format_, codec in MATRIX:
        if settings.wants(f"{format_} {codec}"):
            yield chunk_files(settings, format_, codec)
    for format_, codec in MIDDLE_MATRIX:
        if settings.wants(f"512K {format_} {codec}"):
            yield chunk_files(settings, format_, codec, MIDDLE)
    if settings.wants("small files"):
        yield small_files(settings)
    if settings.wants("many small files"):
        yield many_small_files(settings)
    if settings.wants("random 4 KiB"):
        yield random_reads(settings)


def chunk_files(settings: Settings, format_: str, codec: str, cube: int | None = None) -> Row:
    """All chunk files, cold and warm, by one and by two processes, against every other library that can read the array.

    `cube`: bytes of a cubic chunk, if chunks are not what the run was asked for; then half of the bytes, of every codec.
    """
    geometry = data.Geometry.of(settings.size // SLOW.get(codec, 1), settings.chunk)
    if cube is not None:
        geometry = data.Geometry.cubes(settings.size // 2, min(cube, settings.chunk))
    stored = data.make(format_, codec, geometry, settings.directory)
    data.warm(stored.source)
    with settings.scratch() as copy:
        _, sums = data.local_copy(stored, copy)
        verify(stored, sums)
        contenders = [*_through_mount(stored), *_in_process(stored), *_local(copy)]
        if cube is not None:
            contenders += _floor(copy)
        samples = alternate(contenders, settings.rounds, settings.say)
    settings.discard(stored)
    name, pairs = stored.name, _pairs(stored, samples)
    if cube is not None:
        name, pairs = f"512K {stored.name}", _middle_pairs(stored, samples)
    return Row(name, "MB/s", geometry.bytes / 1e6, samples, pairs, notes=["every byte verified"])


def verify(stored: data.Stored, sums: list[int]) -> None:
    """Compare every chunk file of a mount with what numcodecs alone decodes; RuntimeError if one byte differs."""
    with mounts.Mounted(stored.source) as mount:
        root = os.path.join(mount.path, stored.member, "c")
        _, results = together("files", [{"root": root, "part": 0, "parts": 1, "verify": True}])
    if results[0]["crc"] != sums:
        raise RuntimeError(f"{stored.name}: the mount shows other bytes than numcodecs")


def _through_mount(stored: data.Stored) -> list[Contender]:
    """Cold: a fresh mount. Warm: the same files again, in the same mount, by other processes."""
    warm: dict[int, float] = {}

    def cold(readers: int) -> Callable[[], float]:
        def run() -> float:
            with mounts.Mounted(stored.source) as mount:
                root = os.path.join(mount.path, stored.member, "c")
                seconds = _read(root, readers)
                warm[readers] = _read(root, readers)
                return seconds

        return run

    return [
        contender
        for readers in (1, 2)
        for contender in (
            Contender(f"fsbridge cold x{readers}", cold(readers)),
            Contender(f"fsbridge warm x{readers}", partial(warm.__getitem__, readers)),
        )
    ]


def _in_process(stored: data.Stored) -> list[Contender]:
    found = []

    def add(name: str, program: str, **arguments: Any) -> None:
        found.append(Contender(name, lambda: together(program, [arguments])[0]))

    if stored.format in ("zarr2", "zarr3"):
        add("zarr-python", "zarr", path=stored.source)
    if stored.driver:
        # N5 blocks are stored in Fortran order: the order in which TensorStore has least to do.
        order = "F" if stored.format == "n5" else "C"
        add("TensorStore", "tensorstore", path=stored.source, driver=stored.driver, order=order)
        slab = stored.geometry.edge
        add("TensorStore reused", "tensorstore", path=stored.source, driver=stored.driver, order=order, slab=slab)
    if stored.format == "hdf5":
        add("h5py", "h5py", path=stored.source, member=stored.member)
    for threads in (1, 2):
        add(f"loop x{threads}", "loop", manifest=stored.manifest, threads=threads)
    return found


def _local(copy: str) -> list[Contender]:
    return [Contender(f"local x{readers}", partial(_read, copy, readers)) for readers in (1, 2)]


def _floor(copy: str) -> list[Contender]:
    """The decoded chunks, from a file system that has no more to do than to hand them to the kernel."""

    def cold(readers: int) -> float:
        with mounts.Floor(copy) as mount:
            return _read(mount.path, readers)

    return [Contender(f"floor x{readers}", partial(cold, readers)) for readers in (1, 2)]


def _read(root: str, readers: int) -> float:
    return together("files", [{"root": root, "part": part, "parts": readers} for part in range(readers)])[0]


def _pairs(stored: data.Stored, samples: Samples) -> list[Pair]:
    compressed = stored.codec in ("zstd", "gzip")
    targets: dict[str, float | None] = {
        "zarr-python": 3.5 if stored.codec == "blosc-lz4" and stored.format == "zarr2" else None,
        "TensorStore": 1.0 if stored.codec != "raw" and stored.codec != "blosc-zstd" else None,
        "TensorStore reused": None,
        "h5py": 2.0,
        "loop x1": None,
        "loop x2": RESERVE if compressed and stored.format == "zarr2" else None,
        "local x2": None,
    }
    return [
        *[Pair("fsbridge cold x2", name, target) for name, target in targets.items() if name in samples],
        *[Pair("fsbridge cold x1", name) for name in ("zarr-python", "TensorStore", "h5py", "local x1") if name in samples],
        Pair("fsbridge warm x1", "local x1", 0.4),
        Pair("fsbridge warm x2", "local x2", 0.4),
    ]


def _middle_pairs(stored: data.Stored, samples: Samples) -> list[Pair]:
    """The goals for chunks of 512 KiB, with one reader and with two."""
    zstd = stored.codec == "zstd"
    wanted = {
        1: {"zarr-python": 0.9 if zstd else 1.0, "TensorStore": 0.7 if zstd else 0.6, "h5py": 2.0},
        2: {"zarr-python": 0.9 if zstd else 1.1, "TensorStore": 0.7, "h5py": 2.0},
    }
    pairs = [
        Pair(f"fsbridge cold x{readers}", name, target)
        for readers, targets in wanted.items()
        for name, target in targets.items()
        if name in samples
    ]
    floors = [Pair(f"floor x{readers}", "TensorStore") for readers in wanted if "TensorStore" in samples]
    return [*pairs, *(Pair(f"fsbridge cold x{readers}", f"floor x{readers}") for readers in wanted), *floors]


def many_small_files(settings: Settings) -> Row:
    """The rate at which 1,000,000 chunks of 4 KiB are listed, opened and read, beside that of 10,000.

    Of a million names each one has outlived its lifetime when its file is opened, and is looked up once more. Ten thousand
    files are all opened before that, so they are read a second time after a pause: what that costs is no growth.
    """
    samples: Samples = {}
    for count, pauses in ((settings.count(SMALL_FILES), (0.0, NAMES_OUTLIVED)), (settings.count(MANY_FILES), (0.0,))):
        path = settings.place("many.zarr")
        data.flat_zarr2(path, (max(1, count // 100), min(count, 100)), SMALL_EDGE, "/", count)
        for pause in pauses:
            key = f"{count} files{', names outlived' if pause else ''}: us per file"
            for _ in range(settings.rounds):
                settings.say(key)
                with mounts.Mounted(path) as mount:
                    seconds = together("many_files", [{"root": os.path.join(mount.path, "c"), "pause": pause}])[0]
                samples.setdefault(key, []).append((seconds - pause) / count * 1e6)
        settings.remove(path)
    few, outlived, many = samples
    pairs = [Pair(many, outlived, 0.5), Pair(many, few)]
    return Row("many small files", "us", None, samples, pairs, [Bound(key) for key in samples])


def small_files(settings: Settings) -> Row:
    """Open, read and close 10,000 chunks of 4 KiB, against zarr-python's whole array, the floor and local files."""
    import numcodecs
    import numpy as np
    import zarr

    count = settings.count(SMALL_FILES)
    rows = max(1, count // 100)
    path = settings.place("small.zarr")
    with settings.scratch() as copy:
        array = zarr.create_array(
            path, shape=(rows * SMALL_EDGE, min(count, 100) * SMALL_EDGE), chunks=(SMALL_EDGE, SMALL_EDGE), dtype="u1",
            compressors=numcodecs.Blosc("lz4"), zarr_format=2, overwrite=True,
        )  # fmt: skip
        array[...] = np.broadcast_to(np.arange(array.shape[1]).astype("u1") | np.uint8(1), array.shape)
        data.plain_files(copy, (rows, min(count, 100)), SMALL_EDGE**2, count)
        data.warm(path)

        def cold(*options: str) -> float:
            with mounts.Mounted(path, *options) as mount:
                return together("many_files", [{"root": os.path.join(mount.path, "c")}])[0]

        def floor() -> float:
            with mounts.Floor(copy) as mount:
                return together("many_files", [{"root": mount.path}])[0]

        contenders = [
            Contender("fsbridge cold", cold),
            Contender("immutable cold", lambda: cold("--immutable")),
            Contender("floor", floor),
            Contender("zarr-python", lambda: together("zarr", [{"path": path}])[0]),
            Contender("local", lambda: together("many_files", [{"root": copy}])[0]),
        ]
        samples = alternate(contenders, settings.rounds, settings.say)
    settings.remove(path)
    pairs = [
        Pair("fsbridge cold", "zarr-python", 1.0),
        Pair("fsbridge cold", "floor", 0.5),
        Pair("immutable cold", "zarr-python", 1.2),
        Pair("immutable cold", "floor", 0.6),
        Pair("fsbridge cold", "local"),
    ]
    return Row(f"small files ({count} of 4 KiB)", "files/s", count, samples, pairs)


def random_reads(settings: Settings) -> Row:
    """Microseconds per random read of 4 KiB in one open chunk: not read before, decoded, in the page cache; and locally."""
    geometry = data.Geometry.of(0, settings.chunk)
    stored = data.make("zarr2", "blosc-lz4", geometry, settings.directory)
    gzip = data.make("zarr2", "gzip", geometry, settings.directory)
    pages = geometry.chunk_bytes // PAGE
    offsets = [page * PAGE for page in random.Random(3).sample(range(pages), min(RANDOM_READS, pages))]

    def read(path: str, before: str, some: list[int]) -> float:
        given = {"path": path, "offsets": some, "size": PAGE, "before": before}
        return together("random_reads", [given])[0] / len(some) * 1e6

    def mounted(source: data.Stored, before: str, some: list[int]) -> float:
        with mounts.Mounted(source.source) as mount:
            return read(os.path.join(mount.path, "c/0/1/1"), before, some)

    with settings.scratch() as copy:
        data.local_copy(stored, copy)
        contenders = [
            Contender("first read, blosc", lambda: mounted(stored, "unread", offsets[:1])),
            Contender("first read, gzip", lambda: mounted(gzip, "unread", offsets[:1])),
            Contender("unread, blosc", lambda: mounted(stored, "unread", offsets)),
            Contender("decoded", lambda: mounted(stored, "decoded", offsets)),
            Contender("page cache", lambda: mounted(stored, "page cache", offsets)),
            Contender("local page cache", lambda: read(os.path.join(copy, "0/1/1"), "page cache", offsets)),
        ]
        samples = alternate(contenders, settings.rounds, settings.say)
    samples["decoded over page cache"] = [
        decoded - cached for decoded, cached in zip(samples["decoded"], samples["page cache"], strict=True)
    ]
    settings.discard(stored)
    settings.discard(gzip)
    bounds = [Bound(name, 100 if name == "decoded over page cache" else None) for name in samples]
    return Row("random 4 KiB", "us per read", None, samples, bounds=bounds)
