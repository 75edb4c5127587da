"""Threads that cannot be started at once: they are started later, or that is an error (P7)."""

from __future__ import annotations

import threading
from functools import partial

import pytest
from waiting import until

from fsbridge.threads.starting import ThreadStarter


def begin(kind: type[threading.Thread], begun_seconds: float = 20.0) -> ThreadStarter:
    starter = ThreadStarter(0.01, begun_seconds, kind)
    starter.begin()
    return starter


def test_p7_threads_that_cannot_be_started_now_are_started_later() -> None:
    """At a container's limit of processes, jobs and children waited for ever for threads that never came."""
    room, over, refused = threading.Event(), threading.Semaphore(0), threading.Semaphore(0)

    class Limited(threading.Thread):
        def start(self) -> None:
            if not room.is_set():
                refused.release()
                raise RuntimeError("can't start new thread")
            super().start()

    starter = begin(Limited)
    with pytest.raises(OSError, match="can't start new thread"):
        starter.start_now(over.release, "test")
    starter.start(partial(starter.start, over.release, "test-inner"), "test-outer")
    starter.later(0, over.release, "test-later")
    for _ in range(5):
        assert refused.acquire(timeout=20)
    assert not over.acquire(blocking=False)
    room.set()
    for _ in range(2):
        assert over.acquire(timeout=20)
    starter.start_now(over.release, "test")
    assert over.acquire(timeout=20)


class Checked(threading.Thread):
    """A thread that ends before it begins, as without memory, if `has_memory` of its name is false."""

    def _bootstrap(self) -> None:
        if self.has_memory(self.name):
            super()._bootstrap()  # type: ignore[misc]

    def has_memory(self, name: str) -> bool:
        raise NotImplementedError


def test_p7_a_thread_that_ends_before_it_begins_is_started_again() -> None:
    """Without memory a thread never began, and its starter, the event loop too, waited for it for ever."""
    lost: list[str] = []
    ran = threading.Semaphore(0)

    class Lost(Checked):
        def has_memory(self, name: str) -> bool:
            if len(lost) == 2:
                return True
            lost.append(name)
            return False

    starter = begin(Lost, 0.1)
    for name in ("test-one", "test-two"):
        starter.start(ran.release, name)
    for _ in range(2):
        assert ran.acquire(timeout=20)
    assert len(lost) == 2


def test_p7_what_could_not_be_started_in_time_never_runs() -> None:
    """It would run beside whatever its starter did instead."""
    go_on, ran = threading.Event(), threading.Event()

    class Late(Checked):
        def has_memory(self, name: str) -> bool:
            return go_on.wait(20)

    with pytest.raises(OSError, match="no memory"):
        begin(Late, 0.1).start_now(ran.set, "test-late")
    (late,) = [thread for thread in threading.enumerate() if thread.name == "test-late"]
    go_on.set()
    until(lambda: late not in threading.enumerate())
    assert not ran.is_set()
