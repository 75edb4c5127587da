"""Read-ahead of the directories of an array's chunks: which walks are followed, what is read, and how long it is shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fake_model import FakeArray, FakeSource, fake_array
from handlers import Steps, inode_of, walked
from waiting import Clock

from fsbridge.config import Config
from fsbridge.decoded.cache import ChunkCache
from fsbridge.kernel.filesystem import Filesystem
from fsbridge.layouts import root_directory

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


def test_chunk_directories_are_followed_where_some_do_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    array = grid()
    array.chunks.stored = {index: stored for index, stored in array.chunks.stored.items() if index[0] % 4 == 0}

    async def test(steps: Steps, inode: int) -> None:
        for _, above in await steps.list(inode):
            assert len(await steps.list(above)) == 5
            await steps.idle()
        assert steps.jobs <= 3, "the root, its directory of chunks, and the first one in that"

    visited(array, monkeypatch, test)


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
        del array.chunks.stored[5, second, 0], array.chunks.stored[5, second, 1]

    async def test(steps: Steps, inode: int) -> None:
        members = dict(await steps.list(inode))
        for number in range(4):
            await steps.list(members[b"%d" % number])
            await steps.idle()
        array.chunks.stored[5, 2, 0] = b"x"
        assert len(await steps.list(members[b"5"])) == 1, "read ahead"
        clock.passes(61.0)  # a TTL, and a little for its length
        assert len(await steps.list(members[b"5"])) == 2

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
