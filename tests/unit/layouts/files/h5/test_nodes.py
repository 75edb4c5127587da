"""Virtual HDF5 files of groups: how they are kept and renewed, in this process. Not here: what is in them."""

from __future__ import annotations

import gc
import io
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import h5py
import numpy as np
import pytest
import zarr
from fake_model import FakeArray, FakeGroup, fake_array
from fake_model import tree as fake_tree
from waiting import until

from fsbridge.config import Config
from fsbridge.decoded.cache import ChunkCache
from fsbridge.errors import Stale, TimedOut
from fsbridge.formats.open import open_source
from fsbridge.layouts import root_directory
from fsbridge.layouts.directories import PathDirectory
from fsbridge.layouts.files.arrays.made import Room
from fsbridge.layouts.files.arrays.open_array import OpenArray
from fsbridge.layouts.files.h5.making import Making
from fsbridge.layouts.files.h5.nodes import H5Files, H5Group, H5Handle, KeptLimits
from fsbridge.layouts.files.h5.twin import Opened, Part, Twin
from fsbridge.layouts.files.h5.walk import Walked
from fsbridge.layouts.files.h5.writing import WriterDied
from fsbridge.layouts.files.layout import Files
from fsbridge.model import Child, Node
from fsbridge.tree import Directory, File

PATIENCE = 60.0


def write_store(path: Path) -> Path:
    group = zarr.open_group(path / "s.zarr", mode="w", zarr_format=3).create_group("g0")
    for number in range(3):
        group.create_array(f"a{number}", shape=(4,), chunks=(4,), dtype="<i4")[...] = number
    return path / "s.zarr"


@contextmanager
def files_of(store: Path, files: tuple[str, ...] = ("npy",)) -> Iterator[Directory]:
    config = Config(str(store), "/mnt", layout="files", metadata_ttl=0.0, files=files)
    source = open_source(config.source, config)
    try:
        yield root_directory(source, config, ChunkCache(1 << 22))
    finally:
        source.close()


def open_file(root: Directory, name: bytes = b"s.h5") -> H5Group:
    """The file, looked up and waited for as the kernel's side does it."""
    file = cast(H5Group, root.lookup(name))
    if file.attrs().size is None:
        file.measure()
    return file


def read_content(file: H5Group) -> dict[str, list[int]]:
    """The elements of all datasets, by path."""
    handle, values = file.open(), dict[str, list[int]]()

    def read(path: str, thing: object) -> None:
        if isinstance(thing, h5py.Dataset):
            values[path] = thing[()].tolist()

    try:
        with h5py.File(io.BytesIO(bytes(handle.read(0, handle.size)))) as readable:
            readable.visititems(read)
            return values
    finally:
        handle.close()


@dataclass
class HookedGroup(FakeGroup):
    """A group that calls `before` when its members are listed, and when one is opened by its name."""

    before: Callable[[str], object] = str

    def children(self) -> Iterator[Child]:
        self.before("")
        yield from super().children()

    def child(self, name: str) -> Node:
        self.before(name)
        return super().child(name)


def hooked_tree(before: Callable[[str], object], deadline: float = PATIENCE) -> Directory:
    """A store with three arrays in such a group, `g0`."""
    arrays: dict[str, Node] = {f"a{number}": make_numbers(number) for number in range(3)}
    root = FakeGroup({"g0": HookedGroup(arrays, before=before)})
    return fake_tree(root, layout="files", read_deadline=deadline, files=("npy",))


def make_numbers(number: int) -> FakeArray:
    return fake_array(np.full(4, number, "<i4"), (4,))


def fail_once(wanted: str, error: Exception) -> Callable[[str], None]:
    errors = [error]

    def fail(name: str) -> None:
        if name == wanted and errors:
            raise errors.pop()

    return fail


