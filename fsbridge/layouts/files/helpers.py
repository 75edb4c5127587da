"""Threads that help a reader who needs several chunks at once. Not here: what they do. They end when there is no work.

They are daemon threads: a decoder that hangs does not hold up the end of the process.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence

from fsbridge import confinement

IDLE_SECONDS = 2.0
"""Seconds without work after which a thread ends."""

Job = Callable[[], None]


class Helpers:
    """As many threads as there are processors beside the caller's."""

    def __init__(self, threads: int | None = None) -> None:
        self._most = (os.cpu_count() or 1) - 1 if threads is None else threads
        self._changed = threading.Condition()
        self._jobs: deque[Job] = deque()
        self._running = 0
        self._idle = 0

    def share(self, jobs: Sequence[Job]) -> None:
        """Do all jobs, by the calling thread and whoever is free; back when none is left to be begun. Jobs raise nothing."""
        left = deque(jobs)

        def work() -> None:
            while True:
                try:
                    job = left.popleft()
                except IndexError:
                    return
                job()

        for _ in range(min(self._most, len(left) - 1)):
            self._submit(work)
        work()

    def _submit(self, job: Job) -> None:
        with self._changed:
            self._jobs.append(job)
            if self._idle:
                self._changed.notify()
            elif self._running < self._most:
                self._running += 1
                confinement.start(self._work, f"fsbridge-helper-{self._running}")

    def _work(self) -> None:
        try:
            while (job := self._next()) is not None:
                job()
                del job
                if confinement.outgrown():
                    return
        finally:
            with self._changed:
                self._running -= 1

    def _next(self) -> Job | None:
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._jobs, IDLE_SECONDS)
            self._idle -= 1
            return self._jobs.popleft() if self._jobs else None
