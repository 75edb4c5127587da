"""Locks by key: which thread waits for which."""

from __future__ import annotations

import threading

import pytest
from waiting import until

from fsbridge.asking import Locks


def test_one_thread_at_a_time_also_if_one_comes_between_two_others() -> None:
    """The second one's lock is the third one's, too, though the first has let it go."""
    locks = Locks[str]()
    inside: list[str] = []
    order: list[str] = []
    leave = {name: threading.Event() for name in "abc"}

    def caller(name: str) -> None:
        with locks.of("key"):
            inside.append(name)
            order.append(name)
            assert leave[name].wait(30)
            assert inside == [name]
            inside.remove(name)

    threads = {name: threading.Thread(target=caller, args=name) for name in "abc"}

    def begins_to_wait(name: str) -> None:
        threads[name].start()
        until(lambda: locks._held["key"].callers == 2)

    def is_inside(name: str) -> None:
        until(lambda: inside == [name])

    threads["a"].start()
    is_inside("a")
    begins_to_wait("b")
    leave["a"].set()
    is_inside("b")
    begins_to_wait("c")
    for event in leave.values():
        event.set()
    for thread in threads.values():
        thread.join()
    assert order == ["a", "b", "c"]
    assert not locks._held


def test_others_do_not_wait_and_errors_let_go() -> None:
    locks = Locks[int]()
    with pytest.raises(ZeroDivisionError), locks.of(1), locks.of(2):
        raise ZeroDivisionError
    with locks.of(1), locks.of(2):
        assert sorted(locks._held) == [1, 2]
    assert not locks._held
