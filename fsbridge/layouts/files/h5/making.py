"""Makes virtual HDF5 files of groups in the background, while requests for them wait. Not here: how they are made.

A file that takes longer than a request may wait is ready for a later one. Few are made at a time, because each takes the
time of two processors and the memory of a process.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fsbridge import confinement
from fsbridge.asking import before_waiting
from fsbridge.errors import FsbridgeError, TimedOut, anew
from fsbridge.layouts.files.h5.walk import Walk, Walked

log = logging.getLogger(__name__)

_FILES_AT_A_TIME, _STALLED_SECONDS = 2, 10.0
"""Files made at a time, and seconds without progress after which a file no longer counts, because its store may hang."""
_AGAIN_SECONDS = 0.5
"""Seconds that a request waits for a file if an earlier one has timed out: the kernel looks up one name of a directory at
a time, so that others would wait, too.
"""


class Room:
    """The files of one mount that are being made: how many objects each has found, and when that was first seen."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._at_work: dict[Making, tuple[int, float]] = {}

    @contextmanager
    def taken(self, making: Making) -> Iterator[None]:
        """Return a context in which `making` is at work. It begins once fewer than `_FILES_AT_A_TIME` others are."""
        with self._changed:
            while not self._is_free():
                self._changed.wait(_AGAIN_SECONDS)
            self._at_work[making] = 0, time.monotonic()
        try:
            yield
        finally:
            with self._changed:
                del self._at_work[making]
                self._changed.notify()

    def _is_free(self) -> bool:
        """True if another file may be made now (the lock is held)."""
        now = time.monotonic()
        for making, (count, _) in self._at_work.items():
            if making.count != count:
                self._at_work[making] = making.count, now
        return sum(now - since < _STALLED_SECONDS for _, since in self._at_work.values()) < _FILES_AT_A_TIME


class Making:
    """One file while it is made. `make` makes the file, and passes each `Walk` that it begins to its argument."""

    def __init__(self, name: str, make: Callable[[Callable[[Walk], None]], Walked], room: Room) -> None:
        """`name`: of the file, for the log."""
        self._name = name
        self._make = make
        self._room = room
        self._walk: Walk | None = None
        self._begun = time.monotonic()
        self._over = threading.Event()
        self.found: Walked | None = None
        """The file, once it is made."""
        self._error: Exception | None = None
        self._late = False
        confinement.start(self._run, "fsbridge-h5")

    @property
    def over(self) -> bool:
        """True if making has ended, so that `wait` returns or raises at once."""
        return self._over.is_set()

    def wait(self, seconds: float) -> Walked:
        """Wait for the file and return it. TimedOut if it is not ready in time; raises what making it raised."""
        if not self._over.is_set():
            before_waiting()
        if not self._over.wait(min(seconds, _AGAIN_SECONDS) if self._late else seconds):
            self._late = True
            raise TimedOut(f"{self._name} is still being made, with {self.count} groups and arrays so far: ask again later")
        if self.found is None:
            assert self._error is not None
            raise anew(self._error)
        return self.found

    @property
    def count(self) -> int:
        """Number of groups and arrays found so far."""
        return 0 if self._walk is None else self._walk.specification.count

    def _run(self) -> None:
        try:
            with self._room.taken(self):
                self.found = self._make(self._began)
            if self._late:
                seconds = time.monotonic() - self._begun
                log.warning("%s is ready: %d groups and arrays in %.0f s", self._name, self.count, seconds)
        except FsbridgeError as error:
            self._error = error.anew()
            if self._late:
                log.warning("%s cannot be made: %s", self._name, error)
        except Exception as error:  # `wait` raises it
            self._error = error
        finally:
            self._over.set()

    def _began(self, walk: Walk) -> None:
        self._walk = walk
