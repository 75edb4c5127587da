"""The fsspec file system in several processes: forked ones, spawned ones, and loops as PyTorch's DataLoader runs them."""

from __future__ import annotations

import errno
import gc
import itertools
import os
import signal
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import fsspec
import h5py
import numpy as np
import pytest
import zarr
from forked import PATIENCE, in_fork, loaded
from samples import SAMPLES
from waiting import until

from fsbridge.children import starting
from fsbridge.formats.hdf5 import filters
from fsbridge.unmounted.filesystem import FsbridgeFileSystem

FORMATS = ("hdf5", "hangar", "zarr3", "s3 zarr3", "s3 hdf5")


class Place(NamedTuple):
    """A source, the options to open it, and its arrays of numbers by path."""

    source: str
    options: dict[str, Any]
    arrays: dict[str, Any]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    """Stores of some formats on disk, and on a server of moto."""
    from moto.server import ThreadedMotoServer
    from obstore.store import S3Store

    patch = pytest.MonkeyPatch()
    patch.setenv("AWS_ACCESS_KEY_ID", "key")
    patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    endpoint = "http://{}:{}".format(*moto.get_host_and_port())
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/bucket", method="PUT"), timeout=10).close()
    store = S3Store("bucket", endpoint=endpoint, region="us-east-1", client_options={"allow_http": True})
    remote, made = {"endpoint": endpoint, "region": "us-east-1"}, {}
    for name in ("hdf5", "hangar", "zarr3"):
        sample = SAMPLES[name](tmp_path_factory.mktemp(name))
        arrays = {path: values for path, values in sample.arrays.items() if np.asarray(values).dtype.kind in "iuf"}
        made[name] = Place(str(sample.source), {}, arrays)
        files = [sample.source] if sample.source.is_file() else [path for path in sample.source.rglob("*") if path.is_file()]
        if name != "hangar":
            for path in files:
                store.put(f"{name}/{path.relative_to(sample.source.parent)}", path.read_bytes())
            made[f"s3 {name}"] = Place(f"s3://bucket/{name}/{sample.source.name}", remote, arrays)
    try:
        yield made
    finally:
        moto.stop()
        patch.undo()


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield
    FsbridgeFileSystem.clear_instance_cache()
    starting.close_all()


def open_place(place: Place, **options: Any) -> Any:
    return fsspec.filesystem("fsbridge", source=place.source, layout="files", **place.options, **options)


class Arrays:
    """A dataset as PyTorch's DataLoader takes it: its items are whole arrays, again and again."""

    def __init__(self, place: Place) -> None:
        self.fs = open_place(place)
        self.paths = sorted(place.arrays)

    def __getitem__(self, number: int) -> tuple[str, Any]:
        path = self.paths[number % len(self.paths)]
        with self.fs.open(f"{path}.npy") as file:
            return path, np.load(file)

    def check(self, place: Place) -> None:
        """Read all arrays here."""
        for number in range(len(self.paths)):
            path, found = self[number]
            np.testing.assert_array_equal(found, place.arrays[path])


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("name", FORMATS)
def test_p12_a_data_loader_gets_the_elements_of_each_array(places: dict[str, Place], name: str, method: str) -> None:
    place = places[name]
    dataset = Arrays(place)
    dataset.check(place)
    for epoch in range(2 if method == "fork" else 1):
        for path, found in loaded(dataset, 3 * len(dataset.paths), method):
            np.testing.assert_array_equal(found, place.arrays[path], err_msg=f"{path} in epoch {epoch}")
        dataset.check(place)


