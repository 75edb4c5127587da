"""Threads that cannot be started at once: they are started later, or that is an error (P7)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest
from waiting import until

from fsbridge.threads import starting


@pytest.fixture(autouse=True)
def begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(starting, "_starts", None)
    starting.begin()


@pytest.fixture
def memory_checks(monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[], bool]]:
    """What is asked, by the name of a thread, before it begins. If that is False, the thread ends, as without memory."""
    begin: Callable[[threading.Thread], None] = threading.Thread._bootstrap  # type: ignore[attr-defined]
    checks: dict[str, Callable[[], bool]] = {}

    def bootstrap(thread: threading.Thread) -> None:
        if thread.name not in checks or checks[thread.name]():
            begin(thread)

    monkeypatch.setattr(starting, "BEGUN_SECONDS", 0.1)
    monkeypatch.setattr(threading.Thread, "_bootstrap", bootstrap)
    return checks


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


def test_p7_a_thread_that_ends_before_it_begins_is_started_again(memory_checks: dict[str, Callable[[], bool]]) -> None:
    """Without memory a thread never began, and its starter, the event loop too, waited for it for ever."""
    lost: list[str] = []
    ran = threading.Semaphore(0)

    def has_memory(name: str) -> bool:
        if len(lost) == 2:
            return True
        lost.append(name)
        return False

    for name in ("test-one", "test-two"):
        memory_checks[name] = partial(has_memory, name)
        starting.start(ran.release, name)
    for _ in range(2):
        assert ran.acquire(timeout=20)
    assert len(lost) == 2


def test_p7_what_could_not_be_started_in_time_never_runs(memory_checks: dict[str, Callable[[], bool]]) -> None:
    """It would run beside whatever its starter did instead."""
    go_on, ran = threading.Event(), threading.Event()
    memory_checks["test-late"] = partial(go_on.wait, 20)
    with pytest.raises(OSError, match="no memory"):
        starting.start_now(ran.set, "test-late")
    (late,) = [thread for thread in threading.enumerate() if thread.name == "test-late"]
    go_on.set()
    until(lambda: late not in threading.enumerate())
    assert not ran.is_set()
