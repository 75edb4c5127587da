"""Questions about single objects of a server, each answered by one request, or by a listing.

- An answer of another version makes the store forget what it knew.
- A listing tells as much as a request for each object, once it is known that both tell the same ETags.
- A web server that has lost the whole store answers "not there" for each object, which is no absence: `Witness`.

Not here: which of them a question needs (`store.py`), what is remembered and for how long (`answers.py`), a request
itself and its errors (`client.py`).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager
from hashlib import md5
from typing import NamedTuple

from fsbridge.config import MIB
from fsbridge.errors import FsbridgeError, NotFound, Unreachable
from fsbridge.store import ROOT, WHOLE, Key, Range, Stat, Stored
from fsbridge.store.remote.answers import Answers, KnownObject, ListedLevel, etag_number, stat_of
from fsbridge.store.remote.blocks import BlockCache
from fsbridge.store.remote.client import Client, Object, Response
from fsbridge.store.remote.faults import NoRanges, Refused, TakenForAbsent
from fsbridge.store.remote.listings import Listings

SMALL_BYTES = MIB
"""Objects up to this size are downloaded at once, because a second request would take longer."""


class RemoteObjects:
    """The objects of one remote store."""

    def __init__(self, client: Client, answers: Answers, listings: Listings, blocks: BlockCache | None) -> None:
        self._client = client
        self._answers = answers
        self._listings = listings
        self._blocks = blocks
        self._alike: bool | None = None  # whether LIST and GET tell the same ETags; None: not known yet
        self.gives_ranges = True
        """False once the server was seen to ignore a range."""
        self._witness = Witness(client)

    def get(self, key: Key, start: int = 0, length: int | None = None, **how: object) -> Response:
        """Return bytes of the object by one request. Raises NotFound, which is remembered, too. `how`: see `Client.get`."""
        answer = self._answer(key, start, length, **how)
        assert answer is not None
        return answer

    def _answer(self, key: Key, start: int, length: int | None, **how: object) -> Response | None:
        try:
            return self._client.get(key, start, length, **how)  # type: ignore[arg-type]  # names of `get`'s own
        except NotFound as error:
            withheld = isinstance(error, TakenForAbsent)
            if withheld and self._listings.shows(key):
                raise Refused(f"{self._client.place(key)}: refused, although the server lists it") from None
            if withheld or not self._listings.listable:
                self._witness.confirm(key)
            self._answers.put(key, None)
            raise

    def ask(self, key: Key, read: Range) -> Stat:
        """Ask for the object as it is now, with the bytes that are wanted next.

        An ETag that may be ambiguous is not trusted.
        """
        old = self._answers.last(key) or self._from_blocks(key, read)
        etag = old.etag if old is not None and old.stat is not None and old.stat.settled else None
        if etag is not None and old is not None:
            forever = self._answers.since() == -math.inf
            answer = None if forever else self._answer(key, 0, None, other_than=etag)
            if answer is None:
                return self.known_stat(key, self._answers.renew(key, old))
        else:
            answer = self._begun(key, read)
        most = 1 if read == (0, 1) else SMALL_BYTES  # one byte is asked for where nothing will be read
        body = bytes(answer.body()) if answer.stop - answer.start <= most else None
        known, stat = self.remember(key, answer.object, answer.asked)
        self._answers.keep(key, known, answer.start, answer if body is None else body)
        if body is not None and len(body) in (answer.object.size, SMALL_BYTES):
            self.keep_block(answer.object, body, answer.start)
        elif body is not None and self._blocks is not None and etag is None and stat.settled:
            self._blocks.put(answer.object, body, read)
        return stat

    def _begun(self, key: Key, read: Range) -> Response:
        """Begin to read an object, all of it if the server ignores ranges: its headers tell what a look-up asks for."""
        if self.gives_ranges or read == WHOLE:
            try:
                return self.get(key, *read)
            except NoRanges:
                self.gives_ranges = False
        return self.get(key)

    def _from_blocks(self, key: Key, read: Range) -> KnownObject | None:
        """Remember what the block cache knows about an object: its version, never fresh, and the bytes if they are few."""
        entry = None if self._blocks is None else self._blocks.find(key, read) or self._blocks.find(key)
        if entry is None:
            return None
        block, data = entry
        level = self._listings.known(key.parent)
        position = None if level is None else level.find(key.name)
        if level is not None and position is not None and level.sizes[position] != block.size:
            return None  # the object has changed, even if the ETag is the same
        known = self._answers.put(key, stat_of(block), block.etag, -math.inf)
        if len(data) <= SMALL_BYTES:
            begin = 0 if len(data) == block.size else read[0] if read[0] >= 0 else block.size - len(data)
            self._answers.keep(key, known, begin, bytes(data))
        return known

    def keep_block(self, meta: Object, data: Stored, start: int = 0, block: int = 0) -> Stored:
        """Store `data` in the block cache, if there is one, and return it; see `BlockCache.keep`."""
        if self._blocks is not None:
            self._blocks.keep(meta, data, start, block)
        return data

    def remember(self, key: Key, meta: Object, asked: float, given: float | None = None) -> tuple[KnownObject, Stat]:
        """Remember the object as an answer to a request that was `asked` at that time. `given`: see `Answers.put`."""
        stat = stat_of(meta, self._answers.clock, asked)
        known = self._answers.put(key, stat, meta.etag, given)
        level = self._answers.level(key.parent, -math.inf)
        position = None if level is None else level.find(key.name)
        if level is not None and position is not None and not self._compare(level, position, known):
            self._answers.drop_level(key.parent)
        if self._witness.saw(key, meta.etag):
            self._listings.mtime_ns = meta.mtime_ns
        return known, stat

    def _compare(self, level: ListedLevel, position: int, known: KnownObject) -> bool:
        """Note whether a listing tells the same ETag as the object's answer. Returns False if it lists another version."""
        assert known.stat is not None
        if (level.sizes[position], level.mtimes[position]) != (known.stat.size, known.stat.mtime_ns):
            return False
        self._alike = level.etags[position] == etag_number(known.etag) and self._alike is not False
        return True

    def known_stat(self, key: Key, known: KnownObject) -> Stat:
        """Return what is known about the object. Raises NotFound if it is absent."""
        if known.stat is None:
            raise NotFound(f"{self._client.place(key)}: not there")
        return known.stat

    def vouch(self, key: Key, texts: Iterable[bytes]) -> tuple[bytes, Stat] | None:
        """Return the one of `texts` that is the object's content, and the object's stat, without reading the object.

        A listing shows the object's size and its ETag, which is the MD5 of its bytes. Returns None if none of the texts
        fits, if the ETag is no MD5, or if there is no listing and making one is not worth its price. See
        `Listings.look_around`.
        """
        level = None if self._alike is False else self._listings.look_around(key)
        position = None if level is None else level.find(key.name)
        if level is None or position is None:
            return None
        for text in texts:
            etag = md5(text, usedforsecurity=False).hexdigest()
            if (level.sizes[position], level.etags[position]) == (len(text), etag_number(etag)):
                listed = Object(key, len(text), level.mtimes[position], etag)
                return text, self.remember(key, listed, level.asked, level.asked)[1]
        return None

    def listed_stat(self, key: Key, around: bool = False) -> Stat | None:
        """Return what a fresh listing says about an object, or None if that is not reliable.

        Raises NotFound if it is not listed.

        `around`: the object is looked at again, and a listing of everything beside it may be worth its price.
        """
        fresh = self._listings.look_around if around and self._alike is not False else self._listings.at
        level = fresh(key)
        if level is None or key.name in level.prefixes:
            return None
        position = level.find(key.name)
        if position is None:
            raise NotFound(f"{self._client.place(key)}: not there")
        known = self._answers.last(key)
        if self._alike is None and known is not None and known.stat is not None:
            self._compare(level, position, known)
        stat = level.stat(position, self._answers.clock)
        return stat if self._alike and stat.settled else None


