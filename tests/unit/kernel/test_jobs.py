"""Worker lanes: results, deadlines, abandoned jobs, lanes that do not block each other."""

from __future__ import annotations

import contextlib
import logging
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
import trio
import trio.testing
from handlers import passes
from waiting import eventually, until

from fsbridge.errors import CorruptData, FsbridgeError, TimedOut
from fsbridge.kernel.jobs import Jobs
from fsbridge.kernel.lanes import HUNG_JOBS, Lane, Returns, Subject, _Job
from fsbridge.threads import starting
from fsbridge.threads.workers import Workers

LATE = 60.0


def with_jobs(
    test: Callable[[Jobs], Awaitable[Any]], metadata: int = 2, data: int = 2, clock: trio.abc.Clock | None = None
) -> Any:
    """Run `test(jobs)` in trio, the lanes started."""

    async def main() -> Any:
        jobs = Jobs(metadata, data)
        jobs.start()
        try:
            return await test(jobs)
        finally:
            jobs.stop()

    return trio.run(main, clock=clock)


def late() -> float:
    return trio.current_time() + LATE


def test_result_and_exception_come_back() -> None:
    async def test(jobs: Jobs) -> None:
        assert await jobs.data.run(lambda: 6 * 7, late()) == 42
        assert await jobs.metadata.run(threading.get_ident, late()) != threading.get_ident()
        with pytest.raises(CorruptData, match="broken"):
            await jobs.data.run(lambda: _raise(CorruptData("broken")), late())

    with_jobs(test)


def test_p7_a_wake_up_for_which_there_was_no_memory_is_not_waited_for_by_the_next_ones() -> None:
    async def test(jobs: Jobs) -> None:
        done, returns = trio.Event(), jobs._returns
        assert returns is not None
        token, returns._token = returns._token, cast(trio.lowlevel.TrioToken, _WithoutMemory())
        with pytest.raises(MemoryError):
            jobs.on_loop(done.set)
        returns._token = token
        jobs.on_loop(lambda: None)
        with trio.fail_after(10):
            await done.wait()

    with_jobs(test)


class _WithoutMemory:
    def run_sync_soon(self, call: Callable[[], object]) -> None:
        raise MemoryError


async def _goes_on(jobs: Jobs) -> None:
    done = trio.Event()
    jobs.on_loop(lambda: _raise(MemoryError()))
    jobs.on_loop(done.set)
    with trio.fail_after(10):
        await done.wait()


def test_p8_what_fails_on_the_event_loop_does_not_end_it(caplog: pytest.LogCaptureFixture) -> None:
    with_jobs(_goes_on)
    assert [record.getMessage() for record in caplog.records] == ["unexpected MemoryError on the event loop"]


def test_p8_want_of_memory_to_log_does_not_end_the_mount(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.Logger, "error", lambda *given, **named: _raise(MemoryError()))
    with_jobs(_goes_on)


