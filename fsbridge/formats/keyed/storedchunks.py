"""Which chunks the flat directories of one store have, compactly, shared by all readers and renewed when stale.

Each directory is listed by one thread for all its readers. A `Listing` goes through the states `waiting`, `running` and
`done` or `failed`; of one directory at most one is running and one waiting. Not here: names and their parsing
(`flatchunks.py`).
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from fsbridge import confinement
from fsbridge.asking import before_waiting, context, used
from fsbridge.config import MIB
from fsbridge.droppable import register
from fsbridge.errors import NotFound, TimedOut, anew
from fsbridge.store import Key, Stat, Store

STORED_BYTES = 96 * MIB
"""Memory of what is known of all directories (12 million chunks); one above it is kept as long as it is the only one."""

PATIENCE_SECONDS = 10.0
"""Default of `FlatDirectories`: what a disk needs at most to go on with a listing."""

LOOK_SECONDS = 0.1
"""Seconds between two looks at what a listing under way has found."""

DIRECTORY_BYTES = 1024
"""What a directory costs apart from its numbers, roughly."""

Numbers: TypeAlias = npt.NDArray[np.uint64]
"""Linear grid numbers (C order)."""

Read: TypeAlias = Callable[[], Iterator[Numbers]]
"""Lists a directory: the chunks' numbers as the store gives them, each once; empty if it gave none."""


@dataclass(frozen=True, slots=True)
class StoredChunks:
    """The stored chunks of one flat array: sorted linear grid numbers.

    No times: a chunk that is rewritten in place does not change its directory, which is all that a listing is renewed by.
    """

    numbers: Numbers
    serial: object = field(default_factory=object)
    """Identity of this listing alone."""

    @property
    def nbytes(self) -> int:
        """Memory of the numbers in bytes."""
        return int(self.numbers.nbytes)

    def search(self, number: int) -> int:
        """Position of the first stored number that is not below `number`."""
        if number >= 2**64:
            return len(self.numbers)
        return int(self.numbers.searchsorted(np.uint64(number)))


NOTHING = StoredChunks(np.empty(0, np.uint64))


class ChunkListing:
    """One listing of a directory. Its own thread takes it from state to state; readers wait for it."""

    def __init__(self, place: str, patience: float, stored: StoredChunks | None = None) -> None:
        """Make a listing that has not begun; one that is over if `stored` is given."""
        self.state: Literal["waiting", "running", "done", "failed"] = "waiting" if stored is None else "done"
        self.begun = 0.0
        """When it began, by the monotonic clock."""
        self.directory: Stat | None = None
        """The directory at that time."""
        self.found: list[Numbers] = []
        """What the store has given so far."""
        self.stored = stored
        self._place = place
        self._patience = patience
        self._moved = time.monotonic()
        self._error: Exception | None = None
        self._over = threading.Event()
        if stored is not None:
            self._over.set()

    def run(self, look: Callable[[], Stat], read: Read) -> None:
        """List the directory: from `waiting` to `done`, or to `failed` for any exception."""
        self.state, self.begun, self._moved = "running", time.monotonic(), time.monotonic()
        try:
            self.directory = look()  # before the listing: what changes during it changes the version that is seen next
            for numbers in read():
                self.found.append(numbers)
                self._moved = time.monotonic()
            numbers = np.concatenate([np.empty(0, np.uint64), *self.found])
            numbers.sort()  # in place: of ten million chunks each copy takes 80 MB
            self.stored = StoredChunks(numbers)
        except Exception as error:  # not judged here: `wait` raises it
            self._error = error
        self.state = "failed" if self.stored is None else "done"

    def compact(self) -> ChunkListing:
        """Return the listing without what was found on the way, which its readers may still be about to take."""
        found = ChunkListing(self._place, self._patience, self.stored)
        found.begun, found.directory = self.begun, self.directory
        return found

    def end(self) -> None:
        """Let the readers go on, now that all of them can see what was found."""
        self._over.set()

    def queue(self) -> None:
        """Note that this listing runs next, because the one before it is over. Its readers' patience begins now."""
        self._moved = time.monotonic()

    def wait(self, seconds: float) -> StoredChunks | None:
        """What is stored; None if that is not known in time. TimedOut when the store has stopped answering."""
        if not self._over.is_set():
            before_waiting()
        if not self._over.wait(seconds):
            if time.monotonic() - self._moved > self._patience:
                raise TimedOut(f"{self._place}: the store has stopped listing its chunks")
            return None
        if self._error is not None:
            raise anew(self._error)
        return self.stored

    def arriving(self) -> Iterator[Numbers | None]:
        """The numbers while the store gives them, in its order; None when there are no new ones for LOOK_SECONDS."""
        position = 0
        while True:
            over = self._over.is_set()
            while position < len(self.found):
                yield self.found[position]
                position += 1
            if over:
                self.wait(0.0)  # a listing that failed has not found everything
                return
            if self.wait(LOOK_SECONDS) is None and position == len(self.found):
                yield None


