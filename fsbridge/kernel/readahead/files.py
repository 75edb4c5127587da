"""Read-ahead in files: notice programs that read in order, and prefetch what they will read next.

Such a program reads an array's chunk files one after the other, or one long file from front to back.

Not here: how they are made and kept (`tree.Space.prefetch` and `tree.Handle.prefetch` do that; `decoded/cache.py` gives
prefetched chunks a share of its budget and forgets them first), the kernel's own read-ahead within one file. Errors here
are dropped: the request that really asks for the bytes meets them.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from fsbridge.kernel.handles import OpenFile
from fsbridge.lru import Recent
from fsbridge.threads.deadlines import Deadline
from fsbridge.threads.workers import Workers
from fsbridge.tree import AnyNode, Space

THREADS = os.cpu_count() or 1
"""Threads that make files ready: decoding needs one per processor."""

DEPTH_FILES = 4
"""Files made ready ahead of one reader: enough for two processors, few enough to stay in the processors' caches."""

DEPTH_BYTES, MOST_FILES = 8 << 20, 32
"""Bytes of small files that are made ready ahead, and the most such files."""

REMOTE_THREADS = 32
"""Over the network most of the time is waiting: at 30 ms, 32 requests at a time carry more than two processors decode."""

REMOTE_MAKERS = 2 * THREADS
"""Threads that decode what has arrived or is about to.

If there were fewer, all might wait for late chunks while other chunks lie ready to be decoded. If there were more, all files
would be ready late and at the same time, instead of one by one.
"""

RECENT_SECONDS = 5.0
"""Seconds for which a file that was opened or made ready is not made ready again: another reader has just been there."""

GAP_FILES = 4
"""Files a reader may leave out and still be followed: sparse arrays, and several readers taking turns."""

LISTED_SECONDS = 5.0
"""If a directory of the array was listed within so many seconds, a reader's first open also fetches some files behind it.

If the open file is the directory's first, it fetches more, because the program will probably read all of them.
"""

BEHIND_SECONDS = 0.01
"""Seconds between a reader's first open and fetching the next few files, so that this does not slow the first read down.

If the reader opens a second file before that, they are fetched at once.
"""

MAX_RECENT = 1024
"""Number of recently opened or prepared files that are remembered for one array."""

MAX_STREAMS = 16
"""Number of readers of one array that are followed at once."""

UNREAD_FILES = 4
"""Read-ahead stops after so many files opened in sequence without being read to their end.

(The kernel does not ask for the ends of files in its page cache.)
"""

MAX_LISTED = 1024
"""Listings of directories of one array that are remembered."""

MAX_SPACES = 64
"""Number of arrays with readers that are followed at once."""

GAP_WINDOWS = 1
"""Windows that a read may begin before or behind the end of earlier ones, because the kernel mixes up their order."""

SEQUENTIAL_PART = 4
"""A reader counts as sequential once it has asked for this part (a quarter) of a window and left out at most this part of
what it has passed.

A program that picks a row of each plane through `mmap` does not.
"""

SEQUENTIAL_BYTES, SEQUENTIAL_FILE_PART = 4 << 20, 16
"""A sequential reader must also have asked for so many bytes, or this part (a sixteenth) of a shorter file, because the
kernel reads up to a MiB around a few pages.
"""

LEAST_WINDOWS, MOST_WINDOWS, DEPTH_AHEAD_BYTES = 2, 8, 32 << 20
"""Least and most windows of a long file that are made ready ahead of its reader, and the bytes that they should hold."""


class _Stream:
    """One reader: the last file opened, how many files were read to their end, and the furthest file that was made ready.

    `steps`: each has files to fetch and files to make ready after that; the oldest is the first. `sending`: held by the
    thread that runs a step. `goes_on`: set when the reader opens its second file.
    """

    __slots__ = ("fetched", "furthest", "goes_on", "last", "read", "sending", "steps", "unread")

    def __init__(self, number: int) -> None:
        self.sending = threading.Lock()
        self.goes_on = threading.Event()
        self.steps: deque[tuple[list[int], list[int]]] = deque()
        self.last = self.furthest = self.fetched = number
        self.read = 0
        self.unread = 1

    def follows(self, number: int) -> bool:
        return self.last <= number <= self.last + 1 + GAP_FILES

    def depth(self, depths: Depths) -> int:
        if not self.read or self.unread > depths.unread:
            return 0
        return min(depths.most, depths.first * int(depths.growth ** min(self.read - 1, 10)))


class Depths(NamedTuple):
    """How many files are made ready ahead of a reader.

    `first`: files after it has read one; `growth`: factor for each further file that it reads; `most`: the most files.
    `unread`: see `UNREAD_FILES`. `fetched`: the most files with stored bytes fetched from a remote store; these are four
    times as many as are made ready. `batch`: files that are begun together, in two jobs. `listed`: files behind the first
    one opened that are fetched with it if a directory was listed just before; `begun`: the same if it is the listing's
    first.
    """

    first: int
    growth: int
    most: int
    unread: int = UNREAD_FILES
    fetched: int = 0
    batch: int = 1
    listed: int = 0
    begun: int = 0


