"""An object store or a web server as a store. Each answer is remembered, so that the next request may not be needed.

- One GET is stat, open and first read: a look-up keeps the body for the read that follows.
- A listing serves as an index: one request gives names, sizes, times and ETags of a thousand members.
- Directories are only parts of keys: they exist if something lies below them, and it is unknown when they changed.

Client libraries take long to import, so this module is imported only for a remote store.

Absence is believed from a complete listing, or from the answer "not there" of a store that does answer. Not here:
requests for single objects and what they tell (`objects.py`), listings (`listings.py`), what is remembered and for how
long (`answers.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from fsbridge.config import Config
from fsbridge.errors import CorruptData, Stale, Unreachable
from fsbridge.store import (
    BATCH_NAMES,
    ROOT,
    WHOLE,
    Key,
    Member,
    Range,
    Stat,
    Store,
    Stored,
    check_limit,
    check_range,
)
from fsbridge.store.remote import probing
from fsbridge.store.remote.answers import Answers, KnownObject
from fsbridge.store.remote.blocks import BlockCache
from fsbridge.store.remote.client import Client
from fsbridge.store.remote.listings import Listings
from fsbridge.store.remote.objects import SMALL_BYTES, RemoteObjects
from fsbridge.store.remote.prefetching import Fetched, Prefetched, PrefetchedStats
from fsbridge.store.remote.urls import Location, identity


def object_store(location: Location, config: Config) -> ObjectStore:
    """Return the store at `location`, reached as `config` says. Asks nothing of the server."""
    client = Client(location, config.remote)
    name, folder = identity(location, client.endpoint), config.remote.block_cache
    blocks = BlockCache(folder, config.remote.block_cache_size, name) if folder else None
    return ObjectStore(client, Answers.of(config), blocks, config.read_ahead)


class ObjectStore(Store):
    """The store (`store.Store`) that `client` sends requests to. Its answers are remembered in `answers`."""

    has_no_directories = remote = vouches = True

    def __init__(self, client: Client, answers: Answers, blocks: BlockCache | None = None, read_ahead: bool = True) -> None:
        self.client = client
        self.read_ahead = read_ahead
        """Whether more may be requested than is needed, because it will probably be needed next."""
        self.answers = answers
        self.listings = Listings(client, answers, read_ahead)
        self._objects = RemoteObjects(client, answers, self.listings, blocks)
        self.blocks = blocks
        self.prefetched = Prefetched(self._fetch_bytes, seconds=client.limits.fetched_seconds)
        self._reading: set[Key] = set()  # objects that are being read
        self.prefetched_stats = PrefetchedStats(self._look)

    @property
    def listable(self) -> bool:
        return self.listings.listable

    def begin(self) -> bool:
        """Make the first requests, see `probing.begin`."""
        return probing.begin(self.client, self.listings)

    # ---- store.Store

    def describe(self, key: Key) -> str:
        return self.client.place(key)

    def close(self) -> None:
        """Forget everything. Connections close when the store is dropped."""
        self.answers.clear()
        self.prefetched.clear()

    def fetch(self, key: Key, read: Range = WHOLE, around: Range | None = None) -> None:
        if (key in self._reading and read == WHOLE) or (self.blocks is not None and self.blocks.holds(key, read)):
            return
        level = self.listings.known(key.parent)
        position = None if level is None else level.find(key.name)
        known = self.answers.fresh(key, noted=False)
        if (level is not None and position is None) or (known is not None and known.stat is None):
            return  # it seems to be absent; a read will find that out
        size = None if level is None or position is None else level.sizes[position]
        read = around or read
        self.prefetched.begin(key, read, size if read[1] is None else read[1])

    def _fetch_bytes(self, key: Key, start: int, length: int | None) -> Fetched:
        """Prefetch bytes. The parts of a range that are taken later become blocks of the block cache."""
        answer = self._objects.get(key, start, length, patient=True)
        data = answer.body()
        stat = self._objects.remember(key, answer.object, answer.asked)[1]
        if length is None:
            data = memoryview(self._objects.keep_block(answer.object, data))
        return answer.object, answer.start, data, stat

    def _take_bytes(self, key: Key, start: int, length: int | None) -> tuple[Stored, Stat] | None:
        """Return bytes that were prefetched, if they are of the version of the last answer."""
        fetched = self.prefetched.take(key, start, length)
        known = self.answers.last(key)
        if fetched is None or known is None or known.stat is None:
            return None
        stored, first, data, stat = fetched
        if stat.version != known.stat.version or (known.stat.settled and not stat.settled):
            return None
        if length is None:
            return data[start - first :], stat
        part = bytes(data[start - first : start - first + length])
        if len(part) != length:  # the object ends before them, and `read_range` will say so
            return None
        return self._objects.keep_block(stored, part, start), stat

    def stat(self, key: Key, read: Range | None = None) -> Stat:
        """Return the stat.

        `read`: only an object is meant, and these bytes of it will be read next; they come with the answer.
        """
        if not key:
            return self._directory(key)
        known = self.answers.fresh(key) or self._await_request(key, read)
        if known is not None and (known.stat is not None or read is not None):
            return self._objects.known_stat(key, known)
        known = self.answers.last(key)
        if read is not None or (known is not None and known.stat is not None):
            return self.prefetched_stats.once(key, lambda: self._look(key, read), lambda: self._find_remembered(key))
        return self._stat_anything(key)

    def _find_remembered(self, key: Key) -> Stat | None:
        known = self.answers.fresh(key)
        return None if known is None else known.stat

    def holds(self, key: Key) -> bool:
        since = self.answers.since()
        if self.answers.exists(key, since):
            return True
        if not self.listable:
            return self.stat(key).is_dir
        try:
            if len(self.listings.level(key, since)):
                return True
            there = len(self.listings.level(ROOT, since)) > 0
        except CorruptData:  # the listing itself will report the error
            return self.stat(key).is_dir
        if not there:
            raise Stale(f"{self.describe(ROOT)}: no longer there")
        return False

    def listed_sizes(self, key: Key, names: Iterable[str]) -> Mapping[str, int]:
        level = self.listings.known(key)
        places = {} if level is None else {name: level.find(name) for name in names}
        return {name: level.sizes[place] for name, place in places.items() if level is not None and place is not None}

    def shows(self, key: Key) -> bool:
        return self.listings.shows(key)

    def lacks(self, key: Key) -> bool:
        return self.listings.lacks(key)

    def vouch(self, key: Key, texts: Iterable[bytes]) -> tuple[bytes, Stat] | None:
        return self._objects.vouch(key, texts)

    def prefetch_stat(self, key: Key) -> None:
        """Prefetch the answer of `stat` for an object that existed before. Does not block."""
        if self.answers.fresh(key, noted=False) is None:
            self.prefetched_stats.begin(key)

    def _await_request(self, key: Key, read: Range | None) -> KnownObject | None:
        """Wait for a request about an object that is under way, and return its answer."""
        self.prefetched_stats.wait(key)
        if read is not None:
            self.prefetched.take(key, *read, last=False)
        return self.answers.fresh(key)

    def _look(self, key: Key, read: Range | None = None) -> Stat:
        return self._objects.listed_stat(key, read is None) or self._objects.ask(key, read or WHOLE)

    def _stat_anything(self, key: Key) -> Stat:
        """Return the stat of an object or a directory."""
        if self.answers.exists(key, self.answers.listed_since()):
            return self._directory(key)
        above = self.listings.known(key.parent)
        if above is not None and key.name in above.prefixes:
            return self._directory(key)
        listed = self._objects.listed_stat(key)
        if listed is not None:
            return listed
        is_object = self.listings.at(key) is not None  # otherwise it would be absent
        if not is_object and self.listable:
            level = self.listings.known(key)
            if len(self.listings.level(key, self.answers.since()) if level is None else level):
                return self._directory(key)
        return self._objects.ask(key, WHOLE)

    def read(self, key: Key, limit: int) -> tuple[Stored, Stat]:
        self._reading.add(key)
        try:
            return self._read(key, limit)
        finally:
            self._reading.discard(key)

    def _read(self, key: Key, limit: int) -> tuple[Stored, Stat]:
        taken = self._take_bytes(key, 0, None)
        if taken is not None:
            check_limit(self, key, len(taken[0]), limit)
            return taken
        if self.blocks is not None and self.blocks.holds(key):
            self.stat(key, WHOLE)
        known = self.answers.fresh(key)
        if known is not None:
            stat = self._objects.known_stat(key, known)
            pending = self.answers.take(key, known)
            body: Stored | None = self.answers.part(key, known, 0, stat.size)
            if body is None and self.blocks is not None:
                body = self.blocks.get(key, known.etag, stat.size)
            if body is not None:
                check_limit(self, key, len(body), limit)
                return body, stat
            if pending is not None and pending.stop - pending.start == stat.size:
                check_limit(self, key, stat.size, limit)
                return self._objects.keep_block(pending.object, pending.body()), stat
        self._objects.listed_stat(key)
        answer = self._objects.get(key, patient=True)
        check_limit(self, key, answer.object.size, limit)
        data = self._objects.keep_block(answer.object, answer.body())
        known, stat = self._objects.remember(key, answer.object, answer.asked)
        if len(data) <= SMALL_BYTES // 16:  # a document: it will be read again within the TTL
            self.answers.keep(key, known, 0, bytes(data))
        return data, stat

    def read_range(self, key: Key, start: int, length: int, block: int = 0) -> tuple[bytes, Stat]:
        """Return bytes. `block`: the block cache keeps them in blocks of this many bytes, so that `kept` finds each."""
        taken = self._take_bytes(key, start, length) if start >= 0 else None
        if taken is not None:
            return bytes(taken[0]), taken[1]
        known = self.answers.fresh(key)
        if not length or (start < 0 and length != -start):
            stat = self._objects.known_stat(key, known) if known is not None else self.stat(key, WHOLE)
            start = start if start >= 0 else stat.size + start
            check_range(self, key, start, length, stat.size)
            return self._range(key, start, length, self.answers.last(key), block) if length else (b"", stat)
        return self._range(key, start, length, known, block)

    def kept(self, key: Key, start: int, length: int) -> tuple[bytes, Stat] | None:
        """Return what `read_range` would, if no request is needed."""
        known = self.answers.fresh(key)
        if known is None or known.stat is None:
            return None
        body: Stored | None = self.answers.part(key, known, start, length)
        if body is None and self.blocks is not None:
            body = self.blocks.get(key, known.etag, known.stat.size, (start, length))
        return None if body is None or len(body) != length else (bytes(body), known.stat)

    def _range(self, key: Key, start: int, length: int, known: KnownObject | None, block: int) -> tuple[bytes, Stat]:
        stat = self._objects.known_stat(key, known) if known is not None else None
        if stat is not None and known is not None:
            start = start if start >= 0 else stat.size + start
            check_range(self, key, start, length, stat.size)
            kept = self.kept(key, start, length)
            if kept is not None:
                return kept
            self.answers.take(key, known)
        match = known.etag if known is not None else None
        if stat is not None and stat.size <= SMALL_BYTES and not self._objects.gives_ranges:
            whole, now = self.read(key, SMALL_BYTES)
            if now.version != stat.version:
                raise Stale(f"{self.describe(key)}: replaced")
            return bytes(whole[start : start + length]), now
        try:
            answer = self._objects.get(key, start, length, match=match, patient=True)
        except Stale:
            self.answers.forget(key)
            raise
        size = answer.object.size
        first = start if start >= 0 else size + start
        check_range(self, key, first, length, size)
        if (answer.start, answer.stop) != (first, first + length):
            raise Unreachable(f"{self.describe(key)}: the server sent another range than was asked for")
        data = bytes(self._objects.keep_block(answer.object, answer.body(), first, block))
        return data, self._objects.remember(key, answer.object, answer.asked)[1]

    def list(self, key: Key, stats: bool = False) -> Iterator[Member]:
        level = self.listings.show(key)
        directory = self._directory(key)._replace(version=None)  # a member has another one, if any
        for name in sorted({*level.names, *level.prefixes}):
            position = level.find(name)
            if position is None:
                yield Member(name, True, directory)
            else:
                yield Member(name, False, level.stat(position, self.answers.clock))

    def left_out(self, key: Key) -> Iterator[str]:
        if self.listable:
            self.listings.show(key)
            yield from self.client.left_out(key)

    def names(self, key: Key, cuts: Sequence[str] = ()) -> Iterator[Sequence[str]]:
        level = self.listings.known(key)
        if level is None and self.listable:
            yield from self.listings.names(key, cuts)
            return
        level = level or self.listings.listing(key)
        yield level.names
        rest = iter(sorted(level.prefixes))
        while batch := list(islice(rest, BATCH_NAMES)):
            yield batch

    def mtimes(self, key: Key, names: Sequence[str]) -> Sequence[int | None]:
        return self.listings.times(key, names)

    def prefetch_listing(self, key: Key, cuts: Sequence[str] = ()) -> None:
        self.listings.prefetch_listing(key, cuts)

    def _directory(self, key: Key) -> Stat:
        """Return the stat of a directory. Its version stands for the listing that is remembered, if there is one."""
        level = self.listings.known(key)
        return Stat(True, 0, self.listings.mtime_ns, None if level is None else level.asked)
