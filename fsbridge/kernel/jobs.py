"""Worker threads for everything that may block: two lanes of persistent threads, and the way back to the event loop.

A request costs one hand-over to a thread and shares one wake-up with every other result that is ready by then; a new
thread or a `trio.to_thread` call per request costs several times as much. The lanes are apart so that reads that hang do
not take the threads that listings need. Not here: what a job does, and what its failure means to the kernel (`boundary.py`).
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

import trio

from fsbridge.errors import FsbridgeError, TimedOut

T = TypeVar("T")

METADATA_THREADS = 4
"""Listings and lookups are short; four of them hide the latency of a network disk."""

DATA_THREADS = (os.cpu_count() or 1) + 2
"""Decoding needs one thread per processor; two more wait for the disk meanwhile."""


class _Job(Generic[T]):
    """One call on its way. `task` is the waiting trio task, None once nobody waits any more."""

    __slots__ = ("abandoned", "call", "error", "result", "task")

    def __init__(self, call: Callable[[], T], abandoned: Callable[[T | None], None] | None) -> None:
        self.call: Callable[[], T] | None = call
        self.abandoned = abandoned
        self.task: trio.lowlevel.Task | None = trio.lowlevel.current_task()
        self.result: T | None = None
        self.error: Exception | None = None


class _Returns:
    """Finished jobs on their way back to the event loop: any number of them in one wake-up."""

    def __init__(self, token: trio.lowlevel.TrioToken) -> None:
        self._token = token
        self._lock = threading.Lock()
        self._finished: list[_Job[Any]] = []

    def hand_over(self, job: _Job[Any]) -> None:
        """Called by worker threads."""
        with self._lock:
            self._finished.append(job)
            first = len(self._finished) == 1
        if first:  # else the wake-up that is already on its way takes this one too
            self._token.run_sync_soon(self._deliver)

    def _deliver(self) -> None:
        with self._lock:
            finished, self._finished = self._finished, []
        for job in finished:
            if job.task is not None:
                trio.lowlevel.reschedule(job.task)
            elif job.abandoned is not None:
                job.abandoned(job.result)


class Lane:
    """A fixed number of daemon threads that take jobs in order. Made by `Jobs`."""

    def __init__(self, name: str, threads: int) -> None:
        self.name = name
        self.threads = threads
        self._queue: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._running = 0

    @property
    def running(self) -> int:
        """Jobs that occupy a thread now, including those whose caller has given up."""
        return self._running

    def start(self, returns: _Returns) -> None:
        """Start the threads. They are daemons: a hung one does not keep the process alive."""
        for number in range(self.threads):
            name = f"fsbridge-{self.name}-{number}"
            threading.Thread(target=self._work, args=(returns,), name=name, daemon=True).start()

    def stop(self) -> None:
        """Let the idle threads end; busy ones end after their job."""
        for _ in range(self.threads):
            self._queue.put(None)

    async def run(
        self, call: Callable[[], T], deadline: float, abandoned: Callable[[T | None], None] | None = None
    ) -> T:
        """`call()` on a thread of this lane, its result or its exception.

        `deadline` is a time of trio's clock; afterwards TimedOut is raised. A job that has begun then finishes on its
        own and keeps its thread until it does; one that has not begun never does. When such a job is over, `abandoned`
        gets its result (None if it has none) on the event loop; it must not raise.
        """
        job = _Job(call, abandoned)

        def give_up(_raise_cancel: object) -> trio.lowlevel.Abort:
            job.task = None
            return trio.lowlevel.Abort.SUCCEEDED

        self._queue.put(job)
        with trio.CancelScope(deadline=deadline):
            await trio.lowlevel.wait_task_rescheduled(give_up)
        if job.task is None:
            raise TimedOut("no answer from the store within the deadline")
        if job.error is not None:
            try:
                raise job.error
            finally:
                job.error = None  # breaks the cycle traceback -> frame -> job -> error
        return job.result  # type: ignore[return-value]

    def _work(self, returns: _Returns) -> None:
        while (job := self._queue.get()) is not None:
            with self._lock:
                self._running += 1
            try:
                if job.task is not None and job.call is not None:
                    job.result = job.call()
            except Exception as error:  # not judged here: it travels to the caller, who has the errno boundary
                job.error = error
            except BaseException as error:  # SystemExit from a library must not end a worker, nor the daemon
                job.error = FsbridgeError(f"a worker was told to end by {type(error).__name__}")
            job.call = None
            with self._lock:
                self._running -= 1
            try:
                returns.hand_over(job)
            except trio.RunFinishedError:
                return
            del job


class Jobs:
    """Both lanes. `start` and `stop` belong to the event loop's thread."""

    def __init__(self, metadata: int = METADATA_THREADS, data: int = DATA_THREADS) -> None:
        self.metadata = Lane("metadata", metadata)
        self.data = Lane("data", data)
        self._token: trio.lowlevel.TrioToken | None = None

    def start(self) -> None:
        """Start the threads; called once, inside trio."""
        self._token = trio.lowlevel.current_trio_token()
        returns = _Returns(self._token)
        self.metadata.start(returns)
        self.data.start(returns)

    def on_loop(self, call: Callable[[], object]) -> None:
        """Have the event loop do `call` soon, unless it has ended. For any thread."""
        if self._token is not None:
            with contextlib.suppress(trio.RunFinishedError):
                self._token.run_sync_soon(call)

    def stop(self) -> None:
        """Tell the threads to end; does not wait for them."""
        self.metadata.stop()
        self.data.stop()

    @property
    def running(self) -> int:
        """Jobs on threads now, in both lanes."""
        return self.metadata.running + self.data.running
