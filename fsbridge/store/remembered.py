"""A store in front of another one that remembers its answers, each with the time at which it was asked for.

A remembered answer is given if it is young enough for the question (`asking.as_of`); else the store below is asked. A new
answer replaces the remembered one, so that no later question is answered by an older state. The kernel side sets `as_of` for
each request, and gives its reply what is left of the TTL since `asking.oldest()`, so nothing above a store needs a clock.
Never remembered: errors, absence, and objects whose changes may not show (`Stat.settled`). Not here: object bytes, which
only their version tells apart (the block cache, `decoded/`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

from fsbridge.asking import before_waiting, context, used
from fsbridge.config import MIB
from fsbridge.errors import FsbridgeError
from fsbridge.lru import LRU
from fsbridge.store import WHOLE, Key, Member, OpenedObject, Range, Stat, Store, StoreAbilities, Stored

REMEMBERED_BYTES = 16 * MIB
"""Memory of all answers of one store, roughly."""

ANSWER_BYTES = 512
"""What a remembered stat takes with its key and version, roughly; a member of a listing, too."""

MOST_MEMBERS = 8192
"""Most members of a remembered listing: a larger one would take the room of many others."""

FEW_MEMBERS = 256
"""Most members of a remembered listing that the event loop itself goes through."""


class _Listing(NamedTuple):
    """All members of a directory by name, which was listed at the time `asked`."""

    asked: float
    members: dict[str, Member]


class Remembered(StoreAbilities):
    """A store that remembers the answers of `store`. Closing it closes `store`, too."""

    def __init__(self, store: Store, budget: int = REMEMBERED_BYTES) -> None:
        self._store = store
        self._stats: LRU[Key, tuple[float, Stat]] = LRU(budget // 2)
        self._listings: LRU[Key, _Listing] = LRU(budget // 2)
        self.prefixes, self.remote = store.prefixes, store.remote

    # What is remembered

    def stat(self, key: Key, read: Range | None = None) -> Stat:
        if context.as_of < math.inf:
            found = self._known(key)
            if found is not None:
                return found
        asked = time.monotonic()
        try:
            return self._seen(key, asked, self._store.stat(key, read))
        except (FsbridgeError, OSError):
            self._forget(key)
            raise

    def list(self, key: Key, stats: bool = False) -> Iterator[Member]:
        known = None if context.as_of == math.inf else self._listings.get(key)
        if known is not None and known.asked >= context.as_of:
            if len(known.members) > FEW_MEMBERS:
                before_waiting()  # processing so many takes long
            used(known.asked)
            return iter(known.members.values())
        return self._listed(key) if stats else self._store.list(key)

    def read(self, key: Key, limit: int) -> tuple[Stored, Stat]:
        asked = time.monotonic()
        data, stat = self._store.read(key, limit)
        return data, self._seen(key, asked, stat)

    def _known(self, key: Key) -> Stat | None:
        """Return the stat of a key, from a look at it or from a listing, if that is young enough."""
        found = self._stats.get(key)
        if found is not None and found[0] >= context.as_of:
            used(found[0])
            return found[1]
        above = self._listings.get(key.parent) if key else None
        if above is not None and above.asked >= context.as_of:
            member = above.members.get(key.name)
            if member is not None and member.stat is not None and member.stat.settled and not member.hidden:
                used(above.asked)
                return member.stat
        return None

    def _seen(self, key: Key, asked: float, stat: Stat) -> Stat:
        """Remember a new stat and return it; forget a listing that shows another version."""
        if not stat.settled or stat.version is None:
            self._forget(key)
            return stat
        if context.as_of < math.inf or self._stats.get(key) is not None:
            self._stats.put(key, (asked, stat), ANSWER_BYTES)
        above = self._listings.get(key.parent) if key else None
        if above is not None:
            member = above.members.get(key.name)
            if member is None or member.stat is None or member.stat.version != stat.version:
                self._listings.drop(key.parent)
        return stat

    def _forget(self, key: Key) -> None:
        """Forget what is remembered about a key, because it is out of date."""
        self._stats.drop(key)
        if key and (above := self._listings.get(key.parent)) is not None and key.name in above.members:
            self._listings.drop(key.parent)

    def _listed(self, key: Key) -> Iterator[Member]:
        """List a directory; once all of it has been given, remember it."""
        asked = time.monotonic()
        members: dict[str, Member] = {}
        self._listings.drop(key)
        for member in self._store.list(key, stats=True):
            if len(members) <= MOST_MEMBERS:
                members[member.name] = member
            yield member
        if context.as_of < math.inf and len(members) <= MOST_MEMBERS:
            self._listings.put(key, _Listing(asked, members), ANSWER_BYTES * (len(members) + 1))

    # What is asked of the store below as it is

    @property
    def listable(self) -> bool:
        return self._store.listable

    def opened(self, key: Key) -> OpenedObject | None:
        return self._store.opened(key)

    def fetch(self, key: Key, read: Range = WHOLE, around: Range | None = None) -> None:
        self._store.fetch(key, read, around)

    def prefetch_listing(self, key: Key, cuts: Sequence[str] = ()) -> None:
        self._store.prefetch_listing(key, cuts)

    def read_range(self, key: Key, start: int, length: int) -> tuple[bytes, Stat]:
        return self._store.read_range(key, start, length)

    def names(self, key: Key, cuts: Sequence[str] = ()) -> Iterator[Sequence[str]]:
        return self._store.names(key, cuts)

    def mtimes(self, key: Key, names: Sequence[str]) -> Sequence[int | None]:
        return self._store.mtimes(key, names)

    def describe(self, key: Key) -> str:
        return self._store.describe(key)

    def close(self) -> None:
        self._store.close()

    def shows(self, key: Key) -> bool:
        return self._store.shows(key)

    def lacks(self, key: Key) -> bool:
        return self._store.lacks(key)

    def lacking(self, key: Key, names: Iterable[str], most: int) -> set[str] | None:
        return self._store.lacking(key, names, most)

    def left_out(self, key: Key) -> Iterator[str]:
        return self._store.left_out(key)

    @property
    def vouches(self) -> bool:
        return self._store.vouches

    def vouch(self, key: Key, texts: Iterable[bytes]) -> tuple[bytes, Stat] | None:
        return self._store.vouch(key, texts)

    def prefetch_stat(self, key: Key) -> None:
        self._store.prefetch_stat(key)

    def holds(self, key: Key) -> bool:
        return self._store.holds(key)

    def commit(self, key: Key) -> Hashable:
        return self._store.commit(key)

    def check_access(self, key: Key) -> None:
        self._store.check_access(key)

    @property
    def rests(self) -> bool:
        return self._store.rests

    def rest(self) -> None:
        self._store.rest()
