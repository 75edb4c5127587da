"""How the FUSE session waits for its next request: without a pass of the event loop if the request is already there.

pyfuse3 takes a lock of trio's and waits for the device at each request; that is two passes of the event loop, which take
three times as long as a request that is answered from memory. It looks up trio's names in its module when it uses them
(`pyfuse3.asyncio` puts other ones there), so here are a lock that costs no pass if it is free, and a wait that polls first,
and lingers a moment for a program that sends one request after the other. A pyfuse3 of another version than those that were
tried keeps its own loop, which gives the same answers more slowly. Not here: requests (`filesystem.py`), jobs that the event
loop must not keep waiting (`lanes.py`).
"""

from __future__ import annotations

import contextlib
import logging
import re
import select
from collections.abc import Callable, Iterator
from types import SimpleNamespace, TracebackType

import pyfuse3
import trio

from fsbridge.threads.deadlines import Deadline

log = logging.getLogger(__name__)

OLDEST, NEWEST = (3, 2), (3, 5)
"""Oldest and newest version of pyfuse3 that were tried and look up only these names of trio in their module."""

TURN_SECONDS = 0.004
"""Seconds for which waiting requests are answered one after the other before the rest of the event loop (mostly
timers) gets its turn: each turn takes as long as a request.
"""

LINGER_MILLISECONDS = 1
"""Milliseconds for which the event loop waits for only the next request: a walk sends its next one within microseconds."""


class Waiting:
    """Waits for requests, for the event loop's thread. `due` says that something else wants its turn now.

    The caller reads from the device right after the wait. That read would block the event loop if no request were there.
    `alone` returns true if no other request is under way, so that nothing else waits for the event loop.
    """

    def __init__(
        self,
        due: Callable[[], bool] = lambda: False,
        alone: Callable[[], bool] = lambda: False,
        turn_seconds: float = TURN_SECONDS,
        linger_milliseconds: int = LINGER_MILLISECONDS,
    ) -> None:
        """`turn_seconds`: see `TURN_SECONDS`; `linger_milliseconds`: see `LINGER_MILLISECONDS`."""
        self._turn_seconds = turn_seconds
        self._linger_milliseconds = linger_milliseconds
        self._due = due
        self._alone = alone
        self._poll = select.poll()
        self._fd = -1
        self._turn = Deadline(0.0)

    async def wait_readable(self, fd: int) -> None:
        """Like `trio.lowlevel.wait_readable`, but without a checkpoint if `fd` is soon readable and nothing else is due."""
        if fd != self._fd:
            self._poll, self._fd = select.poll(), fd
            self._poll.register(fd, select.POLLIN)
        lingers = self._linger_milliseconds if self._alone() else 0
        if not self._due() and not self._turn.passed and self._poll.poll(lingers):
            return
        await trio.lowlevel.wait_readable(fd)
        while not self._poll.poll(0):  # the kernel has withdrawn the request, because its process ended, for example
            await trio.lowlevel.wait_readable(fd)
        self._turn = Deadline(self._turn_seconds)


class LoopLock:
    """A lock like `trio.Lock`, but a free one is taken at once, without a checkpoint."""

    def __init__(self) -> None:
        self._held = False
        self._called = False  # true if a waiting task has been woken and has not run yet
        self._waiting = trio.lowlevel.ParkingLot()

    @property
    def waiting(self) -> int:
        """Return the number of tasks that wait and have not been woken."""
        return len(self._waiting)

    async def __aenter__(self) -> None:
        while self._held:
            await self._waiting.park()
            self._called = False
        self._held = True

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held = False
        if not self._called and self._waiting:  # a task that finds it held again waits on, until its next holder wakes one
            self._called = True
            self._waiting.unpark()


def is_known(version: str) -> bool:
    """True if pyfuse3 of this version can use `Waiting` and `LoopLock`."""
    match = re.match(r"(\d+)\.(\d+)(\.\d+)*$", version)
    return match is not None and OLDEST <= (int(match[1]), int(match[2])) <= NEWEST


@contextlib.contextmanager
def quick_requests(due: Callable[[], bool], alone: Callable[[], bool]) -> Iterator[None]:
    """Return a context in which `pyfuse3.main` waits by `Waiting`. A version that was not tried waits in its own way."""
    if not is_known(pyfuse3.__version__):
        log.info("fsbridge does not know pyfuse3 %s, which waits for requests in its own, slower way", pyfuse3.__version__)
        yield
        return
    names = vars(pyfuse3)
    before = names["trio"]
    names["trio"] = SimpleNamespace(
        Lock=LoopLock,
        ClosedResourceError=trio.ClosedResourceError,
        open_nursery=trio.open_nursery,
        lowlevel=SimpleNamespace(
            wait_readable=Waiting(due, alone).wait_readable,
            notify_closing=trio.lowlevel.notify_closing,
            current_task=trio.lowlevel.current_task,
            current_trio_token=trio.lowlevel.current_trio_token,
        ),
    )
    try:
        yield
    finally:
        names["trio"] = before