def near(size: int) -> Depths:
    """Return the depths for files of `size` bytes on a local disk."""
    most = max(DEPTH_FILES, min(DEPTH_BYTES // max(1, size), MOST_FILES))
    return Depths(1, 2, most, most, batch=most // 2 if most > DEPTH_FILES else 1)


NEAR = Depths(1, 2, DEPTH_FILES)
REMOTE = Depths(8, 4, 16, unread=8, fetched=64, listed=4, begun=16)
"""Over the network each step costs a round trip. So after one file, as much is requested as may be on its way
(`store/remote/prefetching.py`). Half of that is requested with the first file if a program seems to want all (`cp -r`).
"""


class Streams:
    """The readers of one space. Its files are numbered in the order of a listing.

    `prefetch(numbers)` makes files ready on one of `threads`. It returns the first for which there was no room; that one is
    tried again when the next file is opened. `fetch(number)` requests a file's stored bytes. If it returns true, they arrive
    later, and threads of `makers` make the file from them.
    """

    def __init__(
        self,
        threads: Workers,
        count: int,
        prefetch: Callable[[Sequence[int]], int | None],
        depths: Depths = NEAR,
        fetch: Callable[[int], bool] = lambda number: False,
        makers: Workers | None = None,
    ) -> None:
        self._threads = threads
        self._makers = threads if makers is None else makers
        self._depths = depths
        self._count = count
        self._prefetch = prefetch
        self._fetch = fetch
        self._lock = threading.Lock()
        self._apart = False  # true if what was fetched last is decoded in a step of its own
        self._streams: list[_Stream] = []  # the most recently used last
        self._recent = Recent[int, Deadline](MAX_RECENT)  # files that were opened or made ready

    def note_open(self, number: int, behind: int = 0) -> None:
        """Note that a file was opened; `behind`: how many files behind it seem to be wanted before it has been read."""
        with self._lock:
            stream = self._find(number)
            self._note(number)
            if stream is None:
                stream = _Stream(number)
                self._streams = [*self._streams[1 - MAX_STREAMS :], stream]
                coming = range(number + 1, min(number + 1 + behind, self._count))
                if coming:
                    stream.fetched = coming[-1]
                    stream.steps.append((list(coming), []))
                    all_wanted = behind > self._depths.listed
                    send = self._fetch_first if all_wanted else self._fetch_behind
                    self._threads.submit(partial(send, stream), stream.steps.popleft)
                return
            self._streams.remove(stream)
            self._streams.append(stream)
            if number == stream.last:
                return
            stream.last = number
            if not stream.goes_on.is_set():
                stream.goes_on.set()
            stream.unread += 1
            first, depth = max(stream.furthest, number) + 1, stream.depth(self._depths)
            end = min(number + depth + 1, self._count)
            if end - first < min(self._depths.batch, depth) and end < self._count:
                return
            stream.furthest = max(stream.furthest, end - 1)
            wanted = [other for other in range(first, end) if not self._is_recent(other)]
            ahead = min(4 * depth, self._depths.fetched)
            coming = range(max(number, stream.fetched) + 1, min(number + 1 + ahead, self._count))
            fetched = [other for other in coming if not self._is_recent(other)]
            stream.fetched = max(stream.fetched, coming.stop - 1)
            for other in wanted:
                self._note(other)
            if fetched:
                stream.steps.append((fetched, wanted))
        if fetched:
            self._threads.submit(partial(self._fetch_first, stream), stream.steps.popleft)
        else:
            self._make(stream, wanted)

    def _fetch_behind(self, stream: _Stream) -> None:
        stream.goes_on.wait(BEHIND_SECONDS)
        self._fetch_first(stream)

    def _fetch_first(self, stream: _Stream) -> None:
        with stream.sending:  # one step after the other: fetching what is made already would be a waste
            fetched, wanted = stream.steps.popleft()
            apart = [self._fetch(other) for other in fetched]
            self._apart = any(apart)
        self._make(stream, wanted)

    def _make(self, stream: _Stream, wanted: list[int]) -> None:
        threads = self._makers if self._apart else self._threads
        each = max(1, self._depths.batch // 2)
        for start in range(0, len(wanted), each):
            threads.submit(partial(self._ahead, stream, wanted[start : start + each]))

    def _ahead(self, stream: _Stream, wanted: Sequence[int]) -> None:
        left = self._prefetch(wanted)
        if left is not None:
            with self._lock:
                stream.furthest = min(stream.furthest, left - 1)
                for number in wanted[wanted.index(left) :]:
                    self._recent.pop(number)

    def _is_recent(self, number: int) -> bool:
        deadline = self._recent.peek(number)
        return deadline is not None and not deadline.passed

    def _note(self, number: int) -> None:
        self._recent.put(number, Deadline(RECENT_SECONDS))

    def note_finished(self, number: int) -> None:
        """Note that a file was read to its end."""
        with self._lock:
            stream = self._find(number, behind=GAP_FILES)
            if stream is not None:
                stream.read += max(1, stream.unread)  # the kernel does not report reads from its page cache
                stream.unread = 0

    def _find(self, number: int, behind: int = 0) -> _Stream | None:
        """Return the reader of `number`: the one nearest before it, or at most `behind` files after it; or None."""
        reader, nearest = None, 0
        for stream in self._streams:
            distance = abs(number - stream.last)
            if (stream.follows(number) or 0 < stream.last - number <= behind) and (reader is None or distance < nearest):
                reader, nearest = stream, distance
        return reader


class Readers:
    """The readers of this mount's files, as the kernel's requests show them. For the event loop's thread."""

    def __init__(
        self,
        threads: Workers,
        depths: Depths | None = None,
        makers: Workers | None = None,
        most_windows: int = MOST_WINDOWS,
    ) -> None:
        """`depths`: None for those of a local disk; `makers`: threads that decode what has arrived.

        `most_windows`: see `MOST_WINDOWS`.
        """
        self._most_windows = most_windows
        self._threads = threads
        self._makers = makers
        self._depths = depths
        self._streams = Recent[Space, Streams](MAX_SPACES)
        # Directories of a space that were listed, by the position of the first entry.
        self._listed = Recent[Space, Recent[int | None, Deadline]](MAX_SPACES)

    def note_listing(self, directory: AnyNode, first: int | None) -> None:
        """Note that a directory is about to be listed; its first entry has the position `first` of its space."""
        if directory.slot is None or self._depths is None or not self._depths.listed:
            return
        space = directory.slot[0]
        known = self._listed.get(space)
        if known is None:
            known = Recent[int | None, Deadline](MAX_LISTED)
            self._listed.put(space, known)
        known.put(first, Deadline(LISTED_SECONDS))

    def _behind(self, space: Space, position: int) -> int:
        """Return how many files behind an opened one seem to be wanted, going by what was listed just before."""
        known = self._listed.peek(space)
        last = None if known is None else known.latest()
        if known is None or last is None or last.passed or self._depths is None:
            return 0
        listed = known.peek(position)
        return self._depths.listed if listed is None or listed.passed else self._depths.begun

    def note_open(self, slot: tuple[Space, int] | None, size: int = 0, again: bool = False) -> None:
        """Note that the file at a position of a space is being opened, or is open.

        `size`: its bytes, 0 if not known yet. `again`: True if the kernel may still have the file's bytes. Its opening then
        starts no prefetching of the files behind it; that starts only when the file has been read to its end.
        """
        if slot is None:
            return
        space, position = slot
        streams = self._streams.get(space)
        if streams is None:
            depths = self._depths or near(size)
            streams = Streams(self._threads, space.size, space.prefetch, depths, space.fetch, self._makers)
            self._streams.put(space, streams)
        streams.note_open(position, 0 if again else self._behind(space, position))

    def note_read(self, file: OpenFile, start: int, stop: int) -> None:
        """Note a request for the bytes [start, stop) of a file."""
        if stop >= file.size:
            if not file.progress.ended:
                file.progress.ended = True
                if file.slot is not None and (streams := self._streams.peek(file.slot[0])) is not None:
                    streams.note_finished(file.slot[1])
        elif window := file.handle.window:
            self._follow(file, start, stop, window)

    def forget(self, space: Space | None) -> None:
        """Forget the readers of `space`, because the kernel no longer knows a file of it."""
        if space is not None:
            self._streams.pop(space)
            self._listed.pop(space)

    def _follow(self, file: OpenFile, start: int, stop: int, window: int) -> None:
        at = file.progress
        sequential = abs(start - at.followed) <= window * GAP_WINDOWS
        if not sequential or start == 0:
            at.begun, at.asked, at.followed, at.ahead = start, stop - start, stop, 0
            return
        at.followed = max(at.followed, stop)
        at.asked += stop - start
        missed = at.followed - at.begun - at.asked
        least = max(window // SEQUENTIAL_PART, min(SEQUENTIAL_BYTES, file.size // SEQUENTIAL_FILE_PART))
        if at.asked < least or missed * SEQUENTIAL_PART > at.followed - at.begun:
            return
        at.ahead = max(at.ahead, at.followed)
        depth = max(LEAST_WINDOWS, min(self._most_windows, DEPTH_AHEAD_BYTES // window))
        end = min(at.followed + depth * window, file.size)
        while at.ahead < end:
            first, at.ahead = at.ahead, min(at.ahead + window, file.size)
            (self._makers or self._threads).submit(partial(file.handle.prefetch, first, at.ahead))