class _Asked(NamedTuple):
    """A check of whether the store is still there: its number, the object that was asked for, and the error."""

    number: int
    key: Key
    error: FsbridgeError | None


class Witness:
    """The first object that a store gave, and the last two: if they are still there, an absent object is really absent.

    It is for stores without listings, because a listing proves absence.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._given: tuple[tuple[Key, str | None], ...] = ()
        self._lock = threading.Lock()  # for `_given`
        self._asking: AbstractContextManager[object] = threading.Lock()
        self._asked: _Asked | None = None
        self._checks = 0  # begun so far

    def saw(self, key: Key, etag: str | None) -> bool:
        """Note that there is an object at `key`. Returns whether it is the first one."""
        with self._lock:
            first = not self._given
            others = [given for given in self._given if given[0] != key]
            self._given = ((key, etag), *others[:1], *others[1:][-1:])
        return first

    def confirm(self, missing: Key) -> None:
        """Raise Unreachable if the server, which has just reported `missing` absent, has lost other objects, too.

        May make a request, because the store may have been lost since the server gave the other objects.
        """
        before = self._checks
        with self._asking:  # a thread that waits here was told "not there" before the next question, so it shares the answer
            asked = self._asked
            if asked is None or asked.number <= before or asked.key == missing:
                asked = self._ask(missing)
        if asked is not None and asked.error is not None:
            raise asked.error.anew()

    def _ask(self, missing: Key) -> _Asked | None:
        """Ask for other known objects. Returns None if there is none."""
        asked, gone = None, [missing]
        for key, etag in [given for given in self._given if given[0] != missing]:
            self._checks += 1
            try:
                self._client.get(str(key), other_than=etag)
            except NotFound:
                lost = Unreachable(f"{self._client.place(ROOT)}: the server has lost the store: {key} is missing, too")
                asked = _Asked(self._checks, key, lost)
                gone.append(key)
            except FsbridgeError as error:
                asked = _Asked(self._checks, key, error)
                break
            else:
                asked = _Asked(self._checks, key, None)
                with self._lock:  # the store is there, so those that are gone were removed one by one
                    self._given = tuple(given for given in self._given if given[0] not in gone)
                break
        self._asked = asked
        return asked
