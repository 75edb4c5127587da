"""LRU, which keeps values by key within a budget and drops the least recently used first; and a register of all caches.

A cache only saves time or requests, so `drop_all` may empty all of them at any time. Not here: what is kept, how it is
made, when caches are dropped (`mount/`).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar
from weakref import WeakSet

from fsbridge.threads.forking import make_lock


class Droppable(Protocol):
    """A cache that can be emptied at any time. Thread-safe."""

    def clear(self) -> None:
        """Forget everything."""


_lock = make_lock()
_known: WeakSet[Droppable] = WeakSet()


def register(kept: Droppable) -> None:
    """Have `drop_all` clear `kept`, too, as long as it is referenced elsewhere."""
    with _lock:
        _known.add(kept)


def drop_all() -> None:
    """Forget everything in all registered caches."""
    with _lock:
        caches = list(_known)
    for kept in caches:
        kept.clear()


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LRU(Generic[K, V]):
    """Values by key, within `budget`: the most that their costs (by default 1 each) may add up to. Thread-safe.

    The latest value always stays: one above the budget would otherwise be made again at each use. `release` is called,
    outside of the lock, with every value that goes, be it dropped or replaced.
    """

    def __init__(self, budget: int, release: Callable[[V], None] | None = None) -> None:
        self.budget = budget
        self._release = release
        self._lock = threading.Lock()
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._used = 0
        register(self)

    def get(self, key: K) -> V | None:
        """Return the value of `key`, which counts as used now; None if there is none."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: K, value: V, cost: int = 1) -> V:
        """Keep `value`, instead of an older one, and return it."""
        with self._lock:
            gone = self._pop(key)
            self._entries[key] = (value, cost)
            self._used += cost
            while self._used > self.budget and len(self._entries) > 1:
                gone += self._pop(next(iter(self._entries)))
        self._let_go(gone)
        return value

    def drop(self, key: K) -> None:
        """Forget the value of `key`, if there is one."""
        with self._lock:
            gone = self._pop(key)
        self._let_go(gone)

    def drop_where(self, chosen: Callable[[K], bool]) -> None:
        """Forget the values of all keys that are `chosen`."""
        with self._lock:
            gone = [value for key in [key for key in self._entries if chosen(key)] for value in self._pop(key)]
        self._let_go(gone)

    def clear(self) -> None:
        """Forget everything."""
        self.drop_where(lambda _: True)

    @property
    def used(self) -> int:
        """The costs of all values."""
        return self._used

    def _pop(self, key: K) -> list[V]:
        entry = self._entries.pop(key, None)
        if entry is None:
            return []
        self._used -= entry[1]
        return [entry[0]]

    def _let_go(self, values: list[V]) -> None:
        if self._release is not None:
            for value in values:
                self._release(value)
