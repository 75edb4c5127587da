"""Read-ahead: notice that somebody reads an array's chunk files one after the other, or one long file from front to back,
and have the next bytes made meanwhile.

Not here: how they are made and kept (`tree.Space.prefetch` and `tree.Handle.prefetch` do that; `cache.py` gives chunks that
nobody has asked for a share of its budget and forgets them first), the kernel's own read-ahead within one file. What goes
wrong here is nobody's error: the reader who really comes for the bytes meets it.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Protocol

from fsbridge import confinement
from fsbridge.errors import FsbridgeError
from fsbridge.kernel.handles import OpenFile
from fsbridge.tree import Handle, Space

log = logging.getLogger(__name__)

THREADS = os.cpu_count() or 1
"""Decoding needs one per processor."""

WAITING_JOBS = 64
"""Jobs that wait; older ones are dropped, because their readers have come by themselves by then."""

IDLE_SECONDS = 2.0
"""Seconds without work after which a thread ends."""

DEPTH_FILES = 4
"""Files made ready ahead of one reader: enough for two processors, few enough to stay in the processors' caches."""

DEPTH_BYTES, MOST_FILES = 4 << 20, 32
"""Of smaller files, so many bytes or files are made ready ahead."""

REMOTE_THREADS, REMOTE_DEPTH_FILES = 32, 16
"""Over the network most of the time is waiting: at 30 ms, 32 requests at a time carry more than two processors decode."""

GAP_FILES = 4
"""Files a reader may leave out and still be followed: sparse arrays, and several readers taking turns."""

MAX_STREAMS = 16
"""Readers of one array that are followed at once."""

UNREAD_FILES = 4
"""Files opened in sequence without being read to their end after which nothing is read ahead any more."""

MAX_SPACES = 64
"""Arrays whose readers are followed at once."""

GAP_WINDOWS = 1
"""Windows of a long file that a read may lie before or behind the others' end: the kernel's requests overtake each other."""

SEQUENTIAL_PART = 4
"""Somebody reads from front to back once he has asked for this part (a quarter) of a window, and left out no more than this
part of what he has passed: who picks a row of each plane through `mmap` has not."""

DEPTH_WINDOWS = 2
"""Windows of a long file made ready ahead of its reader."""


class IdleThreads:
    """A few threads for work that can be left undone. They start when there is work and end when there is none.

    `report` gets, on those threads, every exception that is neither an error of ours nor of the operating system: a bug.
    """

    def __init__(self, report: Callable[[Exception], object], threads: int = THREADS) -> None:
        self._report = report
        self._threads = threads
        self._changed = threading.Condition()
        self._jobs: deque[tuple[Callable[[], object], Callable[[], object]]] = deque()
        self._running = 0
        self._idle = 0

    def submit(self, job: Callable[[], object], dropped: Callable[[], object] = lambda: None) -> None:
        """Do `job` soon, or call `dropped` when it will never be done. Does not block."""
        out_of_date = None
        with self._changed:
            if len(self._jobs) >= WAITING_JOBS:
                _, out_of_date = self._jobs.popleft()
            self._jobs.append((job, dropped))
            if self._idle:
                self._changed.notify()
            elif self._running < self._threads:
                self._running += 1
                confinement.start(self._work, f"fsbridge-ahead-{self._running}")
        if out_of_date is not None:
            out_of_date()

    def _work(self) -> None:
        try:
            while (job := self._next()) is not None:
                try:
                    job()
                except (FsbridgeError, OSError) as error:
                    log.debug("not read ahead: %s", error)
                except Exception as error:
                    self._report(error)
                del job
                if confinement.outgrown():
                    return
        finally:
            with self._changed:
                self._running -= 1

    def _next(self) -> Callable[[], object] | None:
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._jobs, IDLE_SECONDS)  # another thread may be faster: then wait again
            self._idle -= 1
            return self._jobs.popleft()[0] if self._jobs else None


