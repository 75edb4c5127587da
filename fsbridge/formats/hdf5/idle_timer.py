"""A timer that gives something back when it has not been used for a while. Not here: what is given back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from fsbridge import confinement

IDLE_SECONDS = 15.0
"""Seconds without use after which blocks and processes of remote files are dropped. A few requests bring them back."""


class IdleTimer:
    """Calls `give_back`, on a thread of its own, some time after each last use.

    If that returns False, it is called again later.
    """

    def __init__(self, give_back: Callable[[], bool]) -> None:
        self._give_back = give_back
        self._lock = threading.Lock()
        self._last = 0.0
        self._waiting = False

    def used(self) -> None:
        """Note a use."""
        with self._lock:
            self._last = time.monotonic()
            if self._waiting:
                return
            self._waiting = True
        confinement.later(IDLE_SECONDS, self._look, "fsbridge-idle")

    def _look(self) -> None:
        with self._lock:
            left = self._last + IDLE_SECONDS - time.monotonic()
            self._waiting = left > 0
        if left > 0:
            confinement.later(left, self._look, "fsbridge-idle")
        elif not self._give_back():
            self.used()
