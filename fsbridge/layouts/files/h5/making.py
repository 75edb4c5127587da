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
from fsbridge.errors import FsbridgeError, TimedOut, anew
from fsbridge.layouts.files.h5.walk import Walk, Walked

log = logging.getLogger(__name__)

_FILES_AT_A_TIME = 2
_AGAIN_SECONDS = 0.5
"""What those wait who ask after somebody has waited in vain: the kernel asks for one name of a directory at a time."""

_room = threading.BoundedSemaphore(_FILES_AT_A_TIME)


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
            with _room:
                self.found = self._make(self._began)
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
