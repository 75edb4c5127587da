"""HDF5 files as objects of a server: the values of a local file, few requests, each fault an error (P3, P7, P9)."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
import pytest
from fake_s3 import FakeS3, Fault, Request, recovered
from hdf5_files import foreign_files, write_pattern
from hdf5_model import array, everything, node, opened, values
from nwb_data import unpack
from observing import held_by
from paths import DATA
from remote_hdf5 import opened_remote, remote_store, upload
from waiting import Clock, until

from fsbridge.children.client import ChildProcess
from fsbridge.config import Config
from fsbridge.errors import AccessDenied, CorruptData, FsbridgeError, NotFound, Stale, TimedOut, Unreachable, Unsupported
from fsbridge.formats.hdf5 import blocks, file, remote
from fsbridge.formats.hdf5.arrays import HDF5Array
from fsbridge.formats.hdf5.remote import RemoteFile
from fsbridge.formats.hdf5.source import HDF5Group, HDF5Source, open_hdf5
from fsbridge.model import Link
from fsbridge.store import Key
from fsbridge.store.remote.store import ObjectStore
from fsbridge.threads.deadlines import Deadline

pytestmark = pytest.mark.usefixtures("kept")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def names(group: Any) -> list[str]:
    return [child.name for child in group.children()]


def walk(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """All nodes below a group by path; the error's class for one that cannot be opened."""
    for name in names(group):
        try:
            found = group.child(name)
        except FsbridgeError as error:
            yield f"{path}/{name}", type(error).__name__
            continue
        yield f"{path}/{name}", found
        if isinstance(found, HDF5Group):
            yield from walk(found, f"{path}/{name}")


def write_large(path: Path, libver: str | None = None) -> Path:
    """400 datasets in 20 groups, each with 160,000 bytes of data behind its header, and among them one of 2,000 chunks."""
    with h5py.File(path, "w", libver=libver) as file:
        for number in range(400):
            if number == 200:
                file.create_dataset("big", data=np.arange(400_000), chunks=(200,))
            dataset = file.create_dataset(f"g{number % 20}/d{number}", data=np.full(20_000, number), chunks=(5_000,))
            dataset.attrs["unit"] = "mV"
    return path


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_large(tmp_path_factory.mktemp("large") / "x.h5")


def write_rich(path: Path, **options: Any) -> Path:
    """Every layout and kind of element, with filters of ours and filters that only HDF5 has."""
    noise = np.random.default_rng(0).integers(0, 2**15, (300, 400))
    with h5py.File(path, "w", **options) as file:
        file.create_dataset("chunked", data=noise, chunks=(64, 100), compression="gzip", shuffle=True)
        file.create_dataset("plugin", data=noise, chunks=(64, 100), **hdf5plugin.Blosc2())
        file.create_dataset("contiguous", data=noise.astype(">f4"))
        file.create_dataset("text", data=[f"text {i}" for i in range(1000)], dtype=h5py.string_dtype(), chunks=(100,))
        file.create_dataset("one text", data="ü")
        file.create_dataset("table", data=np.zeros(50, [("a", "<i4"), ("b", "<f8", (3,))]))
        file["group/scale"] = np.arange(300)
        file["group/scale"].make_scale("x")
        file["chunked"].dims[0].attach_scale(file["group/scale"])
        file["group"].attrs["target"] = file["chunked"].ref
        file["group/soft"] = h5py.SoftLink("/chunked")
        compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        compact.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((4,))
        h5py.h5d.create(file.id, b"compact", h5py.h5t.STD_I32LE, space, compact).write(
            h5py.h5s.ALL, h5py.h5s.ALL, np.arange(4, dtype="i4")
        )
        layout = h5py.VirtualLayout((300, 800), noise.dtype)
        layout[:, :400] = h5py.VirtualSource(file["chunked"])
        layout[:, 400:] = h5py.VirtualSource(file["chunked"])
        file.create_virtual_dataset("virtual", layout)
    return path


def assert_same_as_local(server: FakeS3, path: Path) -> int:
    """All nodes, descriptions and values of a file are those that it has on a local disk."""
    count = 0
    with opened(path) as local, opened_remote(server, path) as remote:
        here, there = dict(walk(local.root)), dict(walk(remote.root))
        assert there.keys() == here.keys()
        for name, expected in here.items():
            found = there[name]
            count += 1
            if isinstance(expected, Link | str):
                assert found == expected
            elif isinstance(expected, HDF5Array):
                assert isinstance(found, HDF5Array)
                for key in ("grid", "dtype", "fill", "attributes", "dimension_names", "codec", "refused"):
                    assert getattr(found.metadata, key) == getattr(expected.metadata, key), (name, key)
                if expected.metadata.refused is None:
                    np.testing.assert_array_equal(values(found), values(expected), err_msg=name)
            else:
                assert not isinstance(found, HDF5Array | Link)
                assert found.attributes() == expected.attributes()
    return count


