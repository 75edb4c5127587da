"""Deadlines and stopwatches."""

from __future__ import annotations

import math

from fsbridge.threads.deadlines import Deadline, Stopwatch


def test_a_deadline_passes_when_its_seconds_are_over() -> None:
    assert Deadline(0).passed
    assert Deadline(-1).left == 0
    assert not Deadline(100).passed
    assert 99 < Deadline(100).left <= 100


def test_an_infinite_deadline_never_passes() -> None:
    assert not Deadline(math.inf).passed
    assert Deadline(math.inf).left == math.inf


def test_a_stopwatch_counts_from_its_beginning_or_restart() -> None:
    watch = Stopwatch()
    before = watch.seconds
    assert 0 <= before <= watch.seconds < 60
    watch.restart()
    assert watch.seconds < 60
