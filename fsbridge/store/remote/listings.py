"""Listings of an object store: one level, page by page, or all that lies beneath a key. Each LIST is sent once.

A long listing is made by several LISTs in parallel, each of the keys between two names.

Not here: the requests themselves (`client.py`), what is remembered and for how long (`answers.py`), single objects.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import queue
import threading
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from fsbridge import asking
from fsbridge.config import REMOTE_LIMITS
from fsbridge.errors import NotFound, Stale, TooLarge, Unlistable, Unreachable
from fsbridge.lru import LRU, Recent
from fsbridge.store import Key
from fsbridge.store.remote.answers import Answers, ListedLevel
from fsbridge.store.remote.client import Client, Object
from fsbridge.threads import starting

PARTS = 8
"""LISTs at a time. Each may ask for up to a page more than it needs."""
WAITING_PAGES = 16
"""Pages that wait for a slow reader of the listing. Then the parts wait."""
LOOK_SECONDS = 0.1
"""Seconds after which a part that waits for the reader checks whether the listing is still being read."""

Pages = Iterator[Sequence[Object]]


def beneath(client: Client, prefix: str, cuts: Sequence[str] = (), most: float = math.inf) -> Pages:
    """Yield all objects below `prefix`, page by page; those of one part are in order. Raises what `Client.beneath` does.

    `cuts`: names below `prefix`, evenly distributed among the possible ones. How many of them the first page has passed
    tells roughly how many objects there are. Raises TooLarge if that is more than `most`.
    """
    pages = client.beneath(prefix)
    first = next(pages, ())
    names = sorted(f"{prefix}/{cut}" if prefix else cut for cut in cuts)
    passed = (
        bisect_right(names, first[-1].key) if len(first) >= client.limits.page_keys and _ascending(first) else len(names)
    )
    expected = len(names) / max(1, passed)
    if expected * len(first) > most:
        raise TooLarge(f"{client.place(prefix)}: has about {expected * len(first):.0f} keys, the limit is {most}")
    yield first
    count = int(min(PARTS, expected / client.limits.part_pages, len(names) - passed)) if client.ordered else 1
    if count > 1:
        starts = [names[passed + (len(names) - passed) * part // count] for part in range(1, count)]
        pages = _together(client, prefix, pages, starts)
    yield from pages


def _together(client: Client, prefix: str, pages: Pages, starts: Sequence[str]) -> Pages:
    """Yield the rest of a listing: `pages` up to the first of `starts`, and from each of them to the next one."""
    listed: list[Pages] = [pages, *(client.beneath(prefix, after) for after in starts)]
    arrivals: queue.Queue[Sequence[Object] | BaseException | None] = queue.Queue(WAITING_PAGES)
    over = threading.Event()

    def give(page: Sequence[Object] | BaseException | None) -> None:
        while not over.is_set():
            with contextlib.suppress(queue.Full):
                arrivals.put(page, timeout=LOOK_SECONDS)
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
            page = arrivals.get()
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


class Arriving:
    """A directory's members during a recursive listing; only names once there are too many objects."""

    __slots__ = ("_asked", "_most", "_mtimes", "_objects", "_prefixes", "_strip", "many")

    def __init__(self, strip: int, asked: float, most: int) -> None:
        """`strip`: number of characters of the keys before the name. `asked`: when they were asked for.

        `most`: number of objects that are remembered.
        """
        self.many = False
        """True if there are more objects than are remembered."""
        self._asked = asked
        self._most = most
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
        if len(self._objects) > self._most:
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
    root: Key, pages: Iterator[Iterable[Object]], asked: float, most: int = REMOTE_LIMITS.members
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


