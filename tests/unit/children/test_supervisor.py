"""Which questions are asked again after they ended a child, and for how long. Not here: real children."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from waiting import Clock

from fsbridge.children.client import ChildDied, ChildEndless, ChildGone, ChildProcess
from fsbridge.children.supervisor import HALVINGS, Supervisor
from fsbridge.threads.deadlines import Stopwatch


class Child(ChildProcess):
    """A child that is ended by others before it answers, or that dies. `fates`: those of children to come, shared."""

    alive, busy = True, False

    def __init__(self, fates: list[Exception]) -> None:
        self.fates = fates

    def ask(self, question: dict[str, Any], *rest: Any, **options: Any) -> Any:
        if self.fates:
            self.alive = False
            raise self.fates.pop(0)
        return {"answer": 1}, []

    def close(self) -> None:
        """Do nothing."""


def supervisor(fates: list[Exception]) -> Supervisor:
    return Supervisor("x.h5", lambda: Child(fates))


def test_p9_a_question_outlives_children_that_others_end() -> None:
    """Readers of an older file ended each other's children. The second time that was an error (EIO)."""
    fates: list[Exception] = [ChildGone("it was ended") for _ in range(5)]
    assert supervisor(fates).ask({"op": "node"}, "node x", 0, 10) == ({"answer": 1}, [])
    assert not fates


def test_p7_a_question_whose_children_are_ended_fails_at_its_deadline() -> None:
    class Gone(list[Exception]):
        def pop(self, index: Any = 0) -> Exception:
            return ChildGone("it was ended")

    with pytest.raises(ChildGone):
        supervisor(Gone([ChildGone("")])).ask({"op": "node"}, "node x", 0, 0.05)


def test_p8_a_question_that_ends_two_children_is_not_asked_a_third_time() -> None:
    fates: list[Exception] = [ChildDied("SIGSEGV"), ChildGone("it was ended"), ChildDied("SIGSEGV"), ChildDied("SIGSEGV")]
    asked = supervisor(fates)
    with pytest.raises(ChildDied, match="node x: SIGSEGV"):
        asked.ask({"op": "node"}, "node x", 0, 10)
    assert len(fates) == 1


class Endless(ChildProcess):
    """Children that compute without end whatever they are asked. `asked`: for how long each was allowed to."""

    alive = True

    def __init__(self) -> None:
        self.asked: list[float] = []

    def ask(self, question: dict[str, Any], *_: Any, **__: Any) -> Any:
        self.asked.append(question["computing"])
        raise ChildEndless("computed for too long")

    def close(self) -> None:
        pass


def test_p7_what_computes_without_end_is_asked_ever_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """P7: a walk of a file with many such objects ends, and later walks meet them more and more rarely."""
    clock, child = Clock(monkeypatch), Endless()
    asked = Supervisor("x.h5", lambda: child)
    passed = 0.0

    class Noted(deque[Stopwatch]):
        def append(self, watch: Stopwatch) -> None:
            assert asked._lock.locked(), "another thread may be counting them"
            super().append(watch)

    asked._endless = Noted(maxlen=HALVINGS)

    def ask(subject: str) -> None:
        with pytest.raises(ChildDied):
            asked.ask({"computing": 2.0}, subject, 0, 30.0)

    for number in range(6):
        ask(f"attributes {number}")
    assert child.asked == [2.0, 1.0, 0.5, 0.25, 0.25, 0.25]
    for minutes, times in ((0, 0), (1.1, 1), (2, 0), (3.2, 1), (6, 0), (7.3, 1)):
        clock.passes(60 * (minutes - passed))
        passed, before = minutes, len(child.asked)
        ask("attributes 0")
        assert len(child.asked) - before == times, minutes
    asked.forgive()
    ask("attributes 0")
    assert child.asked[-1] == 2.0