class _Stream:
    """One reader: the last file opened, how many were read to their end, the furthest that was made ready."""

    __slots__ = ("furthest", "last", "read", "unread")

    def __init__(self, number: int) -> None:
        self.last = self.furthest = number
        self.read = 0
        self.unread = 1

    def follows(self, number: int) -> bool:
        return self.last <= number <= self.last + 1 + GAP_FILES

    def depth(self, most: int) -> int:
        return min(most, 1 << (self.read - 1)) if self.read and self.unread <= max(UNREAD_FILES, most // 2) else 0


class Streams:
    """The readers of one space. `prefetch(number)` makes a file ready, on one of `threads`; numbers are in listing order.

    It says False when there was no room: then the file's turn comes again with the next one that is opened.
    """

    def __init__(
        self, threads: IdleThreads, count: int, prefetch: Callable[[int], bool], depth: int = DEPTH_FILES, batch: int = 1
    ) -> None:
        """`depth`: files ahead of one reader; `batch`: as many of them as are worth two jobs, which wait for each other."""
        self._threads = threads
        self._depth = depth
        self._batch = batch
        self._count = count
        self._prefetch = prefetch
        self._lock = threading.Lock()
        self._streams: list[_Stream] = []  # the most recently used last

    def opened(self, number: int) -> None:
        """A file was opened."""
        with self._lock:
            stream = self._find(number)
            if stream is None:
                self._streams = [*self._streams[1 - MAX_STREAMS :], _Stream(number)]
                return
            self._streams.remove(stream)
            self._streams.append(stream)
            if number == stream.last:
                return
            stream.last = number
            stream.unread += 1
            first = max(stream.furthest, number) + 1
            depth = stream.depth(self._depth)
            end = min(number + depth + 1, self._count)
            if end - first < min(self._batch, depth) and end < self._count:
                return
            stream.furthest = max(stream.furthest, end - 1)
        each = max(1, self._batch // 2)
        for start in range(first, end, each):
            self._threads.submit(partial(self._ahead, stream, range(start, min(start + each, end))))

    def _ahead(self, stream: _Stream, wanted: Iterable[int]) -> None:
        for number in wanted:
            try:
                room = self._prefetch(number)
            except (FsbridgeError, OSError) as error:
                log.debug("not read ahead: %s", error)
                continue
            if not room:
                with self._lock:
                    stream.furthest = min(stream.furthest, number - 1)
                return

    def finished(self, number: int) -> None:
        """A file was read to its end."""
        with self._lock:
            stream = self._find(number, behind=GAP_FILES)
            if stream is not None:
                stream.read += 1
                stream.unread = 0

    def _find(self, number: int, behind: int = 0) -> _Stream | None:
        """The reader that `number` belongs to: the one nearest before it, or at most `behind` after it."""
        found = [stream for stream in self._streams if stream.follows(number) or 0 < stream.last - number <= behind]
        return min(found, key=lambda stream: abs(number - stream.last), default=None)


class Delivery(Protocol):
    """Takes bytes that were made ahead of their reader: of the file at a position of a space, see `tree.Deliver`."""

    def __call__(self, space: Space, position: int, version: Hashable, offset: int, data: memoryview, /) -> int: ...


class Readers:
    """Everybody who reads files of this mount, as the kernel's requests tell. For the event loop's thread."""

    def __init__(self, threads: IdleThreads, deliver: Delivery, depth: int = DEPTH_FILES) -> None:
        self._threads = threads
        self._depth = depth
        self._deliver = deliver
        self._streams: OrderedDict[Space, Streams] = OrderedDict()

    def opened(self, file: OpenFile) -> None:
        """A file was opened."""
        if file.slot is None:
            return
        space, position = file.slot
        streams = self._streams.get(space)
        if streams is None:
            prefetch = partial(self._prefetch, space)
            depth = max(self._depth, min(DEPTH_BYTES // max(1, file.size), MOST_FILES))
            batch = depth // 2 if depth > self._depth else 1
            streams = self._streams[space] = Streams(self._threads, space.size, prefetch, depth, batch)
            if len(self._streams) > MAX_SPACES:
                self._streams.popitem(last=False)
        self._streams.move_to_end(space)
        streams.opened(position)

    def read(self, file: OpenFile, start: int, stop: int) -> None:
        """Bytes [start, stop) of a file are asked for."""
        if stop >= file.size:
            if not file.ended:
                file.ended = True
                if file.slot is not None and file.slot[0] in self._streams:
                    self._streams[file.slot[0]].finished(file.slot[1])
        elif window := file.handle.window:
            self._follow(file, start, stop, window)

    def forget(self, space: Space) -> None:
        """The kernel knows no file of `space` any more."""
        self._streams.pop(space, None)

    def _follow(self, file: OpenFile, start: int, stop: int, window: int) -> None:
        sequential = abs(start - file.followed) <= window * GAP_WINDOWS
        if not sequential or start == 0:
            file.begun, file.asked, file.followed, file.ahead = start, stop - start, stop, 0
            return
        file.followed = max(file.followed, stop)
        file.asked += stop - start
        missed = file.followed - file.begun - file.asked
        if file.asked * SEQUENTIAL_PART < window or missed * SEQUENTIAL_PART > file.followed - file.begun:
            return
        file.ahead = max(file.ahead, file.followed)
        end = min(file.followed + DEPTH_WINDOWS * window, file.size)
        while file.ahead < end:
            first, file.ahead = file.ahead, min(file.ahead + window, file.size)
            self._threads.submit(partial(self._prefetch_range, file.handle, first, file.ahead))

    def _prefetch(self, space: Space, position: int) -> bool:
        return space.prefetch(position, partial(self._deliver, space, position))

    @staticmethod
    def _prefetch_range(handle: Handle, start: int, stop: int) -> None:
        handle.prefetch(start, stop, _deliver_to_nobody)


def _deliver_to_nobody(_version: Hashable, _offset: int, _data: memoryview) -> int:
    """The kernel takes no pages of a file that is being read."""
    return 0
