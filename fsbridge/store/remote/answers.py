"""What a store remembers of its server: answers about objects, directories and listings; and how long each is believed.

All of it has one rule of age (`Answers.since`, `Answers.listed_since`) and stays within fixed numbers. Listings are kept
compactly: names, sizes, times and ETags in columns, 100 bytes a member. An object's version is made here, too, because some
versions are believed for a shorter time.

Not here: requests (`client.py`), which answer a question needs (`store.py`, `objects.py`), which listing is asked for
(`listings.py`), how the kernel's requests say how old answers may be (`kernel/ages.py`).
"""

from __future__ import annotations

import math
import threading
import time
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fsbridge import asking
from fsbridge.asking import context, used
from fsbridge.config import REMOTE_LIMITS, Config, RemoteLimits
from fsbridge.lru import LRU, Recent
from fsbridge.store import Key, Stat, compact
from fsbridge.store.remote.client import Object, Response, bare, is_weak, unquoted
from fsbridge.threads import starting

DOUBTED_SECONDS = 0.2
"""Seconds for which an answer with an unsettled version is believed. They are few, because a reader may wait for its end."""


# ---- versions

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

    def note(self, mtime_ns: int) -> None:
        """Note that the server has just told of an object that was changed at that time."""
        written = mtime_ns / 1e9
        if written < time.time() + COARSE_SECONDS:  # otherwise it is not a clock's time
            self._ahead = max(self._ahead, written - time.monotonic())

    def has_passed(self, mtime_ns: int, asked: float) -> bool:
        """Tell whether an object was asked for (`time.monotonic`) after the second of its last change was over."""
        return asked + self._ahead > mtime_ns / 1e9 + TICK_SECONDS


def etag_number(etag: str | None) -> int:
    """Return 64 bits that stand for an ETag, weak or not, in this process; 0 for none."""
    return 0 if etag is None else hash(bare(etag)) & 0xFFFF_FFFF_FFFF_FFFF or 1


def is_version(stat: Stat, etag: str) -> bool:
    """Tell whether the stat of a remote object belongs to the version with this ETag, as a server spells it."""
    return isinstance(stat.version, tuple) and stat.version[0] == etag_number(unquoted(etag))


def is_settled(meta: Object) -> bool:
    """True if a change must give the object another version, as far as its ETag and our own clock can tell."""
    etag = meta.etag
    of_bytes = etag is not None and not is_weak(etag) and (len(etag) >= DIGEST_CHARS or etag.startswith(_CLOUD))
    return of_bytes or abs(time.time() - meta.mtime_ns / 1e9) > COARSE_SECONDS


def stat_of(meta: Object, clock: ServerClock | None = None, asked: float = -math.inf) -> Stat:
    """Return an object's stat. Its version has a hash of the ETag, and size and time for servers that have no ETag.

    `clock`: the server's, for an object that was `asked` for just now (`time.monotonic`).
    """
    settled = is_settled(meta)
    if not settled and clock is not None:
        settled = clock.has_passed(meta.mtime_ns, asked)
        clock.note(meta.mtime_ns)
    return Stat(False, meta.size, meta.mtime_ns, (etag_number(meta.etag), meta.size, meta.mtime_ns), settled)


# ---- what is remembered


