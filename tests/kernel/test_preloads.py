"""Chunks that are put into the kernel's page cache before their reader comes: when that may be done, and that it is done."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import mmap
import os
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio
import zarr
from conftest import MountFunction
from fake_tree import FakeFile
from waiting import until

from fsbridge.errors import TimedOut
from fsbridge.kernel import pages as page_versions
from fsbridge.kernel import preloads
from fsbridge.kernel.handles import OpenFile
from fsbridge.kernel.inodes import InodeTable
from fsbridge.kernel.jobs import Jobs
from fsbridge.kernel.pages import Caching, PageVersions
from fsbridge.kernel.preloads import END_BYTES, END_EVERY, LEAST_BYTES, NEAR_BYTES, SMALL_BYTES, SMALL_END_EVERY, Preloads
from fsbridge.tree import PAGE_BYTES, Unsettled

KEPT, EMPTIED = Caching(keep=True, direct=False), Caching(keep=False, direct=False)
SIZE = 3 << 20
CHUNKS = 8


def test_a_preloaded_version_is_kept_by_the_next_open_and_another_is_not() -> None:
    for version, caching in (("v", KEPT), ("w", EMPTIED)):
        pages = PageVersions()
        given = pages.preload(7, "v")
        assert given is not None
        assert not given.empty
        assert not pages.preloaded(given, complete=True)
        assert pages.opened(7, version) == caching


def test_nothing_is_preloaded_while_the_file_is_open_nor_over_another_version() -> None:
    pages = PageVersions()
    pages.opened(7, "v")
    assert pages.preload(7, "v") is None
    pages.closed(7, "v")
    assert pages.preload(7, "w") is None
    given = pages.preload(7, "v")
    assert given is not None
    assert pages.preload(7, "v") is None, "one at a time"
    pages.preloaded(given, complete=True)
    assert pages.opened(7, "v") == KEPT


def test_an_incomplete_preload_is_emptied_by_the_next_open() -> None:
    pages = PageVersions()
    given = pages.preload(7, "v")
    assert given is not None
    pages.preloaded(given, complete=False)
    assert pages.preload(7, "v") is None
    assert pages.opened(7, "v") == EMPTIED


def test_what_the_kernel_does_not_know_is_not_remembered() -> None:
    pages = PageVersions()
    for inode in (7, 8):
        given = pages.preload(inode, "v")
        assert given is not None
        if inode == 8:
            pages.forget(inode)
        pages.preloaded(given, complete=inode == 8, known=inode == 8)
    assert len(pages) == 0
    assert not pages._dropped
    again = pages.preload(8, "v")
    assert again is not None
    assert again.empty, "the kernel may have dropped one reference of several"


def test_pages_that_may_hold_a_forgotten_version_are_emptied_first() -> None:
    pages = PageVersions(remembered=1)
    for inode in (7, 8):
        pages.opened(inode, "v")
        pages.closed(inode, "v")
    forgotten, remembered = pages.preload(7, "v"), pages.preload(8, "v")
    assert forgotten is not None
    assert forgotten.empty
    assert remembered is not None
    assert not remembered.empty


def test_an_open_fills_pages_that_are_known_to_be_empty_and_no_others() -> None:
    def refuse() -> None:
        raise OSError(errno.EINVAL, "no")

    pages = PageVersions(remembered=2)
    stored: list[str] = []
    assert pages.fill(7, "v", lambda: stored.append("first"))
    assert not pages.fill(7, "v", lambda: stored.append("while it is open"))
    assert pages.opened(7, "v") == KEPT
    for _ in range(2):
        pages.closed(7, "v")
    assert not pages.fill(7, "w", lambda: stored.append("over another version"))
    assert pages.opened(7, "w") == EMPTIED
    pages.closed(7, "w")
    given = pages.preload(8, "v")
    assert given is not None
    assert not pages.fill(8, "v", lambda: stored.append("during a preload"))
    pages.preloaded(given, complete=True)
    assert not pages.fill(9, "v", refuse)
    assert not pages.fill(9, "v", lambda: stored.append("where some of it may be"))
    assert pages.opened(9, "v") == EMPTIED
    pages.forget(7)
    assert not pages.fill(7, "v", lambda: stored.append("over a forgotten version"))
    assert pages.fill(6, "v", lambda: stored.append("beside it"))
    assert stored == ["first", "beside it"]


def test_a_file_is_given_to_the_kernel_at_its_open_only_while_versions_can_be_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored: list[tuple[int, int, bytes]] = []
    monkeypatch.setattr(preloads.pyfuse3, "notify_store", lambda inode, at, data: stored.append((inode, at, bytes(data))))
    table, pages = InodeTable(Grid()), PageVersions()  # type: ignore[arg-type]
    loads = Preloads(pages, table, Jobs())
    for inode, versioned, version, offset in ((7, True, "v", 0), (8, False, Unsettled("v"), 0), (9, False, "v", 4)):
        delivery = loads.at_open(inode, versioned)
        assert delivery(version, offset, memoryview(b"abcd")) == 0
        assert not delivery.taken
    delivery = loads.at_open(10, versioned=False)
    assert delivery("v", 0, memoryview(b"abcd")) == 4
    assert delivery.taken
    assert stored == [(10, 0, b"abcd")]
    assert pages.opened(10, "v") == KEPT


def test_pages_that_too_many_files_may_have_are_all_taken_for_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_versions, "LOST_BLOCKS", 2)
    pages = PageVersions(remembered=0)
    for inode in (0, 10_000):
        pages.opened(inode, "v")
        pages.closed(inode, "v")
    assert pages.fill(1, "v", lambda: None)
    pages.opened(20_000, "v")
    pages.closed(20_000, "v")
    assert not pages.fill(2, "v", lambda: None)


def test_the_end_waits_for_the_last_preload() -> None:
    pages = PageVersions()
    given = pages.preload(7, "v")
    assert given is not None
    assert not pages.end(0.01)
    threading.Timer(0.05, pages.preloaded, (given, True)).start()
    assert pages.end(10)
    assert pages.preload(8, "v") is None


class Kernel:
    """Takes the place of pyfuse3's calls."""

    def __init__(self, problem: int = 0) -> None:
        self.calls: list[tuple[str, int, int]] = []
        self.problem = problem
        self.asked = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()

    def invalidate_inode(self, inode: int) -> None:
        self.calls.append(("invalidate", inode, 0))

    def notify_store(self, inode: int, offset: int, data: memoryview) -> None:
        assert offset % PAGE_BYTES == 0
        self.asked.set()
        assert self.go_on.wait(10)
        self.calls.append(("store", inode, len(data)))
        self.offset = offset
        if self.problem:
            raise OSError(self.problem, os.strerror(self.problem))


