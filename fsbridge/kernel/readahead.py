"""Read-ahead: notice that somebody reads an array's chunk files one after the other, and decode the next ones meanwhile.

Not here: how a chunk is decoded or kept (`cache.py` gives chunks that nobody has asked for yet a share of its budget and
forgets them first), the kernel's own read-ahead within one file. Whatever goes wrong here is nobody's error: the reader
who really comes for the chunk meets it.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import TypeAlias

from fsbridge.errors import FsbridgeError
from fsbridge.tree import Space

log = logging.getLogger(__name__)

THREADS = os.cpu_count() or 1
"""Decoding needs one per processor."""

WAITING = 64
"""Jobs that wait; older ones are dropped, because their readers have come by themselves by then."""

IDLE = 2.0
"""Seconds without work after which a thread ends."""

DEPTH = 4
"""Chunks decoded ahead of one reader: enough for two processors, few enough to stay in the processors' caches."""

GAP = 4
"""Chunks a reader may leave out and still be followed: sparse arrays, and several readers taking turns."""

STREAMS = 16
"""Readers of one array that are followed at once."""

PATIENCE = 4
"""Files opened in sequence without being read to their end after which nothing is decoded ahead any more."""


Deliver: TypeAlias = Callable[[Space, int, Hashable, memoryview], int]
"""Takes a chunk that was decoded before anybody asked: its space and position, its version, its bytes.

Returns how many bytes from the beginning nobody will ask for any more.
"""


def _keep(space: Space, position: int, version: Hashable, data: memoryview) -> int:
    """Deliver to nobody: the cache has it."""
    return 0


class ReadAhead:
    """A few threads for work that can be left undone. They start when there is work and end when there is none."""

    def __init__(self, threads: int = THREADS) -> None:
        self.deliver: Deliver = _keep
        """What becomes of a decoded chunk besides being cached; the kernel side sets this."""
        self._threads = threads
        self._changed = threading.Condition()
        self._jobs: deque[Callable[[], object]] = deque(maxlen=WAITING)
        self._running = 0
        self._idle = 0

    def submit(self, job: Callable[[], object]) -> None:
        """Do `job` soon, or never. Does not block."""
        with self._changed:
            self._jobs.append(job)
            if self._idle:
                self._changed.notify()
            elif self._running < self._threads:
                self._running += 1
                threading.Thread(target=self._work, name=f"fsbridge-ahead-{self._running}", daemon=True).start()

    def _work(self) -> None:
        try:
            while (job := self._next()) is not None:
                try:
                    job()
                except (FsbridgeError, OSError) as error:
                    log.debug("not read ahead: %s", error)
                del job
        finally:
            with self._changed:
                self._running -= 1

    def _next(self) -> Callable[[], object] | None:
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._jobs, IDLE)  # another thread may be faster: then wait again
            self._idle -= 1
            return self._jobs.popleft() if self._jobs else None


class _Stream:
    """One reader: the last file opened, how many were read to their end, the furthest that was decoded ahead."""

    __slots__ = ("furthest", "last", "read", "unread")

    def __init__(self, number: int) -> None:
        self.last = self.furthest = number
        self.read = 0
        self.unread = 1

    def follows(self, number: int) -> bool:
        return self.last <= number <= self.last + 1 + GAP

    @property
    def depth(self) -> int:
        return min(DEPTH, 1 << (self.read - 1)) if self.read and self.unread <= PATIENCE else 0


class Streams:
    """The readers of one array. `prefetch(number)` decodes a chunk, on a thread of `pool`; numbers are in listing order.

    It says False when there was no room: then the chunk's turn comes again with the next file that is opened.
    """

    def __init__(self, pool: ReadAhead, count: int, prefetch: Callable[[int], bool]) -> None:
        self._pool = pool
        self._count = count
        self._prefetch = prefetch
        self._lock = threading.Lock()
        self._streams: list[_Stream] = []  # the most recently used last

    def opened(self, number: int) -> None:
        """A chunk file was opened."""
        with self._lock:
            stream = self._find(number)
            if stream is None:
                self._streams = [*self._streams[1 - STREAMS :], _Stream(number)]
                return
            self._streams.remove(stream)
            self._streams.append(stream)
            if number == stream.last:
                return
            stream.last = number
            stream.unread += 1
            first = max(stream.furthest, number) + 1
            end = min(number + stream.depth + 1, self._count)
            stream.furthest = max(stream.furthest, end - 1)
        for wanted in range(first, end):
            self._pool.submit(partial(self._ahead, stream, wanted))

    def _ahead(self, stream: _Stream, wanted: int) -> None:
        if not self._prefetch(wanted):
            with self._lock:
                stream.furthest = min(stream.furthest, wanted - 1)

    def finished(self, number: int) -> None:
        """A chunk file was read to its end."""
        with self._lock:
            stream = self._find(number, behind=GAP)
            if stream is not None:
                stream.read += 1
                stream.unread = 0

    def _find(self, number: int, behind: int = 0) -> _Stream | None:
        """The reader that `number` belongs to: the one nearest before it, or at most `behind` after it."""
        found = [stream for stream in self._streams if stream.follows(number) or 0 < stream.last - number <= behind]
        return min(found, key=lambda stream: abs(number - stream.last), default=None)
