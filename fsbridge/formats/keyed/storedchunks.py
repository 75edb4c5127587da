"""Listings of the flat chunk directories of one store, kept compactly, shared by all readers and renewed after a change.

One thread lists a directory for all its readers. A `ChunkListing` goes through the states `waiting`, `running` and `done`
or `failed`. For each directory at most one listing is running and at most one is waiting. Not here: names and their parsing
(`chunkfiles.py`).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from fsbridge.asking import before_waiting
from fsbridge.config import MIB
from fsbridge.errors import NotFound, TimedOut, anew
from fsbridge.lru import register
from fsbridge.store import Key, Stat, Store
from fsbridge.threads import starting
from fsbridge.threads.deadlines import Stopwatch

BATCH_ENTRIES = 4096
"""Entries of a listing that are sorted and yielded together: enough to be efficient, few enough to stream."""


@dataclass(frozen=True, slots=True)
class ListingLimits:
    """The limits of listings: seconds that readers wait for them, the memory that they take, sizes of their parts."""

    patience: float = 10.0
    """Seconds without anything from the store until readers give up: the longest pause that a slow disk makes."""

    wait: float = 0.5
    """Longest wait for a listing before its readers get partial results, because a wait holds one of few threads."""

    look: float = 0.1
    """Seconds between two checks for new results of a running listing."""

    memory: int = 96 * MIB
    """Bytes for the listings of all directories (12 million chunks). The last used one is kept, whatever its size."""

    window: int = 1 << 20
    """Chunks that are grouped in one step if only their leading coordinates are wanted; limits the memory."""

    batch: int = BATCH_ENTRIES
    """Entries that are yielded together."""


LIMITS = ListingLimits()

Numbers: TypeAlias = npt.NDArray[np.uint64]
"""Linear numbers of chunks in the grid, in C order. Those of a finished listing are sorted."""

Read: TypeAlias = Callable[[list[str]], Iterator[Numbers]]
"""Lists a directory: yields arrays of chunk numbers in the store's order, each number once; an array may be empty.

Names of other files are added to the list that it gets."""


def search(numbers: Numbers, number: int) -> int:
    """Return the position of the first number in sorted `numbers` that is at least `number`."""
    return len(numbers) if number >= 2**64 else int(numbers.searchsorted(np.uint64(number)))


class ChunkListing:
    """One listing of a directory. A thread of its own makes it, while readers wait.

    Its result has no mtimes, because rewriting a chunk in place does not change the directory: the listing would not be made
    again.
    """

    def __init__(self, place: str, limits: ListingLimits, stored: Numbers | None = None) -> None:
        """Make a listing that has not begun, or a finished one if `stored` is given. `place`: its name in messages."""
        self.state: Literal["waiting", "running", "done", "failed"] = "waiting" if stored is None else "done"
        self.directory: Stat | None = None
        """The directory's stat at the start."""
        self.batches: list[Numbers] = []
        """Results so far."""
        self.others: list[str] = []
        """Names of other files (`model.Chunks.other_names`)."""
        self.stored = stored
        self._place = place
        self._limits = limits
        self._moved = Stopwatch()
        self._error: Exception | None = None
        self._over = threading.Event()
        if stored is not None:
            self._over.set()

    def run(self, look: Callable[[], Stat], read: Read) -> None:
        """List the directory, and set the state to `running`, then to `done`, or to `failed` after any exception."""
        self.state = "running"
        self._moved.restart()
        try:
            self.directory = look()  # before the listing, so that a change during it shows as another version
            for numbers in read(self.others):
                self.batches.append(numbers)
                self._moved.restart()
            numbers = np.concatenate([np.empty(0, np.uint64), *self.batches])
            numbers.sort()  # in place: of ten million chunks each copy takes 80 MB
            self.stored = numbers
        except Exception as error:  # `wait` raises it for every reader
            self._error = error
        self.state = "failed" if self.stored is None else "done"

    def compact(self) -> ChunkListing:
        """Return a copy without `batches`, to save memory. Readers may still use the `batches` of this listing."""
        listing = ChunkListing(self._place, self._limits, self.stored)
        listing.directory, listing.others = self.directory, self.others
        return listing

    def end(self) -> None:
        """Wake the readers. To be called only when new readers find the result, too."""
        self._over.set()

    def queue(self) -> None:
        """Note that this listing is the next to run. The patience of its readers counts from now."""
        self._moved.restart()

    def wait(self, seconds: float) -> Numbers | None:
        """Return the result, or None if it is not ready after `seconds`. Raises TimedOut if the store does not answer."""
        if not self._over.is_set():
            before_waiting()
        if not self._over.wait(seconds):
            if self._moved.seconds > self._limits.patience:
                raise TimedOut(f"{self._place}: the store has stopped listing its chunks")
            return None
        if self._error is not None:
            raise anew(self._error)
        return self.stored

    def follow(self) -> Iterator[Numbers | None]:
        """Yield numbers as they arrive, in the store's order, and None whenever `look` seconds bring no new ones."""
        position = 0
        while True:
            over = self._over.is_set()
            while position < len(self.batches):
                yield self.batches[position]
                position += 1
            if over:
                self.wait(0.0)  # a listing that failed has not found everything
                return
            if self.wait(self._limits.look) is None and position == len(self.batches):
                yield None


