"""What an object store lists: one level, a page after the other, or all that lies beneath a key; each LIST is sent once.

Not here: the requests themselves (`client.py`), how compactly listings are remembered (`listing_cache.py`), single objects.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fsbridge import asking
from fsbridge.errors import NotFound, Stale, TooLarge, Unlistable
from fsbridge.lru import LRU
from fsbridge.store import Key, Stat
from fsbridge.store.remote import parts
from fsbridge.store.remote.ages import Ages
from fsbridge.store.remote.client import PAGE_KEYS, Client
from fsbridge.store.remote.listing_cache import MAX_MEMBERS, Arriving, Levels, ListedLevel, split

WALKED_DIRECTORIES, WALK_SECONDS = 3, 10.0
"""Least listings beneath different members of a directory, within this time, that count as a walk through all of them."""
LISTED_DIRECTORIES = 2
"""Least looks at single objects that count as a walk in a directory that was listed before."""
WALK_PAGES, WALK_PART = 8, 2
"""Such a walk asks for at most so many pages, or half as many as the directory has members, which cost one or two each."""
SHOWN_DIRECTORIES = 4096
"""Number of directories remembered as listed, and of those remembered as listed with all that lies beneath."""
LOOK_PAGES, LOOK_PART = 1, 32
"""As `WALK_PAGES`, `WALK_PART` for looks at one object in each member: unlike pages they need not wait for each other."""


class Listings:
    """The listings of one store, which say what exists while they are young enough. Thread-safe."""

    def __init__(self, client: Client, ages: Ages) -> None:
        self.listable = client.location.kind != "http"
        self.mtime_ns = 0
        """The mtime of all directories, because they have none of their own."""
        self.remembered = Levels(MAX_MEMBERS)
        self._client = client
        self._ages = ages
        self._lock = threading.Lock()
        self._large: set[Key] = set()  # directories with more members than are remembered
        self._vast: dict[Key, int] = {}  # directories beneath which there are more objects than that
        self._slow: set[Key] = set()  # of which a listing of all is nearly too old when it has arrived
        self._beneath: LRU[Key, float] = LRU(SHOWN_DIRECTORIES)  # when all that lies beneath was asked for
        # When something was listed (or, True, looked at) beneath which members.
        self._walks: OrderedDict[tuple[Key, bool], dict[str, float]] = OrderedDict()
        self._shown: LRU[Key, bool] = LRU(SHOWN_DIRECTORIES)
        self._under_way: dict[Key, threading.Event] = {}
        self._arriving: dict[Key, Arriving] = {}

    def known(self, key: Key) -> ListedLevel | None:
        """The members of a directory, if they are known."""
        return self.remembered.get(key, self._ages.listed())

    def shows(self, key: Key) -> bool:
        """True if an object is in a listing that is at hand, and may be old."""
        level = self.known(key.parent)
        return level is not None and level.find(key.name) is not None

    def lacks(self, key: Key) -> bool:
        """True if nothing of that name is in a listing that is at hand, and may be old."""
        level = self.known(key.parent)
        return level is not None and key.name not in level.prefixes and level.find(key.name) is None

    def level(self, key: Key, since: float | None = None) -> ListedLevel:
        """The members of a directory, asked for after `since`; empty when there is none."""
        since = self._ages.listed() if since is None else since
        while True:
            level = self.remembered.get(key, since)
            if level is not None:
                return level
            if not self.listable:
                raise Unlistable(f"{self._client.place(key)}: cannot be listed; members can be looked up by name")
            if self._walk(key, self._ages.listed()):
                continue
            with self._once(key) as mine:
                if mine:  # another thread may have got an answer meanwhile
                    level = self.remembered.get(key, since)
                    return self._asked(key) if level is None else level

    def at(self, key: Key, since: float) -> ListedLevel | None:
        """The members of the directory that the object `key` lies in, if they are known and were asked for after `since`."""
        return self.remembered.get(key.parent, since)

    def beside(self, key: Key, since: float) -> ListedLevel | None:
        """Return what `at` does, listing the directories if need be.

        A program that looks at such objects in several directories side by side will look at all of them.
        """
        level = self.at(key, since)
        return self.at(key, since) if level is None and self.listable and self._walk(key.parent, since, True) else level

    def shown(self, key: Key) -> ListedLevel:
        """Return members for a program that lists the directory and may look at one after the other.

        Errors as of `listing`.
        """
        self._shown.put(key, True)
        return self.listing(key)

    def listing(self, key: Key) -> ListedLevel:
        """As `level`; NotFound if nothing lies beneath `key`, Stale if nothing lies in the store any more."""
        level = self.level(key)
        if not len(level):
            if not key:
                raise Stale(f"{self._client.place(key)}: no longer there")
            raise NotFound(f"{self._client.place(key)}: nothing lies beneath it")
        return level

    def names(self, key: Key, cuts: Sequence[str] = ()) -> Iterator[Sequence[str]]:
        """Names page by page; they are remembered unless they are too many, and then no times of them are.

        `cuts`: names at which a long listing may be cut, see `parts`.
        """
        if self._walk(key, self._ages.listed()) and (level := self.known(key)) is not None:
            yield [*level.names, *level.prefixes]
            return
        asking.before_waiting()
        arriving = self._arriving[key] = Arriving(len(key) + 1 if key else 0, time.monotonic())
        self._large.discard(key)
        try:
            for page in parts.beneath(self._client, key, cuts):
                names = arriving.take(page)
                if arriving.many:
                    self._large.add(key)
                yield names
            if not arriving.many:
                self.remembered.put(key, arriving.level())
        finally:
            if self._arriving.get(key) is arriving:
                del self._arriving[key]

    def times(self, key: Key, names: Sequence[str]) -> list[int | None]:
        """mtimes (ns) of members; None for what is not there."""
        if key in self._large:
            return [self.mtime_ns] * len(names)
        arriving = self._arriving.get(key)
        if arriving is not None:
            listed = list(map(arriving.mtime_ns, names))
            if None not in listed:
                return listed
        level = self.listing(key)
        found: list[int | None] = []
        for name in names:
            position = level.find(name)
            if position is not None:
                found.append(level.mtimes[position])
            else:
                found.append(self.mtime_ns if name in level.prefixes else None)
        return found

    def foresee(self, key: Key, cuts: Sequence[str] = ()) -> None:
        """Send one recursive LIST in place of one for each directory; none if it would give too much."""
        since = self._ages.listed()
        while self.listable and not self._too_many(key, 2 * MAX_MEMBERS) and not self._known_beneath(key, since):
            with self._once(key) as mine:
                if mine and not self._too_many(key, 2 * MAX_MEMBERS) and not self._known_beneath(key, since):
                    self._ask_beneath(key, cuts, 2 * MAX_MEMBERS)
                    return

    def _walk(self, key: Key, since: float, objects: bool = False) -> bool:
        """Note that `key` is being listed, or (`objects`) that something in it is looked at.

        If that looks like a walk through all that lies beside `key`, all of it is listed together, unless such a listing
        requested since `since` is known. True if that was done now, here or by another thread.
        """
        pages, part = (LOOK_PAGES, LOOK_PART) if objects else (WALK_PAGES, WALK_PART)
        above = key
        while above and not self._known_beneath(above, since):
            name, above = above.name, above.parent
            level = self.known(above)
            if level is None:
                continue
            most = min(2 * MAX_MEMBERS, PAGE_KEYS * max(pages, len(level.prefixes) // part))
            if self._too_many(above, most) or (objects and above in self._slow):
                continue
            now = time.monotonic()
            with self._lock:
                seen = self._walks.setdefault((above, objects), {})
                seen[name] = now
                if len(seen) > WALKED_DIRECTORIES:
                    del seen[min(seen, key=seen.__getitem__)]
                looks = LISTED_DIRECTORIES if objects and self._shown.get(above) is not None else WALKED_DIRECTORIES
                begun = len(seen) >= looks and now - sorted(seen.values())[-looks] < WALK_SECONDS
                while len(self._walks) > WALKED_DIRECTORIES * 1000:
                    self._walks.popitem(last=False)
            if begun:
                with self._once(above) as mine:
                    if mine and not self._too_many(above, most) and not self._known_beneath(above, since):
                        self._ask_beneath(above, list(level.prefixes), most)
                        if time.monotonic() - now > (now - since) / 2:
                            self._slow.add(above)
                return self._known_beneath(above, since)
        return False

    def _too_many(self, key: Key, most: int) -> bool:
        """True if more than `most` objects are known to lie beneath `key`."""
        return self._vast.get(key, -1) >= most

    def _known_beneath(self, key: Key, since: float) -> bool:
        """True if all that lies beneath `key`, or a directory above it, was listed together, requested since `since`."""
        while (asked := self._beneath.get(key)) is None or asked < since:
            if not key:
                return False
            key = key.parent
        return True

    def _ask_beneath(self, key: Key, cuts: Sequence[str], most: int) -> None:
        begun = time.monotonic()
        try:
            levels = split(key, parts.beneath(self._client, key, cuts, most), begun, min(most, MAX_MEMBERS))
        except TooLarge:
            levels = None
        if levels is None:
            self._vast[key] = max(most, self._vast.get(key, -1))
            return
        self._beneath.put(key, begun)
        for place, level in levels.items():
            self.remembered.put(place, level)

    def stat_at(self, level: ListedLevel, position: int) -> Stat:
        """What a listing says of an object."""
        size, mtime_ns, etag = level.sizes[position], level.mtimes[position], level.etags[position]
        return Stat(False, size, mtime_ns, (etag, size, mtime_ns))

    def _asked(self, key: Key) -> ListedLevel:
        begun = time.monotonic()
        prefixes, objects = self._client.level(key)
        strip = len(key) + 1 if key else 0
        level = ListedLevel((prefix[strip:] for prefix in prefixes), objects, strip, begun)
        self.remembered.put(key, level)
        if not key and self.mtime_ns == 0 and objects:
            self.mtime_ns = min(item.mtime_ns for item in objects)
        return level

    @contextmanager
    def _once(self, key: Key) -> Iterator[bool]:
        """True for the first thread; others wait for it meanwhile and get False."""
        asking.before_waiting()
        with self._lock:
            other = self._under_way.get(key)
            mine = None if other is not None else self._under_way.setdefault(key, threading.Event())
        if mine is None:
            assert other is not None
            other.wait()
            yield False
            return
        try:
            yield True
        finally:
            with self._lock:
                del self._under_way[key]
            mine.set()
