"""Sources that others lead into: members of a collection, stores behind links. Not here: how one is opened."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from fsbridge.model import Source

K = TypeVar("K", bound=Hashable)


class _Opening:
    """A source that is being opened, for so many callers."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.callers = 0


class OpenedSources(Generic[K]):
    """Each source by its key, opened once, and closed with all others. Of one that cannot be opened nothing is kept.

    Whoever opens one is waited for by those who want the same one: it may be on a disk that hangs.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opening: dict[K, _Opening] = {}
        self._sources: dict[K, Source] = {}

    def open(self, key: K, opener: Callable[[K], Source]) -> Source:
        """The source of `key`, which `opener` opens."""
        with self._lock:
            known = self._sources.get(key)
            if known is not None:
                return known
            opening = self._opening.setdefault(key, _Opening())
            opening.callers += 1
        try:
            with opening.lock:
                if key not in self._sources:
                    self._sources[key] = opener(key)
                return self._sources[key]
        finally:
            with self._lock:
                opening.callers -= 1
                if not opening.callers:
                    del self._opening[key]

    def close(self) -> None:
        """Close all sources."""
        with self._lock:
            while self._sources:
                self._sources.popitem()[1].close()
