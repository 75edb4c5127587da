"""The last answer about each object of an object store, with a body that waits for its reader. Not here: requests."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict

from fsbridge import confinement
from fsbridge.owner import everybody
from fsbridge.store import Key, Stat, nowait
from fsbridge.store.remote.client import Answer, Object, is_weak, unquoted
from fsbridge.store.remote.listing_cache import mark

KEPT_SECONDS = 3.0
"""For which the body of a look-up waits for its reader, who may be slow on a busy machine: it would be sent twice."""
KEPT_BODIES = 64
"""Such bodies at a time."""
KNOWN_OBJECTS = 16384
"""Objects whose last stat is remembered: about 5 MB."""
COARSE_SECONDS = 600
"""Seconds by which a server's clock may differ from ours: what is dated further from now has not been written just now."""
TICK_SECONDS = 2.0
"""For which a version without a real ETag may stand for two contents: the second that dates it, or two of a coarse clock."""
DOUBTED_SECONDS = 0.2
"""For which an answer is believed whose version may do so: somebody waits until it does not."""

DIGEST_CHARS = 32
"""Of an ETag that stands for an object's bytes: an MD5 at least. Web servers make shorter ones of time and size, nginx and
lighttpd of whole seconds, so that two writes of one size within a second share it."""

_CLOUD = "0x"
"""How ETags of Azure begin, which are counted."""


class ServerClock:
    """What the clock of a server shows at least: as much as the last change that it has told of, and what has passed since.

    It decides when the second is over in which an object was written; comparing with our own clock would make readers of
    whole arrays wait for as long as the two may differ. A race costs precision, no more.
    """

    def __init__(self) -> None:
        self._ahead = -math.inf

    def told(self, found: Object) -> None:
        """The server has just sent an object."""
        written = found.mtime_ns / 1e9
        if written < time.time() + COARSE_SECONDS:  # else it is no time of a clock
            self._ahead = max(self._ahead, written - time.monotonic())

    def has_passed(self, found: Object, asked: float) -> bool:
        """Whether the object was asked for (`time.monotonic`) when the second of its last change was over."""
        return asked + self._ahead > found.mtime_ns / 1e9 + TICK_SECONDS


class Known:
    """What the last answer told of a key: `stat` (None: absent), and perhaps bytes that nobody has read yet."""

    __slots__ = ("asked", "etag", "held", "pending", "stat")

    def __init__(self, stat: Stat | None, etag: str | None) -> None:
        self.stat = stat
        self.etag = etag
        self.asked = time.monotonic()
        self.held: tuple[int, bytes] | None = None  # both or none: others come and go while somebody looks
        """Bytes of the object, and at which of its bytes they begin."""
        self.pending: Answer | None = None

    def part(self, start: int, length: int) -> bytes | None:
        """These bytes, if they are here."""
        begin, body = self.held or (0, b"")
        first = start - begin
        return body[first : first + length] if first >= 0 and first + length <= len(body) else None


class Answers:
    """The last answers of one store by key. `ttl`: seconds for which one is believed. Thread-safe."""

    def __init__(self, ttl: float) -> None:
        self._ttl = ttl
        self._lock = threading.Lock()
        self._known: OrderedDict[Key, Known] = OrderedDict()
        self._kept: OrderedDict[Key, None] = OrderedDict()
        self._sweeping = False

    def __len__(self) -> int:
        """Bodies that wait."""
        return len(self._kept)

    def get(self, key: Key) -> Known | None:
        """The last answer, however old."""
        return self._known.get(key)

    def fresh(self, key: Key) -> Known | None:
        """The last answer if it may still be believed."""
        known = self._known.get(key)
        if known is None:
            return None
        doubted = known.stat is not None and not known.stat.settled and self._ttl < math.inf
        return (
            known if time.monotonic() - known.asked < (min(self._ttl, DOUBTED_SECONDS) if doubted else self._ttl) else None
        )

    def put(self, key: Key, known: Known) -> None:
        """Remember an answer."""
        with self._lock:
            self._known[key] = known
            self._known.move_to_end(key)
            self._kept.pop(key, None)
            if len(self._known) > KNOWN_OBJECTS:
                dropped, _ = self._known.popitem(last=False)
                self._kept.pop(dropped, None)

    def forget(self, key: Key) -> None:
        """What was known of `key` is wrong."""
        with self._lock:
            self._known.pop(key, None)
            self._kept.pop(key, None)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._known.clear()
            self._kept.clear()

    def keep(self, key: Key, known: Known, held: tuple[int, bytes] | None, pending: Answer | None = None) -> None:
        """Bytes of an object, see `Known.held`, or the answer that will give them, wait for a reader."""
        known.held, known.pending = held, pending
        with self._lock:
            self._kept[key] = None
            self._kept.move_to_end(key)
            while len(self._kept) > KEPT_BODIES:
                self._release(self._kept.popitem(last=False)[0])
            if not self._sweeping:
                self._sweeping = True
                self._sweep_later()

    def take(self, key: Key) -> Answer | None:
        """The answer whose body nobody has asked for yet: given to one reader."""
        nowait.must_wait()
        with self._lock:
            known = self._known.get(key)
            pending = known.pending if known is not None else None
            if known is not None:
                known.pending = None
            return pending

    def _release(self, key: Key) -> None:
        known = self._known.get(key)
        if known is not None:
            known.held = known.pending = None

    def _sweep_later(self) -> None:
        confinement.later(KEPT_SECONDS, self._sweep, "fsbridge-sweep")

    def _sweep(self) -> None:
        """Let go of bodies that nobody came for, and with them of their connections."""
        now = time.monotonic()
        with self._lock:
            for key in list(self._kept):
                known = self._known.get(key)
                if known is None or now - known.asked >= KEPT_SECONDS:
                    del self._kept[key]
                    self._release(key)
            self._sweeping = bool(self._kept)
        if self._sweeping:
            self._sweep_later()


class Evidence:
    """Directories in which an object was seen, and when: that they exist. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: OrderedDict[Key, float] = OrderedDict()

    def seen(self, key: Key) -> None:
        """There is an object at `key`, and so are all directories above it."""
        now = time.monotonic()
        with self._lock:
            while key := key.parent:
                self._seen[key] = now
                self._seen.move_to_end(key)
            while len(self._seen) > KNOWN_OBJECTS:
                self._seen.popitem(last=False)

    def exists(self, directory: Key, age: float) -> bool:
        """Whether something was seen in it in the last `age` seconds."""
        return time.monotonic() - self._seen.get(directory, -math.inf) < age


def is_version(stat: Stat, etag: str) -> bool:
    """Whether the stat of an object in a store elsewhere is that of the version with this ETag, as a server spells it."""
    return isinstance(stat.version, tuple) and stat.version[0] == mark(unquoted(etag))


def _is_of_bytes(etag: str | None) -> bool:
    """Whether no other bytes can have the same ETag."""
    return etag is not None and not is_weak(etag) and (len(etag) >= DIGEST_CHARS or etag.startswith(_CLOUD))


def stat_of(found: Object, clock: ServerClock | None = None, asked: float = -math.inf) -> Stat:
    """The version of an object: what stands for its ETag, with size and time for servers that have none.

    `clock`: the server's, for an object that was `asked` for just now (`time.monotonic`).
    """
    settled = _is_of_bytes(found.etag) or abs(time.time() - found.mtime_ns / 1e9) > COARSE_SECONDS
    if not settled and clock is not None:
        settled = clock.has_passed(found, asked)
        clock.told(found)
    return Stat(False, found.size, found.mtime_ns, (mark(found.etag), found.size, found.mtime_ns), everybody(), settled)
