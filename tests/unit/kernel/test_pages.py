"""Which pages the kernel may keep of a file, and for how long (P9), and which requests for pages are declined."""

from __future__ import annotations

import errno

import numpy as np
import pyfuse3
import pytest
from fake_model import fake_array, tree
from fake_tree import FakeDirectory, FakeFile
from handlers import CTX, DEFAULTS, look_up, with_filesystem
from waiting import Clock

from fsbridge.kernel.filesystem import Filesystem
from fsbridge.kernel.pages import STALE_SECONDS, Caching, PageVersions, Scattered

MIB, PAGE = 1 << 20, 4096


def fault(scattered: Scattered, page: int) -> list[bool]:
    """A page fault: what is around it is asked for, and if that fails the page itself."""
    start = max(0, page - MIB // 2)
    declined = scattered.declines(start, start + MIB)
    return [declined, scattered.declines(page, page + PAGE)] if declined else [declined]


def test_a_row_of_each_plane_is_read_page_by_page() -> None:
    scattered = Scattered()
    found = [fault(scattered, 10 * MIB + plane * 2 * MIB) for plane in range(20)]
    assert found == [[False]] * 2 + [[True, False]] * 18


def test_from_front_to_back_nothing_is_declined() -> None:
    scattered = Scattered()
    assert not any(scattered.declines(n * MIB, (n + 1) * MIB) for n in range(100))
    scattered = Scattered()
    order = [n ^ 1 for n in range(100)]
    assert not any(scattered.declines(n * MIB, (n + 1) * MIB) for n in order), "requests overtake each other"


def test_scattered_calls_of_read_are_declined_once() -> None:
    scattered = Scattered()
    declined = 0
    for n in range(50):
        start = n * 10 * MIB
        if scattered.declines(start, start + MIB):
            declined += 1
            assert not any(scattered.declines(page, page + PAGE) for page in range(start, start + MIB, PAGE))
    assert declined == 1


def test_two_readers_of_one_descriptor_are_declined_once() -> None:
    scattered = Scattered()
    declined = [start for n in range(50) for start in (n * MIB, (500 + n) * MIB) if scattered.declines(start, start + MIB)]
    assert not scattered.declines(declined[-1], declined[-1] + PAGE)
    assert not any(scattered.declines(start, start + MIB) for n in range(50, 99) for start in (n * MIB, (500 + n) * MIB))


def test_a_reader_that_becomes_sequential_gets_long_requests_again() -> None:
    scattered = Scattered()
    for plane in range(20):
        fault(scattered, 10 * MIB + plane * 2 * MIB)
    begin = 100 * MIB
    found = [fault(scattered, begin + n * PAGE) for n in range(30)]
    assert found[0] == [True, False]
    assert found[17:] == [[False]] * 13


def test_short_requests_are_never_declined() -> None:
    scattered = Scattered()
    assert not any(scattered.declines(n * MIB, n * MIB + PAGE) for n in range(100))


def test_p2_a_declined_request_is_answered_when_it_comes_again() -> None:
    """A kernel with large folios asks for more than a page at a time; a second failure would be its caller's."""
    for begin, end in ((0, MIB), (0, 64 * 1024), (512 * 1024, 640 * 1024), (MIB - 64 * 1024, MIB)):
        scattered = Scattered()
        start = next(start for start in range(10 * MIB, 1000 * MIB, 10 * MIB) if scattered.declines(start, start + MIB))
        assert not scattered.declines(start + begin, start + end)


@pytest.fixture(autouse=True, params=["read-ahead", "no-read-ahead"])
def prediction(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are answered alike with read-ahead and without."""
    monkeypatch.setitem(DEFAULTS, "read_ahead", request.param == "read-ahead")


def test_p9_a_versioned_inode_always_keeps_its_pages() -> None:
    async def test(filesystem: Filesystem) -> None:
        inode = await look_up(filesystem, b"zarr.json")
        for _ in range(2):
            opened = await filesystem.open(inode, 0, CTX)
            assert (opened.keep_cache, opened.direct_io) == (1, 0)
        file.stamp += 1
        with pytest.raises(pyfuse3.FUSEError) as caught:
            await filesystem.open(inode, 0, CTX)
        assert caught.value.errno == errno.ESTALE
        assert await look_up(filesystem, b"zarr.json") != inode

    file = FakeFile(b"{}", keyed=True)
    with_filesystem(test, FakeDirectory({b"zarr.json": file}))


def test_p9_pages_of_an_unversioned_inode_follow_the_version_at_open() -> None:
    async def test(filesystem: Filesystem) -> None:
        inode, handles = await look_up(filesystem, b"chunk"), list[int]()

        async def open_chunk() -> tuple[int, bool, bool]:
            reply = await filesystem.open(inode, 0, CTX)
            handles.append(reply.fh)
            return reply.fh, bool(reply.keep_cache), bool(reply.direct_io)

        first, keep, direct = await open_chunk()
        assert (keep, direct) == (False, False), "nothing is known of the pages"
        _, keep, direct = await open_chunk()
        assert (keep, direct) == (False, False), "the kernel may not have emptied them yet"
        await filesystem.read(first, 0, 1)
        second, keep, direct = await open_chunk()
        assert (keep, direct) == (True, False)
        file.stamp += 1
        third, keep, direct = await open_chunk()
        assert direct, "an old version is still open"
        for fh in handles:
            await filesystem.release(fh)
        _, keep, direct = await open_chunk()
        assert (keep, direct) == (False, False), "the pages may hold the old version"
        assert second != third

    file = FakeFile(b"data")
    with_filesystem(test, FakeDirectory({b"chunk": file}))


@pytest.mark.parametrize("usual", [True, False])
@pytest.mark.parametrize("again", [True, False])
def test_p9_a_chunk_that_is_replaced_again_and_again_opens_at_the_second_try(
    usual: bool, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel tries only twice, and on a busy machine a chunk had changed before each of both opens."""
    stored, clock = fake_array(np.zeros(4, "u1"), (4,)), Clock(monkeypatch)

    async def test(filesystem: Filesystem) -> None:
        directory = await look_up(filesystem, b"c")
        first = inode = await look_up(filesystem, b"0", directory)
        outdated = await filesystem.open(inode, 0, CTX)
        if not usual:  # the usual inode is that of the outdated version
            stored.chunks.version += 1
            inode = await look_up(filesystem, b"0", directory)
        stored.chunks.version += 1
        with pytest.raises(pyfuse3.FUSEError) as caught:
            await filesystem.open(inode, 0, CTX)
        assert caught.value.errno == errno.ESTALE
        inode = await look_up(filesystem, b"0", directory)
        assert inode != first
        if again:
            stored.chunks.version += 1
        reply = await filesystem.open(inode, 0, CTX)
        assert bool(reply.direct_io) == again, "bypassed are only pages of another version: else they can be mapped"
        assert filesystem.files[reply.fh].version == stored.chunks.version
        await filesystem.release(reply.fh)
        clock.passes(STALE_SECONDS)
        stored.chunks.version += 1
        with pytest.raises(pyfuse3.FUSEError):
            await filesystem.open(inode, 0, CTX)
        await filesystem.release(outdated.fh)

    with_filesystem(test, tree(stored))


def test_the_memory_of_pages_is_bounded() -> None:
    pages = PageVersions(remembered=10)
    for inode in range(100):
        pages.count_open(inode, "v")
        pages.count_close(inode, "v")
    assert len(pages) == 10
    assert pages.count_open(99, "v") == Caching(keep=True, direct=False)
    assert pages.count_open(5, "v") == Caching(keep=False, direct=False)
    pages.count_close(99, "v")
    pages.forget(99)
    assert pages.count_open(99, "v") == Caching(keep=False, direct=False)


def test_files_of_an_immutable_store_keep_their_pages() -> None:
    async def test(filesystem: Filesystem) -> None:
        reply = await filesystem.open(await look_up(filesystem, b"chunk"), 0, CTX)
        assert (reply.keep_cache, reply.direct_io) == (1, 0)
        await filesystem.release(reply.fh)

    with_filesystem(test, FakeDirectory({b"chunk": FakeFile(b"data")}), immutable=True)
