"""The last answer about each object of an object store, perhaps with a body for its next reader; how old it may be.

Not here: requests (`client.py`), how the kernel's requests say how old answers may be (`kernel/ages.py`), remembered
listings (`listing_cache.py`).
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict

from fsbridge import asking, confinement
from fsbridge.asking import context
from fsbridge.config import Config
from fsbridge.store import Key, Stat
from fsbridge.store.remote.client import Object, Response, is_weak, unquoted
from fsbridge.store.remote.listing_cache import mark

DOUBTED_SECONDS = 0.2
"""Seconds for which an answer with an unsettled version is believed. They are few, because a reader may wait for its end."""


class Ages:
    """The earliest time (`time.monotonic`) at which answers, and listings, must have been requested to be believed.

    Reads of open files, and reads without a mount, do not say how old answers may be. Each question is a request to the
    server, so their answers may be as old as attributes.
    """

    def __init__(self, ttl: float, listing_ttl: float) -> None:
        self._ttl = ttl
        self._listing_ttl = max(ttl, listing_ttl)

    @classmethod
    def of(cls, config: Config) -> Ages:
        """Return the ages of one mount."""
        return cls(math.inf if config.immutable else config.metadata_ttl, config.remote.listing_ttl)

    def since(self, settled: bool = True) -> float:
        """Return that time for answers about an object. `settled`: any change shows in its version."""
        moment = context.as_of if context.as_of < math.inf else time.monotonic() - self._ttl
        return moment if settled or moment == -math.inf else max(moment, time.monotonic() - DOUBTED_SECONDS)

    def listed(self) -> float:
        """Return that time for listings that serve as evidence of what exists."""
        if context.as_of < math.inf:
            return min(context.as_of, context.listed)
        return time.monotonic() - self._listing_ttl


KEPT_SECONDS = 3.0
"""Seconds for which the body of a look-up is kept.

Its reader may be slow on a busy machine, and without it the body would be sent twice.
"""
KEPT_BODIES = 64
"""How many such bodies are kept at a time."""
KNOWN_OBJECTS = 16384
"""Number of objects with a remembered last stat: about 5 MB."""
COARSE_SECONDS = 600
"""Seconds by which a server's clock may differ from ours. An object with an older date was not written just now."""
TICK_SECONDS = 2.0
"""Seconds in which two contents may share a version that has no real ETag: the second of its date, or two of a coarse
clock.
"""

DIGEST_CHARS = 32
"""Least number of characters of an ETag that identifies an object's bytes: it may be an MD5.

Web servers make shorter ETags from time and size, nginx and lighttpd from whole seconds, so that two writes of one size
within a second share it.
"""

_CLOUD = "0x"
"""Beginning of Azure's ETags, which are short but unique, because Azure counts them."""


class ServerClock:
    """A lower bound for a server's clock: the latest modification time that it sent, plus the time since then.

    It tells when the second in which an object was written is over. If our own clock told that, readers of whole arrays
    would have to wait for as long as the two clocks may differ. A race between threads only makes the bound less precise.
    """

    def __init__(self) -> None:
        self._ahead = -math.inf

    def told(self, found: Object) -> None:
        """Note that the server has just sent an object."""
        written = found.mtime_ns / 1e9
        if written < time.time() + COARSE_SECONDS:  # otherwise it is not a clock's time
            self._ahead = max(self._ahead, written - time.monotonic())

    def has_passed(self, found: Object, asked: float) -> bool:
        """Tell whether the object was asked for (`time.monotonic`) after the second of its last change was over."""
        return asked + self._ahead > found.mtime_ns / 1e9 + TICK_SECONDS


class KnownObject:
    """The last answer about a key: `stat` (None: absent), and perhaps bytes that are kept for a reader."""

    __slots__ = ("asked", "etag", "held", "pending", "stat")

    def __init__(self, stat: Stat | None, etag: str | None) -> None:
        self.stat = stat
        self.etag = etag
        self.renew()
        self.held: tuple[int, bytes] | None = None  # both or none, because they change while other threads look
        """Bytes of the object, and the position of the first one."""
        self.pending: Response | None = None

    def renew(self) -> None:
        """Note that the server has given this answer just now."""
        self.asked = time.monotonic()

    def part(self, start: int, length: int) -> bytes | None:
        """Return these bytes, if they are kept."""
        begin, body = self.held or (0, b"")
        first = start - begin
        return body[first : first + length] if first >= 0 and first + length <= len(body) else None


