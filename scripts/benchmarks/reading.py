"""Rows about reading: chunk files of every format and codec, small chunks, random reads. Not here: listings, memory."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
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
"""Codecs whose arrays are this many times smaller."""

SMALL_FILES = 10_000
SMALL_EDGE = 64
PAGE = 4096
RANDOM_READS = 400
RESERVE = 0.9
"""`less 10 %`: what a two-thread decode loop may be ahead by."""


def names() -> list[str]:
    """Row names in the order they run."""
    return [*[f"{format_} {codec}" for format_, codec in MATRIX], "small files", "random 4 KiB"]


def rows(settings: Settings) -> Iterator[Row]:
    """Run the rows that are wanted."""
    for format_, codec in MATRIX:
        if settings.wants(f"{format_} {codec}"):
            yield chunk_files(settings, format_, codec)
    if settings.wants("small files"):
        yield small_files(settings)
    if settings.wants("random 4 KiB"):
        yield random_reads(settings)


def chunk_files(settings: Settings, format_: str, codec: str) -> Row:
    """All chunk files, cold and warm, by one and by two processes, against everybody else who can read the array."""
    geometry = data.Geometry.of(settings.size // SLOW.get(codec, 1), settings.chunk)
    stored = data.make(format_, codec, geometry, settings.directory)
    data.warm(stored.source)
    with settings.scratch() as copy:
        _, sums = data.local_copy(stored, copy)
        verify(stored, sums)
        contenders = [*_through_mount(stored), *_in_process(stored), *_local(copy)]
        samples = alternate(contenders, settings.rounds, settings.say)
    settings.discard(stored)
    return Row(stored.name, "MB/s", geometry.bytes / 1e6, samples, _pairs(stored, samples), notes=["every byte verified"])


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
            Contender(f"fsbridge warm x{readers}", lambda readers=readers: warm[readers]),  # type: ignore[misc]
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
    return [Contender(f"local x{readers}", lambda readers=readers: _read(copy, readers)) for readers in (1, 2)]  # type: ignore[misc]


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


def small_files(settings: Settings) -> Row:
    """Open, read and close 10,000 chunks of 4 KiB, against zarr-python's whole array and local files."""
    import numcodecs
    import numpy as np
    import zarr

    count = settings.count(SMALL_FILES)
    rows = max(1, count // 100)
    path = os.path.join(settings.directory, "small.zarr")
    with settings.scratch() as copy:
        array = zarr.create_array(
            path, shape=(rows * SMALL_EDGE, min(count, 100) * SMALL_EDGE), chunks=(SMALL_EDGE, SMALL_EDGE), dtype="u1",
            compressors=numcodecs.Blosc("lz4"), zarr_format=2, overwrite=True,
        )  # fmt: skip
        array[...] = np.broadcast_to(np.arange(array.shape[1]).astype("u1") | np.uint8(1), array.shape)
        data.plain_files(copy, (rows, min(count, 100)), SMALL_EDGE**2, count)
        data.warm(path)

        def cold() -> float:
            with mounts.Mounted(path) as mount:
                return together("many_files", [{"root": os.path.join(mount.path, "c")}])[0]

        contenders = [
            Contender("fsbridge cold", cold),
            Contender("zarr-python", lambda: together("zarr", [{"path": path}])[0]),
            Contender("local", lambda: together("many_files", [{"root": copy}])[0]),
        ]
        samples = alternate(contenders, settings.rounds, settings.say)
    settings.remove(path)
    pairs = [Pair("fsbridge cold", "zarr-python"), Pair("fsbridge cold", "local")]
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
