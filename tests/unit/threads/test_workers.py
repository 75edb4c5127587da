"""Threads for work that can be left undone: no job is left between one that ends and one that begins."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest
from shortages import no_room_for_threads
from waiting import until

from fsbridge.errors import CorruptData
from fsbridge.threads.workers import Workers


def failing(error: Exception) -> None:
    raise error


def test_what_is_submitted_while_the_only_thread_ends_is_done() -> None:
    done, submitted = threading.Event(), threading.Event()

    class SubmitsLast(Workers):
        def _next(self) -> Callable[[], object] | None:
            job = super()._next()
            if job is None and not submitted.is_set():
                submitted.set()
                self.submit(done.set)
            return job

    SubmitsLast("test", 1, failing, idle_seconds=0.01).submit(lambda: None)
    assert done.wait(10)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ends_leaves_what_waits_to_another() -> None:
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()
    threads = Workers("test", 1, failing, idle_seconds=0.01)

    def last() -> None:
        begun.set()
        assert go_on.wait(10)
        raise SystemExit

    threads.submit(last)
    assert begun.wait(10)
    threads.submit(done.set)
    go_on.set()
    assert done.wait(10)
    until(lambda: not threads._running)


def test_p7_threads_that_could_not_be_started_are_not_counted() -> None:
    """Without memory for the largest number of threads, no job was done any more."""
    done, threads = threading.Event(), Workers("test", 2, failing)
    with no_room_for_threads():
        for _ in range(200):
            with pytest.raises(RuntimeError):
                threads.submit(lambda: None)
    threads.submit(done.set)
    assert done.wait(60)


def test_p7_jobs_that_hang_do_not_keep_others_from_being_done() -> None:
    """Prefetches from a store that hung delayed each directory of all others by a tenth of a second."""
    goes_on, done, threads = threading.Event(), threading.Event(), Workers("test", 1, failing, slow_seconds=0.05)
    begun = [threading.Event() for _ in range(3)]

    def hangs(number: int) -> None:
        begun[number].set()
        assert goes_on.wait(60)

    def beginning(number: int) -> bool:
        threads.submit(lambda: None)
        return begun[number].is_set()

    def is_done() -> bool:
        threads.submit(lambda: None)
        return done.is_set()

    try:
        for number in range(3):
            threads.submit(partial(hangs, number))
            until(partial(beginning, number), 5.0)
        threads.submit(done.set)
        until(is_done, 5.0)
    finally:
        goes_on.set()


def test_a_substitute_ends_when_what_was_slow_is_over() -> None:
    """Also where there is always something to do: two threads that only compute hold each other up."""
    goes_on, began, ended = threading.Event(), threading.Event(), threading.Event()
    threads = Workers("test", 1, failing, slow_seconds=0.05)

    def slow() -> None:
        began.set()
        assert goes_on.wait(60)

    def at_work() -> None:
        if not ended.wait(0.001):
            threads.submit(at_work)

    def has_substitute() -> bool:
        threads.submit(at_work)
        return threads._running == 2

    try:
        threads.submit(slow)
        assert began.wait(60)
        threads.submit(at_work)
        until(has_substitute)
        goes_on.set()
        until(lambda: threads._running == 1)
    finally:
        goes_on.set()
        ended.set()


def test_requests_go_before_prefetches() -> None:
    go_on, over, pool = threading.Event(), threading.Event(), Workers("test", 1, failing)
    done: list[str] = []
    pool.submit(go_on.wait)
    until(lambda: not pool._jobs)
    for name in ("first", "second"):
        pool.submit(partial(done.append, name))
    pool.submit(partial(done.append, "asked"), asked=True)
    pool.submit(over.set)
    go_on.set()
    assert over.wait(10)
    assert done == ["asked", "first", "second"]


@pytest.mark.parametrize("threads", [0, 3])
def test_shared_work_is_done_by_the_caller_if_no_worker_has_time(threads: int) -> None:
    pool, done = Workers("test", threads, failing), set[int]()
    pool.share([partial(done.add, number) for number in range(20)])
    until(lambda: done == set(range(20)))


def test_work_that_comes_all_at_once_has_as_many_threads_as_it_may() -> None:
    pool, together = Workers("test", 8, failing), threading.Barrier(8)
    first = threading.Event()
    pool.submit(first.set)
    assert first.wait(10)
    until(lambda: pool._idle == 1)
    done = threading.Semaphore(0)

    def job() -> None:
        together.wait(10)
        done.release()

    for _ in range(8):
        pool.submit(job)
    for _ in range(8):
        assert done.acquire(timeout=10)


def test_threads_start_with_work_and_end_without() -> None:
    before = threading.active_count()
    pool, done = Workers("test", 2, failing, idle_seconds=0.05), threading.Semaphore(0)
    for _ in range(20):
        pool.submit(done.release)
    for _ in range(20):
        assert done.acquire(timeout=10)
    until(lambda: threading.active_count() <= before)  # threads of earlier tests may have ended meanwhile
    pool.submit(done.release)
    assert done.acquire(timeout=10)


def test_an_error_ahead_ends_no_thread_and_a_bug_is_reported() -> None:
    reported: list[Exception] = []
    pool, done = Workers("test", 1, reported.append), threading.Event()

    def fail(error: Exception) -> None:
        raise error

    for error in (CorruptData("broken"), OSError("broken"), KeyError("a bug")):
        pool.submit(partial(fail, error))
    pool.submit(done.set)
    assert done.wait(10)
    assert [type(error) for error in reported] == [KeyError]


def test_work_that_is_dropped_says_so() -> None:
    pool = Workers("ahead", 0)
    dropped: list[int] = []
    for number in range(70):
        pool.submit(lambda: None, partial(dropped.append, number))
    assert dropped == list(range(6))
