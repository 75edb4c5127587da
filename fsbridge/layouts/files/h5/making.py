"""Makes virtual HDF5 files of groups in the background, while requests for them wait. Not here: how they are made.

A file that takes longer than a request may wait is ready for a later one. Few are made at a time, because each takes the
time of two processors and the memory of a process.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from fsbridge.asking import before_waiting
from fsbridge.errors import FsbridgeError, TimedOut, anew
from fsbridge.layouts.files.arrays.made import Room
from fsbridge.layouts.files.h5.walk import Walked
from fsbridge.threads import starting
from fsbridge.threads.deadlines import Stopwatch

log = logging.getLogger(__name__)

FILES_AT_A_TIME = 2
"""Files made at a time."""

_AGAIN_SECONDS = 0.5
"""Seconds that a request waits for a file if an earlier one has timed out: the kernel looks up one name of a directory at
a time, so that others would wait, too.
"""


class Making:
    """A virtual file that a thread is making by calling `make`."""

    def __init__(self, name: str, make: Callable[[], Walked], room: Room, count: Callable[[], int] = int) -> None:
        """Start making the file. `name`: of the file, for the log.

        `count` returns the number of groups and arrays that were found so far.
        """
        self._name = name
        self._make = make
        self._room = room
        self._count = count
        self._watch = Stopwatch()
        self._over = threading.Event()
        self.result: Walked | None = None
        """The file, once it has been made."""
        self._error: Exception | None = None
        self._late = False
        starting.start(self._run, "fsbridge-h5")

    @property
    def over(self) -> bool:
        """True if making has ended, so that `wait` returns or raises at once."""
        return self._over.is_set()

    def wait(self, seconds: float) -> Walked:
        """Wait for the file and return it.

        TimedOut if it is not ready in time; else the error that `make` raised, if any.
        """
        if not self._over.is_set():
            before_waiting()
        if not self._over.wait(min(seconds, _AGAIN_SECONDS) if self._late else seconds):
            self._late = True
            raise TimedOut(
                f"{self._name} is still being made, with {self._count()} groups and arrays so far: ask again later"
            )
        if self.result is None:
            assert self._error is not None
            raise anew(self._error)
        return self.result

    def _run(self) -> None:
        try:
            with self._room.take(1, self._count):
                self.result = self._make()
            if self._late:
                log.warning("%s is ready: %d groups and arrays in %.0f s", self._name, self._count(), self._watch.seconds)
        except FsbridgeError as error:
            self._error = error.anew()
            if self._late:
                log.warning("%s cannot be made: %s", self._name, error)
        except Exception as error:  # `wait` raises the error
            self._error = error
        finally:
            self._over.set()
