"""The registry of all caches, so that all can be dropped at once. A cache only saves time or requests.

Not here: any cache (`lru.py` is most of them), when they are dropped (`mount/`).
"""

from __future__ import annotations

import threading
from typing import Protocol
from weakref import WeakSet


class Droppable(Protocol):
    """A cache that can be emptied at any time. Thread-safe."""

    def clear(self) -> None:
        """Forget everything."""


_lock = threading.Lock()
_known: WeakSet[Droppable] = WeakSet()


def register(kept: Droppable) -> None:
    """Have `drop_all` clear `kept`, too, as long as it is referenced elsewhere."""
    with _lock:
        _known.add(kept)


def drop_all() -> None:
    """Forget everything in all registered caches."""
    with _lock:
        found = list(_known)
    for kept in found:
        kept.clear()