@pytest.mark.parametrize(
    "options", [{}, {"libver": "latest"}, {"userblock_size": 1024}, {"fs_strategy": "page", "fs_page_size": 4096}], ids=str
)
def test_p12_every_layout_reads_as_locally(server: FakeS3, tmp_path: Path, options: dict[str, Any]) -> None:
    path = write_rich(tmp_path / "rich.h5", **options)
    assert assert_same_as_local(server, path) == 11
    with opened_remote(server, path) as source, h5py.File(path) as file:
        for name in ("chunked", "plugin", "contiguous", "compact", "virtual", "group/scale"):
            np.testing.assert_array_equal(values(array(source, name)), file[name][()])
        assert array(source, "chunked").metadata.dimension_names == ("scale", None)


@pytest.mark.parametrize("path", foreign_files(), ids=lambda path: path.name)
def test_p12_files_of_others_read_as_locally(server: FakeS3, path: Path) -> None:
    try:
        with opened(path):
            pass
    except CorruptData:
        with pytest.raises(CorruptData), opened_remote(server, path):
            pass
        return
    assert_same_as_local(server, path)


def test_p12_nwb_and_netcdf_read_as_locally(server: FakeS3, tmp_path: Path) -> None:
    found = sorted(unpack("hdf5", tmp_path).rglob("*.nwb"))
    assert found
    for path in (*found, DATA / "netcdf.nc"):
        assert assert_same_as_local(server, path) > 1


def test_a_file_that_a_writer_left_open_is_read(server: FakeS3, tmp_path: Path) -> None:
    """HDF5 takes such a file from a local disk only, so the mark and the end of the file are corrected in what it reads."""
    path = tmp_path / "x.h5"
    writer = os.fork()
    if writer == 0:
        file = h5py.File(path, "w", libver="latest")
        dataset = file.create_dataset("x", (0,), "<i8", maxshape=(None,), chunks=(10,), compression="gzip")
        file.swmr_mode = True
        dataset.resize((30,))
        dataset[:] = np.arange(30)
        dataset.flush()
        os._exit(0)
    os.waitpid(writer, 0)
    with pytest.raises(OSError, match="already open"):
        h5py.File(path, locking=False)
    with opened_remote(server, path) as source:
        assert values(array(source, "x")).tolist() == list(range(30))


# ---- requests


def test_requests_of_a_list_of_400_datasets(server: FakeS3, tmp_path: Path) -> None:
    """Most of them come with the first look at the file."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for number in range(400):
            file.create_dataset(f"g{number % 20}/d{number}", data=np.arange(100.0))
        file.create_dataset("big", data=np.zeros(6_000_000, "u1"), chunks=(2000,))
    with server.counted() as requests, opened_remote(server, tmp_path / "x.h5") as source:
        assert sum(isinstance(found, HDF5Array) for _, found in everything(source.root)) == 401
    ranges = [request.range for request in requests if request.range]  # and whether the file is still the same
    assert len(ranges) <= 4, ranges


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of requests at a time, for each time that blocks were missing."""
    found: list[int] = []
    requested = blocks.Blocks._requested
    monkeypatch.setattr(
        blocks.Blocks, "_requested", lambda self, runs, *late: found.append(len(list(runs))) or requested(self, runs, *late)
    )
    return found


def test_requests_for_headers_all_over_the_file_are_made_together(server: FakeS3, large: Path, rounds: list[int]) -> None:
    """Headers of a group are requested together; after the first group also those of the next ones, with chunk tables."""
    with server.counted() as requests, opened_remote(server, large) as source:
        with server.gathered(16, lambda request: rounds and rounds[-1] >= 16):
            found = [node for _, node in everything(source.root) if isinstance(node, HDF5Array)]
        assert len(found) == 401
        assert len(rounds) <= 16, rounds
        rounds.clear()
        assert sum(node.chunks.count() == 4 for node in found) == 400
        assert len(rounds) <= 4, rounds  # the table of the large one
        assert array(source, "big").chunks.count() == 2000
    spans = [request.range for request in requests if request.range]
    assert len(spans) == len(set(spans))


def test_groups_that_are_asked_for_in_nearly_their_order_are_a_walk(server: FakeS3, large: Path, rounds: list[int]) -> None:
    """Several groups are asked for at a time, and overtake each other."""
    with opened_remote(server, large) as source:
        order = [name for name in names(source.root) if name != "big"]
        for number in range(0, len(order), 3):
            order[number : number + 3] = reversed(order[number : number + 3])
        for name in order:
            group = source.root.child(name)
            assert isinstance(group, HDF5Group)
            assert len(names(group)) == 20
        assert len(rounds) <= 16, rounds


