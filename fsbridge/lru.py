"""Values by key within a budget, of which the least recently used goes first; and a register of all caches.

`Recent` is the order alone, for one thread or under its owner's lock. `LRU` is a cache: thread-safe, and registered. A
cache only saves time or requests, so `drop_all` may empty all of them at any time. Not here: what is kept, how it is made,
when caches are dropped (`mount/`).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
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


class Recent(Generic[K, V]):
    """The values that were put or used last, by key. Their costs (by default 1 each) add up to at most `budget`.

    The latest value always stays: one above the budget would otherwise be made again at each use. Not thread-safe.
    """

    __slots__ = ("_entries", "budget", "used")

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.used = 0
        """The costs of all values."""
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[K]:
        """Yield the keys, the least recently used first."""
        return iter(self._entries)

    def values(self) -> list[V]:
        """Return the values, the least recently used first."""
        return [value for value, _ in self._entries.values()]

    def get(self, key: K) -> V | None:
        """Return the value of `key`, which counts as used now; None if there is none."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def peek(self, key: K) -> V | None:
        """Return the value of `key`, which does not count as used; None if there is none."""
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def latest(self) -> V | None:
        """Return the value that was put or used last; None if there is none."""
        return next((value for value, _ in reversed(self._entries.values())), None)

    def put(self, key: K, value: V, cost: int = 1) -> list[tuple[K, V]]:
        """Keep `value`, instead of an older one. Return what had to go for it, an older value of `key` first."""
        before = self.pop(key)
        gone = [] if before is None else [(key, before)]
        self._entries[key] = (value, cost)
        self.used += cost
        while self.used > self.budget and len(self._entries) > 1:
            oldest, (dropped, freed) = self._entries.popitem(last=False)
            self.used -= freed
            gone.append((oldest, dropped))
        return gone

    def pop(self, key: K) -> V | None:
        """Forget the value of `key`, and return it; None if there is none."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        self.used -= entry[1]
        return entry[0]

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self.used = 0


class LRU(Generic[K, V]):
    """A cache of values by key, within the budget of a `Recent`. Thread-safe. `drop_all` empties it.

    `release` is called, outside of the lock, with every value that goes, be it dropped or replaced.
    """

    def __init__(self, budget: int, release: Callable[[V], None] | None = None) -> None:
        self._release = release
        self._lock = threading.Lock()
        self._recent = Recent[K, V](budget)
        register(self)

    def get(self, key: K) -> V | None:
        """Return the value of `key`, which counts as used now; None if there is none."""
        with self._lock:
            return self._recent.get(key)

    def put(self, key: K, value: V, cost: int = 1) -> V:
        """Keep `value`, instead of an older one, and return it."""
        with self._lock:
            gone = self._recent.put(key, value, cost)
        self._let_go([dropped for _, dropped in gone])
        return value

    def drop(self, key: K) -> None:
        """Forget the value of `key`, if there is one."""
        with self._lock:
            gone = self._recent.pop(key)
        self._let_go([] if gone is None else [gone])

    def drop_where(self, chosen: Callable[[K], bool]) -> None:
        """Forget the values of all keys that are `chosen`."""
        with self._lock:
            gone = [self._recent.pop(key) for key in [key for key in self._recent if chosen(key)]]
        self._let_go([value for value in gone if value is not None])

    def clear(self) -> None:
        """Forget everything."""
        self.drop_where(lambda _: True)

    @property
    def budget(self) -> int:
        """The most that the costs of all values may add up to."""
        return self._recent.budget

    @property
    def used(self) -> int:
        """The costs of all values."""
        return self._recent.used

    def _let_go(self, values: list[V]) -> None:
        if self._release is not None:
            for value in values:
                self._release(value)
