"""Worker threads for everything that may block: three lanes of persistent threads, and the way back to the event loop.

A request costs one hand-over to a thread and shares one wake-up with every other result that is ready by then; a new thread
or a `trio.to_thread` call per request costs several times as much. The lanes are apart so that reads that hang do not take
the threads that listings need, and a thread with a job that takes long has a substitute meanwhile, so that one hung store
does not stop the others. Not here: what a job does, and what its failure means to the kernel (`boundary.py`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, NoReturn, TypeVar

import trio

from fsbridge import confinement
from fsbridge.errors import AccessDenied, FsbridgeError, TimedOut
from fsbridge.kernel.overdue import Overdue, Subject

T = TypeVar("T")

log = logging.getLogger(__name__)

METADATA_THREADS = 4
"""Listings and lookups are short; four of them hide the latency of a network disk."""

REMOTE_METADATA_THREADS, REMOTE_DATA_THREADS = 16, 32
"""Threads for a source on the network: they wait for answers, not for a processor."""

DATA_THREADS = (os.cpu_count() or 1) + 2
"""Decoding needs one thread per processor; two more wait for the disk meanwhile."""

SUBSTITUTE_THREADS = 60
"""Most extra threads of a lane, which replace those with long jobs. Up to this many hung requests do not stop others."""

SIZE_THREADS, REMOTE_SIZE_THREADS = 2, 8
"""Threads that make a file's bytes only to find its size. They are separate so that file managers never delay readers."""

METADATA_SLOW, DATA_SLOW = 1.0, 5.0
"""Seconds after which a job's thread gets a substitute: far more than a listing step or a chunk takes."""

AGAIN_SECONDS = 0.05
"""Seconds before a thread without memory for it tries again to tell the event loop that a job is over."""

METADATA_SUSPECTED, DATA_SUSPECTED = 1.0, 10.0
"""Shorter deadline, in seconds, of a job while another one in the same directory hangs, so that waits do not add up."""


class Abandoned(TimedOut):
    """The deadline of a job has passed, not one within the store. A job that has begun goes on."""


class _Job(Generic[T]):
    """One call for a thread. `task` is the trio task that waits for it now; `wanted` is true while a result is wanted."""

    __slots__ = (
        "abandoned",
        "begun",
        "call",
        "ended",
        "error",
        "hung",
        "over",
        "repeated",
        "result",
        "slow",
        "subject",
        "task",
        "wanted",
    )

    def __init__(self, call: Callable[[], T], abandoned: Callable[[T | None], None] | None, subject: Subject | None) -> None:
        self.call: Callable[[], T] | None = call
        self.abandoned = abandoned
        self.subject = subject
        self.task: trio.lowlevel.Task | None = None
        self.wanted = True
        self.begun = self.ended = self.slow = False  # the lane's lock guards these
        self.over = False  # as the event loop knows it
        self.hung = False
        self.repeated = False  # true once it failed on a thread with outdated rules and was queued again
        self.result: T | None = None
        self.error: Exception | None = None


class _Returns:
    """Calls that other threads hand to the event loop, mostly for finished jobs. One wake-up serves any number of them."""

    def __init__(self, token: trio.lowlevel.TrioToken) -> None:
        self._token = token
        self._calls: deque[Callable[[], object]] = deque()
        self._woken = False  # true while a wake-up is on its way

    @property
    def due(self) -> bool:
        """True if something waits for the event loop."""
        return bool(self._calls)

    def put(self, call: Callable[[], object]) -> None:
        """Run `call` on the event loop; trio.RunFinishedError if the loop has ended. For any thread."""
        self._calls.append(call)
        if not self._woken:  # else the wake-up that is already on its way takes this one too
            self._woken = True
            try:
                self._token.run_sync_soon(self._deliver)
            except BaseException:  # no memory, say: the next one wakes it
                self._woken = False
                raise

    def _deliver(self) -> None:
        self._woken = False  # before the calls are counted: a call added from here on asks for a new wake-up
        for _ in range(len(self._calls)):
            try:
                self._calls.popleft()()
            except Exception as error:  # a bug, or no memory: it would end the event loop, and the mount with it
                with contextlib.suppress(Exception):  # no memory to say so, either
                    log.error("unexpected %s on the event loop", type(error).__name__, exc_info=error)