def test_the_chunk_table_of_a_b_tree_takes_few_rounds(server: FakeS3, tmp_path: Path, rounds: list[int]) -> None:
    """Its nodes lie between the chunks, because it grew while data was written, and each is named by the one above."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", (0, 20_000), "u1", maxshape=(None, 20_000), chunks=(1, 20_000))
        for number in range(0, 1000, 10):
            dataset.resize((number + 10, 20_000))
            dataset[number:] = np.random.default_rng(number).integers(0, 255, (10, 20_000))
    with opened_remote(server, path) as source:
        found = array(source, "x")
        rounds.clear()
        assert found.chunks.count() == 1000
        assert len(rounds) <= 5
        with opened(path) as local:
            np.testing.assert_array_equal(values(found), values(array(local, "x")))


@pytest.mark.parametrize("read_ahead", [True, False])
def test_longer_and_longer_runs_of_blocks_are_requested_only_with_read_ahead(
    server: FakeS3, tmp_path: Path, read_ahead: bool
) -> None:
    """The chunk table lies in one piece behind the head of the file, and is not all of the tail."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file["before"] = np.zeros(1_100_000, "u1")
        file.create_dataset("x", (60_000,), "<i2", chunks=(1,), compression="gzip")[::1000] = 1
        file["after"] = np.zeros(2_100_000, "u1")
    with opened_remote(server, path, read_ahead=read_ahead) as source:
        found = array(source, "x")
        with server.counted() as requests:
            assert found.chunks.count() == 60
    assert (len(requests) > 16) != read_ahead, [request.range for request in requests]


@pytest.mark.parametrize("libver", [None, "latest"])
def test_p12_attempts_that_fail_change_no_answer(
    server: FakeS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, libver: str | None
) -> None:
    """In blocks of 512 bytes nearly everything is missing at first, so that HDF5 fails wherever it can."""
    for module in (blocks, remote):
        monkeypatch.setattr(module, "BLOCK", 512)
        monkeypatch.setattr(module, "HEAD", 512)
    assert assert_same_as_local(server, write_rich(tmp_path / "rich.h5", libver=libver)) == 11
    path = tmp_path / "deep.h5"
    with h5py.File(path, "w", libver=libver) as file:
        for number in range(60):
            dataset = file.create_dataset(f"a{number % 3}/b{number % 5}/x{number}", data=np.arange(1000) + number)
            dataset.attrs["words"] = ["one", f"{number}" * 100]
            dataset.attrs["other"] = file["a0"].ref
    assert assert_same_as_local(server, path) == 3 + 15 + 60


