"""The last answers of an object store: about each object, perhaps with a body for its next reader, and its listings.

Listings are kept compactly: names, sizes, times and ETags in columns, 100 bytes a member. Not here: requests (`client.py`),
which listing is asked for (`listings.py`), how the kernel's requests say how old answers may be (`kernel/ages.py`).
"""

from __future__ import annotations

import math
import threading
import time
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Iterator

from fsbridge import asking
from fsbridge.asking import context
from fsbridge.config import Config
from fsbridge.lru import LRU
from fsbridge.store import Key, Stat, compact
from fsbridge.store.remote.client import Object, Response, bare, is_weak, unquoted
from fsbridge.threads import starting

MAX_MEMBERS = 400_000
"""Members of all listings together, about 100 bytes each. The least recently used listings are dropped first."""


class ListedLevel:
    """The members of one directory: names in order, with size, mtime (ns) and `etag_number` of each object.

    `asked`: when they were asked for (`time.monotonic`).
    """

    __slots__ = ("asked", "etags", "mtimes", "names", "prefixes", "sizes")

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

    def __len__(self) -> int:
        return len(self.names) + len(self.prefixes)

    def find(self, name: str) -> int | None:
        """Return the position of an object's name, or None."""
        position = bisect_left(self.names, name)
        return position if position < len(self.names) and self.names[position] == name else None


def etag_number(etag: str | None) -> int:
    """Return 64 bits that stand for an ETag, weak or not, in this process; 0 for none."""
    return 0 if etag is None else hash(bare(etag)) & 0xFFFF_FFFF_FFFF_FFFF or 1


class Levels:
    """The remembered listings of one store by directory. Thread-safe."""

    def __init__(self, most: int = MAX_MEMBERS) -> None:
        self._levels: LRU[Key, ListedLevel] = LRU(most)

    def get(self, key: Key, since: float) -> ListedLevel | None:
        """Return the listing of `key` if it was asked for after `since`."""
        level = self._levels.get(key)
        return None if level is None or level.asked <= since else level

    def put(self, key: Key, level: ListedLevel) -> None:
        """Remember a listing, unless it is too large by itself."""
        cost = len(level) + 1
        if cost <= self._levels.budget:
            self._levels.put(key, level, cost)

    def drop(self, key: Key) -> None:
        """Forget the listing of `key`, because something in it has changed."""
        self._levels.drop(key)


class Arriving:
    """A directory's members during a recursive listing; only names once there are too many objects."""

    __slots__ = ("_asked", "_mtimes", "_objects", "_prefixes", "_strip", "many")

    def __init__(self, strip: int, asked: float) -> None:
        """`strip`: number of characters of the keys before the name. `asked`: when they were asked for."""
        self.many = False
        """True if there are more objects than are remembered."""
        self._asked = asked
        self._strip = strip
        self._objects: list[Object] = []
        self._prefixes: set[str] = set()
        self._mtimes: dict[str, int] = {}

    def take(self, page: Iterable[Object]) -> list[str]:
        """Return the new names on a page."""
        names: list[str] = []
        for item in page:
            name, deeper, _ = item.key[self._strip :].partition("/")
            if deeper and name not in self._prefixes:
                self._prefixes.add(name)
                names.append(name)
            elif name and not deeper:
                names.append(name)
                if not self.many:
                    self._objects.append(item)
                    self._mtimes[name] = item.mtime_ns
        if len(self._objects) > MAX_MEMBERS:
            self.many = True
            self._objects.clear()
            self._mtimes.clear()
        return names

    def mtime_ns(self, name: str) -> int | None:
        """Return the modification time of an object that has been listed already."""
        return self._mtimes.get(name)

    def level(self) -> ListedLevel:
        """Return all members, after all pages have been taken, unless there are too `many`."""
        return ListedLevel(self._prefixes, self._objects, self._strip, self._asked)


def split(
    root: Key, pages: Iterator[Iterable[Object]], asked: float, most: int = MAX_MEMBERS
) -> dict[Key, ListedLevel] | None:
    """Return the listings of `root` and of every directory below it from a recursive listing.

    `asked`: when that was asked for. Returns None for more than `most` objects or directories, because a key of 1 KB can
    imply five hundred directories.
    """
    objects: dict[Key, list[Object]] = {root: []}
    prefixes: dict[Key, set[str]] = {root: set()}
    count = 0
    for page in pages:
        for item in page:
            count += 1
            if count > most:
                return None
            if item.key == root:
                continue  # the marker of the directory itself
            folder = Key(item.key.rpartition("/")[0])
            if folder not in objects:
                below = folder
                while below not in objects:
                    objects[below], prefixes[below] = [], set()
                    below = below.parent
                if len(objects) > most:
                    return None
                while folder != below:
                    prefixes[folder.parent].add(folder.name)
                    folder = folder.parent
                folder = Key(item.key.rpartition("/")[0])
            objects[folder].append(item)
    return {key: ListedLevel(prefixes[key], objects[key], len(key) + 1 if key else 0, asked) for key in objects}


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

    def note(self, found: Object) -> None:
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
        starting.later(KEPT_SECONDS, self._sweep, "fsbridge-sweep")

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
    return isinstance(stat.version, tuple) and stat.version[0] == etag_number(unquoted(etag))


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
        clock.note(found)
    return Stat(False, found.size, found.mtime_ns, (etag_number(found.etag), found.size, found.mtime_ns), settled)
