"""HDF5 files on a server: values, versions, faults as errors (P3, P7, P9). Not here: requests (`test_blocks.py`)."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from fake_s3 import FakeS3, Fault, Request, recovered
from hdf5_children import watched
from hdf5_files import foreign_files, write_pattern
from hdf5_model import array, everything, node, opened, values
from nwb_data import unpack
from observing import held_by
from paths import DATA
from remote_hdf5 import opened_remote, remote_store, upload
from remote_hdf5_files import assert_same_as_local, names, write_large, write_rich
from remote_stores import impatient
from waiting import Clock

from fsbridge.children.client import ChildProcess
from fsbridge.config import Config
from fsbridge.errors import AccessDenied, CorruptData, FsbridgeError, NotFound, Stale, TimedOut, Unreachable, Unsupported
from fsbridge.formats.hdf5.arrays import HDF5Array
from fsbridge.formats.hdf5.blocks import BlockLimits, BlockMemory
from fsbridge.formats.hdf5.remote import RemoteFile
from fsbridge.formats.hdf5.source import HDF5Source, open_hdf5
from fsbridge.formats.shared import Shared
from fsbridge.store import Key
from fsbridge.threads.deadlines import Deadline


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


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


def test_p9_a_question_about_one_version_is_not_answered_from_a_newer_one(server: FakeS3, tmp_path: Path) -> None:
    """The process took kept blocks of the old version for those of the new one that it had just opened."""
    write_version(tmp_path / "x.h5", 0)
    later = write_version(tmp_path / "y.h5", 1)
    has_begun = raced = False

    def race(child: ChildProcess, question: dict[str, Any]) -> None:
        nonlocal raced
        if has_begun and question["op"] == "node" and not raced:
            raced = True
            server.put("remote/x.h5", later, 2e9)
            while True:
                with contextlib.suppress(Stale):
                    if source.file.current() is not old:
                        break
            source.file.ask({"op": "attribute_names", "path": []})

    with opened_remote(server, tmp_path / "x.h5", watched(before=race)) as source:
        old = source.file.current()
        assert array(source, "g3/d39").metadata.attributes["version"] == 0
        source.file.supervisor.close()
        has_begun = True
        with contextlib.suppress(Stale):
            source.file.ask({"op": "node", "path": ["g3", "d39"]})
        assert raced
        answer, _, _ = source.file.ask({"op": "node", "path": ["g3", "d39"]})
        assert answer["attributes"]["version"] == 1


@pytest.mark.parametrize("first", [2, 5, 20, 100])
def test_p3_p8_a_server_that_fails_during_a_walk_hides_nothing(server: FakeS3, large: Path, first: int) -> None:
    """Nothing is left out of a listing because a prefetch for it failed."""
    with opened_remote(server, large, limits=impatient(Fault(status=503))) as source:
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
    clock: Clock,
    fault: Fault,
    error: type[Exception],
) -> None:
    """It is never "no such file", damage or other bytes, and nothing of it is kept.

    Each use of a file of its own meets it, all at a time: each waits for several seconds.
    """
    limits = impatient(fault)
    with contextlib.ExitStack() as opening:
        sources = {}
        for use in USES:
            os.link(large, tmp_path / f"{use}.h5")
            sources[use] = opening.enter_context(opened_remote(server, tmp_path / f"{use}.h5", limits=limits))
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
            recovered(partial(read_one, source))


def read_one(source: HDF5Source) -> None:
    np.testing.assert_array_equal(values(array(source, "g7/d7")), 7)


def error_of(use: Callable[[HDF5Source], object], source: HDF5Source) -> FsbridgeError | None:
    try:
        use(source)
    except FsbridgeError as error:
        return error
    return None


def test_p7_a_slow_server_is_a_deadline_and_not_a_slow_child(server: FakeS3, large: Path, clock: Clock) -> None:
    """Each block comes, but all together they take longer than allowed. The next question is asked as usual."""
    with opened_remote(server, large, Shared(BlockMemory(BlockLimits(at_once=1)))) as source:
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


def test_p8_a_link_to_a_refused_file_is_listed_and_hides_no_neighbour(server: FakeS3, tmp_path: Path, pair: Path) -> None:
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
    name: str,
    fault: Fault,
    error: type[Exception],
) -> None:
    monkeypatch.chdir(tmp_path)
    master = write_detector(tmp_path)
    for path in tmp_path.iterdir():
        upload(server, path)
    remote = opened_remote(server, master, limits=impatient(fault), allow_external=("s3://bucket/remote",))
    with remote as source, h5py.File(master) as file:
        server.fault = lambda request: None if request.key.endswith("master.h5") else fault
        with pytest.raises(error):
            values(array(source, name))
        server.fault = lambda request: None
        np.testing.assert_array_equal(values(array(source, name)), file[name][()])


def test_data_in_other_files_of_a_server_are_refused_with_a_reason(server: FakeS3, tmp_path: Path) -> None:
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