class _Directory:
    """The last listing that was done, the one that is running, and the one that waits for that."""

    def __init__(self) -> None:
        self.last: ChunkListing | None = None
        self.running: ChunkListing | None = None
        self.waiting: ChunkListing | None = None

    @property
    def stored(self) -> StoredChunks | None:
        return self.last.stored if self.last is not None else None

    def next(self) -> ChunkListing | None:
        """Note that the running listing is over, and return the one that waited for it, if any, as the running one."""
        if self.running is not None and self.running.state == "done":
            self.last = self.running.compact()
        self.running, self.waiting = self.waiting, None
        return self.running


class FlatDirectories:
    """The flat chunk directories of one store; what is known of the least recently used ones is forgotten first.

    `patience`: seconds without anything from the store until readers give up.
    """

    def __init__(
        self,
        store: Store,
        budget: int = STORED_BYTES,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._store = store
        self._budget = budget
        self._patience = patience
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[Key, Hashable], _Directory] = OrderedDict()
        register(self)

    def clear(self) -> None:
        """Forget all listings but those that are under way."""
        with self._lock:
            for key in [key for key, directory in self._known.items() if directory.running is None]:
                del self._known[key]

    def join(self, key: Key, variant: Hashable, read: Read) -> ChunkListing:
        """A listing that tells what the directory `key` holds now, begun if need be.

        `variant` tells apart different grids and spellings at the same key. A listing that began before the directory's last
        change does not serve: then the one after it is returned.
        """
        with self._lock:
            directory = self._known.setdefault((key, variant), _Directory())
            self._known.move_to_end((key, variant))
            last = directory.last
        if last is not None and last.begun >= context.as_of:
            used(last.begun)
            return last
        try:
            now = self._store.stat(key)
        except NotFound:
            directory.last = None
            return ChunkListing("", self._patience, NOTHING)
        with self._lock:
            for listing in (directory.last, directory.running, directory.waiting):
                if listing is not None and self._does(listing, now):
                    return listing
            new = ChunkListing(self._store.describe(key), self._patience)
            if directory.running is not None:
                directory.waiting = new
                return new
            directory.running = new
            confinement.start(partial(self._work, key, directory, read), "fsbridge-index")
            return new

    def _does(self, listing: ChunkListing, now: Stat) -> bool:
        """True if a listing serves for the directory as its stat `now` describes it."""
        if listing.state == "waiting":
            return True
        then = listing.directory
        if then is None or listing.state == "failed":
            return False
        if then.version is None:  # the store cannot tell whether the directory has changed
            return listing.begun >= context.as_of
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

    def peek(self, key: Key, variant: Hashable) -> StoredChunks | None:
        """What was listed last, which may be out of date."""
        with self._lock:
            directory = self._known.get((key, variant))
        return directory.stored if directory is not None else None

    def _trim(self) -> None:
        with self._lock:
            total = 0
            for age, (key, directory) in enumerate(reversed(list(self._known.items()))):
                stored = directory.stored
                total += DIRECTORY_BYTES + (stored.nbytes if stored is not None else 0)
                if total > self._budget and age:
                    del self._known[key]