class Lane:
    """Daemon threads that take jobs in order: `threads` of them, and a substitute for each that is busy for `slow` seconds.

    Made by `Jobs`.
    """

    def __init__(self, name: str, threads: int, slow: float, suspected: float, advice: str = "") -> None:
        """`advice`: text added to a deadline's error."""
        self.name = name
        self.threads = threads
        self.overdue = Overdue(suspected)
        self._slow_after = slow
        self._advice = advice
        self._queue: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._running: dict[_Job[Any], float] = {}  # since when (time.monotonic), the oldest first
        self._alive = 0
        self._slow = 0
        self._started = 0
        self._returns: _Returns | None = None

    @property
    def running(self) -> int:
        """Jobs that occupy a thread now, including those given up by their caller."""
        return len(self._running)

    def slow(self) -> tuple[int, float]:
        """Jobs that take long now, and the seconds of the oldest. For any thread."""
        now = time.monotonic()
        seconds = [now - since for since in list(self._running.values()) if now - since > self._slow_after]
        return len(seconds), max(seconds, default=0.0)

    def start(self, returns: _Returns) -> None:
        """Start the threads. They are daemons: a hung one does not keep the process alive."""
        self._returns = returns
        with self._lock:
            for _ in range(self.threads):
                self._start_thread()

    def stop(self) -> None:
        """Let the idle threads end; busy ones end after their job."""
        with self._lock:
            for _ in range(self._alive):
                self._queue.put(None)

    async def run(
        self,
        call: Callable[[], T],
        deadline: float,
        abandoned: Callable[[T | None], None] | None = None,
        subject: Subject | None = None,
    ) -> T:
        """Run `call()` on a thread of this lane; return its result or raise its exception.

        `deadline` is a time of trio's clock. After it Abandoned is raised: a job that has begun goes on and keeps its
        thread, and one that has not begun never begins. When such a job is over, `abandoned` gets its result (None if it has
        none) on the event loop; `abandoned` must not raise. While an earlier job for the same `subject` hangs beyond its own
        deadline, no job is made and TimedOut is raised.
        """
        now = trio.current_time()
        deadline = min(deadline, now + self.overdue.patience(subject))
        job = _Job(call, abandoned, subject)
        self._queue.put(job)
        try:
            while not job.over and now < deadline:
                with trio.CancelScope(deadline=min(deadline, now + self._slow_after)):
                    await _finished(job)
                if not job.over:
                    self._relieve(job)
                    now = trio.current_time()
        except BaseException:
            job.wanted = False
            raise
        if not job.over:
            self._give_up(job)
        if job.error is not None:
            try:
                raise job.error
            finally:
                job.error = None  # breaks the cycle traceback -> frame -> job -> error
        return job.result  # type: ignore[return-value]

    def _give_up(self, job: _Job[Any]) -> NoReturn:
        job.wanted = False
        if job.begun and job.subject is not None:
            job.hung = True
            self.overdue.begins(job.subject)
        raise Abandoned(f"no answer from the store within the deadline{self._advice}")

    def _relieve(self, job: _Job[Any]) -> None:
        """Start a substitute thread if `job` takes so long that other jobs may lack a thread."""
        with self._lock:
            if job.begun and not job.ended and not job.slow:
                job.slow = True
                self._slow += 1
            if self._alive - self._slow < self.threads and self._alive < self.threads + SUBSTITUTE_THREADS:
                self._start_thread()

    def _start_thread(self) -> None:
        confinement.start(self._work, f"fsbridge-{self.name}-{self._started + 1}")
        self._alive += 1  # not before: without memory for one, another must be started later
        self._started += 1

    def _work(self) -> None:
        try:
            self._take_jobs()
        except MemoryError:  # between two jobs
            self._make_way(True)

    def _take_jobs(self) -> None:
        returns, stays = self._returns, True
        assert returns is not None
        while stays and (job := self._queue.get()) is not None:
            try:
                if confinement.outgrown():
                    self._queue.put(job)
                    self._make_way(stays)
                    return
                if self._begin(job):
                    _do(job)
                    stays = self._end(job)
                    if confinement.outgrown():
                        stays = self._make_way(stays)
                        if self._again(job):
                            return
            except MemoryError as error:  # on the way to the job or from it
                job.error, job.wanted = error, False
            job.call = None
            if not self._told(returns, job):
                return
            del job

    def _told(self, returns: _Returns, job: _Job[Any]) -> bool:
        """Tell the event loop that a job is over; False if the loop has ended. Tries again if memory is short."""
        while True:
            try:
                returns.put(partial(self._over, job))
            except trio.RunFinishedError:
                return False
            except MemoryError:
                time.sleep(AGAIN_SECONDS)
            else:
                return True

    def _over(self, job: _Job[Any]) -> None:
        """Resume the request that waits for a job, or clean up if the request was given up.

        On the event loop; only the first call acts.
        """
        if job.over:
            return
        job.over = True
        if job.hung and job.subject is not None:
            self.overdue.ends(job.subject)
        if job.task is not None:
            task, job.task = job.task, None
            trio.lowlevel.reschedule(task)
        elif not job.wanted and job.abandoned is not None:
            job.abandoned(job.result)

    def _make_way(self, stays: bool) -> bool:
        """Start a thread in place of this one and return False. `stays` false: a substitute has already taken its place."""
        if stays:
            with self._lock:
                self._alive -= 1
                self._start_thread()
        return False

    def _again(self, job: _Job[Any]) -> bool:
        """Queue again, once, a wanted job that failed because this thread's Landlock rules are outdated; true if queued."""
        with self._lock:
            if job.error is None or job.repeated or not job.wanted:
                return False
            job.error = None
            job.repeated = True
            job.begun = job.ended = job.slow = False
        self._queue.put(job)
        return True

    def _begin(self, job: _Job[Any]) -> bool:
        """Mark `job` as begun if it is still wanted; false if it is not."""
        with self._lock:
            if job.wanted:
                self._running[job] = time.monotonic()
                job.begun = True
            return job.begun

    def _end(self, job: _Job[Any]) -> bool:
        """Mark `job` as ended. False if this thread must end, because substitutes have made one thread too many."""
        with self._lock:
            del self._running[job]
            job.ended = True
            if job.slow:
                self._slow -= 1
            surplus = self._alive - self._slow > self.threads
            self._alive -= surplus
            return not surplus


