"""Read-ahead of the directories of an array's chunks: which walks are followed, what is read, and how long it is shown."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
import pytest
from fake_model import FakeArray, FakeSource, fake_array
from handlers import Steps, inode_of, walked
from waiting import Clock

from fsbridge.config import Config
from fsbridge.decoded.cache import ChunkCache
from fsbridge.kernel.filesystem import Filesystem
from fsbridge.kernel.readahead import directories
from fsbridge.kernel.readahead.directories import Runs
from fsbridge.layouts import root_directory


def test_the_run_goes_further_with_each_step() -> None:
    run, read, steps = Runs(range(10, 310)), 10, []
    while read < 310:
        steps.append(run.entered(read))
        read = max(read + 1, steps[-1].stop)
    assert list(steps[0]) == []
    assert list(steps[1]) == [11, 12, 13]
    assert directories.DEPTH_DIRECTORIES // 2 <= max(map(len, steps)) <= 1 + directories.DEPTH_DIRECTORIES
    assert list(chain.from_iterable(steps)) == list(range(11, 310)), "each once, to the last one"


def test_absent_directories_are_passed_over_and_chance_visits_read_nothing() -> None:
    run = Runs(range(1000))
    assert [list(run.entered(position)) for position in (0, 3, 7)] == [[], [3, 4, 5], [7, 8, 9, 10, 11]]
    assert not any(run.entered(position) for position in (500, 100, 300, 900, 20))
    assert list(run.entered(12)), "the first one is still followed"
    assert not run.entered(12)


def test_several_visitors_are_followed() -> None:
    run = Runs(range(1000))
    for step in range(20):
        for visitor in range(directories.MAX_VISITORS):
            found = run.entered(100 * visitor + step)
            assert all(100 * visitor + step <= position < 100 * (visitor + 1) for position in found)


def test_a_walk_that_finds_its_directory_read_is_followed_on() -> None:
    run = Runs(range(100))
    assert not run.passed(5), "it was not visited before"
    assert [list(run.entered(position)) for position in (0, 1)] == [[], [1, 2, 3]]
    ahead = directories.BESIDE_DIRECTORIES
    assert [list(run.passed(position)) for position in (2, 3)] == [list(range(n, n + ahead)) for n in (3, 4)]
    assert not run.passed(3), "he has not moved"
    assert list(run.passed(98)) == [], "another one"
    assert run.entered(4 + ahead).start == 4 + ahead, "still followed where the reading was too slow"


SHAPE = (30, 5, 2)


def grid() -> FakeArray:
    """An array of 30 x 5 x 2 chunks of one element."""
    return fake_array(np.arange(300, dtype="u1").reshape(SHAPE), (1, 1, 1))


def visited(
    array: FakeArray, monkeypatch: pytest.MonkeyPatch, test: Callable[[Steps, int], Any], **config: Any
) -> Filesystem:
    """`test(steps, inode of c)` of a mount with the root `array`."""
    given = Config("fake", "/mnt")
    root: Any = root_directory(FakeSource(array), given, ChunkCache(given.cache_size))

    async def run(steps: Steps) -> None:
        await test(steps, await inode_of(steps.filesystem, b"c"))

    return walked(root, monkeypatch, run, **config)


def test_a_walk_through_chunk_directories_finds_the_next_ones_read(monkeypatch: pytest.MonkeyPatch) -> None:
    array = grid()
    found = []

    async def test(steps: Steps, inode: int) -> None:
        for first, above in await steps.list(inode):
            for second, below in await steps.list(above):
                found.extend((int(first), int(second), int(last)) for last, _ in await steps.list(below))
                await steps.idle()
        assert steps.jobs <= 10, "of 181 directories"

    visited(array, monkeypatch, test)
    assert found == [tuple(index) for index in np.ndindex(SHAPE)]


def test_large_chunk_directories_are_read_while_the_kernel_takes_those_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsbridge.kernel.readahead.directories.BESIDE_MEMBERS", 5)
    found = []

    async def test(steps: Steps, inode: int) -> None:
        directories = steps.filesystem.directories
        for number, (_, above) in enumerate(await steps.list(inode)):
            assert (directories.known(above) is not None) == (number > 1)
            found.append(len(await steps.list(above)))
            await steps.idle()
        assert steps.jobs <= 3, "the root, its directory of chunks, and the first one in that"

    visited(grid(), monkeypatch, test)
    assert found == [5] * 30


def test_p3_a_directory_that_was_not_there_when_its_turn_came_is_not_shown_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    array = grid()
    late = {index: array.chunks.stored.pop(index) for index in list(array.chunks.stored) if index[0] == 4}

    async def test(steps: Steps, inode: int) -> None:
        members = dict(await steps.list(inode))
        for number in (0, 1, 2, 3):
            await steps.list(members[b"%d" % number])
            await steps.idle()
        array.chunks.stored.update(late)
        [(first, _), *rest] = await steps.list(await inode_of(steps.filesystem, b"4", inode))
        assert (first, len(rest)) == (b"0", 4)

    visited(array, monkeypatch, test)


def test_p9_chunk_directories_read_ahead_are_shown_no_longer_than_the_ttl(monkeypatch: pytest.MonkeyPatch) -> None:
    array = grid()
    for second in (1, 2, 3, 4):
        del array.chunks.stored[7, second, 0], array.chunks.stored[7, second, 1]

    async def test(steps: Steps, inode: int) -> None:
        members = dict(await steps.list(inode))
        for number in range(6):
            await steps.list(members[b"%d" % number])
            await steps.idle()
        array.chunks.stored[7, 2, 0] = b"x"
        assert len(await steps.list(members[b"7"])) == 1, "read ahead"
        clock.passes(61.0)  # a TTL, and a little for its length
        assert len(await steps.list(members[b"7"])) == 2

    clock = Clock(monkeypatch)
    visited(array, monkeypatch, test, metadata_ttl=60.0)


def test_p11_what_was_read_ahead_in_vain_goes_with_the_array(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(steps: Steps, inode: int) -> None:
        filesystem = steps.filesystem
        told = [(inode, 2)]
        for _, above in (await steps.list(inode))[:6]:
            members = await steps.list(above)
            for _, below in members[:4]:
                told += [(number, 1) for _, number in await steps.list(below)]
                await steps.idle()
            told += [(number, 1) for _, number in members]
        assert len(filesystem.directories) > 30
        told += [(number, 1) for _, number in await steps.list(inode)] * 2
        await filesystem.forget(told)
        assert (
            len(filesystem.directories) + len(filesystem.ahead),
            filesystem.directories.nbytes,
            len(filesystem.inodes),
        ) == (0, 0, 1)

    visited(grid(), monkeypatch, test)


def test_without_a_ttl_no_chunk_directory_is_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(steps: Steps, inode: int) -> None:
        for _, above in await steps.list(inode):
            await steps.list(above)
        assert steps.jobs >= 31

    visited(grid(), monkeypatch, test, metadata_ttl=0.0)
