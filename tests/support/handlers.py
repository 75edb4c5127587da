"""The handlers of a mount without a kernel: a `Filesystem` in trio, its replies to `readdir`, walks through a tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pyfuse3
import pytest
import trio
import trio.testing
from fake_tree import FakeDirectory, FakeFile
from waiting import eventually

from fsbridge.config import Config
from fsbridge.kernel.filesystem import Filesystem
from fsbridge.kernel.jobs import Jobs
from fsbridge.kernel.lanes import Lane
from fsbridge.kernel.readahead import ReadAhead
from fsbridge.kernel.readahead import directories as siblings

CTX: Any = None


DEFAULTS: dict[str, Any] = {"xattrs": True, "read_ahead": True}
"""Options of a mount that a test does not name."""


def with_filesystem(
    test: Callable[[Filesystem], Awaitable[Any]], root: Any, clock: trio.abc.Clock | None = None, **config: Any
) -> Filesystem:
    """Run `test(filesystem)` inside trio, without FUSE. `clock`: by which deadlines pass."""
    config = {**DEFAULTS, **config}

    async def main() -> Filesystem:
        jobs = Jobs(2, 2)
        filesystem = Filesystem(root, Config("source", "mountpoint", **config), jobs)
        jobs.start()
        try:
            await test(filesystem)
        finally:
            jobs.stop()
        return filesystem

    return trio.run(main, clock=clock)


async def passes(clock: trio.testing.MockClock, lane: Lane, jobs: int = 1) -> None:
    """Let a minute pass once so many jobs have begun: on a busy machine that may be after any deadline."""
    await eventually(lambda: lane.running >= jobs)
    clock.jump(60.0)


async def inode_of(filesystem: Filesystem, name: bytes, parent: int = 1) -> int:
    return (await filesystem.lookup(parent, name, CTX)).st_ino


class Replies:
    """Stands for pyfuse3's reply buffer: takes `room` entries per request."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int = 10**9) -> None:
        self.room = room
        self.told: list[tuple[bytes, int, int, int, float, int]] = []
        self.counts: Counter[int] = Counter()
        """By inode, the dot entries' too."""
        monkeypatch.setattr(pyfuse3, "readdir_reply", self.reply)

    def reply(self, token: Any, name: bytes, entry: Any, next_id: int) -> bool:
        if len(self.told) >= self.room:
            return False
        self.told.append((name, next_id, entry.st_ino, entry.st_size, entry.attr_timeout, entry.st_mode))
        self.counts[entry.st_ino] += 1
        return True

    async def all(self, filesystem: Filesystem, fh: int, start: int = 0) -> list[bytes]:
        """List from `start` to the end, as the kernel does: each request continues where the last one ended."""
        names: list[bytes] = []
        while True:
            self.told = []
            await filesystem.readdir(fh, start, CTX)
            if not self.told:
                return names
            names += [name for name, *_ in self.told]
            start = self.told[-1][1]


def family(count: int) -> FakeDirectory:
    """A directory of `count` directories that hold a file each."""
    return FakeDirectory({b"d%03d" % n: FakeDirectory({b"f": FakeFile(b"x")}) for n in range(count)})


class Steps:
    """Opens and lists directories; counts the jobs that a worker had to do for it."""

    def __init__(self, filesystem: Filesystem, replies: Replies, monkeypatch: pytest.MonkeyPatch) -> None:
        self.filesystem = filesystem
        self.replies = replies
        self.jobs = 0
        run = filesystem.jobs.metadata.run

        async def counted(*given: Any, **named: Any) -> Any:
            self.jobs += 1
            return await run(*given, **named)

        monkeypatch.setattr(filesystem.jobs.metadata, "run", counted)

    async def list(self, inode: int) -> list[tuple[bytes, int]]:
        fh = await self.filesystem.opendir(inode, CTX)
        told: list[tuple[bytes, int]] = []
        start = 0
        while True:
            self.replies.told = []
            await self.filesystem.readdir(fh, start, CTX)
            if not self.replies.told:
                break
            told += [(name, number) for name, _, number, *_ in self.replies.told]
            start = self.replies.told[-1][1]
        await self.filesystem.releasedir(fh)
        return told[2:]

    async def idle(self) -> None:
        """Until nothing is being read ahead."""
        ahead = self.filesystem.ahead
        assert isinstance(ahead, ReadAhead)
        await eventually(lambda: not ahead.siblings._awaited)


def walked(root: FakeDirectory, monkeypatch: pytest.MonkeyPatch, test: Callable[[Steps], Any], **config: Any) -> Filesystem:
    monkeypatch.setattr("fsbridge.kernel.handles.BEGINNING_SECONDS", 60.0)  # also where the machine is busy
    for name in ("BATCH_SECONDS", "WAIT_SECONDS"):
        monkeypatch.setattr(siblings, name, 60.0)

    async def run(filesystem: Filesystem) -> None:
        await test(Steps(filesystem, Replies(monkeypatch), monkeypatch))

    return with_filesystem(run, root, **{"metadata_ttl": 60.0, **config})