@pytest.mark.parametrize("rows", [1, 10], ids=["small", "large"])
def test_chunks_are_prefetched_in_parallel(server: FakeS3, tmp_path: Path, rows: int) -> None:
    """Each byte is sent once; small chunks come with their neighbours."""
    data = np.random.default_rng(0).integers(0, 2**62, (80, 10_000))
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("chunked", data=data, chunks=(rows, 10_000), compression="gzip")
        file["plain"] = np.tile(data, (2, 1))
    with opened_remote(server, tmp_path / "x.h5") as source:
        for name in ("chunked", "plain"):
            found = array(source, name)
            indices = list(np.ndindex(found.metadata.grid.counts))
            assert found.chunks.count() == len(indices)  # their places are known
            with server.counted() as requests, server.gathered(3, lambda request: request.range):
                assert found.fetch is not None
                for index in indices:
                    found.fetch(index)
                for index in indices:
                    chunk = bytearray(found.metadata.chunk_bytes(index) or 0)
                    found.chunks.read_into(index, found.chunks.find(index), memoryview(chunk))
            ranges = sorted(tuple(map(int, request.range[6:].split("-"))) for request in requests if request.range)
            assert len(ranges) <= max(16, len(indices) // 4)
            assert all(before < first for (_, before), (first, _) in itertools.pairwise(ranges)), ranges
            np.testing.assert_array_equal(values(found), data if name == "chunked" else np.tile(data, (2, 1)))


@pytest.fixture
def many(tmp_path: Path) -> dict[str, int]:
    """The file many.h5 of 60 datasets of 320 kB in three groups, one of which leads back to the root: their values."""
    found = {f"g{number % 3}/d{number:02}": number for number in range(60)}
    with h5py.File(tmp_path / "many.h5", "w") as file:
        for name, number in found.items():
            file.create_dataset(name, data=np.full(40_000, number), chunks=(20_000,) if number % 2 else None)
        file["g1/loop"] = file["/"]
    return dict(sorted(found.items()))


def once(found: HDF5Array) -> set[int]:
    """The values of a dataset, each chunk read once."""
    read: set[int] = set()
    for index in np.ndindex(found.metadata.grid.counts):
        chunk = bytearray(found.metadata.chunk_bytes(index) or 0)
        found.chunks.read_into(index, found.chunks.find(index), memoryview(chunk))
        read |= set(np.frombuffer(chunk, "<i8").tolist())
    return read


def test_datasets_that_are_read_one_after_the_other_are_prefetched(
    server: FakeS3, tmp_path: Path, many: dict[str, int]
) -> None:
    begun = itertools.count()  # the first ones come alone
    with opened_remote(server, tmp_path / "many.h5") as source:
        list(everything(source.root))
        with server.counted() as requests, server.gathered(4, lambda request: request.range and next(begun) >= 10):
            for name, number in many.items():
                assert once(array(source, name)) == {number}
    ranges = [request.range for request in requests if request.range]
    assert len(set(ranges)) <= 90
    assert len(ranges) <= 120, "what its reader asks for just before it is sent comes twice"


@pytest.mark.parametrize(("step", "read_ahead"), [(-7, True), (1, False)], ids=["scattered reads", "no read-ahead"])
def test_nothing_is_prefetched_for_scattered_reads_or_without_read_ahead(
    server: FakeS3, tmp_path: Path, many: dict[str, int], monkeypatch: pytest.MonkeyPatch, step: int, read_ahead: bool
) -> None:
    sent: list[Key] = []
    monkeypatch.setattr(ObjectStore, "fetch", lambda self, key, *where: sent.append(key))
    with opened_remote(server, tmp_path / "many.h5", read_ahead=read_ahead) as source:
        list(everything(source.root))
        for name in list(many)[::step]:
            assert once(array(source, name)) == {many[name]}
        assert sent == []


def test_the_block_cache_answers_without_a_request(server: FakeS3, tmp_path: Path) -> None:
    path = write_rich(tmp_path / "x.h5")
    key = upload(server, path)
    for warm in (False, True):
        store = remote_store(server, ttl=float("inf"), blocks=tmp_path / "blocks")
        with server.counted() as requests:
            source = open_hdf5(RemoteFile(store, key), Config("x", "/nowhere"))
            try:
                for name, found in sorted(everything(source.root), reverse=warm):
                    if isinstance(found, HDF5Array):
                        assert values(found) is not None, name
            finally:
                source.close()
        assert store._blocks is not None
        store._blocks.flush()
        if warm:
            assert not requests, [request.range for request in requests]


def test_p6_p11_an_idle_file_gives_its_resources_back(server: FakeS3, large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "IDLE_SECONDS", 0.2)
    asked: list[int] = []
    ask = ChildProcess.ask

    def noted(child: ChildProcess, *question: Any, **options: Any) -> Any:
        asked.append(child.pid)
        return ask(child, *question, **options)

    monkeypatch.setattr(ChildProcess, "ask", noted)
    with opened_remote(server, large) as source:
        for number in (7, 8):
            asked.clear()
            assert (values(array(source, f"g{number}/d{number}")) == number).all()
            until(lambda: not source.file.data.memory.kept.used and source.file.supervisor.child is None)
            assert asked
            until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in asked))  # not even as a zombie


# ---- other versions


