"""A lane: worker threads for what may block, and the way back from them to the event loop.

A thread with a job that takes long has a substitute meanwhile, so that one hung store does not stop the others. While a job
has passed its deadline and still hangs, further jobs for the same file are refused at once, and jobs in the same directory
get less time. Otherwise each new reader of a hung store would wait for a deadline of its own, and occupy another thread.

The threads are not those of `trio.to_thread.run_sync`, which cost as much processor time (3,000 files read by their paths,
0.9 to 1.1 times) in 80 lines less. trio starts its threads on the event loop, so a thread that lacks the memory to begin
would stop the mount for ever; here that costs the job a few seconds (P7). With trio a result for which the event loop could
not be woken, for want of memory, would be lost with its token: as many of them as the lane has threads, and it answers
nothing any more. Besides, trio 0.22, which is Debian 12's, names the option to abandon a job in another way.

Not here: which lanes there are (`jobs.py`), what a job does, what its failure means to the kernel (`boundary.py`), threads
for work that no request waits for (`threads/workers.py`).
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

import trio

from fsbridge.errors import FsbridgeError, TimedOut
from fsbridge.threads import starting
from fsbridge.threads.deadlines import Stopwatch

T = TypeVar("T")

log = logging.getLogger(__name__)

SUBSTITUTE_THREADS = 60
"""Most extra threads of a lane, which replace those with long jobs. Up to this many hung requests do not stop others."""

AGAIN_SECONDS = 0.05
"""Seconds after which a thread that lacked the memory to tell the event loop that a job is over tries again."""

HUNG_JOBS = 8
"""Most jobs in a directory that hang, each holding a thread; while there are so many, all others there are refused at once.

