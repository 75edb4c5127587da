"""Locks by key: callers that want the same thing wait while one of them makes it; other callers do not wait.

Not here: what is made, and where it is kept. A caller that has waited looks whether it is there now.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from fsbridge.asking import holding

K = TypeVar("K", bound=Hashable)


class _Held:
    """The lock of one key, and how many callers hold it or wait for it: while there are any, others get the same lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.callers = 0


class Locks(Generic[K]):
    """One lock for each key that is held or waited for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[K, _Held] = {}

    @contextmanager
    def of(self, key: K) -> Iterator[None]:
        """Hold the lock of `key`. WouldWait if another thread holds it and this one may not wait."""
        with self._lock:
            held = self._held.setdefault(key, _Held())
            held.callers += 1
        try:
            with holding(held.lock):
                yield
        finally:
            with self._lock:
                held.callers -= 1
                if not held.callers:
                    del self._held[key]