@pytest.mark.parametrize("kind", ["lane", "workers"])
def test_p7_threads_that_could_not_be_started_are_not_counted(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without memory for the largest number of threads, no job was done any more."""
    done, start = threading.Event(), starting.start
    failures = [MemoryError() for _ in range(200)]
    monkeypatch.setattr(starting, "start", lambda *given: _raise(failures.pop()) if failures else start(*given))
    lane, idle = Lane("test", 2, 1.0, 1.0), Workers("test", 2, _raise)
    lane._returns = cast(Returns, object())  # it has no job to tell of
    while failures:
        with contextlib.suppress(MemoryError):
            if kind == "lane":
                lane._relieve(_Job(lambda: None, None, None))
            else:
                idle.submit(lambda: None)
    if kind == "lane":
        lane._relieve(_Job(lambda: None, None, None))
        assert lane._alive == 1
        lane.stop()
    else:
        idle.submit(done.set)
        assert done.wait(60)


def test_p7_jobs_are_done_when_threads_end_before_they_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that the event loop starts itself stops it for ever if there is no memory for the thread to begin."""
    begin, lost = threading.Thread._bootstrap, []  # type: ignore[attr-defined]

    def bootstrap(thread: threading.Thread) -> None:
        if thread.name.startswith(("fsbridge-data", "fsbridge-metadata")) and len(lost) < 3:
            lost.append(thread.name)
        else:
            begin(thread)

    monkeypatch.setattr(starting, "_starts", None)
    monkeypatch.setattr(starting, "BEGUN_SECONDS", 0.05)
    monkeypatch.setattr(starting, "AGAIN_SECONDS", 0.01)
    starting.begin()
    monkeypatch.setattr(threading.Thread, "_bootstrap", bootstrap)

    async def test(jobs: Jobs) -> None:
        for lane in (jobs.metadata, jobs.data):
            assert await lane.run(lambda: 42, late()) == 42

    with_jobs(test)
    assert len(lost) == 3


def test_leaving_a_worker_by_sys_exit_is_an_error_like_any_other() -> None:
    async def test(jobs: Jobs) -> None:
        for _ in range(5):
            with pytest.raises(FsbridgeError, match="SystemExit"):
                await jobs.data.run(sys.exit, late())
        assert await jobs.data.run(lambda: "alive", late()) == "alive"

    with_jobs(test)


def test_many_jobs_give_every_caller_its_own_result() -> None:
    async def test(jobs: Jobs) -> None:
        found: dict[int, int] = {}

        async def ask(number: int) -> None:
            found[number] = await jobs.data.run(lambda: number * number, late())

        async with trio.open_nursery() as nursery:
            for number in range(500):
                nursery.start_soon(ask, number)
        assert found == {number: number * number for number in range(500)}

    with_jobs(test)


def test_results_that_are_ready_together_share_a_wake_up(monkeypatch: pytest.MonkeyPatch) -> None:
    wakes = []
    original = trio.lowlevel.TrioToken.run_sync_soon

    def counted(self: Any, call: Any, *args: Any, **kwargs: Any) -> None:
        wakes.append(call)
        original(self, call, *args, **kwargs)

    monkeypatch.setattr(trio.lowlevel.TrioToken, "run_sync_soon", counted)

    async def test(jobs: Jobs) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(jobs.data.run, lambda: None, late())
            await trio.lowlevel.checkpoint()  # all queued ...
            until(lambda: not jobs.data._queue.qsize())  # ... and taken before the loop comes round again

    with_jobs(test)
    assert len(wakes) < 50


def test_a_call_of_another_thread_ends_the_turn_of_the_requests() -> None:
    async def test(jobs: Jobs) -> None:
        done = trio.Event()
        assert not jobs.due()
        await trio.to_thread.run_sync(jobs.on_loop, lambda: None)
        teller = threading.Thread(target=jobs.on_loop, args=(done.set,))
        teller.start()
        teller.join()
        assert jobs.due()
        with trio.fail_after(LATE):
            await done.wait()
        assert not jobs.due()

    with_jobs(test)


def test_p7_the_caller_gets_timed_out_and_the_worker_keeps_its_thread() -> None:
    clock = trio.testing.MockClock()

    async def test(jobs: Jobs) -> None:
        hung = threading.Event()
        over: list[object] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(passes, clock, jobs.data)
            with pytest.raises(TimedOut):
                await jobs.data.run(lambda: hung.wait() and "late", trio.current_time() + 0.05, over.append)
        assert jobs.data.running == 1
        assert over == []
        hung.set()
        await eventually(lambda: over)
        assert over == ["late"]
        assert jobs.data.running == 0

    with_jobs(test, clock=clock)


def test_a_job_never_runs_if_its_caller_gave_up_before_it_began() -> None:
    async def test(jobs: Jobs) -> None:
        hung, ran, over = threading.Event(), [], []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(jobs.data.run, hung.wait, late())
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(TimedOut):
                await jobs.data.run(lambda: ran.append(1), trio.current_time() + 0.05, over.append)
            hung.set()
        await eventually(lambda: over)
        assert over == [None]
        assert ran == []

    with_jobs(test, data=1)


def test_a_hung_lane_does_not_block_the_other() -> None:
    async def test(jobs: Jobs) -> None:
        hung = threading.Event()
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(jobs.data.run, hung.wait, late())
            for number in range(20):
                assert await jobs.metadata.run(lambda number=number: number, late()) == number
            hung.set()

    with_jobs(test)


def test_p7_hung_threads_have_substitutes_which_end_with_them() -> None:
    async def test(jobs: Jobs) -> None:
        hung = threading.Event()
        jobs.data._slow_after = 0.05
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(jobs.data.run, hung.wait, late())
            await trio.testing.wait_all_tasks_blocked()
            begin = trio.current_time()
            assert await jobs.data.run(lambda: "in time", late()) == "in time"
            assert trio.current_time() - begin < LATE / 2
            await eventually(lambda: jobs.data.running == 10)  # the last of them may be about to begin
            hung.set()
        while jobs.data._alive != 2:
            await jobs.data.run(lambda: None, late())

    with_jobs(test)


def test_p7_substitutes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsbridge.kernel.lanes.SUBSTITUTE_THREADS", 3)

    clock = trio.testing.MockClock()

    async def test(jobs: Jobs) -> None:
        hung = threading.Event()
        jobs.data._slow_after = 0.01
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(jobs.data.run, hung.wait, late())
            for _ in range(10):
                await eventually(lambda: jobs.data.running == jobs.data._alive)
                clock.jump(0.02)
                await trio.testing.wait_all_tasks_blocked()
            assert jobs.data.running == jobs.data._alive == 5
            hung.set()

    with_jobs(test, clock=clock)


def test_p7_a_request_that_hangs_is_refused_at_once_until_it_is_over() -> None:
    clock = trio.testing.MockClock()

    async def test(jobs: Jobs) -> None:
        hung, over = threading.Event(), []
        subject, other = Subject(1, b"hung"), Subject(2, b"hung")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(passes, clock, jobs.data)
            with pytest.raises(TimedOut):
                await jobs.data.run(hung.wait, trio.current_time() + 0.1, over.append, subject)
        for _ in range(20):  # no time passes
            with pytest.raises(TimedOut):
                await jobs.data.run(hung.wait, trio.current_time() + 0.1, over.append, subject)
            assert jobs.data.running == 1
        assert await jobs.data.run(lambda: "other", late(), subject=other) == "other"
        assert await jobs.data.run(lambda: "neighbour", late(), subject=Subject(1, b"fine")) == "neighbour"
        hung.set()
        await eventually(lambda: over)
        assert await jobs.data.run(lambda: "again", late(), subject=subject) == "again"
        assert not jobs.data._hung

    with_jobs(test, clock=clock)


def test_p7_deadlines_of_one_directory_do_not_add_up() -> None:
    async def test(jobs: Jobs) -> None:
        hung = threading.Event()
        jobs.data._suspected = 0.05
        begin = trio.current_time()
        for number in range(100):  # one after the other, as the kernel looks up names of one directory
            with pytest.raises(TimedOut):
                await jobs.data.run(hung.wait, trio.current_time() + 1, subject=Subject(1, number))
        assert trio.current_time() - begin < 20, "of a hundred seconds"
        assert jobs.data.running == HUNG_JOBS
        hung.set()
        await eventually(lambda: not jobs.data._hung)

    with_jobs(test, data=HUNG_JOBS)


def test_cancelling_the_caller_abandons_the_job() -> None:
    clock = trio.testing.MockClock()

    async def test(jobs: Jobs) -> None:
        hung, over = threading.Event(), []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(passes, clock, jobs.data)
            with trio.move_on_after(0.05):
                await jobs.data.run(lambda: hung.wait() and "late", late(), over.append)
        hung.set()
        await eventually(lambda: over)
        assert over == ["late"]

    with_jobs(test, clock=clock)


def test_p7_a_job_without_a_thread_for_want_of_memory_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its caller failed at the deadline, but later requests for the same file waited for that job until the unmount."""
    failures = [MemoryError() for _ in range(6)]

    def begin(lane: Lane, job: Any) -> bool:
        if failures:
            raise failures.pop()
        return original(lane, job)

    async def test(jobs: Jobs) -> None:
        for _ in range(6):
            with pytest.raises(MemoryError):
                await jobs.data.run(lambda: None, late())
        assert await jobs.data.run(lambda: 42, late()) == 42
        assert (jobs.data.running, jobs.data._alive) == (0, 2)

    original = Lane._begin
    monkeypatch.setattr(Lane, "_begin", begin)
    with_jobs(test)


@pytest.mark.parametrize("put", [False, True])
def test_p7_a_result_is_delivered_later_if_there_is_no_memory_now(put: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """`put`: the event loop was not woken, but has been told."""
    failures, original = [MemoryError() for _ in range(3)], Returns.put

    def fails(returns: Returns, call: Callable[[], object]) -> None:
        if failures:
            if put:
                original(returns, call)
            raise failures.pop()
        original(returns, call)

    async def test(jobs: Jobs) -> None:
        assert await jobs.data.run(lambda: 42, late(), subject=Subject(1, 2)) == 42
        assert await jobs.data.run(lambda: 43, late(), subject=Subject(1, 2)) == 43

    monkeypatch.setattr(Returns, "put", fails)
    with_jobs(test)
    assert len(failures) < 3


def test_p11_threads_end_when_told_to() -> None:
    async def test(jobs: Jobs) -> None:
        await jobs.data.run(lambda: None, late())

    before = set(threading.enumerate())
    with_jobs(test)
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
        assert not thread.is_alive()


def test_hung_threads_do_not_hold_up_the_exit() -> None:
    program = """
import threading, trio
from fsbridge.kernel.jobs import Jobs
from fsbridge.kernel.lanes import Lane, Returns
async def main():
    jobs = Jobs()
    jobs.start()
    with trio.move_on_after(0.1):
        await jobs.data.run(threading.Event().wait, trio.current_time() + 60)
trio.run(main)
print("out")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, "out\n", "")


def _raise(error: Exception) -> None:
    raise error
