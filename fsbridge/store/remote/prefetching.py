"""Requests made before their answers are needed: prefetched bytes, and questions about objects that may have changed.

Each range is fetched once: a reader that needs it meanwhile waits for it and takes it. Many are fetched at a time, a bounded
number of bytes. Each object is asked about by one request at a time (`PrefetchedStats`). Not here: what will be wanted
(read-ahead), what an answer says of its object (`objects.py`).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from fsbridge import asking
from fsbridge.config import MIB, REMOTE_LIMITS
from fsbridge.store import ROOT, Key, Range, Stat
from fsbridge.store.remote.client import Object
from fsbridge.threads import starting
from fsbridge.threads.deadlines import Stopwatch
from fsbridge.threads.workers import Workers

T = TypeVar("T")

AT_ONCE = 4
"""Requests in the background at a time; the thread that begins one makes a request of its own meanwhile."""
MOST_SECONDS = 10.0
"""Most seconds that a thread waits for a request of another one: a request takes no longer (`client.py`)."""


class PrefetchedStats:
    """The objects of one store that are being asked about.

    `ask` makes the request; a thread that waits meets its errors itself.
    """

    def __init__(self, ask: Callable[[Key], object]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._under_way: dict[Key, threading.Event] = {}
        self._threads = Workers("stat", AT_ONCE, lambda error: None)

    def begin(self, key: Key) -> None:
        """Ask about an object, unless that is under way already. Does not block."""
        with self._lock:
            if key in self._under_way:
                return
            self._under_way[key] = threading.Event()
        self._threads.submit(partial(self._visit, key), partial(self._over, key))

    def once(self, key: Key, ask: Callable[[], T], known: Callable[[], T | None]) -> T:
        """Return what `ask` finds by a request on this thread.

        If a request is under way already, wait for it and return what `known` gives; if that is None, `ask` after all.
        """
        with self._lock:
            mine = key not in self._under_way
            if mine:
                self._under_way[key] = threading.Event()
        if not mine:
            self.wait(key)
            answer = known()
            return ask() if answer is None else answer
        try:
            return ask()
        finally:
            self._over(key)

    def wait(self, key: Key) -> None:
        """Wait for the request about an object, if one is under way."""
        event = self._under_way.get(key)
        if event is not None:
            asking.before_waiting()
            event.wait(MOST_SECONDS)

    def _visit(self, key: Key) -> None:
        try:
            self._ask(key)
        finally:
            self._over(key)

    def _over(self, key: Key) -> None:
        with self._lock:
            self._under_way.pop(key).set()


FETCHED_BYTES = 64 * MIB
"""Most bytes under way or waiting for their reader. At a latency of 30 ms that is enough for 2 GB/s."""
AHEAD_IN_FLIGHT = 32
"""Most requests at a time: at a latency of 30 ms they bring more whole chunks than two processors decode."""
EXPECTED = 2 * MIB
"""Assumed size of an object in bytes until an answer gives it."""
WAITING_PARTS = 256
"""Most ranges that wait for room. They are requested in order, for several readers."""

Fetched = tuple[Object, int, memoryview, Stat]
"""An object, a position in it, its bytes from there on, and its stat at the time of the request."""


class FetchedPart:
    """Bytes from `start` to `stop` (None: the object's end) of an object. `left`: the number not taken yet.

    `expected`: their approximate number; `reserved`: the number counted in `Prefetched.nbytes`.
    """

    __slots__ = ("age", "arrived", "expected", "fetched", "left", "reserved", "start", "stop")

    def __init__(self, start: int, stop: int | None, expected: int) -> None:
        self.start = start
        self.stop = stop
        self.expected = self.left = expected
        self.reserved = 0
        self.age = Stopwatch()
        self.arrived = threading.Event()
        self.fetched: Fetched | None = None

    def covers(self, start: int, length: int | None) -> bool:
        if start < self.start or (start != self.start and length is None):
            return False
        return self.stop is None or (length is not None and start + length <= self.stop)


class Prefetched:
    """The prefetched ranges of one store. `get` makes a request; if it fails, `take` returns None for that range.

    Bytes that nobody takes are dropped after so many `seconds`.
    """

    def __init__(
        self,
        get: Callable[[Key, int, int | None], Fetched],
        budget: int = FETCHED_BYTES,
        seconds: float = REMOTE_LIMITS.fetched_seconds,
    ) -> None:
        self._get = get
        self._budget = budget
        self._seconds = seconds
        self._lock = threading.Lock()
        self._parts: dict[Key, list[FetchedPart]] = {}
        self._waiting: OrderedDict[FetchedPart, Key] = OrderedDict()  # not asked for yet
        self._threads = Workers("fetch", AHEAD_IN_FLIGHT, _drop_error)
        self._asked = 0  # requests under way: never more than there are threads, which would leave out the oldest ones
        self._sweeping = False
        self.nbytes = 0
        """Bytes under way or waiting for their reader."""

    def begin(self, key: Key, read: Range, expected: int | None) -> bool:
        """Request the range `read` of an object, about `expected` bytes, as soon as there is room, unless it is under way.

        False if it will not be requested: too many wait already, or it is too large.
        """
        start, length = read
        nbytes = EXPECTED if expected is None else expected
        with self._lock:
            parts = self._parts.setdefault(key, [])
            if any(part.covers(start, length) for part in parts):
                return True
            if nbytes > self._budget or len(self._waiting) == WAITING_PARTS:
                if not parts:
                    del self._parts[key]
                return False
            part = FetchedPart(start, None if length is None else start + length, nbytes)
            parts.append(part)
            self._waiting[part] = key
            if not self._sweeping:
                self._sweeping = True
                self._sweep_later()
        self._ask()
        return True

    def _ask(self) -> None:
        """Request the waiting ranges in their order, as far as there is room."""
        while True:
            with self._lock:
                part, key = next(iter(self._waiting.items()), (None, ROOT))
                if part is None or self._asked == AHEAD_IN_FLIGHT or self.nbytes + part.expected > self._budget:
                    return
                del self._waiting[part]
                self._asked += 1
                part.reserved = part.expected
                self.nbytes += part.reserved
            self._threads.submit(partial(self._fetch, key, part), partial(self._over, key, part))

    def take(self, key: Key, start: int, length: int | None, last: bool = True) -> Fetched | None:
        """Wait for the answer with these bytes and return it; None if they are not requested yet, or the request failed.

        `last`: these bytes will not be taken again.
        """
        if key not in self._parts:
            return None
        with self._lock:
            part = next((one for one in self._parts.get(key, ()) if one.covers(start, length)), None)
            if part is not None and not part.arrived.is_set():
                asking.before_waiting()
            waits = part is not None and self._waiting.pop(part, None) is not None
        if part is not None and waits:  # the reader asks for them itself
            self._over(key, part)
        if part is None:
            return None
        part.arrived.wait()
        fetched = part.fetched
        if fetched is not None and last:
            part.left -= len(fetched[2]) if length is None else length
            if part.left <= 0:
                self._drop(key, part)
        return fetched

    def clear(self) -> None:
        """Forget everything that has arrived or waits for its request."""
        self._forget(0.0)

    def _forget(self, seconds: float) -> None:
        """Forget the parts begun at least so many seconds ago, except those with a request under way."""
        with self._lock:
            old = [
                (key, part)
                for key, parts in self._parts.items()
                for part in parts
                if part.age.seconds >= seconds and (part.arrived.is_set() or part in self._waiting)
            ]
            for _, part in old:
                self._waiting.pop(part, None)  # otherwise dropping one would make room and request another
        for key, part in old:
            self._over(key, part)  # a reader may have begun to wait for it at this moment

    def _fetch(self, key: Key, part: FetchedPart) -> None:
        try:
            length = None if part.stop is None else part.stop - part.start
            part.fetched = fetched = self._get(key, part.start, length)
            with self._lock:
                self.nbytes += len(fetched[2]) - part.reserved
                part.reserved = part.left = len(fetched[2])
        finally:
            with self._lock:
                self._asked -= 1
            if part.fetched is None:
                self._over(key, part)
            part.arrived.set()
        self._ask()  # there is room for others if this was less than expected

    def _over(self, key: Key, part: FetchedPart) -> None:
        """Drop a part, and wake the readers that wait for it."""
        self._drop(key, part)
        part.arrived.set()

    def _drop(self, key: Key, part: FetchedPart) -> None:
        with self._lock:
            parts = self._parts.get(key, [])
            if part in parts:
                parts.remove(part)
                self.nbytes -= part.reserved
                self._waiting.pop(part, None)
                if not parts:
                    del self._parts[key]
        self._ask()

    def _sweep_later(self) -> None:
        starting.later(self._seconds / 4, self._sweep, "fsbridge-sweep")

    def _sweep(self) -> None:
        """Drop what was not read in time."""
        self._forget(self._seconds)
        with self._lock:
            self._sweeping = bool(self._parts)
        if self._sweeping:
            self._sweep_later()


def _drop_error(_error: Exception) -> None:
    """Drop an error: the reader of the bytes asks again and meets it."""
