"""A long listing is read on while the kernel takes what was read of it: nothing is lost, doubled or taken for the end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyfuse3
import pytest
import trio
from fake_tree import FakeDirectory, FakeFile
from handlers import CTX, Replies, with_filesystem
from waiting import eventually

from fsbridge.kernel.filesystem import Filesystem
from fsbridge.kernel.limits import KernelLimits
from fsbridge.kernel.readahead import READY_BATCHES
from fsbridge.tree import Entry

NAMES = [b"%02d" % number for number in range(30)]


class Stepwise(FakeDirectory):
    """A directory of NAMES, three at a time; `before(n)` is called before its nth batch is made."""

    def __init__(self, before: Callable[[int], object] = lambda number: None) -> None:
        super().__init__({name: FakeFile() for name in NAMES})
        self.before = before
        self.made = 0

    def entries(self) -> Iterator[Sequence[Entry]]:
        for number, batch in enumerate(super().entries()):
            self.before(number)
            self.made = number + 1
            yield batch


BRIEF = KernelLimits(beginning_seconds=-1.0)
"""An open reads one batch, and none is much."""


async def begin(filesystem: Filesystem, replies: Replies) -> tuple[int, int]:
    """The handle of a listing of which the first batches have been shown, and where it goes on."""
    fh, start = await filesystem.opendir(1, CTX), 0
    for _ in range(2):
        replies.told = []
        await filesystem.readdir(fh, start, replies)
        start = replies.told[-1][1]
    return fh, start


def list_by(replies: Replies, root: Stepwise) -> Callable[[Filesystem], Any]:
    async def test(filesystem: Filesystem) -> None:
        fh = await filesystem.opendir(1, CTX)
        assert await replies.list_all(filesystem, fh) == [b".", b"..", *NAMES]
        assert root.made == 10
        await filesystem.releasedir(fh)

    return test


def test_all_is_listed_once_and_in_order() -> None:
    for room in (1, 2, 3, 7, 100):
        root = Stepwise()
        with_filesystem(list_by(Replies(room), root), root, limits=BRIEF)
        assert root.listings == 1


def test_a_few_batches_are_read_before_the_kernel_asks() -> None:
    root = Stepwise()

    async def test(filesystem: Filesystem) -> None:
        fh, start = await begin(filesystem, replies := Replies())
        await eventually(lambda: root.made == 2 + READY_BATCHES)  # also while the kernel asks for nothing
        names = await replies.list_all(filesystem, fh, start)
        assert names == NAMES[6:]
        assert root.made == 10
        assert filesystem.listings[fh].whole() is not None
        await eventually(lambda: filesystem.directories.find_young(1) is not None)

    with_filesystem(test, root, limits=BRIEF, metadata_ttl=60.0)
    assert READY_BATCHES < 10


@pytest.mark.parametrize("lasting", [False, True])
def test_p8_an_error_met_ahead_is_no_end(lasting: bool) -> None:
    failures: list[int] = []

    def fail(number: int) -> None:
        if number == 2 and (lasting or not failures):
            failures.append(number)
            raise OSError(5, "broken")

    root = Stepwise(fail)

    async def test(filesystem: Filesystem) -> None:
        fh, start = await begin(filesystem, replies := Replies())
        await eventually(lambda: len(failures) == 1 and filesystem.listings[fh].coming is None)
        if not lasting:
            assert await replies.list_all(filesystem, fh, start) == NAMES[6:], "it was read anew"
            return
        for _ in range(3):
            with pytest.raises(pyfuse3.FUSEError):
                await filesystem.readdir(fh, start, replies)

    assert with_filesystem(test, root, limits=BRIEF).reporter.unexpected == 0


def test_p7_a_listing_that_hangs_ahead_has_a_deadline() -> None:
    hang = threading.Event()
    root = Stepwise(lambda number: number == 2 and hang.wait(60))

    async def test(filesystem: Filesystem) -> None:
        try:
            fh, start = await begin(filesystem, replies := Replies())
            with pytest.raises(pyfuse3.FUSEError, match="timed out"), trio.fail_after(30):
                await filesystem.readdir(fh, start, replies)
        finally:
            hang.set()
        await eventually(lambda: not filesystem.jobs.running and not filesystem.jobs.metadata.hung)
        assert await replies.list_all(filesystem, fh, start) == NAMES[6:]

    with_filesystem(test, root, limits=BRIEF, metadata_deadline=2.0)


def test_p11_a_listing_that_is_closed_while_it_is_read_on_leaves_nothing() -> None:
    going_on = threading.Event()
    root = Stepwise(lambda number: number == 2 and going_on.wait(10))

    async def test(filesystem: Filesystem) -> None:
        fh, _ = await begin(filesystem, Replies())
        await eventually(lambda: filesystem.jobs.running == 1)
        await filesystem.releasedir(fh)
        going_on.set()
        await eventually(lambda: not filesystem.jobs.running)
        assert len(filesystem.listings) == 0

    assert with_filesystem(test, root, limits=BRIEF).reporter.unexpected == 0
    assert root.made <= 3
