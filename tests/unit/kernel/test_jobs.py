"""The lanes of a mount: they do not block each other, and share the way back to the event loop."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio

from fsbridge.kernel.jobs import Jobs

LATE = 60.0


def with_jobs(test: Callable[[Jobs], Awaitable[Any]]) -> None:
    """Run `test(jobs)` in trio, the lanes started."""

    async def main() -> None:
        jobs = Jobs(2, 2)
        jobs.start()
        try:
            await test(jobs)
        finally:
            jobs.stop()

    trio.run(main)


def make_deadline() -> float:
    return trio.current_time() + LATE


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


def test_a_hung_lane_does_not_block_the_other() -> None:
    async def test(jobs: Jobs) -> None:
        hung = threading.Event()
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(jobs.data.run, hung.wait, make_deadline())
            for number in range(20):
                assert await jobs.metadata.run(partial(abs, -number), make_deadline()) == number
            hung.set()

    with_jobs(test)


def test_p11_threads_end_when_told_to() -> None:
    async def test(jobs: Jobs) -> None:
        await jobs.data.run(lambda: None, make_deadline())

    before = set(threading.enumerate())
    with_jobs(test)
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
        assert not thread.is_alive()


def run_program(program: str) -> str:
    """Run a Python program in a process of its own, and return what it prints."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_hung_threads_do_not_hold_up_the_exit() -> None:
    program = """
import threading, trio
from fsbridge.kernel.jobs import Jobs
async def main():
    jobs = Jobs()
    jobs.start()
    with trio.move_on_after(0.1):
        await jobs.data.run(threading.Event().wait, trio.current_time() + 60)
trio.run(main)
print("out")
"""
    assert run_program(program) == "out\n"


def test_p7_jobs_are_done_though_no_thread_could_be_started_at_first() -> None:
    """A thread that the event loop starts itself stops it for ever if there is no memory for the thread to begin."""
    program = """
import logging, threading, trio
from fsbridge.kernel.jobs import Jobs
from fsbridge.threads import starting

class RoomAgain(logging.Handler):
    def emit(self, record):
        threading.stack_size(0)

async def main():
    jobs = Jobs(2, 2)
    jobs.start()
    for lane in (jobs.metadata, jobs.data):
        print(await lane.run(lambda: 42, trio.current_time() + 50))

logging.getLogger("fsbridge").addHandler(RoomAgain())
starting.begin()
threading.stack_size(1 << 50)
trio.run(main)
print(threading.stack_size())
"""
    assert run_program(program) == "42\n42\n0\n", "there was no room at first"
