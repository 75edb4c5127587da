"""How long something has taken, and until when it is waited for.

Not here: how old an answer may be, which a request says (`asking.py`).
"""

from __future__ import annotations

import time


class Stopwatch:
    """The seconds since this object was made or restarted."""

    __slots__ = ("_begun",)

    def __init__(self) -> None:
        self._begun = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begun

    def restart(self) -> None:
        self._begun = time.monotonic()


class Deadline:
    """The moment that is `seconds` from now. Infinite seconds never pass."""

    __slots__ = ("_end",)

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def passed(self) -> bool:
        return time.monotonic() >= self._end

    @property
    def left(self) -> float:
        """Seconds until then, at least 0."""
        return max(0.0, self._end - time.monotonic())