def test_p7_a_file_that_takes_longer_than_one_request_is_ready_for_a_later(caplog: pytest.LogCaptureFixture) -> None:
    """Meanwhile nothing else in the directory waits."""
    go_on = threading.Event()
    root = hooked_tree(lambda name: name or go_on.wait(PATIENCE), deadline=0.1)
    caplog.set_level(logging.WARNING)
    for _ in range(2):  # the second one does not begin again
        with pytest.raises(TimedOut, match=r"fake\.h5 is still being made, with [0-9]+ groups and arrays so far"):
            open_file(root, b"fake.h5")
    assert root.lookup(b"fake.h5").attrs().size is None, "it is waited for as bytes are, not as names are"
    assert [entry.name for batch in root.entries() for entry in batch] == [b"g0", b"g0.json", b"store.json"]
    go_on.set()

    def is_ready() -> bool:
        try:
            return read_content(open_file(root, b"fake.h5"))["g0/a2"] == [2, 2, 2, 2]
        except TimedOut:
            return False

    until(is_ready, PATIENCE)
    assert sum("fake.h5 is ready: 5 groups and arrays" in message for message in caplog.messages) == 1
    assert not [record for record in caplog.records if record.levelno > logging.WARNING]


def test_p7_a_request_waits_for_less_than_its_deadline() -> None:
    waits = list[float]()

    class NotedMaking(Making):
        def wait(self, seconds: float) -> Walked:
            waits.append(seconds)
            raise TimedOut("later")

    files = H5Files(Config("s", "/mnt", read_deadline=10.0))
    file = files.find("s", lambda: NotedMaking("s.h5", lambda: Walked(Twin(0, (), ()), (), 0), Room(1)))
    with pytest.raises(TimedOut):
        file.measure()
    assert waits == [9.0]


def test_p3_failures_in_the_background_are_reported() -> None:
    """A waiting reader gets the error, and the next one tries again."""
    root = hooked_tree(fail_once("", WriterDied("no file today")))
    with pytest.raises(WriterDied, match="no file today"):
        open_file(root, b"fake.h5")
    assert read_content(open_file(root, b"fake.h5"))["g0/a1"] == [1, 1, 1, 1]


def test_p3_a_member_that_cannot_be_read_just_now_is_not_left_out() -> None:
    """The file would be without it for as long as nothing else changes."""
    root = hooked_tree(fail_once("a1", TimedOut("no answer")))
    with pytest.raises(TimedOut, match="no answer"):
        open_file(root, b"fake.h5")
    assert read_content(open_file(root, b"fake.h5"))["g0/a1"] == [1, 1, 1, 1]


class OtherArrays(FakeGroup):
    """A group with an array of each name that is asked for."""

    def child(self, name: str) -> Node:
        return make_numbers(0)

    def open_many(self, root: Directory) -> None:
        """Open so many new arrays that the mount keeps no others except those that something holds."""
        others = root.lookup(b"others")
        assert isinstance(others, Directory)
        for _ in range(256):
            self.attrs = {"opened": (opened := int(str(self.attrs.get("opened", 0)))) + 1}
            others.lookup(b"a%d.npy" % opened)


def test_p6_a_large_file_holds_no_arrays() -> None:
    """They are opened again when they are read, and few stay open."""
    others, arrays = OtherArrays({}), {f"a{number}": make_numbers(number) for number in range(18)}
    root = fake_tree(FakeGroup({"g": FakeGroup({**arrays}), "others": others}), layout="files")

    def count_alive() -> int:
        others.open_many(root)
        gc.collect()
        return sum(isinstance(thing, OpenArray) and thing.names[0] == "g" for thing in gc.get_objects())

    making = open_file(root, b"g.h5").making
    assert count_alive() == 0
    files = H5Files(Config("s", "/mnt"), KeptLimits(arrays=4, readers=2))
    file = files.find("g", lambda: making)
    assert read_content(file) == {f"a{number}": [number] * 4 for number in range(18)}
    assert 0 < count_alive() <= 4 + 2
    later = files.find("g", lambda: pytest.fail("made again"))
    assert later.version != file.version, "what was read and forgotten may have changed"
    assert later.walked is file.walked


