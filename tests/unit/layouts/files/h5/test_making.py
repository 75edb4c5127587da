"""Virtual HDF5 files of groups: how they are made, kept and renewed, in this process. Not here: what is in them."""

from __future__ import annotations

import gc
import io
import logging
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, cast

import h5py
import numpy as np
import pytest
import zarr
from waiting import until

from fsbridge.config import Config
from fsbridge.decoded.cache import ChunkCache
from fsbridge.errors import FsbridgeError, Stale, TimedOut
from fsbridge.formats.open import open_source
from fsbridge.formats.zarr3 import Zarr3Hierarchy
from fsbridge.layouts import root_directory
from fsbridge.layouts.files.arrays import made as made_files
from fsbridge.layouts.files.arrays.element_bytes import ElementBytes
from fsbridge.layouts.files.arrays.made import Room
from fsbridge.layouts.files.arrays.open_array import OpenArray
from fsbridge.layouts.files.h5 import nodes
from fsbridge.layouts.files.h5.making import FILES_AT_A_TIME, Making
from fsbridge.layouts.files.h5.nodes import H5Group, H5Handle
from fsbridge.layouts.files.h5.twin import Opened, Part, Twin
from fsbridge.layouts.files.h5.walk import Walked
from fsbridge.layouts.files.h5.writing import Answer, Batch, SkeletonWriter
from fsbridge.metadata import JSON
from fsbridge.model import Array, Group
from fsbridge.store import Key
from fsbridge.tree import Directory

PATIENCE = 60.0


def written(path: Path, groups: int = 1, arrays: int = 3) -> Path:
    store = zarr.open_group(path / "s.zarr", mode="w", zarr_format=3)
    for i in range(groups):
        group = store.create_group(f"g{i}")
        for j in range(arrays):
            group.create_array(f"a{j}", shape=(4,), chunks=(4,), dtype="<i4")[...] = 10 * i + j
    return path / "s.zarr"


@contextmanager
def opened(
    store: Path, deadline: float = PATIENCE, ttl: float = 0.0, files: tuple[str, ...] = ("npy",)
) -> Iterator[Directory]:
    config = Config(str(store), "/mnt", layout="files", read_deadline=deadline, metadata_ttl=ttl, files=files)
    source = open_source(config.source, config)
    try:
        yield root_directory(source, config, ChunkCache(1 << 22))
    finally:
        source.close()


def found(root: Directory, name: bytes = b"s.h5") -> H5Group:
    """The file, looked up and waited for as the kernel's side does it."""
    file = cast(H5Group, root.lookup(name))
    if file.attrs().size is None:
        file.measure()
    return file


def content(file: H5Group) -> dict[str, list[int]]:
    handle = file.open()
    try:
        with h5py.File(io.BytesIO(bytes(handle.read(0, handle.size)))) as shown:
            pairs = [(f"{group}/{name}", shown[group][name]) for group in shown for name in shown[group]]
            return {name: found[()].tolist() if isinstance(found, h5py.Dataset) else [] for name, found in pairs}
    finally:
        handle.close()


def test_p7_a_file_that_takes_longer_than_a_request_may_is_there_for_a_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Meanwhile nothing else in the directory waits."""
    go, real = threading.Event(), SkeletonWriter.finish

    def late(self: SkeletonWriter, last: Batch, end: Mapping[str, JSON]) -> Answer:
        assert go.wait(PATIENCE)
        return real(self, last, end)

    monkeypatch.setattr(SkeletonWriter, "finish", late)
    caplog.set_level(logging.WARNING)
    with opened(written(tmp_path), deadline=0.1) as root:
        for _ in range(2):  # the second one does not begin again
            with pytest.raises(TimedOut, match=r"s\.h5 is still being made, with [0-9]+ groups and arrays so far"):
                found(root)
        assert root.lookup(b"s.h5").attrs().size is None, "it is waited for as bytes are, not as names are"
        assert [entry.name for batch in root.entries() for entry in batch] == [b"g0", b"g0.json", b"store.json"]
        go.set()

        def ready() -> bool:
            try:
                return content(found(root))["g0/a2"] == [2, 2, 2, 2]
            except TimedOut:
                return False

        until(ready, PATIENCE)
    assert sum("s.h5 is ready: 5 groups and arrays" in message for message in caplog.messages) == 1
    assert not [record for record in caplog.records if record.levelno > logging.WARNING]


def test_p3_failures_in_the_background_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiting reader gets the error, and the next one tries again."""

    def fails(self: SkeletonWriter, last: Batch, end: Mapping[str, JSON]) -> Answer:
        raise FsbridgeError("no file today")

    with opened(written(tmp_path)) as root:
        with monkeypatch.context() as patched:
            patched.setattr(SkeletonWriter, "finish", fails)
            with pytest.raises(FsbridgeError, match="no file today"):
                found(root)
        assert content(found(root))["g0/a1"] == [1, 1, 1, 1]