class Grid:
    """A space of ten numbers."""

    size = 10
    identity = "grid"

    def node(self, position: int) -> Any:
        raise AssertionError(position)


def given_preloads(monkeypatch: pytest.MonkeyPatch, kernel: Kernel) -> tuple[Preloads, PageVersions, InodeTable, Jobs]:
    monkeypatch.setattr(preloads, "pyfuse3", kernel)
    pages, inodes, jobs = PageVersions(remembered=1), InodeTable(Grid()), Jobs()  # type: ignore[arg-type]
    return Preloads(pages, inodes, jobs), pages, inodes, jobs


def test_of_an_open_file_whole_pages_far_before_its_reader_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel()
    taking, pages, _, _ = given_preloads(monkeypatch, kernel)
    data, far = memoryview(bytes(1 << 20)), NEAR_BYTES + 100

    def opened(unversioned: bool, direct: bool) -> OpenFile:
        file = OpenFile(7, FakeFile(b"x").open(), unversioned)
        file.watch(direct)
        return file

    for file in (opened(True, False), opened(False, True)):
        assert taking.deliver_open(file, far, data) == 0, "several versions in one inode, or O_DIRECT"
    file = opened(False, False)
    file.followed = 200
    assert taking.deliver_open(file, far, data) == 0, "the kernel may be asking for it"
    assert kernel.calls == []
    file.followed = 0
    stored = taking.deliver_open(file, far, data)
    assert kernel.calls == [("store", 7, stored)]
    assert stored % PAGE_BYTES == 0
    assert far <= kernel.offset < far + PAGE_BYTES
    assert file.delivered == kernel.offset + stored > far + len(data) - PAGE_BYTES
    kernel.problem = errno.ENOENT
    assert taking.deliver_open(file, far + (1 << 20), data) == 0
    with pages.storing() as allowed:
        assert allowed
        assert not pages.end(0.01), "the session waits"
    assert pages.end(10)
    assert taking.deliver_open(file, far, data) == 0
    assert len(pages) == 0


