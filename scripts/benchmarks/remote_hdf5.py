"""Rows about HDF5 files in object storage at 30 ms: all datasets of a file, and all chunks, against h5py over obstore.

Not here: other formats (`remote.py`), the server (`objects.py`).
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator

from fake_s3 import BUCKET

from benchmarks import data, mounts
from benchmarks.objects import Objects
from benchmarks.programs import together
from benchmarks.rounds import Bound, Contender, Pair, Row, Samples, alternate
from benchmarks.settings import Settings

DATASETS, GROUPS = 400, 20
FILE = 200_000_000
"""Bytes of the file of so many datasets."""
CHUNK = 4 << 20
SIZE = 256 << 20
WANTED = {"together: s": 1.0, "together: requests": 12, "scattered: s": 1.0}
"""The requests of `find` over a fresh mount; if headers are scattered, each takes a request of its own."""


def names() -> list[str]:
    """Row names in the order they run."""
    return ["hdf5 list 30 ms", "hdf5 chunks 30 ms"]


def rows(settings: Settings, latency: float) -> Iterator[Row]:
    """Run the rows that are wanted; `latency` in milliseconds."""
    if settings.wants("hdf5 list 30 ms"):
        with settings.scratch() as folder:
            for name in ("together", "scattered"):
                os.mkdir(os.path.join(folder, name))
                many_datasets(settings, os.path.join(folder, name, "x.h5"), name == "together")
            with Objects(latency, store=folder) as server:
                yield listing(settings, server)
    if settings.wants("hdf5 chunks 30 ms"):
        with settings.scratch() as folder:
            geometry = one_dataset(settings, os.path.join(folder, "x.h5"))
            with Objects(latency, store=folder) as server:
                yield chunks(settings, server, geometry)


def many_datasets(settings: Settings, path: str, together: bool) -> None:
    """400 datasets of four chunks in 20 groups; all made before any is written to, or each header between the data."""
    import h5py

    count = settings.count(DATASETS)
    length = FILE // 8 // DATASETS
    with h5py.File(path, "w") as file:
        made = []
        for number in range(count):
            dataset = file.create_dataset(f"g{number % GROUPS}/d{number}", (length,), "<i8", chunks=(-(-length // 4),))
            dataset.attrs["unit"] = "mV"
            if together:
                made.append(dataset)
            else:
                dataset[:] = number
                dataset.id.flush()
        for number, dataset in enumerate(made):
            dataset[:] = number


def listing(settings: Settings, server: Objects) -> Row:
    """A fresh mount and `find` over all of it, against h5py that visits every object and reads its attributes."""
    samples: Samples = {}
    for _ in range(settings.rounds):
        for name in ("together", "scattered"):
            settings.say(f"hdf5 list, {name}")
            server.asked()
            with mounts.Mounted(server.url(f"store/{name}/x.h5"), *server.options) as mounted:
                began = time.monotonic()
                found = subprocess.run(["find", mounted.path, "-name", "zarr.json"], capture_output=True, check=True)
                samples.setdefault(f"{name}: s", []).append(time.monotonic() - began)
                samples.setdefault(f"{name}: requests", []).append(server.asked()["requests"])
            assert found.stdout.count(b"\n") == 1 + min(GROUPS, settings.count(DATASETS)) + settings.count(DATASETS)
            given = {"endpoint": server.endpoint, "bucket": BUCKET, "key": f"store/{name}/x.h5"}
            samples.setdefault(f"{name}: h5py: s", []).append(together("h5py_remote_visit", [given])[0])
            samples.setdefault(f"{name}: h5py: requests", []).append(server.asked()["requests"])
    return Row(
        "hdf5 list 30 ms", "s, or requests", None, samples, bounds=[Bound(name, WANTED.get(name)) for name in samples]
    )


def one_dataset(settings: Settings, path: str) -> data.Geometry:
    """`raw`: 256 MiB in gzip chunks of 4 MiB."""
    import h5py

    geometry = data.Geometry.of(min(settings.size, SIZE), min(settings.chunk, CHUNK))
    with h5py.File(path, "w") as file:
        options = {"chunks": geometry.chunk, "compression": "gzip", "compression_opts": 1, "shuffle": True}
        dataset = file.create_dataset("raw", geometry.shape, "<u2", **options)
        for number, slab in enumerate(data.slabs(geometry)):
            dataset[number * geometry.edge : (number + 1) * geometry.edge] = slab
    return geometry


def chunks(settings: Settings, server: Objects, geometry: data.Geometry) -> Row:
    """All chunk files by two readers, against one h5py that reads the dataset."""

    def cold() -> float:
        with mounts.Mounted(server.url("store/x.h5"), *server.options) as mounted:
            root = os.path.join(mounted.path, "raw/c")
            return together("files", [{"root": root, "part": part, "parts": 2, "listed": True} for part in (0, 1)])[0]

    given = [{"endpoint": server.endpoint, "bucket": BUCKET, "key": "store/x.h5", "member": "raw"}]
    contenders = [
        Contender("fsbridge x2", cold),
        Contender("h5py over obstore", lambda: together("h5py_remote", given)[0]),
    ]
    samples = alternate(contenders, settings.rounds, settings.say)
    return Row("hdf5 chunks 30 ms", "MB/s", geometry.bytes / 1e6, samples, [Pair("fsbridge x2", "h5py over obstore")])
