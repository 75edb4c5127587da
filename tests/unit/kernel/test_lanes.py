"""Worker lanes: results, deadlines, abandoned jobs, threads that hang or cannot be had."""

from __future__ import annotations

import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing
from handlers import pass_a_minute
from shortages import no_memory_to_log, no_room_for_threads
from waiting import eventually, until

from fsbridge.errors import CorruptData, FsbridgeError, TimedOut
from fsbridge.kernel import lanes
from fsbridge.kernel.lanes import HUNG_JOBS, SUBSTITUTE_THREADS, Lane, Returns, Subject, _Job

LATE = 60.0


def with_lane(
    test: Callable[[Lane], Awaitable[Any]],
    lane: Lane | None = None,
    clock: trio.abc.Clock | None = None,
    returns: type[Returns] = Returns,
) -> None:
    """Run `test(lane)` in trio, the lane started."""
    lane = lane or make_lane()

    async def main() -> None:
        lane.start(returns(trio.lowlevel.current_trio_token().run_sync_soon))
        try:
            await test(lane)
        finally:
            lane.stop()

    trio.run(main, clock=clock)


def make_lane(threads: int = 2, slow: float = 5.0, suspected: float = 10.0, substitutes: int = SUBSTITUTE_THREADS) -> Lane:
    return Lane("test", threads, slow, suspected, substitutes=substitutes)


def make_deadline() -> float:
    return trio.current_time() + LATE


def test_result_and_exception_come_back() -> None:
    async def test(lane: Lane) -> None:
        assert await lane.run(lambda: 6 * 7, make_deadline()) == 42
        assert await lane.run(threading.get_ident, make_deadline()) != threading.get_ident()
        with pytest.raises(CorruptData, match="broken"):
            await lane.run(lambda: _raise(CorruptData("broken")), make_deadline())

    with_lane(test)


def test_p7_the_next_calls_do_not_wait_for_a_wake_up_that_lacked_memory() -> None:
    async def test() -> None:
        done, failures = trio.Event(), [MemoryError()]
        soon = trio.lowlevel.current_trio_token().run_sync_soon

        def wake(call: Callable[[], object]) -> None:
            if failures:
                raise failures.pop()
            soon(call)

        returns = Returns(wake)
        with pytest.raises(MemoryError):
            returns.put(done.set)
        returns.put(lambda: None)
        with trio.fail_after(10):
            await done.wait()

    trio.run(test)


async def _goes_on() -> None:
    done, returns = trio.Event(), Returns(trio.lowlevel.current_trio_token().run_sync_soon)
    returns.put(lambda: _raise(MemoryError()))
    returns.put(done.set)
    with trio.fail_after(10):
        await done.wait()


def test_p8_what_fails_on_the_event_loop_does_not_end_it(caplog: pytest.LogCaptureFixture) -> None:
    trio.run(_goes_on)
    assert [record.getMessage() for record in caplog.records] == ["unexpected MemoryError on the event loop"]


def test_p8_want_of_memory_to_log_does_not_end_the_mount() -> None:
    with no_memory_to_log(lanes.log):
        trio.run(_goes_on)


def test_p7_threads_that_could_not_be_started_are_not_counted() -> None:
    """Without memory for the largest number of threads, no job was done any more."""
    lane = make_lane()
    with no_room_for_threads():
        with pytest.raises(RuntimeError):
            lane.start(Returns(lambda call: None))  # it has no job to tell of
        for _ in range(200):
            with pytest.raises(RuntimeError):
                lane._relieve(_Job(lambda: None, None, None))
    lane._relieve(_Job(lambda: None, None, None))
    assert lane._alive == 1
    lane.stop()


def test_leaving_a_worker_by_sys_exit_is_an_error_like_any_other() -> None:
    async def test(lane: Lane) -> None:
        for _ in range(5):
            with pytest.raises(FsbridgeError, match="SystemExit"):
                await lane.run(sys.exit, make_deadline())
        assert await lane.run(lambda: "alive", make_deadline()) == "alive"

    with_lane(test)


def test_many_jobs_give_every_caller_its_own_result() -> None:
    async def test(lane: Lane) -> None:
        results: dict[int, int] = {}

        async def ask(number: int) -> None:
            results[number] = await lane.run(lambda: number * number, make_deadline())

        async with trio.open_nursery() as nursery:
            for number in range(500):
                nursery.start_soon(ask, number)
        assert results == {number: number * number for number in range(500)}

    with_lane(test)


def test_results_that_are_ready_together_share_a_wake_up() -> None:
    wakes: list[Callable[[], object]] = []

    async def test() -> None:
        soon = trio.lowlevel.current_trio_token().run_sync_soon

        def counted(call: Callable[[], object]) -> None:
            wakes.append(call)
            soon(call)

        lane = make_lane()
        lane.start(Returns(counted))
        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(lane.run, lambda: None, make_deadline())
            await trio.lowlevel.checkpoint()  # all queued ...
            until(lambda: not lane._queue.qsize())  # ... and taken before the loop comes round again
        lane.stop()

    trio.run(test)
    assert len(wakes) < 50


def test_p7_the_caller_gets_timed_out_and_the_worker_keeps_its_thread() -> None:
    clock = trio.testing.MockClock()

    async def test(lane: Lane) -> None:
        hung = threading.Event()
        over: list[object] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pass_a_minute, clock, lane)
            with pytest.raises(TimedOut):
                await lane.run(lambda: hung.wait() and "late", trio.current_time() + 0.05, over.append)
        assert lane.running == 1
        assert over == []
        hung.set()
        await eventually(lambda: over)
        assert over == ["late"]
        assert lane.running == 0

    with_lane(test, clock=clock)


