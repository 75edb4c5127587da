"""Rows about stores in object storage: requests, latency, speed, against TensorStore and zarr-python over the same server.

The server is the tests' own, in a process of its own, at 0 and at 30 ms; for one row an independent one, hadro, which is
installed where `scripts/remote-check` has its servers. Loopback only. Not here: the servers, HDF5 (`remote_hdf5.py`).
"""

from __future__ import annotations

import os
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from checks import Skipped
from fake_s3 import BUCKET
from remote import servers

from benchmarks import data, mounts, remote_hdf5
from benchmarks.objects import Objects
from benchmarks.programs import cat, together
from benchmarks.rounds import Bound, Contender, Pair, Row, Samples, alternate
from benchmarks.settings import Settings

LATENCY = 30.0
"""Milliseconds, between a bucket of the same continent and one next door."""
CHUNK = 4 << 20
SIZE = 256 << 20
MANY = 10_000
ARRAYS = 1000
ARRAY_STORES = ("plain", "consolidated")

WANTED = {0.0: {"TensorStore": 0.7, "zarr-python": 1.2}, LATENCY: {"TensorStore": 1.0, "zarr-python": 2.0}}
"""The time to read all chunk files by two readers, by latency."""
REAL = f"hadro {LATENCY:.0f} ms"
"""The row of chunk files on a server that is not ours."""
SERVERS = Path(".venv/remote")
"""Where `scripts/remote-check` installs servers."""
NPY = 0.9
"""The least share of TensorStore's speed, for a whole array as one file."""


def names() -> list[str]:
    """Row names in the order they run."""
    large = ["chunks 0 ms", "chunks 30 ms", REAL, "npy 30 ms"]
    return ["mount", "first byte", "requests", "find", "walk 30 ms", *large, "workers", "block cache", *remote_hdf5.names()]


def rows(settings: Settings) -> Iterator[Row]:
    """Run the rows that are wanted."""
    if any(settings.wants(name) for name in ("mount", "first byte", "requests", "find", "workers", "walk 30 ms")):
        with settings.scratch() as folder:
            small_stores(folder)
            yield from _small(settings, folder)
    if any(settings.wants(name) for name in ("chunks 0 ms", "chunks 30 ms", REAL, "npy 30 ms", "block cache")):
        with settings.scratch() as folder:
            geometry = large_store(settings, os.path.join(folder, "store"))
            yield from _large(settings, folder, geometry)
    yield from remote_hdf5.rows(settings, LATENCY)


# ---- small stores


