"""A compact cache of an object store's listings: names, sizes, times and ETags in columns, 100 bytes a member.

Not here: requests (`client.py`), how old a listing may be (`answers.py`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator

from fsbridge.lru import LRU
from fsbridge.store import Key, compact
from fsbridge.store.remote.client import Object, bare

MAX_MEMBERS = 400_000
"""Members of all listings together, about 100 bytes each. The least recently used listings are dropped first."""


class ListedLevel:
    """The members of one directory: names in order, with size, mtime (ns) and a hash of the ETag (`mark`) of each object.

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
        self.etags = array("Q", (mark(item.etag) for _, item in kept))

    def __len__(self) -> int:
        return len(self.names) + len(self.prefixes)

    def find(self, name: str) -> int | None:
        """Return the position of an object's name, or None."""
        position = bisect_left(self.names, name)
        return position if position < len(self.names) and self.names[position] == name else None


def mark(etag: str | None) -> int:
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
