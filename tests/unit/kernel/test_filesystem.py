"""The handlers without a kernel: attributes, listings, loads for many readers. Not here: the page cache (`test_ages.py`)."""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import pyfuse3
import pytest
import trio
import trio.testing
from fake_tree import FakeDirectory, FakeFile, FakeLink, FakeSpace, SpaceDirectory
from handlers import CTX, DEFAULTS, PATIENT, CountedJobs, Replies, look_up, pass_a_minute, with_filesystem
from waiting import Clock, eventually

from fsbridge.asking import used
from fsbridge.errors import TimedOut
from fsbridge.kernel.filesystem import Filesystem
from fsbridge.kernel.handles import HandleTable, OpenFile
from fsbridge.kernel.jobs import METADATA_THREADS
from fsbridge.kernel.lanes import HUNG_JOBS
from fsbridge.kernel.limits import KernelLimits
from fsbridge.kernel.pages import Caching, PageVersions
from fsbridge.kernel.readahead import NoReadAhead
from fsbridge.tree import Attrs, Entry, Numbered


@pytest.fixture(autouse=True, params=["read-ahead", "no-read-ahead"])
def prediction(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are answered alike with read-ahead and without."""
    monkeypatch.setitem(DEFAULTS, "read_ahead", request.param == "read-ahead")


def test_attributes_are_those_of_what_can_only_be_read() -> None:
    async def test(filesystem: Filesystem) -> None:
        file = await filesystem.lookup(1, b"file", CTX)
        assert (stat.S_IFMT(file.st_mode), stat.S_IMODE(file.st_mode)) == (stat.S_IFREG, 0o444)
        assert (file.st_size, file.st_blocks, file.st_nlink) == (1025, 3, 1)
        assert file.st_mtime_ns == file.st_ctime_ns == file.st_atime_ns == 10**18
        assert (file.st_uid, file.st_gid) == (os.getuid(), os.getgid())
        assert file.attr_timeout == file.entry_timeout == pytest.approx(1.0, abs=0.1)
        directory = await filesystem.getattr(1, CTX)
        assert directory.st_mode == stat.S_IFDIR | 0o555
        link = await filesystem.lookup(1, b"link", CTX)
        assert link.st_mode == stat.S_IFLNK | 0o777
        assert await filesystem.readlink(link.st_ino, CTX) == b"file"
        assert await filesystem.access(file.st_ino, os.R_OK, CTX)
        assert not await filesystem.access(file.st_ino, os.X_OK, CTX)
        with pytest.raises(pyfuse3.FUSEError):
            await filesystem.access(file.st_ino, os.W_OK, CTX)

    with_filesystem(test, FakeDirectory({b"file": FakeFile(bytes(1025)), b"link": FakeLink(b"file")}))


def test_absence_is_remembered_by_the_kernel_only_for_immutable_stores() -> None:
    async def changing(filesystem: Filesystem) -> None:
        with pytest.raises(pyfuse3.FUSEError) as caught:
            await filesystem.lookup(1, b"absent", CTX)
        assert caught.value.errno == errno.ENOENT

    async def immutable(filesystem: Filesystem) -> None:
        absent = await filesystem.lookup(1, b"absent", CTX)
        assert absent.st_ino == 0
        assert absent.entry_timeout >= 3600
        assert (await filesystem.lookup(1, b"file", CTX)).attr_timeout >= 3600

    root = FakeDirectory({b"file": FakeFile()})
    with_filesystem(changing, root)
    with_filesystem(immutable, root, immutable=True)


@pytest.mark.parametrize("room", [1, 2, 3, 7, 10**9])
def test_a_listing_gives_each_name_once_however_small_the_replies(room: int) -> None:
    names = [b"%03d" % number for number in range(50)]

    async def test(filesystem: Filesystem) -> None:
        replies = Replies(room)
        fh = await filesystem.opendir(1, CTX)
        assert await replies.list_all(filesystem, fh) == [b".", b"..", *names]
        assert root.listings == 1
        for start in (20, 7, 7, 51, 2, 0):
            assert await replies.list_all(filesystem, fh, start) == [b".", b"..", *names][start:]
        await filesystem.releasedir(fh)
        assert len(filesystem.listings) == 0
        await filesystem.forget(list(replies.counts.items()))
        assert len(filesystem.inodes) == 1

    root = FakeDirectory({name: FakeFile() for name in names})
    with_filesystem(test, root)


def test_offset_zero_shows_what_is_there_now() -> None:
    async def test(filesystem: Filesystem) -> None:
        replies = Replies()
        fh = await filesystem.opendir(1, CTX)
        assert await replies.list_all(filesystem, fh) == [b".", b"..", b"a"]
        root.members[b"b"] = FakeFile()
        assert await replies.list_all(filesystem, fh) == [b".", b"..", b"a", b"b"]

    root = FakeDirectory({b"a": FakeFile()})
    with_filesystem(test, root)


def test_a_large_numbered_listing_leaves_one_record_and_holds_one_batch() -> None:
    directory = SpaceDirectory(FakeSpace(10**12), 20_000)

    async def test(filesystem: Filesystem) -> None:
        replies = Replies(100)
        inode = await look_up(filesystem, b"c")
        fh = await filesystem.opendir(inode, CTX)
        names = await replies.list_all(filesystem, fh)
        assert names[2:] == [b"%d" % number for number in range(1, 20_001)]
        assert len(filesystem.inodes) == 2
        assert len(filesystem.listings[fh].batch) <= directory.batch
        for number in (1, 20_000):
            file = await filesystem.lookup(inode, b"%d" % number, CTX)
            assert file.st_ino == inode + number
            opened = await filesystem.open(file.st_ino, os.O_RDONLY, CTX)
            assert bytes(await filesystem.read(opened.fh, 0, 100)) == b"%08d" % number
            await filesystem.release(opened.fh)
        await filesystem.forget([(inode, 1), (inode + 5, 20_000), (inode + 1, 1)])
        assert len(filesystem.inodes) == 2
        await filesystem.forget([(inode + 20_000, 1)])
        assert len(filesystem.inodes) == 1

    with_filesystem(test, FakeDirectory({b"c": directory}), limits=KernelLimits(listing_bytes=300_000))


def test_a_directory_of_20000_chunks_is_listed_once_and_kept_in_16_bytes_each() -> None:
    class Numbers(SpaceDirectory):
        asked = 0

        def entries(self) -> Any:
            self.asked += 1
            for first in range(0, 20_000, 4096):
                pairs = [(number, -number) for number in range(first, min(first + 4096, 20_000))]
                yield Numbered("file", 8, 0, pairs)
            yield Numbered("file", 8, 0, [(20_000, 2**64)])

    directory = Numbers(FakeSpace(10**6), 20_001)

    async def test(filesystem: Filesystem) -> None:
        replies = Replies(100)
        inode = await look_up(filesystem, b"c")
        for _ in range(2):
            listing = await replies.list_all(filesystem, await filesystem.opendir(inode, CTX))
            assert listing[2:] == [b"%d" % number for number in range(20_001)]
        assert directory.asked == 1
        assert 20_000 * 16 < filesystem.directories.nbytes < 20_000 * 16 + 3000
        reading = filesystem.directories.find_young(inode)
        assert reading is not None
        assert [entry.attrs.mtime_ns for batch in reading.batches for entry in batch[-2:]][-3:] == [-19_998, -19_999, 2**64]

    with_filesystem(test, FakeDirectory({b"c": directory}), limits=PATIENT, metadata_ttl=60.0)


def test_entries_of_a_large_directory_outlive_its_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise `du` and `ls -l`, which list everything before they stat it, would look up every file again."""
    directory = SpaceDirectory(FakeSpace(10**9), 3)
    Clock(monkeypatch, stopped=True)

    async def test(filesystem: Filesystem) -> None:
        replies = Replies()
        fh = await filesystem.opendir(await look_up(filesystem, b"c"), CTX)
        for extent, lifetime in ((0, 1.0), (100_000, 6.0), (10**9, 61.0)):
            directory.extent, replies.told = extent, []
            await filesystem.readdir(fh, 0, replies)
            assert [entry[4] for entry in replies.told] == [1.0, 1.0, *[lifetime] * 3]

    with_filesystem(test, FakeDirectory({b"c": directory}))


def test_p9_the_kernel_gets_what_is_left_of_an_entrys_lifetime(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its age may come from an earlier listing, of which later entries may be as well, or from a reader that pauses."""
    clock = Clock(monkeypatch, stopped=True)
    begun = time.monotonic()
    space = FakeSpace(10**9)

    class Old(SpaceDirectory):
        def entries(self) -> Any:
            used(begun - 0.75)
            yield Numbered("file", 8, 0, [(1, 7), (2, 7), (3, 8), (4, -5)])
            used(begun - 0.5)
            yield [Entry(b"%d" % n, Attrs("file", 8, 7), n) for n in (5, 6)]

    async def test(filesystem: Filesystem) -> None:
        replies = Replies(4)
        base = await look_up(filesystem, b"c")
        fh = await filesystem.opendir(base, CTX)
        await filesystem.readdir(fh, 0, replies)
        assert [entry[:5] for entry in replies.told[2:]] == [(b"1", 3, base + 1, 8, 0.25), (b"2", 4, base + 2, 8, 0.25)]
        replies.room, replies.told = 3, []
        clock.passes(5.0)
        await filesystem.readdir(fh, 4, replies)
        assert [entry[:5] for entry in replies.told] == [(b"3", 5, base + 3, 8, 0.0), (b"4", 6, base + 4, 8, 0.0)]
        clock.passes(-5.0)
        replies.told = []
        await filesystem.readdir(fh, 6, replies)
        assert [entry[:5] for entry in replies.told] == [(b"5", 7, base + 5, 8, 0.25), (b"6", 8, base + 6, 8, 0.25)]
        await filesystem.forget([(base + n, 1) for n in (0, 1, 2, 3, 4, 5)])
        assert len(filesystem.inodes) == 2
        await filesystem.forget([(base + 6, 1)])
        assert len(filesystem.inodes) == 1

    with_filesystem(test, FakeDirectory({b"c": Old(space, 6)}))


def test_a_size_that_is_not_known_yet_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch, stopped=True)

    class Unsized(FakeDirectory):
        def entries(self) -> Any:
            unknown, known = Attrs("file", None, 1), Attrs("file", 3, 1)
            yield [Entry(b"v", unknown, lambda: FakeFile(b"12345")), Entry(b"w", known, FakeFile)]

    async def test(filesystem: Filesystem) -> None:
        replies = Replies()
        fh = await filesystem.opendir(1, CTX)
        await filesystem.readdir(fh, 0, replies)
        (name, _, inode, size, timeout, _), following = replies.told[2:]
        assert (name, size, timeout) == (b"v", 0, 0)
        assert following[4] == 1.0
        assert (await filesystem.getattr(inode, CTX)).st_size == 5

    with_filesystem(test, Unsized())


def test_p7_a_listing_that_takes_longer_than_a_deadline_is_shown_in_full() -> None:
    """Its directory says by empty batches that it is at work; each of them has a deadline of its own."""

    class Slow(FakeDirectory):
        def entries(self) -> Any:
            for batch in super().entries():
                yield from [[]] * 100
                yield batch

    async def test(filesystem: Filesystem) -> None:
        fh = await filesystem.opendir(1, CTX)
        assert await Replies().list_all(filesystem, fh) == [b".", b"..", b"a", b"b"]
        assert len(set(jobs.counted.deadlines)) > 200

    jobs = CountedJobs()
    with_filesystem(test, Slow({b"a": FakeFile(), b"b": FakeFile()}, batch=1), jobs=jobs)


def test_p7_sizes_that_need_decoding_delay_no_listing_and_no_reader() -> None:
    decoding, go = threading.Event(), threading.Event()

    class Unsized(FakeFile):
        def attrs(self) -> Attrs:
            return Attrs("file", None, 1)

        def measure(self) -> Attrs:
            decoding.set()
            go.wait()
            return Attrs("file", 5, 1)

    async def test(filesystem: Filesystem) -> None:
        filesystem.config = replace(filesystem.config, read_deadline=600.0)
        sizes: list[int] = []

        async def ask() -> None:
            sizes.append((await filesystem.lookup(1, b"v", CTX)).st_size)

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(ask)
            await trio.to_thread.run_sync(decoding.wait)
            fh = await filesystem.opendir(1, CTX)
            assert await Replies().list_all(filesystem, fh) == [b".", b"..", b"v", b"w"]
            opened = await filesystem.open(await look_up(filesystem, b"w"), os.O_RDONLY, CTX)
            assert bytes(await filesystem.read(opened.fh, 0, 9)) == b"read"
            assert not sizes
            go.set()
        assert sizes == [5] * 20

    with_filesystem(test, FakeDirectory({b"v": Unsized(b"12345"), b"w": FakeFile(b"read")}))


def test_p7_a_size_that_takes_longer_than_it_may_is_an_error_and_is_there_later(caplog: pytest.LogCaptureFixture) -> None:
    go, clock = threading.Event(), trio.testing.MockClock()

    class Slow(FakeFile):
        size_seconds = 0.2

        def attrs(self) -> Attrs:
            return Attrs("file", None, 1)

        def measure(self) -> Attrs:
            go.wait()
            return Attrs("file", 5, 1)

    async def test(filesystem: Filesystem) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pass_a_minute, clock, filesystem.jobs.sizes)
            with pytest.raises(pyfuse3.FUSEError) as refused:
                await filesystem.lookup(1, b"v", CTX)
        assert refused.value.errno == errno.ETIMEDOUT
        assert "the file is still being made: try again later" in caplog.text
        go.set()
        await eventually(lambda: not filesystem.jobs.sizes.running)
        assert (await filesystem.lookup(1, b"v", CTX)).st_size == 5

    with_filesystem(test, FakeDirectory({b"v": Slow(b"12345")}), clock)


def test_names_that_would_break_the_listing_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    bad = [b"", b".", b"..", b"a/b", b"a\0b", b"x" * 256]

    async def test(filesystem: Filesystem) -> None:
        replies = Replies()
        fh = await filesystem.opendir(1, CTX)
        assert await replies.list_all(filesystem, fh) == [b".", b"..", b"good", b"x" * 255]

    with_filesystem(test, FakeDirectory({name: FakeFile() for name in [*bad, b"good", b"x" * 255]}, batch=100))
    assert "impossible name" in caplog.text


def test_p7_a_listing_that_hangs_times_out_and_can_be_asked_again() -> None:
    hung, clock = threading.Event(), trio.testing.MockClock()

    async def test(filesystem: Filesystem) -> None:
        replies = Replies()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pass_a_minute, clock, filesystem.jobs.metadata)
            for _ in range(2):  # the second time at once, without another thread
                with pytest.raises(pyfuse3.FUSEError) as caught:
                    await filesystem.opendir(1, CTX)
                assert caught.value.errno == errno.ETIMEDOUT
        assert filesystem.jobs.metadata.running == 1
        hung.set()
        await eventually(lambda: not filesystem.jobs.metadata.hung)
        fh = await filesystem.opendir(1, CTX)
        assert await replies.list_all(filesystem, fh) == [b".", b"..", b"a", b"b"]

    root = FakeDirectory({b"a": FakeFile(), b"b": FakeFile()}, on_list=hung.wait)
    with_filesystem(test, root, clock)


def test_one_load_serves_all_requests_for_the_same_bytes() -> None:
    loading = threading.Event()

    def load() -> None:
        loading.wait()
        file.peekable = True

    file = FakeFile(bytes(range(256)) * 10, on_read=load)

    async def test(filesystem: Filesystem) -> None:
        inode = await look_up(filesystem, b"chunk")
        handles = [(await filesystem.open(inode, 0, CTX)).fh for _ in range(20)]
        parts: list[bytes] = []

        async def read(fh: int) -> None:
            parts.append(bytes(await filesystem.read(fh, 256, 256)))

        async with trio.open_nursery() as nursery:
            for fh in handles:
                nursery.start_soon(read, fh)
            await trio.testing.wait_all_tasks_blocked()
            assert filesystem.jobs.data.running <= 1
            loading.set()
        assert parts == [bytes(range(256))] * 20
        assert file.reads == 1
        assert len(filesystem.loads) == 0

    with_filesystem(test, FakeDirectory({b"chunk": file}))


def test_p7_readers_of_a_hung_chunk_take_one_thread_until_it_is_over() -> None:
    hung, clock = threading.Event(), trio.testing.MockClock()
    file, other = FakeFile(bytes(100), on_read=hung.wait), FakeFile(b"other")

    async def test(filesystem: Filesystem) -> None:
        inode = await look_up(filesystem, b"hung")
        fh = (await filesystem.open(inode, 0, CTX)).fh
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pass_a_minute, clock, filesystem.jobs.data)
            for _ in range(5):
                with pytest.raises(pyfuse3.FUSEError) as caught:
                    await filesystem.read(fh, 0, 10)
                assert caught.value.errno == errno.ETIMEDOUT
                assert filesystem.jobs.data.running == 1
        fine = (await filesystem.open(await look_up(filesystem, b"other"), 0, CTX)).fh
        assert bytes(await filesystem.read(fine, 0, 10)) == b"other"
        hung.set()
        await eventually(lambda: not filesystem.jobs.data.hung)
        assert bytes(await filesystem.read(fh, 0, 10)) == bytes(10)
        assert len(filesystem.loads) == 0

    with_filesystem(test, FakeDirectory({b"hung": file, b"other": other}), clock)


def test_p7_a_store_that_gives_up_itself_is_asked_again_by_the_next_read() -> None:
    """Servers and child processes have deadlines of their own: no other request may wait for a load that they have ended."""

    def give_up_once() -> None:
        if file.reads == 1:
            raise TimedOut("no answer from the server in time")

    file = FakeFile(bytes(100), on_read=give_up_once)

    async def test(filesystem: Filesystem) -> None:
        fh = (await filesystem.open(await look_up(filesystem, b"far"), 0, CTX)).fh
        with pytest.raises(pyfuse3.FUSEError) as caught:
            await filesystem.read(fh, 0, 10)
        assert caught.value.errno == errno.ETIMEDOUT
        assert len(filesystem.loads) == 0
        assert bytes(await filesystem.read(fh, 0, 10)) == bytes(10)

    with_filesystem(test, FakeDirectory({b"far": file}))


def test_p7_a_hung_member_stops_neither_its_neighbour_nor_its_directory() -> None:
    hung = threading.Event()
    inner = FakeDirectory({b"x": FakeFile(b"x")})
    root = FakeDirectory({b"a": inner, b"b": FakeDirectory({b"y": FakeFile(b"y")}), b"c": FakeFile()})

    async def test(filesystem: Filesystem) -> None:
        a = await look_up(filesystem, b"a")
        inner.on_lookup = hung.wait
        codes: list[int] = []

        async def read(name: bytes) -> None:
            with pytest.raises(pyfuse3.FUSEError) as caught:
                await filesystem.lookup(a, name, CTX)
            codes.append(caught.value.errno)

        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(read, b"%d" % number)
        begun = filesystem.jobs.metadata.running  # how many begin before all pass their deadline depends on the machine
        for number in range(50):
            await read(b"%d" % number)
        most = max(begun, HUNG_JOBS) + METADATA_THREADS
        assert filesystem.jobs.metadata.running <= most, "deadlines do not add up: the others were refused at once"
        assert codes == [errno.ETIMEDOUT] * 100
        b = await look_up(filesystem, b"b")
        assert (await filesystem.lookup(b, b"y", CTX)).st_size == 1
        await filesystem.getattr(1, CTX)
        hung.set()
        await eventually(lambda: not filesystem.jobs.metadata.hung)
        inner.on_lookup = None
        assert (await filesystem.lookup(a, b"x", CTX)).st_size == 1

    with_filesystem(test, root, metadata_deadline=1.0)


def test_a_failed_load_fails_only_the_request_that_made_it() -> None:
    async def test(filesystem: Filesystem) -> None:
        fh = (await filesystem.open(await look_up(filesystem, b"file"), 0, CTX)).fh
        file.on_read = lambda: 1 // 0
        with pytest.raises(pyfuse3.FUSEError):
            await filesystem.read(fh, 0, 10)
        file.on_read = None
        assert bytes(await filesystem.read(fh, 0, 10)) == b"data"
        assert await filesystem.read(fh, 4, 10) == b""
        assert await filesystem.read(fh, 100, 10) == b""

    file = FakeFile(b"data")
    with_filesystem(test, FakeDirectory({b"file": file}))


class Scarce:
    """Lacks memory as long as `failing`."""

    failing = False

    def need_memory(self) -> None:
        if self.failing:
            raise MemoryError


class ScarcePages(PageVersions, Scarce):
    def count_open(self, inode: int, version: Hashable) -> Caching:
        self.need_memory()
        return super().count_open(inode, version)


class ScarceReadAhead(NoReadAhead, Scarce):
    def note_open(self, file: OpenFile) -> None:
        self.need_memory()


class ScarceFiles(HandleTable[OpenFile], Scarce):
    def add(self, thing: OpenFile) -> int:
        self.need_memory()
        return super().add(thing)


@pytest.mark.parametrize("part", ["pages", "ahead", "files"])
def test_p11_an_open_that_fails_when_the_file_is_open_leaves_nothing(part: str) -> None:
    """An open that stayed counted was one of an outdated version later: a chunk was ESTALE until the unmount."""
    file = FakeFile(b"first")

    async def test(filesystem: Filesystem) -> None:
        inode = await look_up(filesystem, b"file")
        pages, ahead, files = ScarcePages(), ScarceReadAhead(), ScarceFiles()
        filesystem.pages, filesystem.ahead, filesystem.files = pages, ahead, files
        scarce: dict[str, Scarce] = {"pages": pages, "ahead": ahead, "files": files}
        scarce[part].failing = True
        with pytest.raises(pyfuse3.FUSEError):
            await filesystem.open(inode, os.O_RDONLY, CTX)
        scarce[part].failing = False
        assert (file.opens, file.closes, len(filesystem.files)) == (1, 1, 0)
        file.data, file.stamp = b"other", 1
        opened = await filesystem.open(inode, os.O_RDONLY, CTX)
        assert bytes(await filesystem.read(opened.fh, 0, 9)) == b"other"
        await filesystem.release(opened.fh)
        assert not filesystem.pages.is_outdated(inode, object()), "no open counts any more"

    with_filesystem(test, FakeDirectory({b"file": file}))


def test_p1_open_for_writing_is_erofs() -> None:
    async def test(filesystem: Filesystem) -> None:
        inode = await look_up(filesystem, b"file")
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_TRUNC):
            with pytest.raises(pyfuse3.FUSEError) as caught:
                await filesystem.open(inode, flags, CTX)
            assert caught.value.errno == errno.EROFS

    with_filesystem(test, FakeDirectory({b"file": FakeFile()}))


def test_xattrs_are_unknown_to_the_mount_unless_asked_for() -> None:
    async def without(filesystem: Filesystem) -> None:
        for question in (filesystem.getxattr(1, b"user.a", CTX), filesystem.listxattr(1, CTX)):
            with pytest.raises(pyfuse3.FUSEError) as caught:
                await question
            assert caught.value.errno == errno.ENOSYS

    async def with_them(filesystem: Filesystem) -> None:
        assert await filesystem.getxattr(1, b"user.fsbridge.test", CTX) == b"directory"
        assert await filesystem.listxattr(1, CTX) == [b"user.fsbridge.test"]
        for absent in (b"user.other", b"security.selinux"):
            with pytest.raises(pyfuse3.FUSEError) as caught:
                await filesystem.getxattr(1, absent, CTX)
            assert caught.value.errno == errno.ENODATA

    with_filesystem(without, FakeDirectory(), xattrs=False)
    with_filesystem(with_them, FakeDirectory(), xattrs=True)


def test_statfs_shows_a_full_disk() -> None:
    async def test(filesystem: Filesystem) -> None:
        reply = await filesystem.statfs(CTX)
        assert (reply.f_bfree, reply.f_namemax) == (0, 255)

    with_filesystem(test, FakeDirectory())
