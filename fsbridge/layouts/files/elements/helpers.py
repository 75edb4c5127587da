"""Threads that decode chunks beside a reader who needs several at once. Not here: what they do."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Sequence

from fsbridge.idle import IdleThreads

log = logging.getLogger(__name__)

Job = Callable[[], None]


class Helpers:
    """As many threads as there are processors beside the caller's."""

    def __init__(self, threads: int | None = None) -> None:
        self._most = (os.cpu_count() or 1) - 1 if threads is None else threads
        self._threads = IdleThreads(_failed, self._most, "helper")

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
            self._threads.submit(work)  # nobody is missed who has no time: the caller does what is left
        work()


def _failed(error: Exception) -> None:
    log.error("a job that must not fail did", exc_info=error)
