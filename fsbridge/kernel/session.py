"""How the FUSE session waits for its next request: without a pass of the event loop where the request is already there.

pyfuse3 takes a lock of trio's and waits for the device at each request; that is two passes of the event loop, which take
three times as long as a request that is answered from memory. It looks up trio's names in its module when it uses them
(`pyfuse3.asyncio` puts other ones there), so here are a lock that lets pass who finds it free, and a wait that looks first.
Not here: requests (`filesystem.py`), jobs that the event loop must not keep waiting (`jobs.py`).
"""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace, TracebackType

import pyfuse3
import trio

TURN_SECONDS = 0.001
"""How long requests that are already there are answered one after the other before everything else gets its turn."""


class Waiting:
    """Waits for requests, for the event loop's thread. `due` says that something else wants its turn now."""

    def __init__(self, due: Callable[[], bool] = lambda: False) -> None:
        self._due = due
        self._poll = select.poll()
        self._fd = -1
        self._turn_ends = 0.0

    async def wait_readable(self, fd: int) -> None:
        """As `trio.lowlevel.wait_readable`, but no checkpoint while `fd` is readable and nothing else is due."""
        if fd != self._fd:
            self._poll, self._fd = select.poll(), fd
            self._poll.register(fd, select.POLLIN)
        if not self._due() and time.monotonic() < self._turn_ends and self._poll.poll(0):
            return
        await trio.lowlevel.wait_readable(fd)
        self._turn_ends = time.monotonic() + TURN_SECONDS


class Lock:
    """One holder at a time, as `trio.Lock`, but no checkpoint where it is free, and whoever comes first takes it."""

    def __init__(self) -> None:
        self._held = False
        self._waiting = trio.lowlevel.ParkingLot()

    async def __aenter__(self) -> None:
        while self._held:
            await self._waiting.park()
        self._held = True

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held = False
        self._waiting.unpark()  # who finds it held again waits on: each holder wakes one


@contextlib.contextmanager
def quick_requests(due: Callable[[], bool]) -> Iterator[None]:
    """Let `pyfuse3.main` wait so; it asks trio for nothing else than what is here."""
    names = vars(pyfuse3)
    before = names["trio"]
    names["trio"] = SimpleNamespace(
        Lock=Lock,
        ClosedResourceError=trio.ClosedResourceError,
        open_nursery=trio.open_nursery,
        lowlevel=SimpleNamespace(
            wait_readable=Waiting(due).wait_readable,
            notify_closing=trio.lowlevel.notify_closing,
            current_task=trio.lowlevel.current_task,
            current_trio_token=trio.lowlevel.current_trio_token,
        ),
    )
    try:
        yield
    finally:
        names["trio"] = before
