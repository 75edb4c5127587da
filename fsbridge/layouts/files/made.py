"""Memory of files that are made as a whole when they are opened (`.csv`, `.png`).

One limit applies to all open files together, another one to all files being made.

Not here: how such a file is made (`nodes.py`), what is in it (`filetypes/`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from fsbridge.config import MIB
from fsbridge.errors import OutOfBudget
from fsbridge.layouts.nodes import BytesHandle


@dataclass(frozen=True, slots=True)
class MadeHandle(BytesHandle):
    """An open file that was made as a whole. `closed` is called when it is closed."""

    closed: Callable[[], None]

    def close(self) -> None:
        self.closed()


STALLED_SECONDS = 10.0
"""Seconds after which a file that is still being made no longer counts, because a hanging store must not block others."""

_AGAIN_SECONDS = 0.5


class MadeFiles:
    """The files of a mount that are made as a whole. Thread-safe.

    Open files take at most half of the cache; with more, other requests might wait until a program closes one. Files being
    made take at most the same amount again, unless there is only one.
    """

    def __init__(self, cache_size: int) -> None:
        self._most = cache_size // 2
        self._lock = threading.Lock()
        self._open: dict[int, tuple[int, int]] = {}  # by content: how many handles have it, bytes
        self._ended = threading.Condition()
        self._at_work: dict[object, tuple[int, float]] = {}  # bytes that making one takes, and when it was begun

    @contextmanager
    def making(self, needed: int) -> Iterator[None]:
        """Return a context for making a file, which takes `needed` bytes. It waits until others leave room for that."""
        own = object()
        with self._ended:
            while (others := self._needed()) and others + needed > self._most:
                self._ended.wait(_AGAIN_SECONDS)
            self._at_work[own] = needed, time.monotonic()
        try:
            yield
        finally:
            with self._ended:
                del self._at_work[own]
                self._ended.notify_all()

    def _needed(self) -> int:
        late = time.monotonic() - STALLED_SECONDS
        return sum(needed for needed, begun in self._at_work.values() if begun > late)

    def handle(self, content: memoryview, version: Hashable) -> MadeHandle:
        """Return a handle of a finished file; OutOfBudget if the open files take too much memory."""
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
