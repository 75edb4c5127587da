"""When the kernel forgets much, the daemon gives memory back."""

from __future__ import annotations

import threading
from pathlib import Path

import trio
import trio.testing
from fake_tree import FakeDirectory, FakeFile

from fsbridge.config import Config
from fsbridge.kernel.inodes import ROOT
from fsbridge.mount.daemon import FORGOTTEN_SECONDS, Daemon
from fsbridge.tree import Attrs, Entry


def test_p6_memory_is_given_back_when_the_kernel_has_forgotten_much(tmp_path: Path) -> None:
    given: list[int] = []
    gone = threading.Event()

    def give_back() -> None:
        given.append(len(inodes))
        gone.set()

    served = Daemon(Config(str(tmp_path), ""), FakeDirectory(), lambda: None, give_back=give_back, forgotten_inodes=50)
    inodes = served.filesystem.inodes
    clock = trio.testing.MockClock()

    async def passes(looks: int) -> None:
        for _ in range(looks):
            await trio.testing.wait_all_tasks_blocked()
            clock.jump(FORGOTTEN_SECONDS)
        await trio.testing.wait_all_tasks_blocked()

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(served._watch_forgotten)
            told = [inodes.count_listed(ROOT, Entry(b"%d" % n, Attrs("file", 1, 0), FakeFile), None)[0] for n in range(100)]
            await passes(2)
            for inode in told[:40]:
                inodes.forget(inode, 1)
            await passes(2)
            assert (given, len(inodes._opened)) == ([], 60)
            for inode in told[40:60]:
                inodes.forget(inode, 1)
            await passes(2)
            assert gone.wait(10)
            assert (given, len(inodes._opened)) == ([41], 0)
            nursery.cancel_scope.cancel()

    trio.run(run, clock=clock)
