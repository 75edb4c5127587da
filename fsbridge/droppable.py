"""What is kept only so that it need not be asked for or made again, and may go at any time: all of it at once.

Not here: any such thing (`lru.py` has most), when it goes (`mount/`).
"""

from __future__ import annotations

import threading
from typing import Protocol
from weakref import WeakSet


class Droppable(Protocol):
    """Thread-safe."""

    def clear(self) -> None:
        """Forget everything."""


_lock = threading.Lock()
_known: WeakSet[Droppable] = WeakSet()


def register(kept: Droppable) -> None:
    """`drop_all` clears `kept`, too, as long as there is somebody else who has it."""
    with _lock:
        _known.add(kept)


def drop_all() -> None:
    """Forget everything of everybody."""
    with _lock:
        found = list(_known)
    for kept in found:
        kept.clear()
