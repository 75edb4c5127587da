"""The handlers of a mount without a kernel: a `Filesystem` in trio, its replies to `readdir`, walks through a tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import trio
import trio.testing
from fake_kernel import ReplyBuffer, add_entry
from fake_tree import FakeDirectory, FakeFile
from pyfuse3 import EntryAttributes
from waiting import eventually

from fsbridge.config import Config
from fsbridge.kernel.filesystem import Filesystem
from fsbridge.kernel.jobs import METADATA_SLOW, METADATA_SUSPECTED, Jobs
from fsbridge.kernel.lanes import Lane, Subject
from fsbridge.kernel.limits import USUAL, KernelLimits
from fsbridge.kernel.readahead import ReadAhead
from fsbridge.tree import Directory

T = TypeVar("T")

CTX: Any = None

PATIENT = KernelLimits(beginning_seconds=60.0, batch_seconds=60.0, wait_seconds=60.0)
"""KernelLimits with time enough on a busy machine, too."""

DEFAULTS: dict[str, Any] = {"xattrs": True, "read_ahead": True}
"""Options of a mount that a test does not name."""


class CountedLane(Lane):
    """A lane that remembers the deadlines of its jobs."""

    def __init__(self) -> None:
        super().__init__("metadata", 2, METADATA_SLOW, METADATA_SUSPECTED)
        self.deadlines: list[float] = []

    async def run(
        self,
        call: Callable[[], T],
        deadline: float,
        abandoned: Callable[[T | None], None] | None = None,
        subject: Subject | None = None,
    ) -> T:
        self.deadlines.append(deadline)
        return await super().run(call, deadline, abandoned, subject)


class CountedJobs(Jobs):
    """Lanes of which the one for metadata counts its jobs."""

    def __init__(self) -> None:
        super().__init__(2, 2)
        self.metadata = self.counted = CountedLane()


def with_filesystem(
    test: Callable[[Filesystem], Awaitable[Any]],
    root: Any,
    clock: trio.abc.Clock | None = None,
    jobs: Jobs | None = None,
    limits: KernelLimits = USUAL,
    kind: type[Filesystem] = Filesystem,
    source: str = "source",
    **options: Any,
) -> Filesystem:
    """Run `test(filesystem)` inside trio, without FUSE. `clock`: by which deadlines pass."""
    config = Config(source, "mountpoint", **{**DEFAULTS, **options})

    async def main() -> Filesystem:
        lanes = jobs or Jobs(2, 2)
        filesystem = kind(root, config, lanes, limits, add_entry)
        lanes.start()
        try:
            await test(filesystem)
        finally:
            lanes.stop()
        return filesystem

    return trio.run(main, clock=clock)


async def pass_a_minute(clock: trio.testing.MockClock, lane: Lane, jobs: int = 1) -> None:
    """Let a minute pass once so many jobs have begun: on a busy machine that may be after any deadline."""
    await eventually(lambda: lane.running >= jobs)
    clock.jump(60.0)


async def look_up(filesystem: Filesystem, name: bytes, parent: int = 1) -> int:
    return (await filesystem.lookup(parent, name, CTX)).st_ino


class Replies(ReplyBuffer):
    """Stands for pyfuse3's reply buffer: takes `room` entries per request."""

    def __init__(self, room: int = 10**9) -> None:
        self.room = room
        self.told: list[tuple[bytes, int, int, int, float, int]] = []
        self.counts: Counter[int] = Counter()
        """By inode, the dot entries' too."""

    def add(self, name: bytes, entry: EntryAttributes, next_id: int) -> bool:
        if len(self.told) >= self.room:
            return False
        self.told.append((name, next_id, entry.st_ino, entry.st_size, entry.attr_timeout, entry.st_mode))
        self.counts[entry.st_ino] += 1
        return True

    async def list_all(self, filesystem: Filesystem, fh: int, start: int = 0) -> list[bytes]:
        """List from `start` to the end, as the kernel does: each request continues where the last one ended."""
        names: list[bytes] = []
        while True:
            self.told = []
            await filesystem.readdir(fh, start, self)
            if not self.told:
                return names
            names += [name for name, *_ in self.told]
            start = self.told[-1][1]


def make_family(count: int) -> FakeDirectory:
    """A directory of `count` directories that hold a file each."""
    return FakeDirectory({b"d%03d" % n: FakeDirectory({b"f": FakeFile(b"x")}) for n in range(count)})


class Steps:
    """Opens and lists directories; counts the jobs that a worker had to do for it."""

    def __init__(self, filesystem: Filesystem, lane: CountedLane) -> None:
        self.filesystem = filesystem
        self.replies = Replies()
        self._lane = lane

    @property
    def jobs(self) -> int:
        return len(self._lane.deadlines)

    async def list(self, inode: int) -> list[tuple[bytes, int]]:
        fh = await self.filesystem.opendir(inode, CTX)
        told: list[tuple[bytes, int]] = []
        start = 0
        while True:
            self.replies.told = []
            await self.filesystem.readdir(fh, start, self.replies)
            if not self.replies.told:
                break
            told += [(name, number) for name, _, number, *_ in self.replies.told]
            start = self.replies.told[-1][1]
        await self.filesystem.releasedir(fh)
        return told[2:]

    async def until_idle(self) -> None:
        """Until nothing is being read ahead."""
        ahead = self.filesystem.ahead
        assert isinstance(ahead, ReadAhead)
        await eventually(lambda: not ahead.siblings.reading)


def walk(
    root: Directory, test: Callable[[Steps], Awaitable[Any]], limits: KernelLimits = PATIENT, **options: Any
) -> Filesystem:
    """Run `test(steps)` in a mount of `root`."""
    jobs = CountedJobs()

    async def run(filesystem: Filesystem) -> None:
        await test(Steps(filesystem, jobs.counted))

    return with_filesystem(run, root, jobs=jobs, limits=limits, **{"metadata_ttl": 60.0, **options})