It is more than one because only some of several stores in one directory may hang.
"""


class Subject(NamedTuple):
    """What a job is about: a directory, by inode, and a member of it, by inode or, if it has none yet, by name."""

    directory: int
    member: Hashable


class Abandoned(TimedOut):
    """A job has not ended within its deadline. If it has begun, it goes on. Other TimedOut errors come from the store."""


class _Job(Generic[T]):
    """One call for a thread. `task` is the trio task that waits for it now; `wanted` is true while a result is wanted."""

    __slots__ = (
        "abandoned",
        "begun",
        "call",
        "error",
        "over",
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
        self.begun = self.slow = False  # the lane's lock guards these
        self.over = False  # as the event loop knows it
        self.result: T | None = None
        self.error: Exception | None = None


class Returns:
    """Calls that other threads hand to the event loop, mostly for finished jobs. One wake-up serves any number of them."""

    def __init__(self, wake: Callable[[Callable[[], object]], object]) -> None:
        """`wake`: has the event loop call a function soon. It is called on any thread."""
        self._wake = wake
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
                self._wake(self._deliver)
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

    def __init__(
        self,
        name: str,
        threads: int,
        slow: float,
        suspected: float,
        advice: str = "",
        substitutes: int = SUBSTITUTE_THREADS,
    ) -> None:
        """`suspected`: seconds that a job may take while another in the same directory hangs beyond its deadline.

        `advice`: text added to a deadline's error. `substitutes`: see `SUBSTITUTE_THREADS`.
        """
        self.name = name
        self.threads = threads
        self._slow_after = slow
        self._suspected = suspected
        self._advice = advice
        self._substitutes = substitutes
        self._queue: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._running: dict[_Job[Any], Stopwatch] = {}  # the oldest first
        self._hung: dict[_Job[Any], Subject] = {}  # those beyond their deadline; for the event loop
        self._alive = 0
        self._slow = 0
        self._started = 0
        self._returns: Returns | None = None

    @property
    def running(self) -> int:
        """How many jobs occupy a thread now, including those that their caller has given up."""
        return len(self._running)

    @property
    def hung(self) -> int:
        """Jobs about a file or directory that have passed their deadline and still run. For the event loop."""
        return len(self._hung)

    def slow(self) -> tuple[int, float]:
        """Jobs that take long now, and the seconds of the oldest. For any thread."""
        seconds = [running.seconds for running in list(self._running.values())]
        slow = [each for each in seconds if each > self._slow_after]
        return len(slow), max(slow, default=0.0)

    def patience(self, subject: Subject | None) -> float:
        """Return the most seconds that a job for `subject` may take. TimedOut while an earlier job for it hangs."""
        if not self._hung or subject is None:
            return math.inf
        members = [hung.member for hung in self._hung.values() if hung.directory == subject.directory]
        if subject.member in members or len(members) >= HUNG_JOBS:
            raise TimedOut("an earlier request for the same file or directory has passed its deadline and still hangs")
        return self._suspected if members else math.inf

    def start(self, returns: Returns) -> None:
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
        deadline = min(deadline, now + self.patience(subject))
        job = _Job(call, abandoned, subject)
        self._queue.put(job)
        try:
            while not job.over and now < deadline:
                with trio.CancelScope(deadline=min(deadline, now + self._slow_after)):
                    await _wait_for(job)
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
            self._hung[job] = job.subject
        raise Abandoned(f"the store did not answer within the deadline{self._advice}")

    def _relieve(self, job: _Job[Any]) -> None:
        """Start a substitute thread if `job` takes so long that other jobs may lack a thread."""
        with self._lock:
            if job in self._running and not job.slow:
                job.slow = True
                self._slow += 1
            if self._alive - self._slow < self.threads and self._alive < self.threads + self._substitutes:
                self._start_thread()

    def _start_thread(self) -> None:
        starting.start(self._work, f"fsbridge-{self.name}-{self._started + 1}")
        self._alive += 1  # not before: without memory for one, another must be started later
        self._started += 1

    def _work(self) -> None:
        try:
            self._take_jobs()
        except MemoryError:  # between two jobs: another thread takes the place of this one
            with self._lock:
                self._alive -= 1
                self._start_thread()

    def _take_jobs(self) -> None:
        returns, stays = self._returns, True
        assert returns is not None
        while stays and (job := self._queue.get()) is not None:
            try:
                if self._begin(job):
                    _do(job)
                    stays = self._end(job)
            except MemoryError as error:  # on the way to the job or from it
                job.error, job.wanted = error, False
            job.call = None
            if not self._report(returns, job):
                return
            del job

    def _report(self, returns: Returns, job: _Job[Any]) -> bool:
        """Tell the event loop that a job is over; False if the loop has ended. Tries again if memory is short."""
        while True:
            try:
                returns.put(partial(self._finish, job))
            except trio.RunFinishedError:
                return False
            except MemoryError:
                time.sleep(AGAIN_SECONDS)
            else:
                return True

    def _finish(self, job: _Job[Any]) -> None:
        """Resume the request that waits for a job, or clean up if the request was given up.

        On the event loop; only the first call acts.
        """
        if job.over:
            return
        job.over = True
        self._hung.pop(job, None)
        if job.task is not None:
            task, job.task = job.task, None
            trio.lowlevel.reschedule(task)
        elif not job.wanted and job.abandoned is not None:
            job.abandoned(job.result)

    def _begin(self, job: _Job[Any]) -> bool:
        """Mark `job` as begun if it is still wanted; false if it is not."""
        with self._lock:
            if job.wanted:
                self._running[job] = Stopwatch()
                job.begun = True
            return job.begun

    def _end(self, job: _Job[Any]) -> bool:
        """Mark `job` as ended. False if this thread must end, because substitutes have made one thread too many."""
        with self._lock:
            del self._running[job]
            if job.slow:
                self._slow -= 1
            surplus = self._alive - self._slow > self.threads
            self._alive -= surplus
            return not surplus


def _do(job: _Job[Any]) -> None:
    try:
        assert job.call is not None
        job.result = job.call()
    except Exception as error:  # not judged here: it travels to the caller, which has the errno boundary
        job.error = error
    except BaseException as error:  # SystemExit from a library must not end a worker, nor the daemon
        job.error = FsbridgeError(f"a worker was told to end by {type(error).__name__}")


async def _wait_for(job: _Job[Any]) -> None:
    """Wait until `job` is over. A cancelled wait leaves the job running, with no task that waits for it."""

    def stop(_raise_cancel: object) -> trio.lowlevel.Abort:
        job.task = None
        return trio.lowlevel.Abort.SUCCEEDED

    job.task = trio.lowlevel.current_task()
    await trio.lowlevel.wait_task_rescheduled(stop)
