"""Values by key within a budget, of which the least recently used go first. Not here: what is kept, or how it is made."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LRU(Generic[K, V]):
    """`budget` is in whatever unit the costs have: bytes, or, by default, entries. Thread-safe.

    The latest value always stays: one above the budget would otherwise be made again at each use.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._lock = threading.Lock()
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._used = 0

    def get(self, key: K) -> V | None:
        """The value, which counts as used now; None if there is none."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: K, value: V, cost: int = 1) -> V:
        """Keep `value`, in the place of an older one, and return it."""
        with self._lock:
            self._drop(key)
            self._entries[key] = (value, cost)
            self._used += cost
            while self._used > self.budget and len(self._entries) > 1:
                self._used -= self._entries.popitem(last=False)[1][1]
        return value

    def drop(self, key: K) -> None:
        """Forget the value of `key`, if there is one."""
        with self._lock:
            self._drop(key)

    @property
    def used(self) -> int:
        """The costs of all values."""
        return self._used

    def _drop(self, key: K) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._used -= entry[1]