def test_p9_an_array_that_was_forgotten_meanwhile_is_the_same_or_stale() -> None:
    """Few of very many arrays stay known; a reader that goes on in an open file must not get another version."""
    others, arrays = OtherArrays({}), {f"a{number}": make_numbers(number) for number in range(8)}
    root = fake_tree(FakeGroup({"g": FakeGroup({**arrays}), "others": others}), layout="files")
    file = H5Group(open_file(root, b"g.h5").making, PATIENCE, KeptLimits(arrays=2, readers=1))
    handle, parts = file.open(), file.walked.twin.parts

    def read(part: Part) -> bytes:
        try:
            return bytes(handle.read(part.start, part.stop - part.start))
        except Stale:
            return b"stale"

    first = [read(part) for part in parts]
    others.open_many(root)
    assert [read(part) for part in parts] == first
    for name in ("a1", "a6"):
        arrays[name].chunks.stored[0,] = np.arange(4, dtype="<i4").tobytes()
        arrays[name].chunks.version += 1
    others.open_many(root)
    later = [read(part) for part in parts]
    assert [number for number, content in enumerate(later) if content == b"stale"] == [1, 6]
    assert [one for one in later if one != b"stale"] == [first[number] for number in (0, 2, 3, 4, 5, 7)]
    handle.close()


@dataclass
class TwoReaders:
    """Two readers of a file that keeps one array; arrays `a`, `b` and `c` have two chunks, of four ones each."""

    store: Path
    root: Directory
    one: H5Handle
    another: H5Handle
    start: int
    """Where the elements of `a` begin in the file."""
    other_start: int

    def forget(self) -> None:
        """Read another array, so that `a` is forgotten."""
        self.one.read(self.other_start, 4)

    def change(self, first: int, stop: int) -> None:
        zarr.open_array(self.store / "g/a", mode="r+")[first:stop] = 2


@pytest.fixture
def readers(tmp_path: Path) -> Iterator[TwoReaders]:
    store = tmp_path / "s.zarr"
    group = zarr.open_group(store, mode="w", zarr_format=3).create_group("g")
    for name in "abc":
        group.create_array(name, shape=(8,), chunks=(4,), dtype="<i4")[...] = 1
    with files_of(store) as root:
        file = H5Group(open_file(root).making, PATIENCE, KeptLimits(arrays=1))
        starts = {part.open().array.name: part.start for part in file.walked.twin.parts}
        one, another = file.open(), file.open()
        yield TwoReaders(store, root, one, another, starts["a"], starts["b"])
        one.close()
        another.close()


def read_numbers_or_stale(handle: H5Handle, start: int) -> list[int]:
    """Two of them, or none."""
    try:
        return [int(number) for number in np.frombuffer(handle.read(start, 8), "<i4")]
    except Stale:
        return []


def test_p9_all_readers_of_an_open_file_get_one_version_of_a_forgotten_array(readers: TwoReaders) -> None:
    """They share the kernel's pages: half a chunk of one version must not meet the other half of another one."""
    one, another, start = readers.one, readers.another, readers.start
    one.read(start, 4)
    readers.forget()
    assert read_numbers_or_stale(one, start + 16) == [1, 1]
    readers.forget()
    readers.change(4, 8)
    assert read_numbers_or_stale(another, start + 24) == []
    assert read_numbers_or_stale(one, start + 24) in ([], [1, 1])


def test_p9_an_array_that_had_changed_when_it_was_forgotten_is_stale(readers: TwoReaders) -> None:
    """Also where another file of it had noticed the change before, and had read nothing of what is there now."""
    one, another, start = readers.one, readers.another, readers.start
    assert read_numbers_or_stale(one, start) == [1, 1]
    readers.change(0, 4)
    group = cast(Directory, readers.root.lookup(b"g"))
    for _ in range(2):
        try:
            cast(File, group.lookup(b"a.npy")).open().close()
        except Stale:
            continue
    readers.forget()
    assert read_numbers_or_stale(another, start + 8) == []
    assert read_numbers_or_stale(one, start + 8) in ([], [1, 1])


