"""When the kernel forgets much, the daemon gives memory back; what it finds out by other means where the usual ones lack."""

from __future__ import annotations

import errno
import os
import threading
import weakref
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing
from fake_tree import FakeDirectory, FakeFile

from fsbridge.config import Config
from fsbridge.kernel.inodes import ROOT
from fsbridge.mount import daemon
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
            openers = [partial(FakeFile) for _ in range(100)]
            entries = [Entry(b"%d" % n, Attrs("file", 1, 0), opener) for n, opener in enumerate(openers)]
            told = [inodes.count_listed(ROOT, entry, None)[0] for entry in entries]
            kept = weakref.WeakSet(openers)
            openers.clear()
            entries.clear()
            await passes(2)
            for inode in told[:40]:
                inodes.forget(inode, 1)
            await passes(2)
            assert (given, len(kept)) == ([], 60)
            for inode in told[40:60]:
                inodes.forget(inode, 1)
            await passes(2)
            assert gone.wait(10)
            assert (given, len(kept)) == ([41], 0)
            nursery.cancel_scope.cancel()

    trio.run(run, clock=clock)


@pytest.mark.parametrize("there", [True, False])
def test_the_root_is_asked_by_another_process(there: bool, tmp_path: Path) -> None:
    """Python where there is no `stat`, as in an image without a shell."""
    folders = None if there else str(tmp_path)
    assert daemon._root_device(str(tmp_path), folders) == os.stat(tmp_path).st_dev
    with pytest.raises(OSError, match="No such file"):
        daemon._root_device(str(tmp_path / "nothing"), folders)


def test_where_memory_cannot_be_a_file_libfuse_is_heard_all_the_same() -> None:
    """A seccomp filter forbids memfd_create, or the system has none: nothing could be mounted."""

    def missing(name: str) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    with daemon._captured_stderr(missing) as words:
        os.write(2, b"fusermount3: no\n")
        assert words() == "fusermount3: no"