@pytest.mark.parametrize("name", FORMATS)
def test_p12_threads_may_read_while_a_process_is_forked(places: dict[str, Place], name: str) -> None:
    """Whatever locks they hold then, the child reads, and they go on."""
    place = places[name]
    dataset = Arrays(place)
    dataset.check(place)
    dataset.fs = open_place(place, cache_size=1 << 16, skip_instance_cache=True)  # so that all is decoded again and again
    dataset.check(place)
    over, read, wrong = threading.Event(), itertools.count(), list[BaseException]()

    def go_on() -> None:
        while not over.is_set():
            try:
                dataset.check(place)
                next(read)
            except BaseException as error:
                wrong.append(error)
                return

    threads = [threading.Thread(target=go_on, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(4):
            assert in_fork(lambda: dataset.check(place)) == ""
    finally:
        over.set()
        for thread in threads:
            thread.join(PATIENCE)
    assert not wrong
    assert next(read) > 0
    dataset.check(place)


def test_a_child_of_a_child_reads_too(places: dict[str, Place]) -> None:
    for name in ("hdf5", "s3 zarr3"):
        dataset = Arrays(places[name])
        dataset.check(places[name])

        def child(dataset: Arrays = dataset, place: Place = places[name]) -> None:
            dataset.check(place)
            assert in_fork(lambda: dataset.check(place)) == ""
            dataset.check(place)

        assert in_fork(child) == ""
        dataset.check(places[name])


def hdf5_pids(fs: Any) -> set[int]:
    """The processes that read HDF5 files for this process."""
    starter = starting.starter(filters.make_program(())).pid
    assert starter is not None
    return {starter, *map(int, Path(f"/proc/{starter}/task/{starter}/children").read_text().split())}


@pytest.mark.parametrize(
    "end",
    [
        lambda fs: fs.tree.close(),
        lambda fs: FsbridgeFileSystem.clear_instance_cache(),
        lambda fs: fsspec.filesystem("fsbridge", source=fs.tree.config.source),  # fsspec drops what it has of the parent
        lambda fs: starting.close_all(),  # what Python calls at its end
    ],
    ids=["closed", "cleared", "another", "exit"],
)
def test_p11_nothing_that_a_forked_process_does_ends_what_its_parent_uses(
    places: dict[str, Place], end: Callable[[Any], object]
) -> None:
    place = places["hdf5"]
    dataset = Arrays(place)
    dataset.check(place)
    file = dataset.fs.open(f"{dataset.paths[0]}.npy")
    until(lambda: len(hdf5_pids(dataset.fs)) == 2)
    before = hdf5_pids(dataset.fs)

    def child() -> None:
        nonlocal file
        end(dataset.fs)
        file.close()
        del dataset.fs, file
        gc.collect()

    assert in_fork(child) == ""
    assert hdf5_pids(dataset.fs) == before
    file.seek(0)
    np.testing.assert_array_equal(np.load(file), place.arrays[dataset.paths[0]])
    dataset.check(place)
    assert hdf5_pids(dataset.fs) == before


def test_p7_what_is_dropped_in_the_middle_of_anything_waits_for_nothing(tmp_path: Path) -> None:
    """Python may collect garbage in any line of any thread, such as one that holds the lock which closing waits for."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("scaled", data=np.arange(64, dtype="i2"), chunks=(16,), scaleoffset=0)
    fs = fsspec.filesystem("fsbridge", source=tmp_path / "a.h5", layout="files", skip_instance_cache=True)
    opened = fs.open("scaled.npy")
    assert np.load(opened).tolist() == list(range(64))
    reader = max(hdf5_pids(fs))
    starter = starting.starter(filters.make_program(()))
    assert starter.pid is not None
    os.kill(starter.pid, signal.SIGSTOP)
    try:
        asking = threading.Thread(target=starter.reap, args=(1,))  # holds the lock until there is an answer
        asking.start()
        time.sleep(0.2)
        opened.close()
        del fs, opened
        gc.collect()
        assert asking.is_alive()
    finally:
        os.kill(starter.pid, signal.SIGCONT)
    asking.join()
    until(lambda: not Path(f"/proc/{reader}").exists())


def test_p9_a_file_that_is_open_is_read_in_a_forked_process(places: dict[str, Place]) -> None:
    for name in FORMATS:
        place = places[name]
        dataset = Arrays(place)
        path = dataset.paths[-1]
        until(partial(settled, dataset.fs, f"{path}.npy"))
        file = dataset.fs.open(f"{path}.npy", block_size=64)
        file.read(1)

        def child(file: Any = file, place: Place = place, path: str = path) -> None:
            file.seek(0)
            np.testing.assert_array_equal(np.load(file), place.arrays[path])
            file.close()

        assert in_fork(child) == "", name
        assert in_fork(child) == "", name
        file.seek(0)
        np.testing.assert_array_equal(np.load(file), place.arrays[path])
        file.close()


def settled(fs: Any, path: str) -> bool:
    """True if a later change would make another version, as it does soon after a store was written."""
    one, other = (fs.tree.node(path).open() for _ in range(2))
    try:
        return cast(bool, one.version == other.version)
    finally:
        one.close()
        other.close()


def test_p9_a_file_that_has_changed_is_stale_in_a_forked_process(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "a.zarr", data=np.arange(10, dtype="i2"))
    fs = fsspec.filesystem("fsbridge", source=tmp_path / "a.zarr", layout="files")
    file = fs.open("a.npy", block_size=16)
    file.read(1)
    zarr.create_array(tmp_path / "a.zarr", data=np.arange(20, dtype="i4"), overwrite=True)

    def child() -> None:
        with pytest.raises(OSError, match="open it again") as caught:
            file.read()
        assert caught.value.errno == errno.ESTALE
        with fs.open("a.npy") as again:
            assert np.load(again).tolist() == list(range(20))

    assert in_fork(child) == ""