class ListedLevel:
    """The members of one directory: names in order, with size, mtime (ns) and `etag_number` of each object.

    `asked`: when they were asked for (`time.monotonic`). `unsettled`: names of objects with versions that other bytes may
    have, too; the server's clock may tell later that this is impossible.
    """

    __slots__ = ("asked", "etags", "mtimes", "names", "prefixes", "sizes", "unsettled")

    def __init__(self, prefixes: Iterable[str], objects: Iterable[Object], strip: int, asked: float) -> None:
        """`strip`: number of characters of the objects' keys before the name. Markers of directories are left out."""
        self.asked = asked
        self.prefixes = frozenset(prefixes)
        kept = sorted((item.key[strip:], item) for item in objects)
        kept = [(name, item) for name, item in kept if name and name not in self.prefixes]
        self.names = [name for name, _ in kept]
        self.sizes = compact([item.size for _, item in kept])
        self.mtimes = compact([item.mtime_ns for _, item in kept])
        self.etags = array("Q", (etag_number(item.etag) for _, item in kept))
        self.unsettled = frozenset(name for name, item in kept if not is_settled(item))

    def __len__(self) -> int:
        return len(self.names) + len(self.prefixes)

    def find(self, name: str) -> int | None:
        """Return the position of an object's name, or None."""
        position = bisect_left(self.names, name)
        return position if position < len(self.names) and self.names[position] == name else None

    def stat(self, position: int, clock: ServerClock) -> Stat:
        """Return the stat of an object. `clock`: the server's."""
        size, mtime_ns, etag = self.sizes[position], self.mtimes[position], self.etags[position]
        settled = self.names[position] not in self.unsettled or clock.has_passed(mtime_ns, self.asked)
        return Stat(False, size, mtime_ns, (etag, size, mtime_ns), settled)


class KnownObject(NamedTuple):
    """The last answer about a key: `stat` (None: absent) and ETag. `asked`: when the server gave it (`time.monotonic`).

    `alone`: it was asked about this object only.
    """

    stat: Stat | None
    etag: str | None
    asked: float
    alone: bool


class _Body(NamedTuple):
    """Bytes of the version `known` of an object, the first one at `start`, or the response that will bring them."""

    known: KnownObject
    start: int
    data: bytes | Response