WALKED_DIRECTORIES = 3
"""Listings beneath so many members of a directory, within a few seconds, count as a walk through all members."""
LISTED_DIRECTORIES = 2
"""Looks at objects beneath so many members count as a walk if the directory was listed before."""
WALK_PAGES = 8
"""Most pages of a listing of all that is walked through, unless `WALK_PART` allows more."""
WALK_PART = 1 / 2
"""Most such pages for each subdirectory. Listing the subdirectories one by one would take one or two requests each."""
SHOWN_DIRECTORIES = 4096
"""Number of directories remembered as listed by a program, or as too large or too slow to be listed with all beneath."""
LOOK_PAGES = 1
"""Most pages of such a listing for the sake of looks at one object in each subdirectory, unless `LOOK_PART` allows more."""
LOOK_PART = 1 / 32
"""Most such pages for each subdirectory: few, because looks, unlike pages, can be made in parallel."""


class Listings:
    """The listings of one store, which say what exists while they are young enough. Thread-safe."""

    def __init__(self, client: Client, answers: Answers, read_ahead: bool) -> None:
        """`read_ahead`: True if directories may be listed before they are asked for."""
        self.listable = client.location.kind != "http"
        self.mtime_ns = 0
        """The mtime of all directories, because they have none of their own."""
        self._client = client
        self._limits = client.limits
        self._answers = answers
        self._read_ahead = read_ahead
        self._lock = threading.Lock()
        self._asking = asking.Locks[Key]()  # of directories that are being listed
        self._arriving: dict[Key, Arriving] = {}
        self._large: set[Key] = set()  # directories with more members than are remembered
        self._vast: LRU[Key, int] = LRU(SHOWN_DIRECTORIES)  # directories with more objects beneath than the number
        self._slow: LRU[Key, float] = LRU(SHOWN_DIRECTORIES)  # when what lies beneath was nearly too old on its arrival
        self._shown: LRU[Key, bool] = LRU(SHOWN_DIRECTORIES)
        # By directory, and True for looks, False for listings: the members beneath which these were, and when.
        self._walks = Recent[tuple[Key, bool], dict[str, float]](WALKED_DIRECTORIES * 1000)

    def known(self, key: Key) -> ListedLevel | None:
        """Return the members of a directory if a young enough listing is remembered, else None."""
        return self._answers.level(key, self._answers.listed_since())

    def shows(self, key: Key) -> bool:
        """True if a remembered listing has an object at `key`. Makes no request."""
        level = self.known(key.parent)
        return level is not None and level.find(key.name) is not None

    def lacks(self, key: Key) -> bool:
        """True if a remembered listing has nothing at `key`. Makes no request."""
        level = self.known(key.parent)
        return level is not None and key.name not in level.prefixes and level.find(key.name) is None

    def level(self, key: Key, since: float | None = None) -> ListedLevel:
        """Return the members of a directory, asked for after `since`; empty if nothing lies there."""
        since = self._answers.listed_since() if since is None else since
        level = self._answers.level(key, since)
        if level is None and not self.listable:
            raise Unlistable(f"{self._client.place(key)}: cannot be listed; members can be looked up by name")
        if level is None and self._walk(key, self._answers.listed_since()):
            level = self._answers.level(key, since)
        if level is None:
            with self._asking.of(key):  # another thread may have got an answer meanwhile
                level = self._answers.level(key, since)
                level = self._ask(key) if level is None else level
        return level

    def at(self, key: Key) -> ListedLevel | None:
        """Return the remembered listing of the directory of the object `key`, if it is as young as a stat has to be."""
        return self._answers.level(key.parent, self._answers.since())

    def look_around(self, key: Key) -> ListedLevel | None:
        """Return what `at` does, after listing all neighbouring directories if this looks like a walk.

        A program that looks at objects in several neighbouring directories will probably look at all of them.
        """
        since = self._answers.since()
        level = self._answers.level(key.parent, since)
        if level is None and self.listable and self._walk(key.parent, since, True):
            level = self._answers.level(key.parent, since)
        return level

    def show(self, key: Key) -> ListedLevel:
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
        if self._walk(key, self._answers.listed_since()) and (level := self.known(key)) is not None:
            yield [*level.names, *level.prefixes]
            return
        asking.before_waiting()
        arriving = self._arriving[key] = Arriving(len(key) + 1 if key else 0, time.monotonic(), self._limits.members)
        self._large.discard(key)
        try:
            for page in beneath(self._client, key, cuts):
                names = arriving.take(page)
                if arriving.many:
                    self._large.add(key)
                yield names
            if not arriving.many:
                self._answers.put_level(key, arriving.level())
        finally:
            if self._arriving.get(key) is arriving:
                del self._arriving[key]

    def times(self, key: Key, names: Sequence[str]) -> list[int | None]:
        """Return the mtimes (ns) of members; None for what is not there."""
        if key in self._large:
            return [self.mtime_ns] * len(names)
        arriving = self._arriving.get(key)
        if arriving is not None:
            listed = list(map(arriving.mtime_ns, names))
            if None not in listed:
                return listed
        level = self.listing(key)
        times: list[int | None] = []
        for name in names:
            position = level.find(name)
            if position is not None:
                times.append(level.mtimes[position])
            else:
                times.append(self.mtime_ns if name in level.prefixes else None)
        return times

    def prefetch_listing(self, key: Key, cuts: Sequence[str] = ()) -> None:
        """Send one recursive LIST instead of one for each directory, unless there are too many objects."""
        if self.listable:
            self._ask_beneath(key, cuts, 2 * self._limits.members, self._answers.listed_since())

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
        while above and not self._answers.knows_tree(above, since):
            name, above = above.name, above.parent
            level = self.known(above)
            if level is None:
                continue
            most = min(2 * self._limits.members, self._limits.page_keys * max(pages, int(len(level.prefixes) * part)))
            if self._too_many(above, most) or (objects and self._is_slow(above)):
                continue
            now = time.monotonic()
            with self._lock:
                seen = self._walks.peek((above, objects)) or {}
                seen[name] = now
                self._walks.put((above, objects), seen)
                if len(seen) > WALKED_DIRECTORIES:
                    del seen[min(seen, key=seen.__getitem__)]
                looks = LISTED_DIRECTORIES if objects and self._shown.get(above) is not None else WALKED_DIRECTORIES
                begun = len(seen) >= looks and now - sorted(seen.values())[-looks] < self._limits.walk_seconds
            if begun:
                asked = self._ask_beneath(above, list(level.prefixes), most, since)
                if asked and time.monotonic() - now > (now - since) / 2:
                    self._slow.put(above, time.monotonic())
                return self._answers.knows_tree(above, since)
        return False

    def _too_many(self, key: Key, most: int) -> bool:
        """True if more than `most` objects are known to lie beneath `key`."""
        return (self._vast.get(key) or -1) >= most

    def _is_slow(self, key: Key) -> bool:
        """True if listing all that lies beneath `key` has lately taken too long. The server may be quicker later."""
        return (self._slow.get(key) or -math.inf) > self._answers.listed_since()

    def _ask_beneath(self, key: Key, cuts: Sequence[str], most: int, since: float) -> bool:
        """List all that lies beneath `key`, up to `most` objects, unless it is known. Tells whether a request was made."""
        if self._too_many(key, most) or self._answers.knows_tree(key, since):
            return False
        with self._asking.of(key):
            if self._too_many(key, most) or self._answers.knows_tree(key, since):
                return False
            begun = time.monotonic()
            try:
                levels = split(key, beneath(self._client, key, cuts, most), begun, min(most, self._limits.members))
            except TooLarge:
                levels = None
            if levels is None:
                self._vast.put(key, max(most, self._vast.get(key) or -1))
            else:
                self._answers.put_tree(key, levels, begun)
            return True

    def _ask(self, key: Key) -> ListedLevel:
        begun = time.monotonic()
        prefixes, objects = self._client.level(key)
        strip = len(key) + 1 if key else 0
        level = ListedLevel((prefix[strip:] for prefix in prefixes), objects, strip, begun)
        self._answers.put_level(key, level)
        if not key and self.mtime_ns == 0 and objects:
            self.mtime_ns = min(item.mtime_ns for item in objects)
        return level
