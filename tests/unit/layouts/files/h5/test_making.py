"""Making of virtual HDF5 files in the background, apart from what is made."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import NoReturn

import pytest

from fsbridge.errors import FsbridgeError, TimedOut
from fsbridge.layouts.files.arrays.made import Room
from fsbridge.layouts.files.h5.making import FILES_AT_A_TIME, Making
from fsbridge.layouts.files.h5.twin import Twin
from fsbridge.layouts.files.h5.walk import Walked
from fsbridge.layouts.files.h5.writing import Batch, SkeletonWriter
from fsbridge.threads.deadlines import Stopwatch

PATIENCE = 60.0
MADE = Walked(Twin(0, (), ()), (), 0)


def test_p11_a_failure_in_the_background_keeps_nothing_of_its_waiting_callers() -> None:
    """Each of them raises an error of its own: one that all raise holds the frames of all."""

    class Held:
        """Anything that a waiting caller holds: a descriptor, a buffer."""

    def fail() -> NoReturn:
        raise FsbridgeError("no file today")

    def wait_in_vain(wait: Callable[[], object]) -> weakref.ref[Held]:
        held = Held()
        with pytest.raises(FsbridgeError, match="no file today"):
            wait()
        return weakref.ref(held)

    making, writer = Making("s.h5", fail, Room(FILES_AT_A_TIME)), SkeletonWriter(fail)
    writer.begin()
    last: Batch = []
    for wait in (lambda: making.wait(PATIENCE), lambda: writer.finish(last, {}), lambda: writer.send(last)):
        held = wait_in_vain(wait)
        gc.collect()  # pytest's own notes of the error are a cycle
        assert held() is None
    writer.close()


def test_p7_a_second_request_waits_less() -> None:
    """The kernel asks for nothing else in a directory while a look-up waits."""
    go_on = threading.Event()

    def make() -> Walked:
        assert go_on.wait(PATIENCE)
        return MADE

    making = Making("s.h5", make, Room(FILES_AT_A_TIME))
    for seconds in (0.01, PATIENCE / 2):
        watch = Stopwatch()
        with pytest.raises(TimedOut, match=r"s\.h5 is still being made"):
            making.wait(seconds)
        assert watch.seconds < PATIENCE / 4
    go_on.set()


def test_p7_files_of_stores_that_hang_do_not_stop_those_of_others() -> None:
    go_on = threading.Event()

    def hang() -> Walked:
        assert go_on.wait(PATIENCE)
        return MADE

    room = Room(FILES_AT_A_TIME, stalled_seconds=0.1)
    hung = [Making(f"hung{number}.h5", hang, room) for number in range(3)]
    try:
        assert Making("healthy.h5", lambda: MADE, room).wait(10.0) is MADE
    finally:
        go_on.set()
    assert [one.wait(PATIENCE) for one in hung] == [MADE] * 3