class _Directory:
    """The listings of one directory: the last finished one, the running one, and the one that runs next."""

    def __init__(self) -> None:
        self.last: ChunkListing | None = None
        self.running: ChunkListing | None = None
        self.waiting: ChunkListing | None = None

    @property
    def stored(self) -> Numbers | None:
        return self.last.stored if self.last is not None else None

    @property
    def nbytes(self) -> int:
        """Memory in bytes, roughly."""
        numbers, names = (0, 0) if self.last is None or self.stored is None else (self.stored.nbytes, len(self.last.others))
        return 1024 + numbers + 100 * names  # an empty directory takes about 1 KB, and a name 100 bytes

    def next(self) -> ChunkListing | None:
        """Finish the running listing. If another one is waiting, make it the running one and return it."""
        if self.running is not None and self.running.state == "done":
            self.last = self.running.compact()
        self.running, self.waiting = self.waiting, None
        return self.running


class FlatDirectories:
    """The listings of the flat chunk directories of one store. Listings of the least recently used directories go first."""

    def __init__(self, store: Store, limits: ListingLimits = LIMITS) -> None:
        self._store = store
        self.limits = limits
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[Key, Hashable], _Directory] = OrderedDict()
        register(self)

    def clear(self) -> None:
        """Forget all listings of directories that are not being listed now."""
        with self._lock:
            for key in [key for key, directory in self._known.items() if directory.running is None]:
                del self._known[key]

    def join(self, key: Key, listing_key: Hashable, read: Read) -> ChunkListing:
        """Return an up-to-date listing of the directory `key`, finished or not; start one if necessary.

        `listing_key` distinguishes grids and spellings of keys at the same `key`. If the directory has changed since the
        running listing began, the listing that follows it is returned.
        """
        with self._lock:
            directory = self._known.setdefault((key, listing_key), _Directory())
            self._known.move_to_end((key, listing_key))
        try:
            now = self._store.stat(key)
        except NotFound:
            directory.last = None
            return ChunkListing("", self.limits, np.empty(0, np.uint64))
        with self._lock:
            for listing in (directory.last, directory.running, directory.waiting):
                if listing is not None and self._does(listing, now):
                    return listing
            new = ChunkListing(self._store.describe(key), self.limits)
            if directory.running is not None:
                directory.waiting = new
                return new
            directory.running = new
            starting.start(partial(self._work, key, directory, read), "fsbridge-index")
            return new

    def _does(self, listing: ChunkListing, now: Stat) -> bool:
        """True if a listing is up to date, given the directory's present stat `now`."""
        if listing.state == "waiting":
            return True
        then = listing.directory
        if then is None or listing.state == "failed":
            return False
        if then.version is None:  # a remote store cannot tell before it has listed the directory
            return listing.state == "running"
        return then.version == now.version and then.settled

    def _work(self, key: Key, directory: _Directory, read: Read) -> None:
        listing = directory.running
        while listing is not None:
            listing.run(lambda: self._store.stat(key), read)
            over = listing
            with self._lock:
                listing = directory.next()
                if listing is not None:
                    listing.queue()
            over.end()
        self._trim()

    def peek(self, key: Key, listing_key: Hashable) -> Numbers | None:
        """Return the last finished listing, which may be out of date, or None."""
        with self._lock:
            directory = self._known.get((key, listing_key))
        return directory.stored if directory is not None else None

    def _trim(self) -> None:
        with self._lock:
            total = 0
            for age, (key, directory) in enumerate(reversed(list(self._known.items()))):
                total += directory.nbytes
                if total > self.limits.memory and age:
                    del self._known[key]