def test_p3_a_member_that_cannot_be_read_just_now_is_not_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file would be without it for as long as nothing else changes."""
    open_it = Zarr3Hierarchy.open

    def busy(self: Zarr3Hierarchy, key: Key) -> Group | Array:
        if key == "g0/a1":
            raise TimedOut("no answer")
        return open_it(self, key)

    with opened(written(tmp_path), ttl=60.0) as root:
        with monkeypatch.context() as patched:
            patched.setattr(Zarr3Hierarchy, "open", busy)
            with pytest.raises(TimedOut):
                found(root)
        assert content(found(root))["g0/a1"] == [1, 1, 1, 1]


def test_p11_a_failure_in_the_background_keeps_nothing_of_its_waiting_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them raises an error of its own: one that all raise holds the frames of all."""

    class Held:
        """Anything that a waiting caller holds: a descriptor, a buffer."""

    def fails(*_: object) -> NoReturn:
        raise FsbridgeError("no file today")

    def met(wait: Callable[[], object]) -> weakref.ref[Held]:
        held = Held()
        with pytest.raises(FsbridgeError, match="no file today"):
            wait()
        return weakref.ref(held)

    monkeypatch.setattr(SkeletonWriter, "_started", fails)
    making, writer = Making("s.h5", fails, Room(FILES_AT_A_TIME)), SkeletonWriter()
    writer.begin()
    last: Batch = []
    for wait in (lambda: making.wait(PATIENCE), lambda: writer.finish(last, {}), lambda: writer.send(last)):
        held = met(wait)
        gc.collect()  # pytest's own notes of the error are a cycle
        assert held() is None
    writer.close()


def test_p6_a_large_file_holds_no_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are opened again when they are read, and few stay open."""
    monkeypatch.setattr("fsbridge.layouts.files.arrays.open_array._KEPT_ARRAYS", 2)
    monkeypatch.setattr(nodes, "_READ_PARTS", 4)
    monkeypatch.setattr(nodes, "_OPEN_PARTS", 2)

    def alive() -> int:
        gc.collect()
        return sum(isinstance(thing, OpenArray) for thing in gc.get_objects())

    with opened(written(tmp_path, groups=3, arrays=6)) as root:
        before = alive()
        file = found(root)
        assert alive() - before <= 2
        assert content(file) == {f"g{i}/a{j}": [10 * i + j] * 4 for i in range(3) for j in range(6)}
        assert alive() - before <= 4 + 2
        assert found(root).version != file.version  # what was read and forgotten may have changed
        assert found(root).walked is file.walked


def test_p9_an_array_that_was_forgotten_meanwhile_is_the_same_or_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few of very many arrays stay known; a reader that goes on in an open file must not get another version."""
    monkeypatch.setattr("fsbridge.layouts.files.arrays.open_array._KEPT_ARRAYS", 2)
    monkeypatch.setattr(nodes, "_READ_PARTS", 2)
    monkeypatch.setattr(nodes, "_OPEN_PARTS", 1)
    store = written(tmp_path, groups=2, arrays=4)
    with opened(store) as root:
        handle = found(root).open()
        parts = handle._twin.parts
        first = [bytes(handle.read(part.start, part.stop - part.start)) for part in parts]
        assert [bytes(handle.read(part.start, part.stop - part.start)) for part in parts] == first
        for path in ("g0/a1", "g1/a2"):
            zarr.open_group(store, mode="a")[path][...] = np.arange(4) + 77
        seen = 0
        for part, before in zip(parts, first, strict=True):
            try:
                assert bytes(handle.read(part.start, part.stop - part.start)) == before
            except Stale:
                seen += 1
        assert seen == 2
        handle.close()


