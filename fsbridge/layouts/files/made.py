"""Memory of files that are made as a whole when they are opened (`.csv`, `.png`): all open ones together have a limit.

Not here: how such a file is made (`nodes.py`), what is in it (`headers/`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial

from fsbridge.config import MIB
from fsbridge.errors import OutOfBudget
from fsbridge.layouts.nodes import BytesHandle


@dataclass(frozen=True, slots=True)
class MadeHandle(BytesHandle):
    """An open one; `closed` is told when it is so no more."""

    closed: Callable[[], None]

    def close(self) -> None:
        self.closed()


class MadeFiles:
    """The open ones of a mount: at most half of its cache, or whoever needs the room would wait for a program to close one.

    Thread-safe.
    """

    def __init__(self, cache_size: int) -> None:
        self._most = cache_size // 2
        self._lock = threading.Lock()
        self._open: dict[int, tuple[int, int]] = {}  # by content: how many handles have it, bytes

    def handle(self, content: memoryview, version: Hashable) -> MadeHandle:
        """A handle of one that has been made; OutOfBudget beside too many others."""
        key = id(content.obj)  # stays what it is while a handle has it
        with self._lock:
            handles, size = self._open.get(key, (0, len(content)))
            held = sum(size for _, size in self._open.values())
            if not handles and held + size > self._most:
                raise OutOfBudget(
                    f"{held} bytes of files that are made in memory are open, {size} more are too many: close some, "
                    f"or --cache-size {-(-2 * (held + size) // MIB)}M permits it"
                )
            self._open[key] = handles + 1, size
        return MadeHandle(content, version, partial(self._closed, key))

    def _closed(self, key: int) -> None:
        with self._lock:
            handles, size = self._open.pop(key)
            if handles > 1:
                self._open[key] = handles - 1, size