class Answers:
    """What is remembered of one server. Thread-safe. `ttl`, `listing_ttl`: seconds for which answers are believed.

    Reads of open files, and reads without a mount, do not say how old answers may be. Each question is a request to the
    server, so their answers may be as old as attributes.
    """

    def __init__(self, ttl: float, listing_ttl: float, limits: RemoteLimits = REMOTE_LIMITS) -> None:
        self._ttl = ttl
        self._listing_ttl = max(ttl, listing_ttl)
        self.clock = ServerClock()
        self._objects: LRU[Key, KnownObject] = LRU(limits.objects)
        self._seen: LRU[Key, float] = LRU(limits.objects)  # when the last object was seen in a directory
        self._levels: LRU[Key, ListedLevel] = LRU(limits.members)
        self._trees: LRU[Key, float] = LRU(limits.trees)  # when all that lies beneath a directory was asked for
        self._lock = threading.Lock()  # for the bodies
        self._bodies = Recent[Key, _Body](limits.bodies)
        self._kept_seconds = limits.kept_seconds
        self._sweeping = False

    @classmethod
    def of(cls, config: Config) -> Answers:
        """Return a memory for one store of a mount."""
        return cls(math.inf if config.immutable else config.metadata_ttl, config.remote.listing_ttl, config.remote.limits)

    def since(self, settled: bool = True) -> float:
        """Return the moment after which an answer about an object must be given.

        `settled`: any change of the object shows in its version.
        """
        moment = context.as_of if context.as_of < math.inf else time.monotonic() - self._ttl
        return moment if settled or moment == -math.inf else max(moment, time.monotonic() - DOUBTED_SECONDS)

    def listed_since(self) -> float:
        """Return the moment after which a listing must have been asked for, if it is to tell what exists."""
        if context.as_of < math.inf:
            return min(context.as_of, context.listed)
        return time.monotonic() - self._listing_ttl

    def clear(self) -> None:
        """Forget all objects and their bytes."""
        self._objects.clear()
        with self._lock:
            self._bodies.clear()

    # ---- objects

    def last(self, key: Key) -> KnownObject | None:
        """Return the last answer, however old."""
        return self._objects.get(key)

    def fresh(self, key: Key, noted: bool = True) -> KnownObject | None:
        """Return the last answer if it is young enough for the question.

        `noted`: note that it is used, so that the kernel keeps a reply made of it no longer than the answer is believed.
        The use of a listing is never noted: all replies made of one listing would expire together, in the midst of the walk
        for which it was made.
        """
        known = self._objects.get(key)
        if known is None or known.asked <= self.since(known.stat is None or known.stat.settled):
            return None
        if noted and known.alone:
            used(known.asked)
        return known

    def put(self, key: Key, stat: Stat | None, etag: str | None = None, asked: float | None = None) -> KnownObject:
        """Remember an answer, and that all directories above an object exist.

        `asked`: when the server gave the answer, if that was about other objects, too; None: just now, about this object.
        """
        alone = asked is None
        known = self._objects.put(key, KnownObject(stat, etag, time.monotonic() if asked is None else asked, alone))
        with self._lock:
            self._bodies.pop(key)
        while stat is not None and (key := key.parent):
            self._seen.put(key, max(known.asked, self._seen.get(key) or -math.inf))
        return known

    def renew(self, key: Key, known: KnownObject) -> KnownObject:
        """Note that the server has just confirmed an answer. Bytes that are kept for a reader stay."""
        with self._lock:
            body = self._bodies.peek(key)
        renewed = self.put(key, known.stat, known.etag)
        if body is not None and body.known is known:
            self.keep(key, renewed, body.start, body.data)
        return renewed

    def forget(self, key: Key) -> None:
        """Forget what is known about an object, because it is wrong, and the listing of its directory, which may be, too."""
        self._objects.drop(key)
        self._levels.drop(key.parent)

    def keep(self, key: Key, known: KnownObject, start: int, data: bytes | Response) -> None:
        """Keep bytes of the answer `known`, or the response that will bring them, until a reader comes."""
        with self._lock:
            self._bodies.put(key, _Body(known, start, data))
            if not self._sweeping:
                self._sweeping = True
                self._sweep_later()

    def part(self, key: Key, known: KnownObject, start: int, length: int) -> bytes | None:
        """Return bytes of the version `known`, if they are kept."""
        body = self._bodies.peek(key)
        if body is None or body.known is not known or isinstance(body.data, Response):
            return None
        first = start - body.start
        return body.data[first : first + length] if first >= 0 and first + length <= len(body.data) else None

    def take(self, key: Key, known: KnownObject) -> Response | None:
        """Return the response to which `known` belongs, if its body is unread. It is given to one reader."""
        asking.before_waiting()
        with self._lock:
            body = self._bodies.peek(key)
            if body is None or body.known is not known or not isinstance(body.data, Response):
                return None
            self._bodies.pop(key)
            return body.data

    def _sweep_later(self) -> None:
        starting.later(self._kept_seconds, self._sweep, "fsbridge-sweep")

    def _sweep(self) -> None:
        """Drop bodies that were not read in time, and so their connections."""
        oldest = time.monotonic() - self._kept_seconds
        with self._lock:
            for key in list(self._bodies):
                body = self._bodies.peek(key)
                if body is not None and body.known.asked <= oldest:
                    self._bodies.pop(key)
            self._sweeping = len(self._bodies) > 0
        if self._sweeping:
            self._sweep_later()

    # ---- directories

    def exists(self, directory: Key, since: float) -> bool:
        """True if an object was seen in the directory."""
        seen = self._seen.get(directory)
        return seen is not None and seen > since

    def level(self, key: Key, since: float) -> ListedLevel | None:
        """Return the listing of `key`, if it is remembered and was asked for after `since`."""
        level = self._levels.get(key)
        return None if level is None or level.asked <= since else level

    def put_level(self, key: Key, level: ListedLevel) -> None:
        """Remember a listing, unless it is too large by itself."""
        if level.unsettled:
            self.clock.note(max(level.mtimes))
        cost = len(level) + 1
        if cost <= self._levels.budget:
            self._levels.put(key, level, cost)

    def drop_level(self, key: Key) -> None:
        """Forget the listing of `key`, because something in it has changed."""
        self._levels.drop(key)

    def put_tree(self, key: Key, levels: Mapping[Key, ListedLevel], asked: float) -> None:
        """Remember the listings of `key` and all directories beneath, which were asked for together."""
        self._trees.put(key, asked)
        for place, level in levels.items():
            self.put_level(place, level)

    def knows_tree(self, key: Key, since: float) -> bool:
        """True if one listing, asked for after `since`, has all that lies beneath `key` or beneath a directory above it."""
        while (asked := self._trees.get(key)) is None or asked <= since:
            if not key:
                return False
            key = key.parent
        return True
