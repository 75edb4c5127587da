"""Waiting for what a daemon, the kernel or another thread does in its own time, and time that passes without waiting.

Not here: pauses of a fixed length. A test waits for a condition or an event, or lets a `Clock` go on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
import trio

T = TypeVar("T")

PATIENCE = 20.0
"""Seconds for anything that should be quick, on a loaded machine."""


def until(condition: Callable[[], T], seconds: float = PATIENCE) -> T:
    """Wait for `condition()` to be true, and return it; AssertionError when that does not come."""
    deadline = time.perf_counter() + seconds
    while not (value := condition()):
        assert time.perf_counter() < deadline, "waited in vain"
        time.sleep(0.001)
    return value


async def eventually(condition: Callable[[], T], seconds: float = PATIENCE) -> T:
    """Do as `until` does while the other tasks of trio run, whatever trio's clock shows."""
    deadline = time.perf_counter() + seconds
    while not (value := condition()):
        assert time.perf_counter() < deadline, "waited in vain"
        time.sleep(0.001)
        await trio.lowlevel.checkpoint()
    return value


def until_ticked(path: Path) -> None:
    """Wait until a further change of the file at `path` has a later time: file systems date changes by a slow clock."""
    changed, probe = path.stat().st_ctime_ns, path.with_name(f"{path.name}.probe")
    probe.touch()

    def ticked() -> bool:
        os.utime(probe)
        return probe.stat().st_ctime_ns > changed

    until(ticked)
    probe.unlink()


def _next_second(moment_ns: int) -> int:
    return moment_ns // 10**9 * 10**9 + 10**9


class Clock:
    """The clocks of this process, `time.monotonic` and `time.time`, which a test lets go on.

    Answers and files are older then. What sleeps or waits is not woken.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stopped: bool = False) -> None:
        """`stopped`: both clocks stand at a whole second, and only `passes` lets them go on."""
        self._ahead_ns = self._set_back_ns = 0
        monotonic, wall = time.monotonic_ns, time.time_ns
        if stopped:
            monotonic, wall = (partial(_next_second, clock()) for clock in (monotonic, wall))
        monkeypatch.setattr(time, "monotonic", lambda: (monotonic() + self._ahead_ns) / 1e9)
        monkeypatch.setattr(time, "monotonic_ns", lambda: monotonic() + self._ahead_ns)
        monkeypatch.setattr(time, "time", lambda: (wall() + self._ahead_ns - self._set_back_ns) / 1e9)
        monkeypatch.setattr(time, "time_ns", lambda: wall() + self._ahead_ns - self._set_back_ns)

    def passes(self, seconds: float) -> None:
        """Let time pass."""
        self._ahead_ns += int(seconds * 1e9)

    def is_set_back(self, seconds: float) -> None:
        """Set back the clock that dates files, as people do; `time.monotonic` goes on."""
        self._set_back_ns += int(seconds * 1e9)

    def settles(self) -> None:
        """Let as much time pass as it takes until no further write to a file could leave its time as it is."""
        self.passes(10.0)
