"""Waiting for requests: no pass of the event loop for one that is there, and no other task waits long because of that."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyfuse3
import pytest
import trio
import trio.testing
from fake_mount import FakeMount
from waiting import Clock, eventually

from fsbridge.kernel import session
from fsbridge.kernel.session import LoopLock, Waiting


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)
    os.close(writing)


def test_what_is_readable_takes_no_pass_of_the_event_loop_for_one_turn(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch, stopped=True)

    async def main() -> None:
        waiting = Waiting()
        os.write(pipe[1], b"x")
        await waiting.wait_readable(pipe[0])  # begins a turn
        with trio.testing.assert_no_checkpoints():
            for _ in range(100):
                await waiting.wait_readable(pipe[0])
        clock.passes(session.TURN_SECONDS)
        with trio.testing.assert_checkpoints():
            await waiting.wait_readable(pipe[0])
        with trio.testing.assert_no_checkpoints():
            await waiting.wait_readable(pipe[0])

    trio.run(main)


def test_a_finished_job_ends_the_turn_of_the_requests(pipe: tuple[int, int]) -> None:
    due = False

    async def main() -> None:
        nonlocal due
        waiting = Waiting(lambda: due)
        os.write(pipe[1], b"x")
        await waiting.wait_readable(pipe[0])
        due = True
        with trio.testing.assert_checkpoints():
            await waiting.wait_readable(pipe[0])

    trio.run(main)


def test_what_is_not_readable_is_waited_for_while_others_run(pipe: tuple[int, int]) -> None:
    async def main() -> None:
        waiting = Waiting()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(waiting.wait_readable, pipe[0])
            await trio.testing.wait_all_tasks_blocked()
            os.write(pipe[1], b"x")

    trio.run(main)


def test_quick_successive_requests_take_no_pass_of_the_event_loop(pipe: tuple[int, int]) -> None:
    async def main() -> None:
        waiting = Waiting(alone=lambda: True, turn_seconds=600.0, linger_milliseconds=600_000)
        os.write(pipe[1], b"x")
        await waiting.wait_readable(pipe[0])  # begins a turn
        os.read(pipe[0], 1)
        asks = threading.Timer(0.01, os.write, (pipe[1], b"y"))
        asks.start()
        with trio.testing.assert_no_checkpoints():
            await waiting.wait_readable(pipe[0])
        assert os.read(pipe[0], 1) == b"y"
        asks.join()

    trio.run(main)


def test_other_tasks_run_while_a_request_is_late(pipe: tuple[int, int]) -> None:
    async def main() -> None:
        waiting = Waiting(alone=lambda: True)
        os.write(pipe[1], b"x")
        await waiting.wait_readable(pipe[0])
        os.read(pipe[0], 1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(waiting.wait_readable, pipe[0])
            await trio.testing.wait_all_tasks_blocked()
            os.write(pipe[1], b"y")

    trio.run(main)


def test_p7_what_is_gone_before_it_can_be_read_is_waited_for_again(pipe: tuple[int, int]) -> None:
    """The kernel withdraws an interrupt when its request is answered, and a killed reader's request: reading would block."""

    class Withdrawn(trio.abc.Instrument):
        left = 3

        def after_io_wait(self, timeout: float) -> None:
            if self.left and select.select([pipe[0]], [], [], 0)[0]:
                self.left -= 1
                os.read(pipe[0], 1)

        def has_at_most(self, left: int) -> bool:
            return self.left <= left

    async def main() -> None:
        waiting, withdrawn, returned = Waiting(), Withdrawn(), trio.Event()

        async def wait() -> None:
            await waiting.wait_readable(pipe[0])
            assert select.select([pipe[0]], [], [], 0)[0], "a waiting task would read nothing"
            returned.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            trio.lowlevel.add_instrument(withdrawn)
            for left in (2, 1, 0):
                os.write(pipe[1], b"x")
                await eventually(partial(withdrawn.has_at_most, left))
                await trio.testing.wait_all_tasks_blocked()  # it was woken, perhaps in the same pass
            assert not returned.is_set()
            os.write(pipe[1], b"x")
            await returned.wait()

    trio.run(main)


def test_the_lock_wakes_one_waiting_task_at_a_time() -> None:
    async def main() -> None:
        lock, entered = LoopLock(), 0

        async def enter() -> None:
            nonlocal entered
            async with lock:
                entered += 1
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            async with lock:
                for _ in range(4):
                    nursery.start_soon(enter)
                await trio.testing.wait_all_tasks_blocked()
            for _ in range(10):
                async with lock:  # free again each time: the task that was woken has not had its turn
                    assert lock.waiting == 3
        assert (entered, lock.waiting) == (4, 0)

    trio.run(main)


def test_the_lock_has_one_holder_and_goes_on_when_waiting_tasks_give_up() -> None:
    async def main() -> None:
        lock, held, entered = LoopLock(), 0, 0

        async def hold() -> None:
            nonlocal held, entered
            async with lock:
                held, entered = held + 1, entered + 1
                assert held == 1
                await trio.lowlevel.checkpoint()
                held -= 1

        async with trio.open_nursery() as nursery, lock:
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as impatient:
                    for _ in range(5):
                        impatient.start_soon(hold)
                    await trio.testing.wait_all_tasks_blocked()
                    scope.cancel()
            for _ in range(20):
                nursery.start_soon(hold)
            await trio.testing.wait_all_tasks_blocked()
            assert entered == 0
        assert entered == 20
        with trio.testing.assert_no_checkpoints():
            async with lock:
                pass

    trio.run(main)


PROGRAM = """
import sys
import fake_tree
from fsbridge.kernel import session

asked = set()

def noted(name, original):
    async def call(self, *args):
        if name not in asked:
            asked.add(name)
            print(name, file=sys.stderr, flush=True)
        return await original(self, *args)
    return call

session.LoopLock.__aenter__ = noted("lock", session.LoopLock.__aenter__)
session.Waiting.wait_readable = noted("wait", session.Waiting.wait_readable)
sys.exit(fake_tree.main())
"""


@pytest.mark.parametrize(("version", "noted"), [("", {"lock", "wait"}), ("3.6.0", set())])
def test_pyfuse3_waits_so_if_its_version_is_known_and_in_its_own_way_else(
    tmp_path: Path, version: str, noted: set[str]
) -> None:
    """With another pyfuse3 `quick_requests` would have no effect, or might break it."""
    fake = FakeMount(tmp_path)
    other = f"import pyfuse3\npyfuse3.__version__ = {version!r}\n" if version else ""
    process = fake.start_foreground(program=other + PROGRAM)
    assert os.listdir(fake.path)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    assert set(err.split()) == noted
    assert process.returncode == 0


def test_only_versions_of_pyfuse3_that_were_tried_are_known() -> None:
    known = ("3.2.2", "3.3.0", "3.4.2", "3.5.0", "3.5.7")
    assert all(map(session.is_known, known))
    assert session.is_known(pyfuse3.__version__)
    assert not any(map(session.is_known, ("3.1.1", "3.6.0", "4.0", "4.2.0", "3.10.0", "3.5.0rc1", "3", "unknown", "")))
