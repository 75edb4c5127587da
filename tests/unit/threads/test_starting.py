"""Threads that cannot be started at once: they are started later, or that is an error (P7)."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from fsbridge.threads import starting


@pytest.fixture(autouse=True)
def begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(starting, "_starts", None)
    starting.begin()


def test_p7_threads_that_cannot_be_started_now_are_started_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a container's limit of processes, jobs and children waited for ever for threads that never came."""
    start, room = threading.Thread.start, threading.Event()
    over, refused = threading.Semaphore(0), threading.Semaphore(0)

    def limited(thread: threading.Thread) -> None:
        if thread.name.startswith("test") and not room.is_set():
            refused.release()
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(OSError, match="can't start new thread"):
        starting.start_now(over.release, "test")
    starting.start(partial(starting.start, over.release, "test-inner"), "test-outer")
    starting.later(0, over.release, "test-later")
    for _ in range(5):
        assert refused.acquire(timeout=20)
    assert not over.acquire(blocking=False)
    room.set()
    for _ in range(2):
        assert over.acquire(timeout=20)
    starting.start_now(over.release, "test")
    assert over.acquire(timeout=20)


def test_p7_a_thread_that_ends_before_it_begins_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without memory a thread never began, and its starter, the event loop too, waited for it for ever."""
    begin, lost, ran = threading.Thread._bootstrap, [], threading.Semaphore(0)  # type: ignore[attr-defined]

    def bootstrap(thread: threading.Thread) -> None:
        if thread.name.startswith("test") and len(lost) < 2:
            lost.append(thread.name)
        else:
            begin(thread)

    monkeypatch.setattr(starting, "BEGUN_SECONDS", 0.1)
    monkeypatch.setattr(threading.Thread, "_bootstrap", bootstrap)
    for name in ("test-one", "test-two"):
        starting.start(ran.release, name)
    for _ in range(2):
        assert ran.acquire(timeout=20)
    assert len(lost) == 2


def test_p7_what_could_not_be_started_in_time_never_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would run beside whatever its starter did instead."""
    begin, go_on, threads = threading.Thread._bootstrap, threading.Event(), []  # type: ignore[attr-defined]
    ran = threading.Event()

    def bootstrap(thread: threading.Thread) -> None:
        if thread.name == "test-late":
            threads.append(thread)
            assert go_on.wait(20)
        begin(thread)

    monkeypatch.setattr(starting, "BEGUN_SECONDS", 0.05)
    monkeypatch.setattr(threading.Thread, "_bootstrap", bootstrap)
    with pytest.raises(OSError, match="no memory"):
        starting.start_now(ran.set, "test-late")
    go_on.set()
    for thread in threads:
        assert thread._started.wait(20)
        thread.join(20)
    assert not ran.is_set()
