"""Read-ahead in the tree: directories, and those of chunks, are read before they are entered, and shown as P9 allows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import trio
import trio.testing
from fake_model import FakeArray, FakeSource, fake_array
from fake_tree import FakeDirectory, FakeFile
from handlers import CTX, PATIENT, Steps, look_up, make_family, walk
from waiting import Clock, eventually

from fsbridge.asking import used
from fsbridge.config import Config
from fsbridge.decoded.cache import ChunkCache
from fsbridge.kernel.directories import USED_SECONDS
from fsbridge.kernel.filesystem import Filesystem
from fsbridge.kernel.readahead import ReadAhead
from fsbridge.kernel.readahead.directories import Siblings
from fsbridge.layouts import root_directory
from fsbridge.threads.workers import Workers
from fsbridge.tree import Entry

REMOTE = "s3://bucket/array"
"""A source that is never opened here, for which reading is waiting."""


def test_a_directory_costs_one_job_and_none_again() -> None:
    async def test(steps: Steps) -> None:
        first = await steps.list(1)
        assert steps.jobs == 1
        assert await steps.list(1) == first
        assert steps.jobs == 1

    walk(make_family(5), test)


def test_a_walk_through_members_finds_the_next_ones_read() -> None:
    root = make_family(100)

    async def test(steps: Steps) -> None:
        members = await steps.list(1)
        for _, inode in members:
            assert [name for name, _ in await steps.list(inode)] == [b"f"]
            await steps.until_idle()
        assert steps.jobs <= 4

    walk(root, test)
    assert all(member.listings == 1 for member in root.members.values())


def test_p6_what_was_read_ahead_is_parked_in_its_turn() -> None:
    async def test(steps: Steps) -> None:
        steps.filesystem.inodes.park()
        members = await steps.list(1)
        for _, inode in members:
            await steps.list(inode)
            await steps.until_idle()
            records = [steps.filesystem.inodes.record(number) for _, number in members]
            assert sum(record is not None and record.node is not None for record in records) <= 10

    walk(make_family(100), test, replace(PATIENT, opened_nodes=10))


def test_sorted_visitors_are_followed_too() -> None:
    root = make_family(100)
    root.members = dict(sorted(root.members.items(), key=lambda item: hash(item[0]) % 101))

    async def test(steps: Steps) -> None:
        for _, inode in sorted(await steps.list(1)):
            await steps.list(inode)
            await steps.until_idle()
        assert steps.jobs <= 6

    walk(root, test)
    assert sum(member.listings for member in root.members.values()) <= 104


class CountedWorkers(Workers):
    """Counts the jobs it gets."""

    submitted = 0

    def submit(self, job: Callable[[], object], dropped: Callable[[], object] = lambda: None, asked: bool = False) -> None:
        self.submitted += 1
        super().submit(job, dropped, asked)


def test_a_second_walk_that_begins_when_the_first_is_too_old_takes_no_more_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_family(100)
    root.members = dict(reversed(root.members.items()))  # a program that sorts goes against the order of the listing
    clock, workers = Clock(monkeypatch), CountedWorkers("walk", 1)

    async def test(steps: Steps) -> None:
        mount, walks = steps.filesystem, []
        assert isinstance(mount.ahead, ReadAhead)
        mount.ahead.siblings = Siblings(
            mount.inodes, mount.directories, mount.jobs, mount.ages, workers, remote=False, limits=PATIENT
        )
        for _ in range(2):
            for _, inode in sorted(await steps.list(1)):
                await steps.list(inode)
                await steps.until_idle()
            walks.append(workers.submitted)
            clock.passes(2.0)
        assert walks[1] <= 2 * walks[0]

    walk(root, test, metadata_ttl=2.0)


def test_random_visits_read_nothing_ahead() -> None:
    root = make_family(100)

    async def test(steps: Steps) -> None:
        members = await steps.list(1)
        for number in (50, 3, 90, 12, 70, 31, 99, 0):
            await steps.list(members[number][1])
            await steps.until_idle()

    walk(root, test)
    assert sum(member.listings for member in root.members.values()) == 8


def test_without_read_ahead_each_directory_is_read_for_its_reader_alone() -> None:
    root = make_family(10)

    async def test(steps: Steps) -> None:
        for number, (_, inode) in enumerate(await steps.list(1)):
            await steps.list(inode)
            assert (steps.jobs, sum(member.listings for member in root.members.values())) == (number + 2, number + 1)

    walk(root, test, read_ahead=False)


def test_no_more_is_read_ahead_than_was_read_before() -> None:
    root = make_family(100)

    async def test(steps: Steps) -> None:
        for number, (_, inode) in enumerate(await steps.list(1)):
            await steps.list(inode)
            await steps.until_idle()
            assert sum(member.listings for member in root.members.values()) <= 1 + 3 * number

    walk(root, test)


def test_a_slow_sibling_is_left_to_its_reader() -> None:
    root = make_family(20)

    async def test(steps: Steps) -> None:
        for number, (_, inode) in enumerate(await steps.list(1)):
            await steps.list(inode)
            await steps.until_idle()
            assert sum(member.listings for member in root.members.values()) == number + 1

    walk(root, test, replace(PATIENT, batch_seconds=-1.0))  # whatever is read takes longer


def test_p7_a_hung_sibling_delays_its_own_reader_alone_and_not_for_long() -> None:
    root, clock = make_family(10), trio.testing.MockClock()
    hung, goes_on = threading.Event(), threading.Event()

    def hang() -> None:
        if not hung.is_set():
            hung.set()
            assert goes_on.wait(60)

    async def test(steps: Steps) -> None:
        members = await steps.list(1)
        root.members[b"d001"].on_list = hang
        await steps.list(members[0][1])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(steps.list, members[1][1])
            await eventually(hung.is_set)
            await trio.testing.wait_all_tasks_blocked()
            clock.jump(PATIENT.wait_seconds)
        for _, inode in members[2:]:
            assert len(await steps.list(inode)) == 1
        assert trio.current_time() < 2 * PATIENT.wait_seconds, "no time passes for the others"
        goes_on.set()
        await steps.until_idle()

    assert walk(root, test, clock=clock).reporter.unexpected == 0


def test_siblings_in_a_remote_store_are_read_at_the_same_time() -> None:
    root, both = make_family(30), threading.Barrier(2)

    async def test(steps: Steps) -> None:
        members = await steps.list(1)
        await steps.list(members[0][1])
        for name in (b"d001", b"d002"):
            root.members[name].on_list = lambda: both.wait(60)
        for _, inode in members[1:]:
            await steps.list(inode)
        await steps.until_idle()
        assert steps.jobs == 2

    walk(root, test, source=REMOTE)
    assert all(member.listings == 1 for member in root.members.values())


def test_a_walk_is_followed_though_all_it_shows_is_from_one_earlier_listing() -> None:
    """As of an object store: a listing says of a thousand arrays what they contain, and is too old to be shown again."""

    class Old(FakeDirectory):
        def entries(self) -> Iterator[Sequence[Entry]]:
            used(time.monotonic() - 600.0)
            yield from super().entries()

    members = {b"d%03d" % n: Old({b"f": FakeFile(b"x")}) for n in range(100)}

    async def test(steps: Steps) -> None:
        for number, (name, inode) in enumerate(await steps.list(1)):
            assert (members[name].listings > 0) == (number > 1)
            await steps.list(inode)
            await steps.until_idle()

    walk(Old({**members}), test, source=REMOTE)


def test_what_ends_with_an_empty_batch_is_known_all_the_same() -> None:
    """Groups without members were read again on each visit nearby: trees of them took seven times as long."""

    class Ends(FakeDirectory):
        def entries(self) -> Iterator[Sequence[Entry]]:
            yield from super().entries()
            yield []

    members = {b"d%03d" % n: Ends({b"f": FakeFile(b"x")}) for n in range(20)}

    async def test(steps: Steps) -> None:
        for _, inode in await steps.list(1):
            assert [name for name, _ in await steps.list(inode)] == [b"f"]
            await steps.until_idle()

    walk(FakeDirectory({**members}), test)
    assert {member.listings for member in members.values()} == {1}


def test_p9_what_was_read_ahead_is_shown_no_longer_than_the_ttl(monkeypatch: pytest.MonkeyPatch) -> None:
    root, clock = make_family(3), Clock(monkeypatch)

    async def test(steps: Steps) -> None:
        await steps.list(1)
        root.members[b"new"] = FakeFile(b"y")
        clock.passes(30.0)
        assert b"new" not in dict(await steps.list(1)), "remembered for three quarters of the TTL"
        clock.passes(30.0)
        assert b"new" in dict(await steps.list(1))

    walk(root, test, metadata_ttl=60.0)


def test_p9_without_a_ttl_every_opendir_asks() -> None:
    root = make_family(3)

    async def test(steps: Steps) -> None:
        for _ in range(3):
            await steps.list(1)
        assert steps.jobs == 3

    limits = replace(PATIENT, just_seconds=60.0)  # for what an opendir has read its own reader comes, however late
    walk(root, test, limits, metadata_ttl=0.0)
    assert root.listings == 3


def test_p9_rewinding_lists_again() -> None:
    root = make_family(2)

    async def test(steps: Steps) -> None:
        fh = await steps.filesystem.opendir(1, CTX)
        assert len(await steps.replies.list_all(steps.filesystem, fh)) == 4
        root.members[b"new"] = FakeFile(b"y")
        assert len(await steps.replies.list_all(steps.filesystem, fh)) == 5

    walk(root, test)


def test_p11_what_is_remembered_goes_when_the_kernel_forgets() -> None:
    async def test(steps: Steps) -> None:
        filesystem = steps.filesystem
        members = await steps.list(1)
        for _, inode in members:
            told = await steps.list(inode)
            await filesystem.forget([(number, 1) for _, number in told])
        await steps.until_idle()
        assert len(filesystem.directories) > 20
        await filesystem.forget([(inode, 1) for _, inode in members])
        await filesystem.forget([(1, 1)])
        assert (len(filesystem.directories) + len(filesystem.ahead), filesystem.directories.nbytes) == (0, 0)
        assert len(filesystem.inodes) == 1

    walk(make_family(50), test)


def test_p6_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    async def test(steps: Steps) -> None:
        for _, inode in await steps.list(1):
            await steps.list(inode)
            await steps.until_idle()
            assert steps.filesystem.directories.nbytes <= 40_000
        assert len(steps.filesystem.directories) > 5
        clock.passes(60.0 + USED_SECONDS)  # a TTL, and as long as a directory that was used is kept in any case
        steps.filesystem.directories.expire()
        assert (len(steps.filesystem.directories), steps.filesystem.directories.nbytes) == (0, 0)

    walk(make_family(50), test, replace(PATIENT, directories_bytes=40_000))


def test_p8_a_broken_member_is_met_by_its_own_visitor_only() -> None:
    root = make_family(20)
    broken = root.members[b"d005"]

    def fail() -> None:
        raise OSError(5, "broken")

    broken.on_list = fail

    async def test(steps: Steps) -> None:
        for name, inode in await steps.list(1):
            if name == b"d005":
                with pytest.raises(Exception, match=r"Input/output error"):
                    await steps.list(inode)
            else:
                assert len(await steps.list(inode)) == 1
            await steps.until_idle()

    assert walk(root, test).reporter.unexpected == 0


def test_p8_several_visitors_wait_for_what_is_being_read() -> None:
    root = make_family(10)
    begun, goes_on = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        assert goes_on.wait(10)

    async def test(steps: Steps) -> None:
        members = await steps.list(1)
        root.members[b"d001"].on_list = wait
        await steps.list(members[0][1])
        jobs = steps.jobs
        opened: list[int] = []

        async def enter(number: int) -> None:
            opened.append(await steps.filesystem.opendir(members[number][1], CTX))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(enter, 1)
            await eventually(begun.is_set)
            nursery.start_soon(enter, 1)
            nursery.start_soon(enter, 2)
            await trio.testing.wait_all_tasks_blocked()
            goes_on.set()
        for fh in opened:
            assert await steps.replies.list_all(steps.filesystem, fh) == [b".", b"..", b"f"]
        assert (len(opened), steps.jobs) == (3, jobs)

    assert walk(root, test).reporter.unexpected == 0


def make_chain(name: bytes, depth: int) -> FakeDirectory:
    """Directories in each other, `depth` of them, with a file in each."""
    return FakeDirectory({b"f": FakeFile(b"x"), name: make_chain(name, depth - 1)} if depth else {b"f": FakeFile(b"x")})


async def walk_below(steps: Steps, inode: int) -> int:
    """Walk all of a tree, depth first; the number of its members."""
    members = await steps.list(inode)
    await steps.until_idle()
    return len(members) + sum([await walk_below(steps, number) for name, number in members if name != b"f"])


def test_chains_of_only_children_are_read_in_the_job_that_reads_their_first_one() -> None:
    root = FakeDirectory({b"d%03d" % n: make_chain(b"g", 10) for n in range(100)})

    async def test(steps: Steps) -> None:
        assert await walk_below(steps, 1) == 100 * 22
        assert steps.jobs <= 2 + 2 * 11, "those of the root and of the first two members: no walk is known yet"
        assert await walk_below(steps, 1) == 100 * 22
        assert steps.jobs <= 2 + 2 * 11

    walk(root, test)
    assert all(member.listings == 1 for member in root.members.values())


def test_a_directory_of_many_directories_is_read_without_them() -> None:
    root = FakeDirectory({b"d%d" % n: make_family(100) for n in range(5)})

    async def test(steps: Steps) -> None:
        for _, inode in await steps.list(1):
            await steps.list(inode)
            await steps.until_idle()

    walk(root, test)
    assert not any(below.listings for member in root.members.values() for below in member.members.values())


def test_p8_a_broken_directory_spoils_nothing_that_is_read_with_it() -> None:
    root = FakeDirectory({b"d%d" % n: make_family(3) for n in range(20)})

    def fail() -> None:
        raise OSError(5, "broken")

    for member in root.members.values():
        member.members[b"d001"].on_list = fail

    async def test(steps: Steps) -> None:
        for _, inode in await steps.list(1):
            for name, number in await steps.list(inode):
                if name == b"d001":
                    with pytest.raises(Exception, match=r"Input/output error"):
                        await steps.list(number)
                else:
                    assert len(await steps.list(number)) == 1
            await steps.until_idle()

    assert walk(root, test).reporter.unexpected == 0


def test_p9_a_directory_that_was_just_read_is_looked_up_in_memory_for_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    root, clock = make_family(3), Clock(monkeypatch)
    asked: list[str] = []

    async def test(steps: Steps) -> None:
        inode = dict(await steps.list(1))[b"d001"]
        await steps.list(inode)
        root.on_lookup = lambda: asked.append("")
        for left in (60.0, 20.0):
            found = await steps.filesystem.lookup(1, b"d001", CTX)
            assert (found.st_ino, asked) == (inode, [])
            assert found.entry_timeout <= left
            clock.passes(40.0)
        await steps.filesystem.lookup(1, b"d001", CTX)
        await steps.filesystem.lookup(1, b"d002", CTX)  # it was not read
        assert len(asked) == 2

    walk(root, test, metadata_ttl=60.0)


SHAPE = (30, 5, 2)


def make_grid() -> FakeArray:
    """An array of 30 x 5 x 2 chunks of one element."""
    return fake_array(np.arange(300, dtype="u1").reshape(SHAPE), (1, 1, 1))


def visit(array: FakeArray, test: Callable[[Steps, int], Any], **config: Any) -> Filesystem:
    """`test(steps, inode of c)` of a mount with the root `array`."""
    given = Config("fake", "/mnt")
    root: Any = root_directory(FakeSource(array), given, ChunkCache(given.cache_size))

    async def run(steps: Steps) -> None:
        await test(steps, await look_up(steps.filesystem, b"c"))

    return walk(root, run, **config)


def test_a_walk_through_chunk_directories_finds_the_next_ones_read() -> None:
    array = make_grid()
    visited_chunks: list[tuple[int, int, int]] = []

    async def test(steps: Steps, inode: int) -> None:
        for first, above in await steps.list(inode):
            for second, below in await steps.list(above):
                visited_chunks.extend((int(first), int(second), int(last)) for last, _ in await steps.list(below))
                await steps.until_idle()
        assert steps.jobs <= 10, "of 181 directories"

    visit(array, test)
    assert visited_chunks == [tuple(index) for index in np.ndindex(SHAPE)]


def test_chunk_directories_are_followed_where_some_do_not_exist() -> None:
    array = make_grid()
    array.chunks.stored = {index: stored for index, stored in array.chunks.stored.items() if index[0] % 4 == 0}

    async def test(steps: Steps, inode: int) -> None:
        for _, above in await steps.list(inode):
            assert len(await steps.list(above)) == 5
            await steps.until_idle()
        assert steps.jobs <= 3, "the root, its directory of chunks, and the first one in that"

    visit(array, test)


def test_p3_a_directory_that_was_absent_when_its_turn_came_is_not_shown_empty() -> None:
    array = make_grid()
    late = {index: array.chunks.stored.pop(index) for index in list(array.chunks.stored) if index[0] == 4}

    async def test(steps: Steps, inode: int) -> None:
        members = dict(await steps.list(inode))
        for number in (0, 1, 2, 3):
            await steps.list(members[b"%d" % number])
            await steps.until_idle()
        array.chunks.stored.update(late)
        [(first, _), *rest] = await steps.list(await look_up(steps.filesystem, b"4", inode))
        assert (first, len(rest)) == (b"0", 4)

    visit(array, test)


def test_p9_chunk_directories_read_ahead_are_shown_no_longer_than_the_ttl(monkeypatch: pytest.MonkeyPatch) -> None:
    array = make_grid()
    for second in (1, 2, 3, 4):
        del array.chunks.stored[5, second, 0], array.chunks.stored[5, second, 1]

    async def test(steps: Steps, inode: int) -> None:
        members = dict(await steps.list(inode))
        for number in range(4):
            await steps.list(members[b"%d" % number])
            await steps.until_idle()
        array.chunks.stored[5, 2, 0] = b"x"
        assert len(await steps.list(members[b"5"])) == 1, "read ahead"
        clock.passes(61.0)  # a TTL, and a little for its length
        assert len(await steps.list(members[b"5"])) == 2

    clock = Clock(monkeypatch)
    visit(array, test, metadata_ttl=60.0)


def test_p11_what_was_read_ahead_in_vain_goes_with_the_array() -> None:
    async def test(steps: Steps, inode: int) -> None:
        filesystem = steps.filesystem
        told = [(inode, 2)]
        for _, above in (await steps.list(inode))[:6]:
            members = await steps.list(above)
            for _, below in members[:4]:
                told += [(number, 1) for _, number in await steps.list(below)]
                await steps.until_idle()
            told += [(number, 1) for _, number in members]
        assert len(filesystem.directories) > 30
        told += [(number, 1) for _, number in await steps.list(inode)] * 2
        await filesystem.forget(told)
        assert (
            len(filesystem.directories) + len(filesystem.ahead),
            filesystem.directories.nbytes,
            len(filesystem.inodes),
        ) == (0, 0, 1)

    visit(make_grid(), test)


def test_without_a_ttl_no_chunk_directory_is_read_ahead() -> None:
    async def test(steps: Steps, inode: int) -> None:
        for _, above in await steps.list(inode):
            await steps.list(above)
        assert steps.jobs >= 31

    visit(make_grid(), test, metadata_ttl=0.0)
