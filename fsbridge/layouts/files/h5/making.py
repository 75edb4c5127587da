"""Virtual HDF5 files of groups while they are made: in the background, while whoever asks for them waits. Not here: how.

What took longer than a request may is there for the next one. Few are made at a time, as each takes two processors' time and
the memory of a process.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from fsbridge import confinement
from fsbridge.asking import before_waiting
from fsbridge.errors import FsbridgeError, TimedOut, anew
from fsbridge.layouts.files.h5.walk import Walk, Walked

log = logging.getLogger(__name__)

_FILES_AT_A_TIME, _STALLED_SECONDS = 2, 10.0
"""Those of which nothing has been found for so long do not count: their store hangs, perhaps, and stops no other one."""
_AGAIN_SECONDS = 0.5
"""What those wait who ask after somebody has waited in vain: the kernel asks for one name of a directory at a time."""

_changed = threading.Condition()
_at_work: dict[Making, tuple[int, float]] = {}
"""How many objects each has found, and when that was first seen (`time.monotonic`)."""


def _is_room() -> bool:
    """Whether another file may be made now (the lock is held)."""
    now = time.monotonic()
    for making, (count, _) in _at_work.items():
        if making._count != count:
            _at_work[making] = making._count, now
    return sum(now - since < _STALLED_SECONDS for _, since in _at_work.values()) < _FILES_AT_A_TIME


class Making:
    """One file while it is made. `make` fills the walk that it is given, or another one after that."""

    def __init__(self, name: str, make: Callable[[Callable[[Walk], None]], Walked]) -> None:
        """`name`: of the file, for the log."""
        self._name = name
        self._make = make
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
        """Whether `wait` tells at once how it ended."""
        return self._over.is_set()

    def wait(self, seconds: float) -> Walked:
        """The file; TimedOut while it is not ready, and what making it raised."""
        if not self._over.is_set():
            before_waiting()
        if not self._over.wait(min(seconds, _AGAIN_SECONDS) if self._late else seconds):
            self._late = True
            raise TimedOut(f"{self._name} is still being made, with {self._count} groups and arrays so far: ask again later")
        if self.found is None:
            assert self._error is not None
            raise anew(self._error)
        return self.found

    @property
    def _count(self) -> int:
        return 0 if self._walk is None else self._walk.specification.count

    def _run(self) -> None:
        try:
            with _changed:
                while not _is_room():
                    _changed.wait(_AGAIN_SECONDS)
                _at_work[self] = 0, time.monotonic()
            try:
                self.found = self._make(self._began)
            finally:
                with _changed:
                    del _at_work[self]
                    _changed.notify()
            if self._late:
                seconds = time.monotonic() - self._begun
                log.warning("%s is ready: %d groups and arrays in %.0f s", self._name, self._count, seconds)
        except FsbridgeError as error:
            self._error = error.anew()
            if self._late:
                log.warning("%s cannot be made: %s", self._name, error)
        except Exception as error:  # whoever waits meets it
            self._error = error
        finally:
            self._over.set()

    def _began(self, walk: Walk) -> None:
        self._walk = walk