def test_a_job_never_runs_if_its_caller_gave_up_before_it_began() -> None:
    async def test(lane: Lane) -> None:
        hung = threading.Event()
        ran: list[int] = []
        over: list[object] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lane.run, hung.wait, make_deadline())
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(TimedOut):
                await lane.run(lambda: ran.append(1), trio.current_time() + 0.05, over.append)
            hung.set()
        await eventually(lambda: over)
        assert over == [None]
        assert ran == []

    with_lane(test, make_lane(1))


def test_p7_hung_threads_have_substitutes_which_end_with_them() -> None:
    async def test(lane: Lane) -> None:
        hung = threading.Event()
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(lane.run, hung.wait, make_deadline())
            await trio.testing.wait_all_tasks_blocked()
            begin = trio.current_time()
            assert await lane.run(lambda: "in time", make_deadline()) == "in time"
            assert trio.current_time() - begin < LATE / 2
            await eventually(lambda: lane.running == 10)  # the last of them may be about to begin
            hung.set()
        while lane._alive != 2:
            await lane.run(lambda: None, make_deadline())

    with_lane(test, make_lane(slow=0.05))


def test_p7_substitutes_are_bounded() -> None:
    clock = trio.testing.MockClock()

    async def test(lane: Lane) -> None:
        hung = threading.Event()
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(lane.run, hung.wait, make_deadline())
            for _ in range(10):
                await eventually(lambda: lane.running == lane._alive)
                clock.jump(0.02)
                await trio.testing.wait_all_tasks_blocked()
            assert lane.running == lane._alive == 5
            hung.set()

    with_lane(test, make_lane(slow=0.01, substitutes=3), clock)


def test_p7_a_request_that_hangs_is_refused_at_once_until_it_is_over() -> None:
    clock = trio.testing.MockClock()

    async def test(lane: Lane) -> None:
        hung = threading.Event()
        over: list[object] = []
        subject, other = Subject(1, b"hung"), Subject(2, b"hung")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pass_a_minute, clock, lane)
            with pytest.raises(TimedOut):
                await lane.run(hung.wait, trio.current_time() + 0.1, over.append, subject)
        for _ in range(20):  # no time passes
            with pytest.raises(TimedOut):
                await lane.run(hung.wait, trio.current_time() + 0.1, over.append, subject)
            assert lane.running == 1
        assert await lane.run(lambda: "other", make_deadline(), subject=other) == "other"
        assert await lane.run(lambda: "neighbour", make_deadline(), subject=Subject(1, b"fine")) == "neighbour"
        hung.set()
        await eventually(lambda: over)
        assert await lane.run(lambda: "again", make_deadline(), subject=subject) == "again"
        assert not lane.hung

    with_lane(test, clock=clock)


def test_p7_deadlines_of_one_directory_do_not_add_up() -> None:
    async def test(lane: Lane) -> None:
        hung = threading.Event()
        begin = trio.current_time()
        for number in range(100):  # one after the other, as the kernel looks up names of one directory
            with pytest.raises(TimedOut):
                await lane.run(hung.wait, trio.current_time() + 1, subject=Subject(1, number))
        assert trio.current_time() - begin < 20, "of a hundred seconds"
        assert lane.running == HUNG_JOBS
        hung.set()
        await eventually(lambda: not lane.hung)

    with_lane(test, make_lane(HUNG_JOBS, suspected=0.05))


def test_cancelling_the_caller_abandons_the_job() -> None:
    clock = trio.testing.MockClock()

    async def test(lane: Lane) -> None:
        hung = threading.Event()
        over: list[object] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pass_a_minute, clock, lane)
            with trio.move_on_after(0.05):
                await lane.run(lambda: hung.wait() and "late", make_deadline(), over.append)
        hung.set()
        await eventually(lambda: over)
        assert over == ["late"]

    with_lane(test, clock=clock)


class ScarceLane(Lane):
    """A lane with threads that lack the memory to begin the first jobs."""

    failures = 6

    def _begin(self, job: _Job[Any]) -> bool:
        if self.failures:
            self.failures -= 1
            raise MemoryError
        return super()._begin(job)


def test_p7_a_job_without_a_thread_for_want_of_memory_fails() -> None:
    """Its caller failed at the deadline, but later requests for the same file waited for that job until the unmount."""

    async def test(lane: Lane) -> None:
        for _ in range(6):
            with pytest.raises(MemoryError):
                await lane.run(lambda: None, make_deadline())
        assert await lane.run(lambda: 42, make_deadline()) == 42
        assert (lane.running, lane._alive) == (0, 2)

    with_lane(test, ScarceLane("test", 2, 5.0, 10.0))


class ScarceReturns(Returns):
    """A way back that lacks the memory for the first calls."""

    failures = 3

    def put(self, call: Callable[[], object]) -> None:
        if self.failures:
            self.failures -= 1
            raise MemoryError
        super().put(call)


class ToldReturns(ScarceReturns):
    """The event loop has been told all the same."""

    def put(self, call: Callable[[], object]) -> None:
        if self.failures:
            Returns.put(self, call)
        super().put(call)


@pytest.mark.parametrize("returns", [ScarceReturns, ToldReturns])
def test_p7_a_result_is_delivered_later_if_there_is_no_memory_now(returns: type[ScarceReturns]) -> None:
    async def test(lane: Lane) -> None:
        assert await lane.run(lambda: 42, make_deadline(), subject=Subject(1, 2)) == 42
        assert await lane.run(lambda: 43, make_deadline(), subject=Subject(1, 2)) == 43
        assert isinstance(lane._returns, ScarceReturns)
        assert lane._returns.failures < 3

    with_lane(test, returns=returns)


def _raise(error: Exception) -> None:
    raise error