def test_p9_changed_elements_need_pages_of_their_own_and_no_new_skeleton(tmp_path: Path) -> None:
    store = write_store(tmp_path)
    with files_of(store) as root:
        file = open_file(root)
        assert read_content(file)["g0/a1"] == [1, 1, 1, 1]
        assert open_file(root) is file
        handle = file.open()
        zarr.open_array(store / "g0/a1", mode="r+")[...] = np.arange(4) + 7
        later = open_file(root)
        assert later.version != file.version
        assert later.walked is file.walked
        assert read_content(later)["g0/a1"] == [7, 8, 9, 10]
        handle.close()


def test_p9_changed_metadata_need_another_skeleton(tmp_path: Path) -> None:
    store = write_store(tmp_path)
    with files_of(store) as root:
        file = open_file(root)
        zarr.open_group(store, mode="a")["g0/a1"].attrs["new"] = 1
        changed = open_file(root)
        assert changed.walked is not file.walked
        zarr.open_group(store, mode="a").create_group("more")
        assert open_file(root).walked is not changed.walked


def test_the_whole_store_has_a_second_name_where_a_member_has_its_first(tmp_path: Path) -> None:
    """`s.zarr` with a group `s`: `s.h5` is the group's, `s.zarr.h5` the store's."""
    store = write_store(tmp_path)
    with files_of(store) as root:
        assert read_content(open_file(root, b"s.zarr.h5")).keys() == {"g0/a0", "g0/a1", "g0/a2"}
    zarr.open_group(store, mode="a").create_group("s/inner").create_array("a", shape=(1,), chunks=(1,), dtype="<i4")[...] = 5
    with files_of(store, ("h5",)) as root:
        assert read_content(open_file(root)) == {"inner/a": [5]}
        assert set(read_content(open_file(root, b"s.zarr.h5"))) == {"g0/a0", "g0/a1", "g0/a2", "s/inner/a"}
        names = [entry.name for batch in root.entries() for entry in batch]
        assert sorted(names) == [*(b"g0", b"g0.h5", b"g0.json", b"s", b"s.h5", b"s.json", b"s.zarr.h5", b"store.json")]


def test_p7_closing_does_not_wait_for_an_open_in_a_store_that_hangs(tmp_path: Path) -> None:
    """It is done on the event loop: the whole mount would hang."""
    go_on, is_opening, is_closed = threading.Event(), threading.Event(), threading.Event()
    with files_of(write_store(tmp_path)) as root:
        file = open_file(root)
        part, opened = file.walked.twin.parts[0], list[Opened]()

        def hang(part: Part) -> Opened:
            is_opening.set()
            assert go_on.wait(PATIENCE)
            opened.append(part.open())
            return opened[0]

        def close() -> None:
            handle.close()
            is_closed.set()

        handle = H5Handle(file.walked.twin, file.version, hang, lambda part: opened[0])
        reader = threading.Thread(target=handle.read, args=(part.start, 4), daemon=True)
        reader.start()
        assert is_opening.wait(PATIENCE)
        threading.Thread(target=close, daemon=True).start()
        assert is_closed.wait(5.0)
        go_on.set()
        reader.join(PATIENCE)
        assert handle.peek(part.start, 4) is None, "the late reader has closed its array"


def test_p11_an_array_that_was_not_read_for_long_is_closed(tmp_path: Path) -> None:
    """Its decoded chunks, which the cache cannot hold, leave the disk."""
    rows, chunks, chunk_bytes = 2, 16, 8192
    values = np.ones((rows, chunks * chunk_bytes // rows // 4), "<i4")
    group = FakeGroup({f"a{number}": fake_array(values, (rows, chunk_bytes // rows // 4)) for number in range(5)})
    root = fake_tree(group, layout="files", cache_size=4 * chunk_bytes, spill_dir=str(tmp_path))
    spill = cast(Files, cast(PathDirectory, root).layout).tree.spill
    file = H5Group(open_file(root, b"fake.h5").making, PATIENCE, KeptLimits(readers=2))
    handle, held = file.open(), list[object]()
    for part in file.walked.twin.parts:
        handle.read(part.start, 4)
        held += handle._sources.values()  # so that nothing is closed for being dropped
    until(lambda: spill.limit - spill.free == 2 * chunks * chunk_bytes)
    handle.close()
    until(lambda: spill.free == spill.limit)
