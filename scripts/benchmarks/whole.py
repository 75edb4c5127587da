"""Rows about whole arrays as files: streaming, planes, HDF5, sizes beyond any disk, listings. Not here: chunk files.

Every contender but `warm` has a fresh mount, with a daemon that has decoded nothing yet.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from benchmarks import data, mounts
from benchmarks.programs import cat, together
from benchmarks.rounds import Bound, Contender, Pair, Row, alternate
from benchmarks.settings import Settings

STREAM, STREAM_CHUNKS, WARM = 0.8, 1.0, 0.4
"""The least shares of three speeds: zarr-python's, one reader's of the mount's chunk files, a local uncompressed file's."""
PLANES = {"XY": ("[100]", 1 / 2), "XZ": ("[:,512]", 1 / 4), "YZ": ("[:,:,512]", 1 / 10)}
"""A region, and what its time through `mmap` may be of zarr-python's."""
REGION, DUMP, LISTING = 1 / 1.5, 0.7, 1 / 3
CHUNKS = {"large chunks": (64, 256, 256), "small chunks": (64, 64, 64)}
ARRAYS = 1000
KINDS: dict[str, Any] = {"n5": None, "zarr2": 2, "zarr3": 3}
"""Formats of stores that are listed: which one of Zarr's."""
STORES = {"Zarr v3": ".zarr", "HDF5": ".hdf5"}
FORMATS = ("npy", "raw", "nrrd", "raw.nhdr", "mha", "raw.mhd", "nii", "mrc", "tif", "ome.tif", "h5")
OPTIONS = ("--layout", "zarr3,files", "--files", "npy")


def names() -> list[str]:
    """Row names in the order they run."""
    return [f"files {what} {chunks}" for chunks in CHUNKS for what in ("stream", *PLANES)] + [
        "files h5dump", "files 64 TB", *(f"files ls -l {kind}" for kind in KINDS), "files group.h5"
    ]  # fmt: skip


def rows(settings: Settings) -> Iterator[Row]:
    """Run the rows that are wanted."""
    for name, chunks in CHUNKS.items():
        wanted = [what for what in ("stream", *PLANES) if settings.wants(f"files {what} {name}")]
        if wanted or (name == "large chunks" and settings.wants("files h5dump")):
            source, size = store(settings, chunks)
            for what in wanted:
                yield stream(settings, name, source, size) if what == "stream" else plane(settings, what, name, source)
            if name == "large chunks" and settings.wants("files h5dump"):
                yield dump(settings, source)
            settings.remove(source)
    if settings.wants("files 64 TB"):
        yield virtual(settings)
    for kind in KINDS:
        if settings.wants(f"files ls -l {kind}"):
            yield listing(settings, kind)
    if settings.wants("files group.h5"):
        yield group_file(settings)