def of_two_chunks(path: Path) -> Path:
    """Arrays of two chunks each, of four numbers."""
    group = zarr.open_group(path / "s.zarr", mode="w", zarr_format=3).create_group("g")
    for name in "abc":
        group.create_array(name, shape=(8,), chunks=(4,), dtype="<i4")[...] = 1
    return path / "s.zarr"


def part_of(file: H5Group, name: str) -> Part:
    return next(part for part in file.walked.twin.parts if part.open().array.name == name)


def numbers_or_stale(handle: H5Handle, start: int) -> list[int]:
    """Two of them, or none."""
    try:
        return cast("list[int]", np.frombuffer(handle.read(start, 8), "<i4").tolist())
    except Stale:
        return []


def test_p9_all_readers_of_an_open_file_get_one_version_of_a_forgotten_array(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They share the kernel's pages: half a chunk of one version must not meet the other half of another one."""
    monkeypatch.setattr(nodes, "_READ_PARTS", 1)
    store = of_two_chunks(tmp_path)
    with opened(store) as root:
        file = found(root)
        part, other = part_of(file, "a"), part_of(file, "b")
        one, another = file.open(), file.open()
        one.read(part.start, 4)
        one.read(other.start, 4)  # the first array is forgotten
        assert numbers_or_stale(one, part.start + 16) == [1, 1]
        one.read(other.start, 4)
        zarr.open_group(store, mode="a")["g/a"][4:] = 2
        assert numbers_or_stale(another, part.start + 24) == []
        assert numbers_or_stale(one, part.start + 24) in ([], [1, 1])
        one.close()
        another.close()


def test_p9_an_array_that_had_changed_when_it_was_forgotten_is_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where another file of it had noticed the change before, and had read nothing of what is there now."""
    monkeypatch.setattr(nodes, "_READ_PARTS", 1)
    store = of_two_chunks(tmp_path)
    with opened(store) as root:
        file = found(root)
        part, other = part_of(file, "a"), part_of(file, "b")
        one, another = file.open(), file.open()
        assert numbers_or_stale(one, part.start) == [1, 1]
        zarr.open_group(store, mode="a")["g/a"][:4] = 2
        group = cast(Directory, root.lookup(b"g"))
        for _ in range(2):
            try:
                group.lookup(b"a.npy").open().close()
            except Stale:
                continue
        one.read(other.start, 4)  # the first array is forgotten
        assert numbers_or_stale(another, part.start + 8) == []
        assert numbers_or_stale(one, part.start + 8) in ([], [1, 1])
        one.close()
        another.close()


def test_p9_changed_elements_need_pages_of_their_own_and_no_new_skeleton(tmp_path: Path) -> None:
    store = written(tmp_path)
    with opened(store) as root:
        file = found(root)
        assert content(file)["g0/a1"] == [1, 1, 1, 1]
        assert found(root) is file
        handle = file.open()
        zarr.open_group(store, mode="a")["g0/a1"][...] = np.arange(4) + 7
        later = found(root)
        assert later.version != file.version
        assert later.walked is file.walked
        assert content(later)["g0/a1"] == [7, 8, 9, 10]
        handle.close()


def test_p9_changed_metadata_need_another_skeleton(tmp_path: Path) -> None:
    store = written(tmp_path)
    with opened(store) as root:
        file = found(root)
        zarr.open_group(store, mode="a")["g0/a1"].attrs["new"] = 1
        changed = found(root)
        assert changed.walked is not file.walked
        zarr.open_group(store, mode="a").create_group("more")
        assert found(root).walked is not changed.walked


def test_the_whole_store_has_a_second_name_where_a_member_has_its_first(tmp_path: Path) -> None:
    """`s.zarr` with a group `s`: `s.h5` is the group's, `s.zarr.h5` the store's."""
    store = written(tmp_path)
    with opened(store) as root:
        assert content(found(root, b"s.zarr.h5")).keys() == {"g0/a0", "g0/a1", "g0/a2"}
    zarr.open_group(store, mode="a").create_group("s/inner").create_array("a", shape=(1,), chunks=(1,), dtype="<i4")[...] = 5
    with opened(store, files=("h5",)) as root:
        assert content(found(root)) == {"inner/a": [5]}
        assert set(content(found(root, b"s.zarr.h5"))) == {"g0/a0", "g0/a1", "g0/a2", "s/inner"}
        names = [entry.name for batch in root.entries() for entry in batch]
        assert sorted(names) == [*(b"g0", b"g0.h5", b"g0.json", b"s", b"s.h5", b"s.json", b"s.zarr.h5", b"store.json")]


def test_p7_a_second_request_waits_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel asks for nothing else in a directory while a look-up waits."""
    go, waits = threading.Event(), []
    real = threading.Event.wait

    def wait(self: threading.Event, timeout: float | None = None) -> bool:
        plain = type(self) is threading.Event  # the starter of a thread waits for another kind
        if plain and timeout is not None and threading.current_thread() is threading.main_thread():
            waits.append(timeout)
            return False
        return real(self, timeout)

    def late(self: SkeletonWriter, last: Batch, end: Mapping[str, JSON]) -> Answer:
        assert go.wait()
        raise FsbridgeError("never mind")

    monkeypatch.setattr(SkeletonWriter, "finish", late)
    with opened(written(tmp_path), deadline=10.0) as root:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Event, "wait", wait)
            for _ in range(2):
                with pytest.raises(TimedOut):
                    found(root)
        go.set()
    assert waits == [9.0, 0.5]


