"""Threads that help a reader: all that was shared is done when the call is over, whoever has done it."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from fsbridge.layouts.files.helpers import Helpers


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_all_jobs_are_over_when_sharing_them_is(threads: int) -> None:
    helpers = Helpers(threads)
    for count in (1, 2, 50):
        done: list[int] = []
        helpers.share([partial(done.append, number) for number in range(count)])
        assert sorted(done) == list(range(count))


def test_a_job_that_somebody_else_has_begun_is_waited_for() -> None:
    helpers, met, over = Helpers(1), threading.Barrier(2), threading.Event()
    caller = threading.get_ident()

    def job() -> None:
        met.wait(30)  # two threads are at it
        if threading.get_ident() != caller:
            threading.Timer(0.05, over.set).start()
            over.wait(30)
            ended.append(True)

    ended: list[bool] = []
    helpers.share([job, job])
    assert ended == [True]


def test_a_bug_in_the_callers_own_job_leaves_none_under_way() -> None:
    helpers, met, over = Helpers(1), threading.Barrier(2), threading.Event()
    caller = threading.get_ident()

    def job() -> None:
        met.wait(30)
        if threading.get_ident() == caller:
            raise ZeroDivisionError
        threading.Timer(0.05, over.set).start()
        over.wait(30)
        ended.append(True)

    ended: list[bool] = []
    with pytest.raises(ZeroDivisionError):
        helpers.share([job, job])
    assert ended == [True]