def small_stores(folder: str) -> None:
    """`zarr2`, `zarr3`, `shards`, `n5`: a group with the array `raw`, 8 x 8 chunks of 16 KiB; `many`: 10,000 chunks."""
    import numpy as np
    import tensorstore
    import zarr

    values = np.arange(512 * 512, dtype="<u4").reshape(512, 512)
    for name, shards in (("zarr2", None), ("zarr3", None), ("shards", (256, 256))):
        group = zarr.open_group(os.path.join(folder, name), mode="w", zarr_format=2 if name == "zarr2" else 3)
        group.create_array("raw", data=values, chunks=(64, 64), shards=shards)
    metadata = {"dimensions": [512, 512], "blockSize": [64, 64], "dataType": "uint32", "compression": {"type": "gzip"}}
    kvstore = {"driver": "file", "path": os.path.join(folder, "n5/raw/")}
    tensorstore.open({"driver": "n5", "kvstore": kvstore, "metadata": metadata, "create": True}).result()[...] = values
    with open(os.path.join(folder, "n5/attributes.json"), "w") as file:
        file.write('{"n5": "2.0.0"}')
    data.flat_zarr2(os.path.join(folder, "many"), (MANY // 100, 100), 4, "/", MANY)


CHUNKS = {"zarr2": "raw/c/{}/{}", "zarr3": "raw/c/{}/{}", "shards": "raw/c/{}/{}", "n5": "raw/c/{}/{}"}


def _small(settings: Settings, folder: str) -> Iterator[Row]:
    stores = {name: os.path.join(folder, name) for name in (*CHUNKS, "many")}
    if settings.wants("mount"):
        with Objects(LATENCY, **stores) as server:
            yield mount(settings, server)
    if settings.wants("first byte"):
        with Objects(LATENCY, **stores) as server:
            yield first_byte(settings, server)
    if settings.wants("requests"):
        with Objects(0, **stores) as server:
            yield requests(settings, server)
    if settings.wants("find"):
        with Objects(0, **stores) as server:
            yield find(settings, server)
    if settings.wants("walk 30 ms"):
        group_of_arrays(folder)
        with Objects(LATENCY, **{name: os.path.join(folder, name) for name in ARRAY_STORES}) as server:
            yield walk(settings, server)
    if settings.wants("workers"):
        with Objects(0, **stores) as server:
            yield idle(settings, server)


def mount(settings: Settings, server: Objects) -> Row:
    """Exec to the mounted root, at 30 ms."""
    contenders = [Contender(name, partial(mounts.start_up, server.url(name), *server.options)) for name in CHUNKS]
    samples = alternate(contenders, 2 * settings.rounds, settings.say)
    return Row("mount", "s", None, samples, bounds=[Bound(name, 0.45) for name in CHUNKS])


def first_byte(settings: Settings, server: Objects) -> Row:
    """The first byte of a chunk by its path, the array known and not, against a bare GET."""
    samples: Samples = {}
    for _ in range(settings.rounds):
        key = "zarr3/raw/c/3/3"
        bare = together("get_once", [{"endpoint": server.endpoint, "bucket": BUCKET, "key": key}])[0]
        samples.setdefault("bare GET", []).append(bare)
        for name, path in CHUNKS.items():
            settings.say(f"first byte, {name}")
            with mounts.Mounted(server.url(name), *server.options) as mounted:
                for which, place in (("first chunk", (1, 2)), ("another chunk", (6, 5))):
                    samples.setdefault(f"{name}: {which}", []).append(cat(os.path.join(mounted.path, path.format(*place))))
    pairs = [Pair(name, "bare GET", 1 / 1.5 if "another" in name else None) for name in samples if name != "bare GET"]
    return Row("first byte", "1/s", 1, samples, pairs)


def requests(settings: Settings, server: Objects) -> Row:
    """How many requests each use of a store takes."""
    samples: Samples = {}
    bounds = []

    def counted(name: str, at_most: int) -> None:
        seen = server.asked()
        samples.setdefault(name, []).append(seen["requests"])
        if seen["requests"] > at_most:
            settings.say(f"{name}: {seen['paths']}")
        if len(samples[name]) == 1:
            bounds.append(Bound(name, at_most))

    for name, path in CHUNKS.items():
        server.asked()
        with mounts.Mounted(server.url(name), *server.options) as mounted:
            counted(f"{name}: mount", 3)
            for use, place in (("first chunk", (1, 2)), ("next chunk", (6, 5))):
                cat(os.path.join(mounted.path, path.format(*place)))
                counted(f"{name}: {use}", {"first chunk": 2, "next chunk": 1}[use])
            time.sleep(1.5)  # the metadata's lifetime
            cat(os.path.join(mounted.path, path.format(3, 3)))
            counted(f"{name}: a chunk 1.5 s later", 2 + (name == "shards"))
    return Row("requests", "requests", None, samples, bounds=bounds)


def find(settings: Settings, server: Objects) -> Row:
    """`find` of 10,000 chunks of one array, and again."""
    samples: Samples = {}
    for _ in range(settings.rounds):
        with mounts.Mounted(server.url("many"), *server.options) as mounted:
            for which in ("first", "again"):
                server.asked()
                began = time.monotonic()
                found = subprocess.run(["find", mounted.path, "-type", "f"], capture_output=True, check=True).stdout
                samples.setdefault(f"find {which}: s", []).append(time.monotonic() - began)
                samples.setdefault(f"find {which}: requests", []).append(server.asked()["requests"])
                assert found.count(b"\n") == MANY + 1
    wanted = {"find first: requests": 12, "find again: requests": 1}
    return Row("find", "s, or requests", None, samples, bounds=[Bound(name, wanted.get(name)) for name in samples])


def group_of_arrays(folder: str) -> None:
    """`ARRAY_STORES`: a Zarr v3 group of 1,000 arrays of one chunk each, without and with consolidated metadata."""
    import zarr

    for name in ARRAY_STORES:
        path = os.path.join(folder, name)
        group = zarr.open_group(path, mode="w", zarr_format=3)
        for number in range(ARRAYS):
            group.create_array(f"a{number}", shape=(8,), chunks=(8,), dtype="<i4", attributes={"n": number})[...] = number
        if name == "consolidated":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it is no part of the specification
                zarr.consolidate_metadata(path, zarr_format=3)


def walk(settings: Settings, server: Objects) -> Row:
    """`find -maxdepth 2` of 1,000 arrays, and again after the metadata's lifetime."""
    samples: Samples = {}
    for _ in range(settings.rounds):
        for name in ARRAY_STORES:
            with mounts.Mounted(server.url(name), *server.options) as mounted:
                for which in ("first", "again"):
                    settings.say(f"walk, {name} {which}")
                    server.asked()
                    began = time.monotonic()
                    subprocess.run(["find", mounted.path, "-maxdepth", "2"], stdout=subprocess.DEVNULL, check=True)
                    samples.setdefault(f"{name} {which}: s", []).append(time.monotonic() - began)
                    samples.setdefault(f"{name} {which}: requests", []).append(server.asked()["requests"])
                    time.sleep(1.5)
    wanted = {"plain first: s": 3, "plain first: requests": 1100, "consolidated first: requests": 3}
    return Row("walk 30 ms", "s, or requests", None, samples, bounds=[Bound(name, wanted.get(name)) for name in samples])


def idle(settings: Settings, server: Objects) -> Row:
    """Memory after mounting; sockets and threads after some use and 25 s of rest."""
    samples: Samples = {}
    with mounts.Mounted(server.url("zarr3"), *server.options) as mounted:
        samples["memory after mounting: MB"] = [mounted.memory()[0]]
        before = _threads(mounted.pid), _sockets(mounted.pid)
        together("files", [{"root": os.path.join(mounted.path, "raw/c"), "part": part, "parts": 2} for part in (0, 1)])
        samples["most sockets"] = [_sockets(mounted.pid)]
        time.sleep(25)  # connections are kept for 20 at most
        samples["more threads after rest"] = [_threads(mounted.pid) - before[0]]
        samples["more sockets after rest"] = [_sockets(mounted.pid) - before[1]]
        samples["memory after rest: MB"] = [mounted.memory()[0]]
    wanted = {"memory after mounting: MB": 75, "more sockets after rest": 0, "more threads after rest": 0}
    return Row("workers", "MB, or number", None, samples, bounds=[Bound(name, wanted.get(name)) for name in samples])


# ---- a large store


def large_store(settings: Settings, path: str) -> data.Geometry:
    """A Zarr v3 group with the array `raw`: 256 MiB in Blosc-LZ4 chunks of 4 MiB, one object each."""
    import zarr
    from zarr.codecs import BloscCodec

    geometry = data.Geometry.of(min(settings.size, SIZE), min(settings.chunk, CHUNK))
    group = zarr.open_group(path, mode="w", zarr_format=3)
    compressor = BloscCodec(cname="lz4", clevel=data.BLOSC_LEVEL, shuffle="shuffle", typesize=2)
    array: Any = group.create_array("raw", shape=geometry.shape, chunks=geometry.chunk, dtype="<u2", compressors=compressor)
    for number, slab in enumerate(data.slabs(geometry)):
        array[number * geometry.edge : (number + 1) * geometry.edge] = slab
    return geometry


def _large(settings: Settings, folder: str, geometry: data.Geometry) -> Iterator[Row]:
    store = os.path.join(folder, "store")
    for latency in (0.0, LATENCY):
        if settings.wants(f"chunks {latency:.0f} ms"):
            with Objects(latency, store=store) as server:
                found = chunk_files(
                    settings, server.url("store"), server.options, server.endpoint, BUCKET, geometry, WANTED[latency]
                )
                yield Row(f"chunks {latency:.0f} ms", *found, notes=[in_flight(server)])
    if settings.wants(REAL):
        yield from on_hadro(settings, folder, geometry)
    if settings.wants("npy 30 ms"):
        with Objects(LATENCY, store=store) as server:
            yield whole(settings, server, geometry)
    if settings.wants("block cache"):
        with Objects(LATENCY, store=store) as server, settings.scratch() as blocks:
            yield block_cache(settings, server, store, blocks)


def on_hadro(settings: Settings, folder: str, geometry: data.Geometry) -> Iterator[Row]:
    """The chunk files from a server that is not ours; no row where it cannot be installed."""
    server = next(server for server in servers.SERVERS if server.name == "hadro")
    SERVERS.mkdir(parents=True, exist_ok=True)
    try:
        command = server.prepare(SERVERS.resolve(), True)
    except Skipped as reason:
        settings.say(f"{REAL}: no such server: {reason}")
        return
    with settings.scratch() as place:
        started = server.start([*command, "--latency-ms", f"{LATENCY:.0f}"], Path(folder), Path(place))
        try:
            endpoint = started.options[started.options.index("--endpoint") + 1]
            url = f"{started.url}/store"
            found = chunk_files(settings, url, started.options, endpoint, servers.BUCKET, geometry, WANTED[LATENCY])
            yield Row(REAL, *found)
        finally:
            servers.stop(started.process)


def in_flight(server: Objects) -> str:
    """How many requests of fsbridge's two readers were answered at a time."""
    server.asked()
    with mounts.Mounted(server.url("store"), *server.options) as mounted:
        _two(os.path.join(mounted.path, "raw/c"))
    return f"{server.asked()['at a time']} requests at a time"


def _two(root: str) -> float:
    return together("files", [{"root": root, "part": part, "parts": 2, "listed": True} for part in (0, 1)])[0]


def chunk_files(
    settings: Settings,
    url: str,
    options: Sequence[str],
    endpoint: str,
    bucket: str,
    geometry: data.Geometry,
    wanted: dict[str, float],
) -> tuple[str, float, Samples, list[Pair]]:
    """All chunk files by one and by two readers, against both libraries in process on the same server.

    Listing the files is not timed, as opening the array in the libraries is not.
    """
    prefix = url.removeprefix(f"s3://{bucket}/")
    given = [{"endpoint": endpoint, "bucket": bucket, "prefix": prefix, "path": "raw"}]

    def cold(read: Callable[[str], float]) -> float:
        with mounts.Mounted(url, *options) as mounted:
            return read(os.path.join(mounted.path, "raw/c"))

    contenders = [
        Contender("fsbridge x2", lambda: cold(_two)),
        Contender("TensorStore", lambda: together("tensorstore_remote", given)[0]),
        Contender("zarr-python", lambda: together("zarr_remote", given)[0]),
        Contender(
            "fsbridge x1",
            lambda: cold(lambda root: together("files", [{"root": root, "part": 0, "parts": 1, "listed": True}])[0]),
        ),
    ]
    samples = alternate(contenders, settings.rounds, settings.say)
    pairs = [Pair("fsbridge x2", name, target) for name, target in wanted.items()]
    pairs += [Pair("fsbridge x1", name) for name in wanted]
    return "MB/s", geometry.bytes / 1e6, samples, pairs


def whole(settings: Settings, server: Objects, geometry: data.Geometry) -> Row:
    """`cat raw.npy`, against TensorStore.

    Looking the file up, a round trip for the array's metadata, is not timed, as opening the array in the library is not;
    once more with it.
    """
    given = [{"endpoint": server.endpoint, "bucket": BUCKET, "prefix": "store", "path": "raw"}]

    def npy(known: bool) -> float:
        with mounts.Mounted(server.url("store"), *server.options, "--layout", "files") as mounted:
            path = os.path.join(mounted.path, "raw.npy")
            if known:
                os.stat(path)
            return cat(path)

    contenders = [
        Contender("raw.npy", lambda: npy(True)),
        Contender("TensorStore", lambda: together("tensorstore_remote", given)[0]),
        Contender("raw.npy and its look-up", lambda: npy(False)),
    ]
    samples = alternate(contenders, settings.rounds, settings.say)
    pairs = [Pair("raw.npy", "TensorStore", NPY), Pair("raw.npy and its look-up", "TensorStore")]
    return Row("npy 30 ms", "MB/s", geometry.bytes / 1e6, samples, pairs)


def block_cache(settings: Settings, server: Objects, store: str, blocks: str) -> Row:
    """A chunk from the block cache, in a fresh mount, against the same chunk from a local store; and its requests."""
    options = [*server.options, "--block-cache", blocks]
    samples: Samples = {}
    path = "raw/c/0/1/{}"
    with mounts.Mounted(server.url("store"), *options) as mounted:
        for number in range(4):
            cat(os.path.join(mounted.path, path.format(number)))
    local = "local store: ms"
    kinds = [(local, store, []), ("immutable", "", ["--immutable"]), ("with a 304", "", [])]
    for _ in range(settings.rounds):
        for which, source, more in kinds:
            settings.say(f"block cache, {which}")
            with mounts.Mounted(source or server.url("store"), *(more if source else [*options, *more])) as mounted:
                cat(os.path.join(mounted.path, path.format(3)))
                server.asked()
                for number in (1, 0):  # backwards: nothing is read ahead
                    taken = cat(os.path.join(mounted.path, path.format(number))) * 1e3
                    samples.setdefault(which if source else f"{which}: ms", []).append(taken)
                    if not source:
                        samples.setdefault(f"{which}: requests", []).append(server.asked()["requests"])
    added = [cached - plain for cached, plain in zip(samples["immutable: ms"], samples[local], strict=True)]
    samples["immutable: ms more than from the local store"] = added
    bounds = {"immutable: requests": 0, "with a 304: requests": 1, "immutable: ms more than from the local store": 1}
    return Row("block cache", "ms, or requests", None, samples, bounds=[Bound(name, bounds.get(name)) for name in samples])


def _threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def _sockets(pid: int) -> int:
    found = 0
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            found += os.readlink(f"/proc/{pid}/fd/{number}").startswith("socket:")
        except FileNotFoundError:
            continue
    return found