def test_p9_a_replaced_file_is_stale_for_open_readers_and_new_for_others(server: FakeS3, tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(500_000)
    with opened_remote(server, path) as source:
        old = array(source, "x")
        info = old.chunks.find((0,))
        with h5py.File(path, "w") as file:
            file["x"] = np.arange(500_000)[::-1]
        upload(server, path)
        with pytest.raises(Stale):  # the bytes are of another version, whatever is known about the file
            old.chunks.read_into((0,), info, memoryview(bytearray(old.metadata.chunk_bytes((0,)) or 0)))
        assert not old.current()
        np.testing.assert_array_equal(values(array(source, "x")), np.arange(500_000)[::-1])
        assert array(source, "x") is not old


def test_p9_a_file_replaced_between_two_blocks_is_never_mixed(server: FakeS3, tmp_path: Path, large: Path) -> None:
    other = write_large(tmp_path / "y.h5", "latest")
    asked = itertools.count()

    def fault(request: Request) -> Fault | None:
        if next(asked) == 4:
            server.put("remote/x.h5", other.read_bytes(), 2e9)
        return Fault(ignore_match=True)

    with opened_remote(server, large) as source:
        server.fault = fault
        for number in (5, 17, 399):
            try:
                found = values(array(source, f"g{number % 20}/d{number}"))
            except Stale:
                continue
            assert (found == number).all()
        assert server.objects["remote/x.h5"].data == other.read_bytes()
        server.fault = lambda request: None
        assert (values(array(source, "g17/d17")) == 17).all()


def write_version(path: Path, version: int) -> bytes:
    """40 datasets. An attribute and the values of each name the version of the file. They lie far apart."""
    with h5py.File(path, "w", libver=None if version else "latest") as file:
        for number in range(40):
            data = np.full(20_000, version)
            file.create_dataset(f"g{number % 4}/d{number}", data=data, chunks=(5_000,)).attrs["version"] = version
    return path.read_bytes()


@pytest.mark.parametrize("moment", [1, 2, 3, 4, 5])
def test_p9_a_file_replaced_at_any_request_is_never_mixed(server: FakeS3, tmp_path: Path, clock: Clock, moment: int) -> None:
    """The server ignores If-Match."""
    key = "remote/x.h5"
    later = write_version(tmp_path / "y.h5", 1)
    write_version(tmp_path / "x.h5", 0)
    asked = 0

    def fault(request: Request) -> Fault:
        nonlocal asked
        asked += bool(request.range)
        if asked == moment:
            server.put(key, later, 2e9)
        return Fault(ignore_match=True)

    with opened_remote(server, tmp_path / "x.h5") as source:
        server.fault = fault
        for number in range(40):
            try:
                found = array(source, f"g{number % 4}/d{number}")
                version = found.metadata.attributes["version"]
                assert (values(found) == version).all()
            except Stale:
                continue
        assert server.objects[key].data == later, asked
        clock.passes(1.1)  # the metadata's lifetime
        for number in (0, 39):
            found = array(source, f"g{number % 4}/d{number}")
            assert found.metadata.attributes["version"] == 1
            assert (values(found) == 1).all()


def test_p9_a_question_is_not_answered_from_a_version_that_another_reader_has_opened_meanwhile(
    server: FakeS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process took kept blocks of the old version for those of the new one that it had just opened."""
    write_version(tmp_path / "x.h5", 0)
    later = write_version(tmp_path / "y.h5", 1)
    raced = False
    ask = ChildProcess.ask

    def race(child: ChildProcess, question: dict[str, Any], *rest: Any, **options: Any) -> Any:
        nonlocal raced
        if question["op"] == "node" and not raced:
            raced = True
            server.put("remote/x.h5", later, 2e9)
            while True:
                with contextlib.suppress(Stale):
                    if source.file.current() is not old:
                        break
            source.file.ask({"op": "attribute_names", "path": []})
        return ask(child, question, *rest, **options)

    with opened_remote(server, tmp_path / "x.h5") as source:
        old = source.file.current()
        assert array(source, "g3/d39").metadata.attributes["version"] == 0
        source.file.supervisor.close()
        monkeypatch.setattr(ChildProcess, "ask", race)
        with contextlib.suppress(Stale):
            source.file.ask({"op": "node", "path": ["g3", "d39"]})
        assert raced
        answer, _, _ = source.file.ask({"op": "node", "path": ["g3", "d39"]})
        assert answer["attributes"]["version"] == 1


@pytest.mark.parametrize("first", [2, 5, 20, 100])
def test_p3_p8_a_server_that_fails_in_the_midst_of_a_walk(
    server: FakeS3, large: Path, impatient: Callable[[Fault], None], first: int
) -> None:
    """Nothing is left out of a listing because a prefetch for it failed."""
    impatient(Fault(status=503))
    with opened_remote(server, large) as source:
        asked = itertools.count()
        server.fault = lambda request: Fault(status=503) if request.range and next(asked) >= first else None
        with pytest.raises(Unreachable):
            list(everything(source.root))
        server.fault = lambda request: None
        assert sum(isinstance(found, HDF5Array) for _, found in everything(source.root)) == 401


def test_p3_p9_a_removed_file_is_stale_and_never_absent(server: FakeS3, large: Path, clock: Clock) -> None:
    with opened_remote(server, large) as source:
        del server.objects["remote/x.h5"]
        clock.passes(1.1)
        for name in ("g3/d3", "g3", "big"):
            with pytest.raises(Stale):
                node(source, name)
        upload(server, large)
        clock.passes(1.1)
        assert (values(array(source, "g3/d3")) == 3).all()


# ---- faults


def _table(source: HDF5Source) -> Any:
    return array(source, "big").chunks.count()


USES: dict[str, Callable[[HDF5Source], object]] = {
    "list": lambda source: names(node(source, "g5")),
    "table": _table,
    "chunk": lambda source: values(array(source, "g7/d7")),
}


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault(status=500), Unreachable),
        (Fault(status=503), Unreachable),
        (Fault(close=True), Unreachable),
        (Fault(truncate=100), Unreachable),
        (Fault(short=3), Unreachable),
        (Fault(stall=30.0), FsbridgeError),
        (Fault(stall=30.0, truncate=100), FsbridgeError),
        (Fault(status=403, body=b"<Error><Code>AccessDenied</Code></Error>"), AccessDenied),
        (Fault(status=400, body=b"<Error><Code>ExpiredToken</Code></Error>"), AccessDenied),
        (Fault(status=404, body=b"<Error><Code>NoSuchBucket</Code></Error>"), Unreachable),
        (Fault(status=404, body=b"<Error><Code>NoSuchKey</Code></Error>"), Stale),
        (Fault(status=200, body=b"<html>not what you want</html>"), FsbridgeError),
        (Fault(ignore_range=True), FsbridgeError),
    ],
    ids=str,
)
def test_p3_p7_p8_a_fault_that_stays_is_its_own_error_and_passes(
    server: FakeS3,
    large: Path,
    tmp_path: Path,
    impatient: Callable[[Fault], None],
    clock: Clock,
    fault: Fault,
    error: type[Exception],
) -> None:
    """It is never "no such file", damage or other bytes, and nothing of it is kept.

    Each use of a file of its own meets it, all at a time: each waits for several seconds.
    """
    impatient(fault)
    with contextlib.ExitStack() as opening:
        sources = {}
        for use in USES:
            os.link(large, tmp_path / f"{use}.h5")
            sources[use] = opening.enter_context(opened_remote(server, tmp_path / f"{use}.h5"))
        server.fault = lambda request: fault if request.range else None
        begun = time.monotonic()
        with ThreadPoolExecutor(len(USES)) as pool:
            raised = dict(zip(USES, pool.map(lambda use: error_of(USES[use], sources[use]), USES), strict=True))
        assert time.monotonic() - begun < 20
        server.fault = lambda request: None
        if error is Stale:
            clock.passes(1.1)
        for use, source in sources.items():
            assert isinstance(raised[use], error), use
            assert not isinstance(raised[use], (NotFound, CorruptData)), use
            recovered(partial(USES[use], source))
            recovered(lambda source=source: np.testing.assert_array_equal(values(array(source, "g7/d7")), 7))  # type: ignore[misc]


def error_of(use: Callable[[HDF5Source], object], source: HDF5Source) -> FsbridgeError | None:
    try:
        use(source)
    except FsbridgeError as error:
        return error
    return None


def test_p7_a_slow_server_is_a_deadline_and_not_a_slow_child(
    server: FakeS3, large: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block comes, but all together they take longer than allowed. The next question is asked as usual."""
    with opened_remote(server, large) as source:
        monkeypatch.setattr(blocks, "AT_ONCE", 1)
        server.fault = lambda request: clock.passes(7.0)
        with pytest.raises(TimedOut):
            array(source, "big").chunks.array.file.ask({"op": "group", "path": ["g5"], "start": 0}, limit=1 << 22)
        server.fault = lambda request: None
        assert len(names(node(source, "g5"))) == 20


def test_p8_a_child_that_is_killed_is_started_again(server: FakeS3, large: Path) -> None:
    with opened_remote(server, large) as source:
        assert (values(array(source, "g7/d7")) == 7).all()
        assert source.file.supervisor.child is not None
        os.kill(source.file.supervisor.child.pid, signal.SIGKILL)
        assert (values(array(source, "g8/d8")) == 8).all()


def test_p4_the_child_opens_nothing(server: FakeS3, large: Path) -> None:
    with opened_remote(server, large) as source:
        _ = source.root.attributes()
        assert source.file.supervisor.child is not None
        assert set(held_by(source.file.supervisor.child.pid)) == {"/dev/null", "socket"}


# ---- other files


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """A file that leads to another beside it, in each way that HDF5 has."""
    path = tmp_path / "main.h5"
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = np.arange(10)
    (tmp_path / "raw.bin").write_bytes(np.arange(10).tobytes())
    with h5py.File(path, "w") as file:
        file["own/x"] = np.arange(10)[::-1]
        file["x"] = np.arange(10)[::-1]  # what HDF5 would take for the other file's data
        file["link"] = h5py.ExternalLink("other.h5", "/x")
        file["away"] = h5py.ExternalLink("/etc/passwd", "/x")
        file["up"] = h5py.ExternalLink("../../../x.h5", "/x")
        layout = h5py.VirtualLayout((10,), np.arange(10).dtype)
        layout[:] = h5py.VirtualSource("other.h5", "x", (10,))
        file.create_virtual_dataset("virtual", layout)
        file.create_dataset("external", (10,), "i8", external=[("raw.bin", 0, 80)])
    return path


def test_p4_what_lies_in_other_files_is_denied(server: FakeS3, tmp_path: Path, pair: Path) -> None:
    upload(server, tmp_path / "other.h5")
    upload(server, tmp_path / "raw.bin")
    with server.counted() as requests, opened_remote(server, pair) as source:
        assert set(names(source.root)) == {"away", "external", "link", "own", "up", "virtual", "x"}
        for name in ("link", "away", "up", "virtual", "external"):
            with pytest.raises(AccessDenied):
                node(source, name)
        np.testing.assert_array_equal(values(array(source, "own/x")), np.arange(10)[::-1])
    assert {request.key for request in requests} == {"remote/main.h5"}


def test_files_below_an_allowed_url_are_read(server: FakeS3, tmp_path: Path, pair: Path) -> None:
    upload(server, tmp_path / "other.h5")
    upload(server, tmp_path / "raw.bin")
    with opened_remote(server, pair, allow_external=("s3://bucket/remote",)) as source:
        for name in ("link", "virtual", "external"):
            np.testing.assert_array_equal(values(array(source, name)), np.arange(10), err_msg=name)
        for name in ("away", "up"):
            with pytest.raises(AccessDenied):
                node(source, name)
    del server.objects["remote/other.h5"]
    with opened_remote(server, pair, allow_external=("s3://bucket/remote",)) as source:
        assert "link" in names(source.root)
        with pytest.raises(CorruptData, match="an external link to something that is not there"):
            node(source, "link")


def test_p8_a_link_to_a_file_that_the_server_refuses_is_listed_and_hides_no_neighbour(
    server: FakeS3, tmp_path: Path, pair: Path
) -> None:
    """S3 refuses what is missing, too, if listing is not permitted."""
    upload(server, tmp_path / "raw.bin")
    server.fault = lambda request: Fault(status=403) if request.key == "remote/other.h5" else None
    with opened_remote(server, pair, allow_external=("s3://bucket/remote",)) as source:
        assert {"link", "own", "x"} <= set(names(source.root))
        with pytest.raises(AccessDenied):
            node(source, "link")


def write_detector(folder: Path) -> Path:
    """A master file over data files beside it: virtual datasets of many kinds of mapping, and raw files."""
    rng = np.random.default_rng(0)
    for number in range(3):
        with h5py.File(folder / f"run_{number}.h5", "w") as file:
            frames = rng.integers(0, 999, (4, 60, 70)).astype("<u2")
            file.create_dataset("entry/frames", data=frames, chunks=(1, 60, 70), compression="gzip")
            file["entry/alias"] = h5py.SoftLink("/entry/frames")
            file["entry/large"] = np.arange(300_000) + number
    (folder / "a.raw").write_bytes(b"head" + np.arange(1000, dtype=">f4").tobytes())
    (folder / "b.raw").write_bytes(np.arange(1000, 1500, dtype=">f4").tobytes())
    master = folder / "master.h5"
    with h5py.File(master, "w", libver="latest") as file:
        file["own"] = np.arange(70, dtype="<u2")
        every = h5py.VirtualLayout((14, 60, 70), "<u4")
        for number in range(3):
            every[4 * number : 4 * number + 4] = h5py.VirtualSource(f"run_{number}.h5", "entry/alias", (4, 60, 70))
        every[12, 7] = h5py.VirtualSource(file["own"])
        every[13] = h5py.VirtualSource("missing.h5", "entry/frames", (4, 60, 70))[0]
        file.create_virtual_dataset("every", every, fillvalue=7)
        strided = h5py.VirtualLayout((12, 30, 35), ">i4")
        for number in range(3):
            source = h5py.VirtualSource(f"run_{number}.h5", "entry/frames", (4, 60, 70))
            strided[number::3] = source[:, 1::2, ::2]
        file.create_virtual_dataset("strided", strided)
        large = h5py.VirtualLayout((3, 300_000), "<i8")
        for number in range(3):
            large[number] = h5py.VirtualSource(f"run_{number}.h5", "entry/large", (300_000,))
        file.create_virtual_dataset("large", large)
        raw = [("a.raw", 4, 4000), ("b.raw", 0, h5py.h5f.UNLIMITED)]
        file.create_dataset("raw", (40, 50), ">f4", external=raw)
    return master


def test_p12_data_in_other_files_are_those_that_h5py_reads(
    server: FakeS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mappings in parts, strided, converted, over soft links; a source that is missing; raw files that end too early."""
    monkeypatch.chdir(tmp_path)  # where h5py looks for raw files
    master = write_detector(tmp_path)
    for path in tmp_path.iterdir():
        upload(server, path)
    with opened_remote(server, master, allow_external=("s3://bucket/remote",)) as source, h5py.File(master) as file:
        for name in ("every", "strided", "large", "raw"):
            found = array(source, name)
            assert found.dataset.sources
            np.testing.assert_array_equal(values(found), file[name][()], err_msg=name)
    with opened(master, allow_external=(str(tmp_path),)) as local:
        np.testing.assert_array_equal(values(array(local, "every")), h5py.File(master)["every"][()])


def test_p9_data_in_other_files_are_of_one_version(server: FakeS3, tmp_path: Path, clock: Clock) -> None:
    master = write_detector(tmp_path)
    for path in tmp_path.iterdir():
        upload(server, path)
    with opened_remote(server, master, allow_external=("s3://bucket/remote",)) as source:
        old = array(source, "large")
        info = old.chunks.find((0, 0))
        assert (values(old)[1] == np.arange(300_000) + 1).all()
        with h5py.File(tmp_path / "run_1.h5", "r+") as file:
            file["entry/large"][...] = -1
        upload(server, tmp_path / "run_1.h5")
        clock.passes(1.1)  # the metadata's lifetime
        assert not old.current()
        with pytest.raises(Stale):
            old.chunks.read_into((0, 0), info, memoryview(bytearray(old.metadata.chunk_bytes((0, 0)) or 0)))
        new = array(source, "large")
        assert new.version != old.version
        assert (values(new)[1] == -1).all()


@pytest.mark.parametrize("name", ["every", "raw"])
@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault(status=503), Unreachable),
        (Fault(status=403, body=b"<Error><Code>AccessDenied</Code></Error>"), AccessDenied),
        (Fault(truncate=100), Unreachable),
    ],
    ids=str,
)
def test_p3_a_fault_of_another_file_is_no_hole(
    server: FakeS3,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    impatient: Callable[[Fault], None],
    name: str,
    fault: Fault,
    error: type[Exception],
) -> None:
    impatient(fault)
    monkeypatch.chdir(tmp_path)
    master = write_detector(tmp_path)
    for path in tmp_path.iterdir():
        upload(server, path)
    with opened_remote(server, master, allow_external=("s3://bucket/remote",)) as source, h5py.File(master) as file:
        server.fault = lambda request: None if request.key.endswith("master.h5") else fault
        with pytest.raises(error):
            values(array(source, name))
        server.fault = lambda request: None
        np.testing.assert_array_equal(values(array(source, name)), file[name][()])


def test_data_in_other_files_that_only_local_disks_have(server: FakeS3, tmp_path: Path) -> None:
    """Datasets that grow with their sources, and texts, are refused with a reason."""
    write_pattern(tmp_path / "part.h5", "run_%b.h5", "/x")
    with h5py.File(tmp_path / "text.h5", "w") as file:
        layout = h5py.VirtualLayout((2,), h5py.string_dtype())
        layout[:] = h5py.VirtualSource("other.h5", "x", (2,), h5py.string_dtype())
        file.create_virtual_dataset("v", layout)
    for name in ("part.h5", "text.h5"):
        with (
            opened_remote(server, tmp_path / name, allow_external=("s3://bucket/remote",)) as source,
            pytest.raises(Unsupported, match="local disks only"),
        ):
            node(source, "v")


def test_an_object_that_is_not_hdf5_is_refused(server: FakeS3, tmp_path: Path) -> None:
    for name, data in (
        ("empty.h5", b""),
        ("text.h5", b"text" * 100),
        ("cut.h5", write_rich(tmp_path / "x.h5").read_bytes()),
    ):
        (tmp_path / name).write_bytes(data[: len(data) // 2])
        with pytest.raises(FsbridgeError) as caught, opened_remote(server, tmp_path / name):
            pass
        assert not isinstance(caught.value, NotFound)
    store = remote_store(server)
    with pytest.raises(NotFound):
        open_hdf5(RemoteFile(store, Key("nothing.h5")), Config("x", "/nowhere"))


def test_small_chunks_next_to_each_other_come_together(server: FakeS3, large: Path) -> None:
    """The first of a megabyte by itself, with the second all of it; each is asked for once."""
    with opened_remote(server, large) as source:
        found = array(source, "big")
        assert found.chunks.count() == 2000
        with server.counted() as requests:
            np.testing.assert_array_equal(values(found), np.arange(400_000))
    ranges = [request.range for request in requests if request.range]
    assert len(ranges) <= 12, ranges


@pytest.mark.parametrize(
    "wanted",
    [
        *(None, {}, [], {"blocks": []}, {"blocks": [-1]}, {"blocks": [10**9]}, {"blocks": ["0"]}, {"blocks": [0] * 1000}),
        *({"files": found} for found in (None, [1], [""], ["x"] * 5000)),
        {"of": "s3://bucket/remote/x.h5", "blocks": [0]},
        {"of": 1},
        *({"data": found} for found in ([0], [0, 0], [0, 1 << 40], [1 << 40, 1], [-1, 1])),
    ],
    ids=str,
)
def test_p8_a_childs_questions_are_checked(server: FakeS3, large: Path, wanted: Any) -> None:
    version = RemoteFile(remote_store(server), upload(server, large))
    with pytest.raises(CorruptData, match="the HDF5 process"):
        version.open(version.look()).supply({"want": wanted}, Deadline(10))
