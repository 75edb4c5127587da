"""Calls that wait, many at a time: their results in order, their errors, their deadline; and one that is left alone."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections.abc import Callable
from functools import partial

import pytest
from waiting import Clock, until

from fsbridge.errors import CorruptData, TimedOut
from fsbridge.threads.deadlines import Deadline
from fsbridge.threads.parallel import Answer, apart, each
from fsbridge.threads.starting import start_now


def test_results_come_in_order_and_no_more_calls_than_allowed_run_at_a_time() -> None:
    running: set[int] = set()
    met = threading.Barrier(4)

    def call(number: int) -> int:
        running.add(number)
        assert len(running) <= 4
        met.wait(20)
        running.discard(number)
        return number * number

    assert each(call, range(40), 4) == [number * number for number in range(40)]
    assert each(call, [], 4) == []


def test_after_an_error_no_further_call_begins() -> None:
    begun: list[int] = []

    def call(number: int) -> int:
        begun.append(number)
        if number == 3:
            raise CorruptData("broken")
        return number

    with pytest.raises(CorruptData, match="broken"):
        each(call, range(1000), 1)
    assert begun == [0, 1, 2, 3]


class Used:
    """Whatever a call holds: a descriptor, a buffer."""


def fail(held: Used) -> None:
    raise CorruptData("broken")


def fail_together(used: list[Used]) -> None:
    each(fail, used, 2)


def fail_apart(used: list[Used]) -> None:
    apart(partial(fail, used[0]))


def fail_later(used: list[Used]) -> None:
    """Wait like a listing, which keeps what it waits for in a variable."""
    coming = Answer(partial(fail, used[0]), "test")
    coming.get()


def fail_unheard(used: list[Used]) -> None:
    """Behave like a caller that has lost patience."""
    coming = Answer(partial(fail, used[0]), "test")
    assert coming.wait(10)


@pytest.mark.parametrize("begin", [fail_together, fail_apart, fail_later, fail_unheard])
def test_p11_what_a_failed_call_used_is_let_go_at_once(begin: Callable[[list[Used]], None]) -> None:
    used = [Used(), Used()]
    kept = [weakref.ref(one) for one in used]
    gc.disable()
    try:
        with contextlib.suppress(CorruptData):
            begin(used)
        used.clear()
        until(lambda: [one() for one in kept] == [None, None])  # the threads are about to end
    finally:
        gc.enable()


def test_p7_after_the_deadline_no_further_call_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    clock = Clock(monkeypatch)
    deadline = Deadline(60.0)

    def call(number: int) -> None:
        begun.append(number)
        if number == 5:
            clock.passes(60.0)

    with pytest.raises(TimedOut):
        each(call, range(1000), 1, deadline)
    assert begun == list(range(6))


def test_a_call_made_apart_answers_or_raises_as_itself() -> None:
    assert apart(threading.current_thread).daemon

    def fail() -> None:
        raise CorruptData("broken")

    with pytest.raises(CorruptData, match="broken"):
        apart(fail)


@pytest.mark.parametrize("room", [0, 1])
def test_p7_calls_are_made_by_as_many_threads_as_there_is_room_for(room: int) -> None:
    left = [None] * room

    def start_limited(target: Callable[[], object], name: str) -> None:
        if not left:
            raise OSError("can't start new thread")
        left.pop()
        start_now(target, name)

    squares = each(lambda number: number * number, range(10), 4, start=start_limited)
    assert squares == [number * number for number in range(10)]