def test_p7_closing_does_not_wait_for_an_open_in_a_store_that_hangs(tmp_path: Path) -> None:
    """It is done on the event loop: the whole mount would hang."""
    goes_on, entered, over = threading.Event(), threading.Event(), threading.Event()
    with opened(written(tmp_path)) as root:
        handle = found(root).open()
        really = handle._open

        def hangs(part: Part) -> Opened:
            entered.set()
            assert goes_on.wait(PATIENCE)
            return really(part)

        handle._open = hangs
        reader = threading.Thread(target=handle.read, args=(handle._twin.parts[0].start, 4), daemon=True)
        reader.start()
        assert entered.wait(PATIENCE)
        threading.Thread(target=lambda: (handle.close(), over.set()), daemon=True).start()
        closed = over.wait(5.0)
        goes_on.set()
        reader.join(PATIENCE)
        assert closed
        assert not handle._sources, "a late opener has closed its array"


def test_p11_an_array_that_was_not_read_for_long_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[ElementBytes] = []
    monkeypatch.setattr(ElementBytes, "close", lambda self: closed.append(self))
    monkeypatch.setattr(nodes, "_OPEN_PARTS", 2)
    with opened(written(tmp_path, arrays=5)) as root:
        handle = found(root).open()
        handle.read(0, handle.size)
        assert len(closed) == 3
        handle.close()
        assert len(set(closed)) == 5


def test_p7_files_of_stores_that_hang_do_not_stop_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made_files, "STALLED_SECONDS", 0.1)
    goes_on, made = threading.Event(), Walked(Twin(0, (), ()), (), 0)

    def hangs() -> Walked:
        assert goes_on.wait(PATIENCE)
        return made

    room = Room(FILES_AT_A_TIME)
    hung = [Making(f"hung{number}.h5", hangs, room) for number in range(3)]
    try:
        assert Making("healthy.h5", lambda: made, room).wait(10.0) is made
    finally:
        goes_on.set()
    assert [one.wait(PATIENCE) for one in hung] == [made] * 3