def test_p12_a_long_file_is_read_through_the_page_cache(tmp_path: Path, mount: MountFunction) -> None:
    """Of which most is there before its reader comes: by `read`, by `mmap`, and by both at a time."""
    values = np.random.default_rng(3).integers(0, 1 << 16, (48, 1024, 1024), np.uint16)
    array = zarr.create_array(tmp_path / "s.zarr", shape=values.shape, chunks=(16, 256, 256), dtype="<u2", zarr_format=2)
    array[...] = values
    tree = mount(tmp_path / "s.zarr", "--layout", "files")
    path, wrong = tree / "s.npy", list[int]()

    def read() -> None:
        with open(path, "rb", buffering=0) as file:
            file.seek(128)
            for plane in values:
                if file.read(plane.nbytes) != plane.tobytes():
                    wrong.append(1)

    def map_() -> None:
        if not np.array_equal(np.load(path, mmap_mode="r")[:, :, 7], values[:, :, 7]):
            wrong.append(2)

    with open(path, "rb", buffering=0) as file:
        for _ in range(24):
            file.read(1 << 20)
        deadline = time.monotonic() + 30
        while resident(path) < 32 << 20 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert resident(path) >= 32 << 20, "more than the kernel's own read-ahead"
    for readers in ([read], [map_, read], [read, read]):
        threads = [threading.Thread(target=reader) for reader in readers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


@pytest.mark.parametrize("size", [LEAST_BYTES, LEAST_BYTES + 1, LEAST_BYTES + 5000, SMALL_BYTES, SMALL_BYTES + 1, 2 << 20])
def test_all_but_the_end_is_stored_up_to_a_page(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    kernel, every = Kernel(), SMALL_END_EVERY if size <= SMALL_BYTES else END_EVERY
    deliver, pages, inodes, _ = given_preloads(monkeypatch, kernel)
    grid = Grid()
    deliver.deliver(grid, every, "v", 0, memoryview(bytes(size)))
    assert kernel.calls == [], "the kernel knows no number of this space"
    base = inodes.base(1, grid)
    assert base is not None
    deliver.deliver(grid, every, "v", 0, memoryview(bytes(LEAST_BYTES - 1)))
    assert kernel.calls == [], "too small"
    taken = deliver.deliver(grid, every, "v", 0, memoryview(bytes(size)))
    [(what, inode, stored)] = kernel.calls
    assert (what, inode, stored) == ("store", base + every, taken)
    assert stored % PAGE_BYTES == 0
    assert END_BYTES <= size - stored < END_BYTES + PAGE_BYTES
    assert pages.opened(base + every, "v") == KEPT


@pytest.mark.parametrize("size", [LEAST_BYTES, LEAST_BYTES + 1, SMALL_BYTES, SMALL_BYTES + 1, 2 << 20])
def test_of_most_chunks_all_is_stored(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    kernel, every = Kernel(), SMALL_END_EVERY if size <= SMALL_BYTES else END_EVERY
    deliver, _, inodes, _ = given_preloads(monkeypatch, kernel)
    grid = Grid()
    base = inodes.base(1, grid)
    assert base is not None
    for position in range(1, every):
        assert deliver.deliver(grid, position, "v", 0, memoryview(bytes(size))) == size
    assert kernel.calls == [("store", base + position, size) for position in range(1, every)]


@pytest.mark.parametrize(("problem", "remembered"), [(errno.ENOENT, 0), (errno.ENOMEM, 1), (errno.ENODEV, 1)])
def test_a_kernel_that_does_not_take_it(monkeypatch: pytest.MonkeyPatch, problem: int, remembered: int) -> None:
    deliver, pages, inodes, _ = given_preloads(monkeypatch, Kernel(problem))
    grid = Grid()
    base = inodes.base(1, grid)
    assert base is not None
    deliver.deliver(grid, 3, "v", 0, memoryview(bytes(SIZE)))
    assert len(pages) == remembered
    assert pages.opened(base + 3, "v") == EMPTIED


def test_pages_of_unknown_version_are_emptied_before_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel()
    deliver, pages, inodes, _ = given_preloads(monkeypatch, kernel)
    grid = Grid()
    base = inodes.base(1, grid)
    assert base is not None
    for inode in (base + 3, base + 4):
        pages.opened(inode, "old")
        pages.closed(inode, "old")
    deliver.deliver(grid, 3, "v", 0, memoryview(bytes(SIZE)))
    assert [call[:2] for call in kernel.calls] == [("invalidate", base + 3), ("store", base + 3)]


def test_an_open_waits_for_what_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel()
    deliver, _, inodes, jobs = given_preloads(monkeypatch, kernel)
    grid = Grid()
    base = inodes.base(1, grid)
    assert base is not None
    kernel.go_on.clear()

    async def test() -> None:
        jobs.start()
        thread = threading.Thread(target=deliver.deliver, args=(grid, 3, "v", 0, memoryview(bytes(SIZE))))
        thread.start()
        assert kernel.asked.wait(10)
        with pytest.raises(TimedOut):
            await deliver.opened(base + 3, "v", 0.05)
        assert await deliver.opened(base + 4, "v", 10.0) == EMPTIED
        async with trio.open_nursery() as nursery:

            async def reader() -> None:
                assert (await deliver.opened(base + 3, "v", 10.0)).keep
                assert kernel.calls

            nursery.start_soon(reader)
            nursery.start_soon(reader)
            await trio.sleep(0.02)
            assert not kernel.calls
            kernel.go_on.set()
        thread.join()
        assert not deliver._awaited
        jobs.stop()

    trio.run(test)


def test_a_file_that_is_made_ready_is_waited_for_unless_somebody_has_it_open() -> None:
    pages = PageVersions()
    assert pages.comes(7)
    assert not pages.comes(7), "one at a time"
    assert pages.opened(7, "v") is None
    given = pages.preload(7, "v")
    assert given is not None
    assert pages.opened(7, "v") is None
    pages.preloaded(given, complete=True)
    assert pages.opened(7, "v") is None, "its end is still made"
    assert pages.came(7)
    assert pages.opened(7, "v") == KEPT
    assert not pages.comes(7)
    assert pages.comes(8)
    assert not pages.came(8), "nobody came"
    assert pages.end(0.0)
    assert not pages.comes(8)
    pages.closed(7, "v")
    assert len(pages) == 1


@pytest.mark.parametrize("made", [True, False])
def test_an_open_waits_for_what_is_made_ready_and_goes_on_when_that_fails(
    monkeypatch: pytest.MonkeyPatch, made: bool
) -> None:
    kernel = Kernel()
    deliver, pages, inodes, jobs = given_preloads(monkeypatch, kernel)
    grid = Grid()
    base = inodes.base(1, grid)
    assert base is not None
    begun, go_on = threading.Event(), threading.Event()

    def make() -> bool:
        begun.set()
        assert go_on.wait(10)
        if not made:
            raise OSError("a broken chunk")
        return deliver.deliver(grid, 3, "v", 0, memoryview(bytes(SIZE))) > 0

    def come() -> None:
        with contextlib.suppress(OSError):
            deliver.coming(grid, 3, make)

    async def test() -> None:
        jobs.start()
        thread = threading.Thread(target=come)
        thread.start()
        assert begun.wait(10)
        with pytest.raises(TimedOut):
            await deliver.opened(base + 3, "v", 0.05)
        async with trio.open_nursery() as nursery:

            async def reader() -> None:
                await deliver.opened(base + 3, "v", 10.0)
                assert bool(kernel.calls) == made

            nursery.start_soon(reader)
            nursery.start_soon(reader)
            await trio.sleep(0.02)
            assert not kernel.calls
            go_on.set()
        thread.join()
        assert not deliver._awaited
        assert not pages._coming
        jobs.stop()

    trio.run(test)


def resident(path: Path) -> int:
    """Bytes of a file that are in the page cache; opening it reads nothing."""
    with open(path, "rb", buffering=0) as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        view = np.frombuffer(mapped, np.uint8)
        state = np.zeros(-(-view.size // PAGE_BYTES), np.uint8)
        library = ctypes.CDLL(None, use_errno=True)
        where, size, into = ctypes.c_void_p(view.ctypes.data), ctypes.c_size_t(view.size), ctypes.c_void_p(state.ctypes.data)
        answer = library.mincore(where, size, into)
        del view
        assert answer == 0
        return int(np.count_nonzero(state & 1)) * PAGE_BYTES


def write(path: Path, compressor: Any) -> np.ndarray:
    """Chunks of SIZE equal bytes each, by zarr-python."""
    values = np.repeat(np.arange(1, CHUNKS + 1, dtype="u1"), SIZE)
    options: Any = {"compressors": compressor, "zarr_format": 2}
    zarr.create_array(path, shape=values.shape, chunks=(SIZE,), dtype="u1", **options)[...] = values
    return values


def test_a_sequential_reader_finds_the_next_chunks_in_the_page_cache(tmp_path: Path, mount: MountFunction) -> None:
    values = write(tmp_path / "s.zarr", "auto")
    tree = mount(tmp_path / "s.zarr")
    assert len(os.listdir(tree / "c")) == CHUNKS  # from here on the kernel knows the files
    for number in range(4):
        assert (tree / f"c/{number}").read_bytes() == values[number * SIZE : (number + 1) * SIZE].tobytes()
    tree.settle()  # nothing is preloaded of a file that somebody has open
    assert resident(tree / "c/5") >= SIZE - 2 * END_BYTES
    assert (tree / "c/5").read_bytes() == values[5 * SIZE : 6 * SIZE].tobytes()
    new = np.full(SIZE, 200, np.uint8)
    zarr.open_array(tmp_path / "s.zarr", mode="r+")[6 * SIZE : 7 * SIZE] = new
    assert (tree / "c/6").read_bytes() == new.tobytes(), "what was preloaded is no longer true"
    assert (tree / "c/7").read_bytes() == values[7 * SIZE :].tobytes()


@pytest.mark.parametrize("immutable", [(), ("--immutable",)])
def test_p12_sequential_readers_see_equal_bytes(tmp_path: Path, mount: MountFunction, immutable: tuple[str, ...]) -> None:
    values = write(tmp_path / "s.zarr", "auto").reshape(CHUNKS, SIZE)
    tree = mount(tmp_path / "s.zarr", *immutable)
    names = sorted(os.listdir(tree / "c"))
    wrong: list[str] = []

    def read() -> None:
        for _ in range(3):
            wrong.extend(name for name in names if (tree / "c" / name).read_bytes() != values[int(name)].tobytes())

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert wrong == []


@pytest.mark.parametrize("pause", [0.0, 0.02])
def test_p9_sequential_readers_of_chunks_that_are_being_replaced_see_one_version_or_estale(
    tmp_path: Path, mount: MountFunction, pause: float
) -> None:
    """Preloaded versions are outdated again and again; what is read is one version of the chunk, and none of before."""
    write(tmp_path / "s.zarr", None)
    assert json.loads((tmp_path / "s.zarr/.zarray").read_text())["compressor"] is None
    tree = mount(tmp_path / "s.zarr")
    names = sorted(os.listdir(tree / "c"))
    stored = [1] * CHUNKS
    for number in range(CHUNKS):
        put(tmp_path, number, 1)
    done = threading.Event()

    def replace() -> None:
        turn = 1
        while not done.is_set():
            turn = turn % 250 + 1
            for number in range(CHUNKS):
                put(tmp_path, number, turn)
                stored[number] = turn
                done.wait(pause)

    found: Counter[str] = Counter()

    def read() -> None:
        for _ in range(6):
            for name in names:
                try:
                    content = np.frombuffer((tree / "c" / name).read_bytes(), np.uint8)
                except OSError as error:
                    found[errno.errorcode[error.errno or 0]] += 1
                else:
                    found["one" if content.size == SIZE and (content == content[0]).all() else "mixed"] += 1

    threads = [threading.Thread(target=replace), *[threading.Thread(target=read) for _ in range(2)]]
    for thread in threads:
        thread.start()
    for thread in threads[1:]:
        thread.join()
    done.set()
    threads[0].join()
    assert set(found) <= {"one", "ESTALE"}
    assert found["one"] > 5
    for number, name in enumerate(names):
        assert set((tree / "c" / name).read_bytes()) == {stored[number]}


@pytest.mark.parametrize("flags", [mmap.MAP_SHARED, mmap.MAP_PRIVATE])
def test_p9_an_outdated_version_that_is_open_and_the_present_one_share_no_pages(
    tmp_path: Path, mount: MountFunction, flags: int
) -> None:
    """Both are read and mapped side by side, with new versions again and again; later the chunk has its usual inode."""
    write(tmp_path / "s.zarr", None)
    put(tmp_path, 3, 1)
    tree = mount(tmp_path / "s.zarr")
    path = tree / "c/3"
    usual = path.stat().st_ino
    old = os.open(path, os.O_RDONLY)
    assert set(os.pread(old, 100_000, 0)) == {1}
    for value in (2, 3):
        put(tmp_path, 3, value)
        with open(path, "rb") as new, mmap.mmap(new.fileno(), 0, flags=flags, prot=mmap.PROT_READ) as mapped:
            assert set(new.read()) == {value}
            assert set(mapped[:]) == {value}
            assert os.fstat(new.fileno()).st_ino != usual
            assert set(os.pread(old, 100_000, 0)) == {1}
            with contextlib.suppress(OSError):  # ESTALE, unless the daemon still has it
                assert set(os.pread(old, 100_000, 2_000_000)) == {1}
            assert set(mapped[:]) == {value}
    os.close(old)
    put(tmp_path, 3, 4)
    until(lambda: path.stat().st_ino == usual)  # the kernel may rely on the name for a second
    assert set(path.read_bytes()) == {4}


def put(store: Path, number: int, value: int) -> None:
    """Replace a stored chunk by one of equal bytes, as writers do that never show half a chunk."""
    (store / "new").write_bytes(bytes([value]) * SIZE)
    os.rename(store / "new", store / f"s.zarr/{number}")


def test_a_small_chunk_is_in_the_page_cache_when_it_is_open(tmp_path: Path, mount: MountFunction) -> None:
    source = tmp_path / "small.zarr"
    zarr.create_array(source, shape=(8192,), chunks=(4096,), dtype="u1", zarr_format=2)[...] = 7
    (source / "0").read_bytes()
    time.sleep(0.03)  # settled
    tree = mount(source)
    assert resident(tree / "c/0") == 4096
    assert (tree / "c/0").read_bytes() == bytes([7]) * 4096


@pytest.mark.parametrize("options", [(), ("--metadata-ttl", "0")])
def test_p9_a_small_chunk_that_the_kernel_has_from_its_open_on_is_the_present_one(
    tmp_path: Path, mount: MountFunction, options: tuple[str, ...]
) -> None:
    source = tmp_path / "small.zarr"
    zarr.create_array(source, shape=(4096,), chunks=(4096,), dtype="u1", zarr_format=2, compressors=None)[...] = 1
    tree = mount(source, *options)
    for value in range(2, 8):
        time.sleep(0.03)  # settled: only then the kernel gets it at once
        with open(tree / "c/0", "rb", buffering=0) as before:
            assert set(before.read()) == {value - 1}
            (source / "new").write_bytes(bytes([value]) * 4096)
            (source / "new").rename(source / "0")
            time.sleep(0.03)
            with open(tree / "c/0", "rb", buffering=0) as after:
                assert set(after.read()) == {value}
            before.seek(0)
            with contextlib.suppress(OSError):
                assert set(before.read()) == {value - 1}
