"""Memory of files that are made as a whole when they are opened (`.csv`, `.png`).

One limit applies to all open files together, another one to all files being made.

Not here: how such a file is made (`nodes.py`), what is in it (`filetypes/`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import partial

from fsbridge.config import MIB
from fsbridge.errors import OutOfBudget
from fsbridge.layouts.nodes import BytesHandle
from fsbridge.threads.deadlines import Stopwatch
from fsbridge.tree import Buffer


class MadeHandle(BytesHandle):
    """An open file that was made as a whole. Closing it calls `closed`."""

    __slots__ = ("_closed",)

    def __init__(self, content: Buffer, version: Hashable, closed: Callable[[], None]) -> None:
        super().__init__(content, version)
        self._closed = closed

    def close(self) -> None:
        self._closed()


STALLED_SECONDS = 10.0
"""Seconds without progress after which a file that is being made no longer counts, because its store may hang."""

_AGAIN_SECONDS = 0.5


class Room:
    """Limits how many files are made at a time: together they take at most `most`, in bytes or in files. Thread-safe.

    A file that needs more is made when no other file is being made.
    """

    def __init__(self, most: int, stalled_seconds: float = STALLED_SECONDS) -> None:
        self._most = most
        self._stalled_seconds = stalled_seconds
        self._changed = threading.Condition()
        self._at_work: dict[object, _AtWork] = {}

    @contextmanager
    def take(self, needed: int, progress: Callable[[], int] = int) -> Iterator[None]:
        """Wait until `needed` of the room is free, and take it while the context is open.

        `progress` must return another number each time that making the file has advanced.
        """
        own = object()
        with self._changed:
            while (others := self._count_taken()) and others + needed > self._most:
                self._changed.wait(_AGAIN_SECONDS)
            self._at_work[own] = _AtWork(needed, progress)
        try:
            yield
        finally:
            with self._changed:
                del self._at_work[own]
                self._changed.notify_all()

    def _count_taken(self) -> int:
        return sum(one.needed for one in self._at_work.values() if one.measure_idle() < self._stalled_seconds)


class _AtWork:
    """One file that is being made."""

    def __init__(self, needed: int, progress: Callable[[], int]) -> None:
        self.needed = needed
        self._progress = progress
        self._seen = progress()
        self._watch = Stopwatch()

    def measure_idle(self) -> float:
        """Return for how many seconds `progress` has returned the same number."""
        now = self._progress()
        if now != self._seen:
            self._seen = now
            self._watch.restart()
        return self._watch.seconds


class MadeFiles:
    """The open files of a mount that were made as a whole. Thread-safe.

    Open files take at most half of the cache; with more, other requests might wait until a program closes one. Files being
    made take at most the same amount again, unless there is only one.
    """

    def __init__(self, cache_size: int, stalled_seconds: float = STALLED_SECONDS) -> None:
        self._most = cache_size // 2
        self.room = Room(self._most, stalled_seconds)
        self._lock = threading.Lock()
        self._open: dict[int, tuple[int, int]] = {}  # by content: how many handles have it, bytes

    def make_handle(self, content: memoryview, version: Hashable) -> MadeHandle:
        """Open a finished file; OutOfBudget if the open files take too much memory."""
        key = id(content.obj)  # unique while a handle has the content
        with self._lock:
            handles, size = self._open.get(key, (0, len(content)))
            held = sum(size for _, size in self._open.values())
            if not handles and held + size > self._most:
                raise OutOfBudget(
                    f"open files that are made in memory take {held} bytes, and {size} more are too many: close some, "
                    f"or --cache-size {-(-2 * (held + size) // MIB)}M permits it"
                )
            self._open[key] = handles + 1, size
        return MadeHandle(content, version, partial(self._note_closing, key))

    def _note_closing(self, key: int) -> None:
        with self._lock:
            handles, size = self._open.pop(key)
            if handles > 1:
                self._open[key] = handles - 1, size
