"""The first answer of a server: a mount fails within seconds if there is none.

Not here: later requests, whose time obstore limits (`backends.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from fsbridge import confinement
from fsbridge.errors import TimedOut
from fsbridge.parallel import Answer

FIRST_SECONDS = 4.0
"""Seconds from the first request: with everything before it less than five from the command, but more than a request
takes.
"""

R = TypeVar("R")


class FirstAnswer:
    """Limits the time until the server of `place` has answered once. Thread-safe."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._begun: float | None = None
        self._heard = False

    def of(self, ask: Callable[[], R]) -> R:
        """Return or raise what `ask` does.

        Raises TimedOut if no request has been answered so far, although `ask` continues.
        """
        return ask() if self._heard else self._within(ask)

    def _within(self, ask: Callable[[], R]) -> R:
        with self._lock:
            self._begun = self._begun or time.monotonic()
        answer = Answer(partial(self._hear, ask), lambda work: confinement.start(work, "fsbridge-first"))
        in_time = answer.wait(self._begun + FIRST_SECONDS - time.monotonic())
        if not in_time and not self._heard:  # otherwise the server is slow, but present
            raise TimedOut(f"{self._place}: {self._silence()}")
        return answer.get()

    def _hear(self, ask: Callable[[], R]) -> R:
        try:
            return ask()
        finally:
            self._heard = True

    def _silence(self) -> str:
        what = "the URL, whether the server speaks https" if self._place.startswith("https:") else "the server's URL"
        return f"no answer from the server within {FIRST_SECONDS:g} seconds; check {what}, and the network"