def store(settings: Settings, chunks: tuple[int, int, int]) -> tuple[str, int]:
    """A Zarr v2 array of 1024 x 1024 planes of two bytes, in Blosc-LZ4, and its bytes."""
    import numcodecs
    import numpy as np
    import zarr

    path = settings.place(f"whole-{chunks[1]}.zarr")
    planes = max(128, settings.size // 2**21 // 64 * 64)
    array = zarr.open_group(path, mode="w", zarr_format=2).create_array(
        "a", shape=(planes, 1024, 1024), chunks=chunks, dtype="<u2", compressors=numcodecs.Blosc("lz4")
    )
    slab = next(data.slabs(data.Geometry(64, 1)))[:, :1024, :1024]
    for start in range(0, planes, 64):
        array[start : start + 64] = np.roll(slab, start, 2)
    data.warm(path)
    return path, planes * 2**21


def stream(settings: Settings, name: str, source: str, size: int) -> Row:
    """`cat a.npy`, against zarr-python, against the mount's chunk files, and warm against a local file."""
    with settings.scratch() as local:
        warm: list[float] = []

        def whole() -> float:
            with mounts.Mounted(source, *OPTIONS) as mount:
                cold = cat(os.path.join(mount.path, "files/a.npy"))
                warm.append(cat(os.path.join(mount.path, "files/a.npy")))
                return cold

        def chunk_files() -> float:
            with mounts.Mounted(source, *OPTIONS) as mount:
                return together("files", [{"root": os.path.join(mount.path, "zarr3/a/c"), "part": 0, "parts": 1}])[0]

        floors: list[float] = []

        def floor() -> float:
            with mounts.Floor(local) as mount:
                cold = cat(os.path.join(mount.path, "a.npy"))
                floors.append(cat(os.path.join(mount.path, "a.npy")))
                return cold

        copied(source, local)
        contenders = [
            Contender("a.npy", whole),
            Contender("a.npy warm", lambda: warm[-1]),
            Contender("zarr-python", lambda: together("zarr", [{"path": os.path.join(source, "a")}])[0]),
            Contender("chunk files", chunk_files),
            Contender("floor", floor),
            Contender("floor warm", lambda: floors[-1]),
            Contender("local file", lambda: cat(os.path.join(local, "a.npy"))),
        ]
        samples = alternate(contenders, settings.rounds, settings.say)
    pairs = [
        Pair("a.npy", "zarr-python", STREAM), Pair("a.npy", "floor"),
        Pair("a.npy warm", "local file", WARM), Pair("floor warm", "local file"),
    ]  # fmt: skip
    if name == "large chunks":
        pairs.append(Pair("a.npy", "chunk files", STREAM_CHUNKS))
    return Row(f"files stream {name}", "MB/s", size / 1e6, samples, pairs)


def copied(source: str, local: str) -> None:
    """The whole array as an ordinary file, for a local file system and for the floor."""
    with mounts.Mounted(source, *OPTIONS) as mount:
        subprocess.run(["cp", os.path.join(mount.path, "files/a.npy"), local], check=True)


def plane(settings: Settings, which: str, name: str, source: str) -> Row:
    """One plane through `np.load(mmap_mode="r")` and as a region path, against zarr-python's slice in a warm process."""
    import numpy as np
    import zarr

    region, target = PLANES[which]
    array: Any = zarr.open_array(os.path.join(source, "a"), mode="r")
    index = eval(f"np.s_{region}", {"np": np})
    expected = array[index]

    def timed(read: Callable[[str], Any], root: str) -> float:
        os.listdir(root)
        began = time.monotonic()
        found = read(root)
        seconds = time.monotonic() - began
        assert np.array_equal(found, expected)
        return seconds

    def mounted(read: Callable[[str], Any]) -> float:
        with mounts.Mounted(source, *OPTIONS) as mount:
            return timed(read, os.path.join(mount.path, "files"))

    def mapped(root: str) -> Any:
        return np.array(np.load(f"{root}/a.npy", mmap_mode="r")[index])

    def sliced() -> float:
        began = time.monotonic()
        assert array[index].shape == expected.shape
        return time.monotonic() - began

    with settings.scratch() as local:
        copied(source, local)

        def floor() -> float:
            with mounts.Floor(local) as mount:
                return timed(mapped, mount.path)

        contenders = [
            Contender("mmap", lambda: mounted(mapped)),
            Contender("region", lambda: mounted(lambda root: np.load(f"{root}/a{region}.npy"))),
            Contender("zarr-python", sliced),
            Contender("floor mmap", floor),
        ]
        samples = alternate(contenders, settings.rounds, settings.say)
    pairs = [
        Pair("mmap", "zarr-python", target), Pair("region", "zarr-python", REGION),
        Pair("mmap", "floor mmap"), Pair("floor mmap", "zarr-python"),
    ]  # fmt: skip
    return Row(f"files {which} {name}", "MB/s", expected.nbytes / 1e6, samples, pairs)


def dump(settings: Settings, source: str) -> Row:
    """`h5dump` of the virtual file, warm, against the same data in a real one."""
    import h5py
    import numpy as np

    with settings.scratch() as local, mounts.Mounted(source, *OPTIONS) as mount:
        virtual_file, real = os.path.join(mount.path, "files/a.h5"), os.path.join(local, "real.h5")
        array = np.load(os.path.join(mount.path, "files/a.npy"), mmap_mode="r")[:128]
        with h5py.File(real, "w") as file:
            file["a"] = array
        count = ["-s", "0,0,0", "-c", ",".join(map(str, array.shape))]
        del array

        def timed(path: str) -> float:
            began = time.monotonic()
            command = ["h5dump", "-d", "/a", *count, "-b", "LE", "-o", os.path.join(local, "out"), path]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            return time.monotonic() - began

        timed(virtual_file)
        contenders = [Contender("virtual", lambda: timed(virtual_file)), Contender("real", lambda: timed(real))]
        samples = alternate(contenders, settings.rounds, settings.say)
    return Row("files h5dump", "MB/s", 2**28 / 1e6, samples, [Pair("virtual", "real", DUMP)])


def virtual(settings: Settings) -> Row:
    """An array of 64 TB that holds nothing: `stat`, header, first, middle and last bytes in every format that allows it."""
    path = settings.place("virtual.n5")
    _dataset(os.path.join(path, "a"), [32000, 32000, 31250])

    def run() -> float:
        with mounts.Mounted(path, "--layout", "files") as mount:
            began = time.monotonic()
            for suffix in FORMATS:
                file = os.path.join(mount.path, f"a.{suffix}")
                if not os.path.exists(file):
                    continue
                size = os.stat(file).st_size
                with open(file, "rb", buffering=0) as opened:
                    for place in (0, 4096, size // 2, max(0, size - 4096)):
                        opened.seek(place)
                        opened.read(4096)
            return time.monotonic() - began

    samples = alternate([Contender("all formats", run)], settings.rounds, settings.say)
    settings.remove(path)
    return Row("files 64 TB", "s", None, samples, bounds=[Bound("all formats", 1.0)])


def listing(settings: Settings, kind: str) -> Row:
    """`ls -l` of a group of a thousand arrays, in the layouts `files` and `zarr3`."""
    path = settings.place(f"many.{'n5' if kind == 'n5' else 'zarr'}")
    if kind == "n5":
        for number in range(ARRAYS):
            _dataset(os.path.join(path, f"a{number}"), [2048, 2048, 64])
    else:
        import zarr

        group = zarr.open_group(path, mode="w", zarr_format=KINDS[kind])
        for number in range(ARRAYS):
            group.create_array(f"a{number}", shape=(64, 2048, 2048), chunks=(64, 64, 64), dtype="<u2")

    def run(layout: str) -> float:
        with mounts.Mounted(path, "--layout", layout) as mount:
            began = time.monotonic()
            subprocess.run(["ls", "-l", mount.path], check=True, stdout=subprocess.DEVNULL)
            return time.monotonic() - began

    contenders = [Contender(layout, partial(run, layout)) for layout in ("files", "zarr3")]
    samples = alternate(contenders, settings.rounds, settings.say)
    settings.remove(path)
    return Row(f"files ls -l {kind}", "arrays/s", ARRAYS, samples, [Pair("files", "zarr3", LISTING)])


def group_file(settings: Settings) -> Row:
    """The first `stat` of a store of a thousand arrays as one HDF5 file, for which its skeleton is made."""
    import h5py
    import zarr
    from zarr.core.common import JSON

    shape = (256, 256)
    attributes: dict[str, JSON] = {"unit": "nm", "resolution": [4.0, 4.0], "made by": "a microscope"}
    stores = {kind: settings.place(f"thousand{suffix}") for kind, suffix in STORES.items()}
    group = zarr.open_group(stores["Zarr v3"], mode="w")
    with h5py.File(stores["HDF5"], "w") as file:
        for number in range(ARRAYS):
            said = {**attributes, "number": number}
            group.create_array(f"a{number}", shape=shape, chunks=(64, 64), dtype="<u2", attributes=said)
            dataset = file.create_dataset(f"a{number}", shape, "<u2", chunks=(64, 64))
            dataset[:64, :64] = number
            dataset.attrs.update(said)
    skeletons = {}

    def run(kind: str) -> float:
        with mounts.Mounted(stores[kind], "--layout", "files") as mount:
            began = time.monotonic()
            size = os.stat(os.path.join(mount.path, "thousand.h5")).st_size
            seconds = time.monotonic() - began
            skeletons[kind] = (size - ARRAYS * 2 * math.prod(shape)) / 1e6
            return seconds

    contenders = [Contender(kind, partial(run, kind)) for kind in stores]
    samples = alternate(contenders, settings.rounds, settings.say)
    for store_path in stores.values():
        settings.remove(store_path)
    notes = [f"{kind}: {size:.1f} MB besides the elements" for kind, size in skeletons.items()]
    return Row("files group.h5", "s", None, samples, bounds=[Bound(kind, 1.0) for kind in stores], notes=notes)


def _dataset(path: str, dimensions: list[int]) -> None:
    """An N5 dataset without blocks."""
    os.makedirs(path)
    block = {"dimensions": dimensions, "blockSize": [64, 64, 64], "dataType": "uint16", "compression": {"type": "raw"}}
    with open(os.path.join(path, "attributes.json"), "w") as file:
        json.dump(block, file)