class Answers:
    """The last answers of one store by key. Thread-safe."""

    def __init__(self, ages: Ages) -> None:
        self._ages = ages
        self._lock = threading.Lock()
        self._known: OrderedDict[Key, KnownObject] = OrderedDict()
        self._kept: OrderedDict[Key, None] = OrderedDict()
        self._sweeping = False

    def __len__(self) -> int:
        """Number of kept bodies."""
        return len(self._kept)

    def get(self, key: Key) -> KnownObject | None:
        """Return the last answer, however old."""
        return self._known.get(key)

    def fresh(self, key: Key) -> KnownObject | None:
        """Return the last answer if it is young enough for the question."""
        known = self._known.get(key)
        if known is None or known.asked <= self._ages.since(known.stat is None or known.stat.settled):
            return None
        return known

    def put(self, key: Key, known: KnownObject) -> None:
        """Remember an answer."""
        with self._lock:
            self._known[key] = known
            self._known.move_to_end(key)
            self._kept.pop(key, None)
            if len(self._known) > KNOWN_OBJECTS:
                dropped, _ = self._known.popitem(last=False)
                self._kept.pop(dropped, None)

    def forget(self, key: Key) -> None:
        """Forget a key, because what was known about it is wrong."""
        with self._lock:
            self._known.pop(key, None)
            self._kept.pop(key, None)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._known.clear()
            self._kept.clear()

    def keep(self, key: Key, known: KnownObject, held: tuple[int, bytes] | None, pending: Response | None = None) -> None:
        """Keep an object's bytes (see `KnownObject.held`), or the response that will bring them, until a reader comes."""
        known.held, known.pending = held, pending
        with self._lock:
            self._kept[key] = None
            self._kept.move_to_end(key)
            while len(self._kept) > KEPT_BODIES:
                self._release(self._kept.popitem(last=False)[0])
            if not self._sweeping:
                self._sweeping = True
                self._sweep_later()

    def take(self, key: Key) -> Response | None:
        """Return an answer with its body unread, if there is one. Each is given to one reader."""
        asking.before_waiting()
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
        """Drop bodies that were not read in time, and so their connections."""
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
    """Directories known to exist because an object was seen in them, and when. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: OrderedDict[Key, float] = OrderedDict()

    def seen(self, key: Key) -> None:
        """Note that there is an object at `key`, so that all directories above it exist."""
        now = time.monotonic()
        with self._lock:
            while key := key.parent:
                self._seen[key] = now
                self._seen.move_to_end(key)
            while len(self._seen) > KNOWN_OBJECTS:
                self._seen.popitem(last=False)

    def exists(self, directory: Key, since: float) -> bool:
        """True if something was seen in the directory after `since`."""
        seen = self._seen.get(directory)
        return seen is not None and seen > since


def is_version(stat: Stat, etag: str) -> bool:
    """Tell whether the stat of a remote object belongs to the version with this ETag, as a server spells it."""
    return isinstance(stat.version, tuple) and stat.version[0] == mark(unquoted(etag))


def _is_of_bytes(etag: str | None) -> bool:
    """Tell whether no other bytes can have the same ETag."""
    return etag is not None and not is_weak(etag) and (len(etag) >= DIGEST_CHARS or etag.startswith(_CLOUD))


def stat_of(found: Object, clock: ServerClock | None = None, asked: float = -math.inf) -> Stat:
    """Return an object's stat. Its version has a hash of the ETag, and size and time for servers that have no ETag.

    `clock`: the server's, for an object that was `asked` for just now (`time.monotonic`).
    """
    settled = _is_of_bytes(found.etag) or abs(time.time() - found.mtime_ns / 1e9) > COARSE_SECONDS
    if not settled and clock is not None:
        settled = clock.has_passed(found, asked)
        clock.told(found)
    return Stat(False, found.size, found.mtime_ns, (mark(found.etag), found.size, found.mtime_ns), settled)