def _do(job: _Job[Any]) -> None:
    try:
        assert job.call is not None
        job.result = job.call()
    except (AccessDenied, PermissionError) as error:
        job.error = error
        try:
            confinement.refused()
        except Exception as outgrown:  # of any kind: without this thread the lane would answer nothing any more
            job.error = outgrown
    except Exception as error:  # not judged here: it travels to the caller, which has the errno boundary
        job.error = error
    except BaseException as error:  # SystemExit from a library must not end a worker, nor the daemon
        job.error = FsbridgeError(f"a worker was told to end by {type(error).__name__}")


async def _finished(job: _Job[Any]) -> None:
    """Wait until `job` is over. A cancelled wait leaves the job running, with no task that waits for it."""

    def stop(_raise_cancel: object) -> trio.lowlevel.Abort:
        job.task = None
        return trio.lowlevel.Abort.SUCCEEDED

    job.task = trio.lowlevel.current_task()
    await trio.lowlevel.wait_task_rescheduled(stop)


class Jobs:
    """All lanes. `start` and `stop` belong to the event loop's thread."""

    def __init__(self, metadata: int = METADATA_THREADS, data: int = DATA_THREADS, sizes: int = SIZE_THREADS) -> None:
        self.metadata = Lane("metadata", metadata, METADATA_SLOW, METADATA_SUSPECTED)
        self.data = Lane("data", data, DATA_SLOW, DATA_SUSPECTED)
        self.sizes = Lane("sizes", sizes, DATA_SLOW, DATA_SUSPECTED, "; it goes on being made: ask again later")
        self._returns: _Returns | None = None

    @classmethod
    def remote(cls) -> Jobs:
        """Return the lanes for a source on the network."""
        return cls(REMOTE_METADATA_THREADS, REMOTE_DATA_THREADS, REMOTE_SIZE_THREADS)

    def start(self) -> None:
        """Start the threads; called once, inside trio."""
        self._returns = _Returns(trio.lowlevel.current_trio_token())
        for lane in self._lanes:
            lane.start(self._returns)

    def due(self) -> bool:
        """True if something waits for the event loop: a finished job, or a call of another thread."""
        return self._returns is not None and self._returns.due

    def on_loop(self, call: Callable[[], object]) -> None:
        """Run `call` on the event loop soon, unless the loop has ended. For any thread."""
        if self._returns is not None:
            with contextlib.suppress(trio.RunFinishedError):
                self._returns.put(call)

    def stop(self) -> None:
        """Tell the threads to end; does not wait for them."""
        for lane in self._lanes:
            lane.stop()

    @property
    def running(self) -> int:
        """Jobs on threads now, in all lanes."""
        return sum(lane.running for lane in self._lanes)

    @property
    def _lanes(self) -> tuple[Lane, ...]:
        return self.metadata, self.data, self.sizes
