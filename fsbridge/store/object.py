"""An object store or a web server as a store: what each request has told is remembered, so that the next one is not needed.

- One GET is stat, open and first read: a look-up keeps the body for the read that follows.
- A listing is the index: names, sizes, times and ETags of a thousand members for one request.
- An object's version is what its ETag, size and mtime say; an answer of another one makes the store forget what it knew.
- Directories are only parts of keys: they exist when something lies beneath them, and nobody can tell when they changed.

Absence is believed from a complete listing, or from the answer "not there" of a store that does answer. Not here: requests
and their errors (`client.py`), remembered listings (`listing_cache.py`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from hashlib import md5
from itertools import islice

from fsbridge.config import MIB
from fsbridge.errors import NotFound, Stale, Unreachable
from fsbridge.owner import everybody, searchable
from fsbridge.store import BATCH_NAMES, WHOLE, Key, Member, Range, Stat, Stored, nowait, probing
from fsbridge.store.ahead import Ahead, Fetched
from fsbridge.store.answers import Answers, Evidence, Known, ServerClock, stat_of
from fsbridge.store.blocks import BlockCache
from fsbridge.store.bounds import check_limit, check_range
from fsbridge.store.client import Answer, Client, Object
from fsbridge.store.listing_cache import Level, mark
from fsbridge.store.listings import Listings
from fsbridge.store.revisits import Revisits
from fsbridge.store.witness import Witness

SMALL_BYTES = MIB
"""Bytes of an object that is downloaded at once: a second request would take longer."""


class ObjectStore:
    """`store.Store` over a `Client`. `ttl`: seconds for which an answer is believed, `listing_ttl`: for listings."""

    prefixes = far = True
    at_once = staticmethod(nowait.at_once)
    together = nullcontext

    def __init__(self, client: Client, ttl: float, listing_ttl: float, blocks: BlockCache | None = None) -> None:
        self.client = client
        self._ttl = ttl
        self._listing_ttl = max(ttl, listing_ttl)
        self._answers = Answers(ttl)
        self._clock = ServerClock()
        self._ahead = Ahead(self._fetched)
        self._revisits = Revisits(self._look)
        self._blocks = blocks
        self._evidence = Evidence()
        self._listings = Listings(client, self._listing_ttl)
        self._alike: bool | None = None  # whether LIST and GET tell the same ETags; None: not known yet
        self._witness = Witness(client)

    @property
    def listable(self) -> bool:
        return self._listings.listable

    def begin(self) -> bool:
        """The first requests, see `probing.begin`."""
        return probing.begin(self.client, self._listings)

    # ---- store.Store

    def describe(self, key: Key) -> str:
        return self.client.place(key)

    def close(self) -> None:
        """Give up what is remembered; connections close when the store is dropped."""
        self._answers.clear()
        self._ahead.clear()

    def fetch(self, key: Key, read: Range = WHOLE, around: Range | None = None) -> None:
        if self._blocks is not None and self._blocks.holds(key, read):
            return
        level = self._listings.known(key.parent)
        position = None if level is None else level.find(key.name)
        known = self._answers.fresh(key)
        if (level is not None and position is None) or (known is not None and known.stat is None):
            return  # as far as is known there is no such object; who asks for it learns that
        size = None if level is None or position is None else level.sizes[position]
        read = around or read
        self._ahead.begin(key, read, size if read[1] is None else read[1])

    def _fetched(self, key: Key, start: int, length: int | None) -> Fetched:
        """What is fetched ahead. Of a range, the parts that are taken are blocks, each as it is asked for."""
        answer = self._get(key, start, length, patient=True)
        data = answer.body()
        stat = self._remember(key, answer.object, answer.asked)[1]
        if length is None:
            data = memoryview(self._keep_block(answer.object, data))
        return answer.object, answer.start, data, stat

    def _taken(self, key: Key, start: int, length: int | None) -> tuple[Stored, Stat] | None:
        """Bytes that were fetched ahead, if they are of the version that the last answer told."""
        found = self._ahead.take(key, start, length)
        known = self._answers.get(key)
        if found is None or known is None or known.stat is None:
            return None
        stored, first, data, stat = found
        if stat.version != known.stat.version or (known.stat.settled and not stat.settled):
            return None
        if length is None:
            return data[start - first :], stat
        part = bytes(data[start - first : start - first + length])
        if len(part) != length:  # the object ends before them: `read_range` says so
            return None
        return self._keep_block(stored, part, start), stat

    def opened(self, key: Key) -> None:
        """`stat` has an object that is read next sent along."""

    def stat(self, key: Key, read: Range | None = None) -> Stat:
        """`read`: only an object is meant, of which these bytes will be read next; they come with the answer."""
        if not key:
            return self._directory()
        known = self._answers.fresh(key) or self._under_way(key, read)
        if known is not None and (known.stat is not None or read is not None):
            return self._told(key, known)
        known = self._answers.get(key)
        if read is not None or (known is not None and known.stat is not None):
            return self._revisits.once(key, lambda: self._look(key, read), lambda: self._found(key))
        return self._stat_anything(key)

    def _found(self, key: Key) -> Stat | None:
        known = self._answers.fresh(key)
        return None if known is None else known.stat

    def shows(self, key: Key) -> bool:
        return self._listings.shows(key)

    def lacks(self, key: Key) -> bool:
        return self._listings.lacks(key)

    def revisit(self, key: Key) -> None:
        """`stat` of an object that was there is about to be asked: it is found out meanwhile. Does not block."""
        if self._answers.fresh(key) is None:
            self._revisits.begin(key)

    def _under_way(self, key: Key, read: Range | None) -> Known | None:
        """What was asked of an object already, once it is answered."""
        self._revisits.wait(key)
        if read is not None:
            self._ahead.take(key, *read, last=False)
        return self._answers.fresh(key)

    def _look(self, key: Key, read: Range | None = None) -> Stat:
        return self._listed_stat(key, read is None) or self._ask(key, read or WHOLE)

    def _stat_anything(self, key: Key) -> Stat:
        """An object or a directory."""
        if self._evidence.exists(key, self._listing_ttl):
            return self._directory()
        above = self._listings.known(key.parent)
        if above is not None and key.name in above.prefixes:
            return self._directory()
        listed = self._listed_stat(key)
        if listed is not None:
            return listed
        known_object = self._listings.remembered.get(key.parent, self._ttl) is not None  # or it would be absent
        if not known_object and self.listable and len(self._listings.known(key) or self._listings.level(key, self._ttl)):
            return self._directory()
        return self._ask(key, WHOLE)

    def read(self, key: Key, limit: int) -> tuple[Stored, Stat]:
        taken = self._taken(key, 0, None)
        if taken is not None:
            check_limit(self, key, len(taken[0]), limit)
            return taken
        if self._blocks is not None and self._blocks.holds(key):
            self.stat(key, WHOLE)
        known = self._answers.fresh(key)
        if known is not None:
            stat = self._told(key, known)
            pending = self._answers.take(key)
            body: Stored | None = known.body
            if body is None or known.start != 0 or len(body) != stat.size:
                body = None if self._blocks is None else self._blocks.get(key, known.etag)
            if body is not None:
                check_limit(self, key, len(body), limit)
                return body, stat
            if pending is not None and pending.stop - pending.start == stat.size:
                check_limit(self, key, stat.size, limit)
                return self._keep_block(pending.object, pending.body()), stat
        self._listed_stat(key)
        answer = self._get(key, patient=True)
        check_limit(self, key, answer.object.size, limit)
        data = self._keep_block(answer.object, answer.body())
        known, stat = self._remember(key, answer.object, answer.asked)
        if len(data) <= SMALL_BYTES // 16:  # a document: whoever looks at it again within the TTL has it
            self._answers.keep(key, known, 0, bytes(data))
        return data, stat

    def read_range(self, key: Key, start: int, length: int, block: int = 0) -> tuple[bytes, Stat]:
        """`block`: the block cache keeps these bytes in blocks of so many, so that each is found by itself (`kept`)."""
        taken = self._taken(key, start, length) if start >= 0 else None
        if taken is not None:
            return bytes(taken[0]), taken[1]
        known = self._answers.fresh(key)
        if not length or (start < 0 and length != -start):
            stat = self._told(key, known) if known is not None else self.stat(key, WHOLE)
            start = start if start >= 0 else stat.size + start
            check_range(self, key, start, length, stat.size)
            return self._range(key, start, length, self._answers.get(key), block) if length else (b"", stat)
        return self._range(key, start, length, known, block)

    def kept(self, key: Key, start: int, length: int) -> tuple[bytes, Stat] | None:
        """What `read_range` gives without a request, if it can."""
        known = self._answers.fresh(key)
        if known is None or known.stat is None:
            return None
        body: Stored | None = known.part(start, length)
        if body is None and self._blocks is not None:
            body = self._blocks.get(key, known.etag, (start, length), known.stat.size)
        return None if body is None or len(body) != length else (bytes(body), known.stat)

    def _range(self, key: Key, start: int, length: int, known: Known | None, block: int) -> tuple[bytes, Stat]:
        stat = self._told(key, known) if known is not None else None
        if stat is not None and known is not None:
            start = start if start >= 0 else stat.size + start
            check_range(self, key, start, length, stat.size)
            kept = self.kept(key, start, length)
            if kept is not None:
                return kept
            self._answers.take(key)
        match = known.etag if known is not None else None
        try:
            answer = self._get(key, start, length, match=match, patient=True)
        except Stale:
            self._forget(key)
            raise
        size = answer.object.size
        first = start if start >= 0 else size + start
        check_range(self, key, first, length, size)
        if (answer.start, answer.stop) != (first, first + length):
            raise Unreachable(f"{self.describe(key)}: the server sent another range than was asked for")
        data = bytes(self._keep_block(answer.object, answer.body(), first, block))
        return data, self._remember(key, answer.object, answer.asked)[1]

    def list(self, key: Key, stats: bool = False) -> Iterator[Member]:
        level = self._listings.shown(key)
        directory = self._directory()
        for name in sorted({*level.names, *level.prefixes}):
            position = level.find(name)
            if position is None:
                yield Member(name, True, directory)
            else:
                yield Member(name, False, self._listings.stat_at(level, position))

    def names(self, key: Key, cuts: Sequence[str] = ()) -> Iterator[Sequence[str]]:
        level = self._listings.known(key)
        if level is None and self.listable:
            yield from self._listings.names(key, cuts)
            return
        level = level or self._listings.listing(key)
        yield level.names
        rest = iter(sorted(level.prefixes))
        while batch := list(islice(rest, BATCH_NAMES)):
            yield batch

    def mtimes(self, key: Key, names: Sequence[str]) -> Sequence[int | None]:
        return self._listings.times(key, names)

    def foresee(self, key: Key, cuts: Sequence[str] = ()) -> None:
        self._listings.foresee(key, cuts)

    # ---- requests, and what they tell

    def _get(self, key: Key, start: int = 0, length: int | None = None, **how: object) -> Answer:
        answer = self._answer(key, start, length, **how)
        assert answer is not None
        return answer

    def _answer(self, key: Key, start: int, length: int | None, **how: object) -> Answer | None:
        try:
            answer = self.client.get(key, start, length, **how)  # type: ignore[arg-type]  # names of `get`'s own
        except NotFound:
            if not self.listable:
                self._witness.confirm(key)
            self._answers.put(key, Known(None, None))
            raise
        self._witness.answered()
        return answer

    def _ask(self, key: Key, read: Range) -> Stat:
        """The object as it is now, with the bytes that are wanted next: anew where its ETag may stand for others, too."""
        old = self._answers.get(key) or self._from_blocks(key, read)
        etag = old.etag if old is not None and old.stat is not None and old.stat.settled else None
        if etag is not None and old is not None:
            answer = None if self._ttl == math.inf else self._answer(key, 0, None, other_than=etag)
            if answer is None:
                old.asked = time.monotonic()
                self._answers.put(key, old)
                if old.body is not None:
                    self._answers.keep(key, old, old.start, old.body)
                return self._told(key, old)
        else:
            answer = self._get(key, *read)
        body = bytes(answer.body()) if answer.stop - answer.start <= SMALL_BYTES else None
        known, stat = self._remember(key, answer.object, answer.asked)
        if body is not None:
            self._answers.keep(key, known, answer.start, body)
            if len(body) in (answer.object.size, SMALL_BYTES):
                self._keep_block(answer.object, body, answer.start)
            elif self._blocks is not None and etag is None and stat.settled:
                self._blocks.put(answer.object, body, read)
        else:
            self._answers.keep(key, known, answer.start, None, answer)
        return stat

    def _from_blocks(self, key: Key, read: Range) -> Known | None:
        """What the block cache knows of an object: its version, to be asked about, and the bytes if they are few."""
        found = None if self._blocks is None else self._blocks.find(key, read) or self._blocks.find(key)
        if found is None:
            return None
        block, data = found
        known = Known(stat_of(block), block.etag)
        if len(data) <= SMALL_BYTES:
            known.start = 0 if len(data) == block.size else read[0] if read[0] >= 0 else block.size - len(data)
            known.body = bytes(data)
        return known

    def _keep_block(self, found: Object, data: Stored, start: int = 0, block: int = 0) -> Stored:
        if self._blocks is not None:
            self._blocks.keep(found, data, start, block)
        return data

    def _remember(self, key: Key, found: Object, asked: float) -> tuple[Known, Stat]:
        stat = stat_of(found, self._clock, asked)
        known = Known(stat, found.etag)
        level = self._listings.remembered.get(key.parent, float("inf"))
        position = None if level is None else level.find(key.name)
        if level is not None and position is not None and not self._compare(level, position, known):
            self._listings.remembered.drop(key.parent)
        self._answers.put(key, known)
        if self._witness.saw(key):
            self._listings.mtime_ns = found.mtime_ns
        self._evidence.seen(key)
        return known, stat

    def _compare(self, level: Level, position: int, known: Known) -> bool:
        """Note whether a listing tells the same ETag of an object as its answer did; False if it is of another version."""
        assert known.stat is not None
        if (level.sizes[position], level.mtimes[position]) != (known.stat.size, known.stat.mtime_ns):
            return False
        self._alike = level.etags[position] == mark(known.etag) and self._alike is not False
        return True

    def _forget(self, key: Key) -> None:
        self._answers.forget(key)
        self._listings.remembered.drop(key.parent)

    def _told(self, key: Key, known: Known) -> Stat:
        if known.stat is None:
            raise NotFound(f"{self.describe(key)}: not there")
        return known.stat

    # ---- listings

    def vouch(self, key: Key, texts: Iterable[bytes]) -> tuple[bytes, Stat] | None:
        """That of `texts` which the object is, with its stat: a listing shows its ETag, which is the MD5 of these bytes.

        None where it is no MD5, or where no listing is at hand, and none is worth its price: see `Listings.beside`.
        """
        level = None if self._alike is False else self._listings.beside(key, self._ttl)
        position = None if level is None else level.find(key.name)
        if level is None or position is None:
            return None
        for text in texts:
            etag = md5(text, usedforsecurity=False).hexdigest()
            if (level.sizes[position], level.etags[position]) == (len(text), mark(etag)):
                known, stat = self._remember(key, Object(key, len(text), level.mtimes[position], etag), level.asked)
                known.asked = level.asked
                return text, stat
        return None

    def _listed_stat(self, key: Key, beside: bool = False) -> Stat | None:
        """What a fresh listing says of an object; NotFound if it has none. None: nothing that could be relied on.

        `beside`: the object is looked at again, and a listing of all that lies beside it may be worth its price.
        """
        fresh = self._listings.beside if beside and self._alike is not False else self._listings.at
        level = fresh(key, self._ttl)
        if level is None or key.name in level.prefixes:
            return None
        position = level.find(key.name)
        if position is None:
            raise NotFound(f"{self.describe(key)}: not there")
        known = self._answers.get(key)
        if self._alike is None and known is not None and known.stat is not None:
            self._compare(level, position, known)
        return self._listings.stat_at(level, position) if self._alike else None

    def _directory(self) -> Stat:
        return Stat(True, 0, self._listings.mtime_ns, None, searchable(everybody()))
