"""Listings of an object store: one level, page by page, or all that lies beneath a key. Each LIST is sent once.

A long listing is made by several LISTs in parallel, each of the keys between two names.

Not here: the requests themselves (`client.py`), how compactly listings are remembered (`answers.py`), single objects.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import queue
import threading
import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from fsbridge import asking
from fsbridge.errors import NotFound, Stale, TooLarge, Unlistable, Unreachable
from fsbridge.lru import LRU
from fsbridge.store import Key, Stat
from fsbridge.store.remote.answers import MAX_MEMBERS, Ages, Arriving, Levels, ListedLevel, split
from fsbridge.store.remote.client import PAGE_KEYS, Client, Object
from fsbridge.threads import starting

PARTS = 8
"""LISTs at a time. Each may ask for up to a page more than it needs."""
WAITING_PAGES = 16
"""Pages that wait for a slow reader of the listing. Then the parts wait."""
LOOK_SECONDS = 0.1
"""Seconds after which a part that waits for the reader checks whether the listing is still being read."""
PART_PAGES = 6
"""Least expected pages of a part, so that a listing of ten pages is not divided."""

Pages = Iterator[Sequence[Object]]


def beneath(client: Client, prefix: str, cuts: Sequence[str] = (), most: float = math.inf) -> Pages:
    """Yield all objects below `prefix`, page by page; those of one part are in order. Raises what `Client.beneath` does.

    `cuts`: names below `prefix`, evenly distributed among the possible ones. How many of them the first page has passed
    tells roughly how many objects there are. Raises TooLarge if that is more than `most`.
    """
    pages = client.beneath(prefix)
    first = next(pages, ())
    names = sorted(f"{prefix}/{cut}" if prefix else cut for cut in cuts)
    passed = bisect_right(names, first[-1].key) if len(first) >= PAGE_KEYS and _ascending(first) else len(names)
    expected = len(names) / max(1, passed)
    if expected * len(first) > most:
        raise TooLarge(f"{client.place(prefix)}: about {expected * len(first):.0f} keys")
    yield first
    count = int(min(PARTS, expected / PART_PAGES, len(names) - passed)) if client.ordered else 1
    if count > 1:
        starts = [names[passed + (len(names) - passed) * part // count] for part in range(1, count)]
        pages = _together(client, prefix, pages, starts)
    yield from pages


def _together(client: Client, prefix: str, pages: Pages, starts: Sequence[str]) -> Pages:
    """Yield the rest of a listing: `pages` up to the first of `starts`, and from each of them to the next one."""
    listed: list[Pages] = [pages, *(client.beneath(prefix, after) for after in starts)]
    found: queue.Queue[Sequence[Object] | BaseException | None] = queue.Queue(WAITING_PAGES)
    over = threading.Event()

    def give(page: Sequence[Object] | BaseException | None) -> None:
        while not over.is_set():
            with contextlib.suppress(queue.Full):
                found.put(page, timeout=LOOK_SECONDS)
                return

    def take(part: Pages, after: str, stop: str | None) -> None:
        while not over.is_set():
            page = next(part, None)
            if page is None:
                return
            if not _ascending(page) or (page and page[0].key <= after):
                client.ordered = False  # from now on one page follows the other
                raise Unreachable(f"{client.place(prefix)}: the server does not list keys in their order")
            last = len(page) if stop is None else bisect_right(page, stop, key=lambda item: item.key)
            give(page[:last])
            if last < len(page):
                return

    def run(part: Pages, after: str, stop: str | None) -> None:
        try:
            take(part, after, stop)
        except BaseException as error:
            give(error)
        else:
            give(None)

    for span in zip(listed, ["", *starts], [*starts, None], strict=True):  # not waited for if a server hangs
        starting.start(partial(run, *span), "fsbridge-part")
    try:
        going_on = len(listed)
        while going_on:
            page = found.get()
            if isinstance(page, BaseException):
                try:
                    raise page
                finally:
                    del page  # breaks the cycle traceback -> frame -> error
            if page is None:
                going_on -= 1
            else:
                yield page
    finally:
        over.set()


def _ascending(page: Sequence[Object]) -> bool:
    return all(left.key < right.key for left, right in itertools.pairwise(page))


WALKED_DIRECTORIES, WALK_SECONDS = 3, 10.0
"""Listings beneath so many members of a directory, within so many seconds, count as a walk through all members."""
LISTED_DIRECTORIES = 2
"""Looks at objects beneath so many members count as a walk if the directory was listed before."""
WALK_PAGES, WALK_PART = 8, 2
"""Most pages of a listing of all that is walked through: eight, or half as many as there are subdirectories if that is more.
Listing the subdirectories one by one would take one or two requests each."""
SHOWN_DIRECTORIES = 4096
"""Number of directories remembered as listed, and of those remembered as listed with all that lies beneath."""
LOOK_PAGES, LOOK_PART = 1, 32
"""The same for looks at one object in each member. They are less, because looks, unlike pages, can be made in parallel."""


class Listings:
    """The listings of one store, which say what exists while they are young enough. Thread-safe."""

    def __init__(self, client: Client, ages: Ages, read_ahead: bool) -> None:
        """`read_ahead`: False if only what is asked for is listed."""
        self.listable = client.location.kind != "http"
        self.mtime_ns = 0
        """The mtime of all directories, because they have none of their own."""
        self.remembered = Levels(MAX_MEMBERS)
        self._client = client
        self._ages = ages
        self._read_ahead = read_ahead
        self._lock = threading.Lock()
        self._large: set[Key] = set()  # directories with more members than are remembered
        self._vast: dict[Key, int] = {}  # directories beneath which there are more objects than the number
        self._slow: set[Key] = set()  # a listing of all that lies beneath is nearly too old when it arrives
        self._beneath: LRU[Key, float] = LRU(SHOWN_DIRECTORIES)  # when all that lies beneath was asked for
        # By directory, and True for looks, False for listings: the members beneath which these were, and when.
        self._walks: OrderedDict[tuple[Key, bool], dict[str, float]] = OrderedDict()
        self._shown: LRU[Key, bool] = LRU(SHOWN_DIRECTORIES)
        self._under_way: dict[Key, threading.Event] = {}
        self._arriving: dict[Key, Arriving] = {}

    def known(self, key: Key) -> ListedLevel | None:
        """The members of a directory, if a young enough listing is remembered."""
        return self.remembered.get(key, self._ages.listed())

    def shows(self, key: Key) -> bool:
        """True if a remembered listing has an object at `key`. Makes no request."""
        level = self.known(key.parent)
        return level is not None and level.find(key.name) is not None

    def lacks(self, key: Key) -> bool:
        """True if a remembered listing has nothing at `key`. Makes no request."""
        level = self.known(key.parent)
        return level is not None and key.name not in level.prefixes and level.find(key.name) is None

    def level(self, key: Key, since: float | None = None) -> ListedLevel:
        """Return the members of a directory, requested after `since`; empty if nothing lies there."""
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
        """Return the remembered listing of the directory of the object `key`, if it was requested after `since`."""
        return self.remembered.get(key.parent, since)

    def beside(self, key: Key, since: float) -> ListedLevel | None:
        """Return what `at` does, after listing all neighbouring directories if this looks like a walk.

        A program that looks at objects in several neighbouring directories will probably look at all of them.
        """
        level = self.at(key, since)
        return self.at(key, since) if level is None and self.listable and self._walk(key.parent, since, True) else level

    def shown(self, key: Key) -> ListedLevel:
        """Return the members, and note that the directory is listed: the program may look at each of them next.

        Errors as in `listing`.
        """
        self._shown.put(key, True)
        return self.listing(key)

    def listing(self, key: Key) -> ListedLevel:
        """Return what `level` does; NotFound if nothing lies beneath `key`, Stale if nothing lies in the store any more."""
        level = self.level(key)
        if not len(level):
            if not key:
                raise Stale(f"{self._client.place(key)}: no longer there")
            raise NotFound(f"{self._client.place(key)}: nothing lies beneath it")
        return level

    def names(self, key: Key, cuts: Sequence[str] = ()) -> Iterator[Sequence[str]]:
        """Yield names page by page and remember the listing. If it is too long, neither names nor times are remembered.

        `cuts`: names at which a long listing may be cut, see `beneath`.
        """
        if self._walk(key, self._ages.listed()) and (level := self.known(key)) is not None:
            yield [*level.names, *level.prefixes]
            return
        asking.before_waiting()
        arriving = self._arriving[key] = Arriving(len(key) + 1 if key else 0, time.monotonic())
        self._large.discard(key)
        try:
            for page in beneath(self._client, key, cuts):
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

    def prefetch_listing(self, key: Key, cuts: Sequence[str] = ()) -> None:
        """Send one recursive LIST instead of one for each directory, unless there are too many objects."""
        since = self._ages.listed()
        while self.listable and not self._too_many(key, 2 * MAX_MEMBERS) and not self._known_beneath(key, since):
            with self._once(key) as mine:
                if mine and not self._too_many(key, 2 * MAX_MEMBERS) and not self._known_beneath(key, since):
                    self._ask_beneath(key, cuts, 2 * MAX_MEMBERS)
                    return

    def _walk(self, key: Key, since: float, objects: bool = False) -> bool:
        """Note that `key` is being listed, or (`objects`) that something in it is looked at.

        If that looks like a walk through all that lies beside `key`, all of it is listed together, unless a listing
        requested after `since` is remembered. Returns true if the listing was made now, here or by another thread.

        `find` over 250 arrays takes 3.8 s and 5 LISTs at a latency of 100 ms; without this 69 s and 250 LISTs.
        """
        if not self._read_ahead:
            return False
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
            levels = split(key, beneath(self._client, key, cuts, most), begun, min(most, MAX_MEMBERS))
        except TooLarge:
            levels = None
        if levels is None:
            self._vast[key] = max(most, self._vast.get(key, -1))
            return
        self._beneath.put(key, begun)
        for place, level in levels.items():
            self.remembered.put(place, level)

    def stat_at(self, level: ListedLevel, position: int) -> Stat:
        """Return the stat of an object from a listing."""
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
        """Yield True to the first thread; other threads wait until it is done and get False."""
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
