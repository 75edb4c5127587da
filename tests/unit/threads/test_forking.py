"""State that a forked process makes again, while other threads are at work in the parent."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from forked import in_fork

from fsbridge.threads.forking import PerProcess, cached_property, make_lock


@contextmanager
def hold_elsewhere(lock: Any) -> Iterator[None]:
    """Hold a lock in another thread, which no forked process has."""
    taken, over = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            taken.set()
            over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_forked_process_makes_its_own_once_and_its_parent_keeps_what_it_has() -> None:
    made: list[int] = []

    def make() -> object:
        made.append(os.getpid())
        return object()

    first = make()
    kept = PerProcess(first, make)

    def child() -> None:
        assert kept.made is None
        own = kept.get()
        assert own is not first
        assert kept.get() is own
        assert made == [os.getppid(), os.getpid()]
        assert in_fork(lambda: grandchild(own)) == ""

    def grandchild(parents: object) -> None:
        assert kept.get() not in (first, parents)
        assert len(made) == 3

    assert in_fork(child) == ""
    assert kept.get() is kept.made is first
    assert made == [os.getpid()]


def test_what_is_inherited_is_not_freed() -> None:
    """Freeing it could close what the parent uses, or wait for a lock of one of its threads."""

    class Precious:
        def __del__(self) -> None:
            os.write(writing, b"freed")

    reading, writing = os.pipe()
    kept = PerProcess(Precious(), Precious)

    def child() -> None:
        nonlocal kept
        del kept
        gc.collect()

    assert in_fork(child) == ""
    os.set_blocking(reading, False)
    with pytest.raises(BlockingIOError):
        os.read(reading, 5)
    del kept
    assert os.read(reading, 5) == b"freed", "in the parent it is"
    os.close(reading)
    os.close(writing)


def test_what_cannot_be_made_is_tried_again() -> None:
    found: list[int] = []

    def make() -> int:
        found.append(1)
        if len(found) == 1:
            raise OSError("not now")
        return 7

    kept = PerProcess(5, make)

    def child() -> None:
        with pytest.raises(OSError, match="not now"):
            kept.get()
        assert kept.get() == 7

    assert in_fork(child) == ""


def test_locks_of_threads_that_are_not_there_are_free() -> None:
    lock = make_lock()
    kept = PerProcess(1, lambda: 2)

    def child() -> None:
        assert lock.acquire(timeout=1)
        assert not lock.acquire(blocking=False)
        assert kept.get() == 2

    with hold_elsewhere(lock), hold_elsewhere(kept._lock):
        assert in_fork(child) == ""
        assert lock.locked()


def test_a_property_that_a_thread_is_computing_is_computed() -> None:
    class Slow:
        wait = True

        @cached_property
        def value(self) -> int:
            """Return a number."""
            if self.wait:
                begun.set()
                over.wait()
            return id(self)

    begun, over, slow, quick = threading.Event(), threading.Event(), Slow(), Slow()
    quick.wait = False
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    begun.wait()
    try:
        assert quick.value == quick.value == id(quick), "of another object, meanwhile"
        slow.wait = False
        assert in_fork(lambda: slow.value) == ""
    finally:
        over.set()
        thread.join()
    assert vars(slow)["value"] == id(slow)
    assert vars(Slow)["value"].__doc__ == "Return a number."
