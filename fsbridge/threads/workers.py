"""Threads for work besides requests, and for questions that may hang.

`Workers`: a few threads; what a request waits for is done before what may be wanted soon. `HungMembers`: questions about all
members of a directory; those that do not answer in time are skipped (P7). Thread-safe. Not here: any such work, the event
loop's way to wait for a thread (`kernel/lanes.py`), calls whose results are all needed (`parallel.py`).
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from fsbridge import asking
from fsbridge.asking import before_waiting
from fsbridge.errors import FsbridgeError
from fsbridge.threads import starting
from fsbridge.threads.deadlines import Stopwatch

log = logging.getLogger(__name__)

WAITING_JOBS = 64
"""Most jobs that wait. Older ones are dropped, because a request has probably made their results by then."""

IDLE_SECONDS = 2.0
"""Seconds without work after which a thread ends."""

SLOW_SECONDS = 2.0
"""Seconds after which a busy thread gets a substitute, because what it waits for may hang."""

SUBSTITUTES = 16
"""Most substitutes of the busy threads."""


def _log_error(error: Exception) -> None:
    log.error("unexpected %s on a worker", type(error).__name__, exc_info=error)


class Workers:
    """A few threads. They start when there is work, and end when there is none.

    They are daemon threads: a decoder that hangs does not hold up the end of the process. `report` gets, on those threads,
    every exception that is neither an error of ours nor of the operating system: a bug.
    """

    def __init__(
        self,
        name: str,
        threads: int,
        report: Callable[[Exception], object] = _log_error,
        idle_seconds: float = IDLE_SECONDS,
        slow_seconds: float = SLOW_SECONDS,
    ) -> None:
        """`idle_seconds`: see `IDLE_SECONDS`; `slow_seconds`: see `SLOW_SECONDS`."""
        self._report = report
        self._idle_seconds = idle_seconds
        self._slow_seconds = slow_seconds
        self._threads = threads
        self._name = name
        self._changed = threading.Condition()
        self._jobs: deque[tuple[Callable[[], object], Callable[[], object]]] = deque()
        self._running = 0
        self._idle = 0  # threads without a job
        self._begun: dict[int, Stopwatch] = {}  # since the jobs under way began, by the thread

    def share(self, jobs: Sequence[Callable[[], object]]) -> None:
        """Do all `jobs`, on the calling thread and on the workers that are free. They must not raise.

        Returns when none is left to begin. Workers may still be busy with theirs.
        """
        left = deque(jobs)

        def work() -> None:
            while True:
                try:
                    job = left.popleft()
                except IndexError:
                    return
                job()

        for _ in range(min(self._threads, len(left) - 1)):
            self.submit(work, asked=True)  # the caller does what no worker has time for
        work()

    def submit(self, job: Callable[[], object], dropped: Callable[[], object] = lambda: None, asked: bool = False) -> None:
        """Do `job` soon, or call `dropped` when it will never be done. Does not block.

        `asked`: a request waits for it, so it goes before all others.
        """
        job, out_of_date = asking.carried(job), None
        with self._changed:
            if len(self._jobs) >= WAITING_JOBS:
                _, out_of_date = self._jobs.popleft()
            if asked:
                self._jobs.appendleft((job, dropped))
            else:
                self._jobs.append((job, dropped))
            if self._idle >= len(self._jobs) or self._running >= self._count_allowed():  # as many as wait will take one each
                self._changed.notify()
            else:
                self._start_thread()
        if out_of_date is not None:
            out_of_date()

    def _count_allowed(self) -> int:
        """Return the most threads that there may be now."""
        busy = list(self._begun.values())
        return self._threads + min(SUBSTITUTES, sum(begun.seconds > self._slow_seconds for begun in busy))

    def _work(self) -> None:
        dismissed, own = False, threading.get_ident()
        try:
            while (job := self._next()) is not None:
                self._begun[own] = Stopwatch()
                try:
                    job()
                except (FsbridgeError, OSError) as error:
                    log.debug("background work failed: %s", error)
                except Exception as error:
                    self._report(error)
                finally:
                    del self._begun[own]
                del job
            dismissed = True
        finally:
            if not dismissed:
                self._make_way()

    def _next(self) -> Callable[[], object] | None:
        """Return the next job; None if the calling thread must end, which from then on does not count as running."""
        with self._changed:
            if self._running > self._count_allowed():  # the thread that this one replaced is free again
                self._running -= 1
                return None
            self._idle += 1
            try:
                # Another thread may be faster: then wait again.
                self._changed.wait_for(lambda: self._jobs, self._idle_seconds)
            finally:
                self._idle -= 1
            if self._jobs:
                return self._jobs.popleft()[0]
            self._running -= 1
            return None

    def _make_way(self) -> None:
        """Start a thread in place of this one if jobs are waiting."""
        with self._changed:
            self._running -= 1
            if self._jobs:
                self._start_thread()

    def _start_thread(self) -> None:
        starting.start(self._work, f"fsbridge-{self._name}-{self._running + 1}")
        self._running += 1


K = TypeVar("K", bound=Hashable)
R = TypeVar("R")

PATIENCE_SECONDS = 2.0
"""Seconds to wait for a member that is not known yet: far more than it takes on a busy machine."""

KNOWN_SECONDS = 0.25
"""Seconds to wait for a member known from an earlier listing: too few to make the listing overdue."""

IMPATIENCE = 5
"""After one member has hung, the next ones of the listing get a fifth of the time: if one hangs, several often do."""

HANGING = 16
"""Most members that may hang at a time, each holding a thread. While so many hang, listings ask about no others."""


class _Round(SimpleQueue[R | None]):
    """The answers about the members of one listing. A thread asks for them in order, and None follows the last one."""

    hanging: Hashable | None = None
    """The member that the listing waits for no longer."""


class HungMembers(Generic[R]):
    """The members of one store that hang now: no listing asks one of them again until it answers."""

    def __init__(
        self, patience: float = PATIENCE_SECONDS, known_patience: float = KNOWN_SECONDS, most_hanging: int = HANGING
    ) -> None:
        """`patience`, `known_patience`: seconds to wait for a member that is not known, and for one that is known."""
        self._patience = patience
        self._known_patience = known_patience
        self._most_hanging = most_hanging
        self._lock = threading.Lock()
        self._hanging: set[Hashable] = set()

    def hangs(self, key: Hashable) -> bool:
        """True if the member at `key` did not answer in time, and a thread still waits for it."""
        return key in self._hanging

    def answers(self, keys: Sequence[K], ask: Callable[[K], R], known: Callable[[K], bool]) -> Iterator[R | None]:
        """Yield what `ask` returns for each key, in order; None for a member that hangs. `ask` must raise nothing.

        It waits a little for each member, less for those that are `known`.
        """
        before_waiting()
        haste, left = 1, list(keys)
        while left:
            if left[0] in self._hanging or len(self._hanging) >= self._most_hanging:
                yield None
                del left[0]
                continue
            asked = left[: next((number for number, key in enumerate(left) if key in self._hanging), len(left))]
            answers: _Round[R] = _Round()
            starting.start(partial(self._ask_all, asked, ask, answers), "fsbridge-members")
            for key in asked:
                patience = self._known_patience if known(key) else self._patience
                answer = self._next(answers, key, patience / haste)
                yield answer
                del left[0]
                if answer is None:
                    haste = IMPATIENCE
                    break

    def _next(self, answers: _Round[R], key: Hashable, patience: float) -> R | None:
        with suppress(Empty):
            return answers.get(timeout=patience)
        with self._lock:
            with suppress(Empty):  # it came at the last moment
                return answers.get_nowait()
            answers.hanging = key
            self._hanging.add(key)
            return None

    def _ask_all(self, keys: Sequence[K], ask: Callable[[K], R], answers: _Round[R]) -> None:
        try:
            for key in keys:
                answer = ask(key)
                with self._lock:
                    if answers.hanging is not None:
                        return
                    answers.put(answer)
        finally:  # also after an error: this thread failed, not the member, and the next listing asks again
            with self._lock:
                answers.put(None)
                if answers.hanging is not None:
                    self._hanging.discard(answers.hanging)
