"""Open files and open directories of the mount: the handle table and the position in a listing.

Not here: requests and replies (`filesystem.py`), what the handles read (`tree.py`), the kernel's pages (`pages.py`). The
event loop's thread owns everything here, except functions that say that they block: one at a time for each listing.
"""

from __future__ import annotations

import logging
import math
import time
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Generic, TypeVar, cast, overload

import trio

from fsbridge.asking import as_of, before_waiting, context, oldest
from fsbridge.errors import FsbridgeError, Stale
from fsbridge.kernel.ages import Ages
from fsbridge.kernel.limits import USUAL, KernelLimits
from fsbridge.kernel.pages import Scattered
from fsbridge.kernel.records import HELD, Parked, Record, open_node
from fsbridge.threads.deadlines import Deadline, Stopwatch
from fsbridge.tree import MAX_NAME, AnyNode, Attrs, Contents, Dated, Directory, Entry, File, Handle, Numbered

log = logging.getLogger(__name__)

T = TypeVar("T")

DIRECTORY_BYTES, ENTRY_BYTES, NUMBERED_BYTES = 1600, 300, 16
"""Bytes of memory, roughly, of a directory that is kept with its whole listing, of each entry, and of each numbered entry.

Measured for small arrays of three directories each: with their open documents they take 5.5 KiB.
"""

FIRST_ENTRIES = 16
"""Number of entries among which a listing's first chunk is looked for: only a few documents precede it."""


class HandleTable(Generic[T]):
    """Numbers for open things. Numbers are never given twice."""

    def __init__(self) -> None:
        self._open: dict[int, T] = {}
        self._next = 1

    def __len__(self) -> int:
        return len(self._open)

    def __getitem__(self, number: int) -> T:
        return self._open[number]

    def get(self, number: int) -> T | None:
        """Return what `number` stands for, or None if it is not open."""
        return self._open.get(number)

    def replace(self, number: int, thing: T) -> None:
        """Make an open number stand for `thing` from now on."""
        self._open[number] = thing

    def add(self, thing: T) -> int:
        """Return a new number for an opened thing."""
        number = self._next
        self._next += 1
        self._open[number] = thing
        return number

    def pop(self, number: int) -> T:
        """Remove a number and return what it stood for."""
        return self._open.pop(number)


class ReadProgress:
    """How far an open file has been read, for read-ahead."""

    __slots__ = ("ahead", "asked", "begun", "ended", "followed")

    def __init__(self) -> None:
        self.ended = False  # true once its last byte was read
        self.followed = 0  # the reader's position
        self.begun = 0  # where the reader began to read from front to back
        self.asked = 0  # bytes that the reader has asked for since
        self.ahead = 0  # up to where bytes were asked for before the reader did


def open_file(holder: Record | Parked | AnyNode, above: Record | Parked | AnyNode | None = None) -> tuple[Handle, bool]:
    """Open the file that `InodeTable.find` returned. May block. The second result is False, but for the case below.

    If the file has changed, raise Stale. The kernel then looks the name up and opens the file again, but only once, so this
    function waits until the new version is settled before it raises.

    `above`: the directory of the file; given only at this second try. If the file has changed again by then, and is a
    numbered one, which has the same size in all versions, open its present version; the second result then is True.
    """
    file = cast(File, open_node(holder))
    try:
        return file.open(), False
    except Stale:
        if above is not None and isinstance(holder, Record):
            present = cast(Directory, open_node(above)).lookup(holder.name)
            if present.slot is not None:
                return cast(File, present).open(), True
        with suppress(FsbridgeError, OSError), as_of(time.monotonic()):  # the look-up that comes next has the same error
            file.settle()
        raise


class OpenFile:
    """One open of a file. `slot`: space and position of a numbered file, else None.

    `unversioned`: its inode stands for several versions, so `PageVersions` watches it.
    """

    __slots__ = ("handle", "inode", "progress", "scattered", "size", "slot", "unversioned", "version")

    def __init__(self, inode: int, handle: Handle, holder: Record | Parked | AnyNode) -> None:
        """`holder`: the node behind the inode."""
        node = holder.node if isinstance(holder, HELD) else holder
        self.inode = inode
        self.slot = None if node is None else node.slot
        self.unversioned = not (isinstance(holder, Record) and holder.versioned)
        self.progress = ReadProgress()
        self.scattered: Scattered | None = None
        self.handle = handle
        self.size = handle.size
        self.version = handle.version

    def watch(self, direct: bool) -> None:
        """Detect programs that pick rows through `mmap`.

        `direct`: the page cache is bypassed, so each request is a program's own.
        """
        self.scattered = Scattered() if self.handle.window and not direct else None


class KnownListing:
    """All of a directory as it was at the time `asked` (`time.monotonic`), for any number of readers (`Listing`).

    `below`: directories below it that were read together with it, chunk directories by position and others by name.
    """

    __slots__ = ("_orders", "asked", "attrs", "batches", "below", "entered", "nbytes", "node", "shown", "used")

    def __init__(self, node: Directory, shown: Contents, batches: Sequence[Sequence[Entry]], asked: float) -> None:
        self.node = node
        self.shown = shown
        self.batches = batches
        self.asked = asked
        self._orders: list[tuple[list[bytes], dict[bytes, int]]] | None = None
        self.attrs: Attrs | None = None
        """Attributes of the directory itself, not older than the rest; None if they were not asked for."""
        self.below: dict[int | bytes, KnownListing] = {}
        self.entered = False
        """True if a program has opened the directory since it was read."""
        self.used = Stopwatch()
        self.nbytes = DIRECTORY_BYTES + sum(map(_nbytes, batches))
        """Memory in bytes, roughly, including that of the directories read with it."""

    def orders(self, name: bytes) -> Iterator[tuple[list[bytes], int]]:
        """Yield the names of all members that are directories and have no number, and the position of `name` in them.

        First they are in the order of the listing, then sorted.
        """
        if self._orders is None:
            entries = (entry for batch in self.batches if not isinstance(batch, Numbered) for entry in batch)
            names = [entry.name for entry in entries if entry.attrs.kind == "directory" and not isinstance(entry.node, int)]
            orders = [names, sorted(names)]
            self._orders = [(order, {member: at for at, member in enumerate(order)}) for order in orders]
        for order, positions in self._orders:
            if name in positions:
                yield order, positions[name]

    def keep(self, member: int | bytes, reading: KnownListing) -> None:
        """Keep what a directory below this one contains."""
        self.below[member] = reading
        self.nbytes += reading.nbytes

    def take(self, member: int | bytes) -> KnownListing | None:
        """Return what `keep` has kept, and keep it no longer."""
        reading = self.below.pop(member, None)
        if reading is not None:
            self.nbytes -= reading.nbytes
        return reading


class Listing:
    """One reader's open directory: a stream of batches and the position in it. It holds few batches, however many there are.

    Positions count entries; 0 is the beginning of a new listing. `reading`: what is known of the directory already.
    """

    # Most listings are in memory as a whole, and change little of this.
    batch: Sequence[Entry] = ()
    start = end = 0
    """Positions of the batch's first entry and of the one behind the last."""
    asked = 0.0
    """When the store was asked for the batch, by the monotonic clock."""
    coming: trio.Event | None = None
    """Present while a job reads the next entries; set when that job is over."""
    _stream: Iterator[Sequence[Entry]] | None = None
    _begun = 0.0
    _collecting = math.inf  # when entries of the next batch may have been asked for already
    _all: list[Sequence[Entry]] | None = None  # entries since the beginning, as long as they are few
    _untouched = False  # true if it was begun before the kernel asked for its beginning
    _ended = False
    _kept = 0  # bytes, roughly, that they take

    def __init__(
        self, inode: int, directory: Directory, reading: KnownListing | None = None, limits: KernelLimits = USUAL
    ) -> None:
        self._limits = limits
        self.inode = inode
        self.directory = directory
        self.reading = reading
        """All entries of the listing, if they were in memory when it was opened."""
        self.shown = cast(Contents, directory)
        """The contents that this listing shows. Its numbered entries are positions in the space of these contents."""
        self._ready: deque[Sequence[Entry]] = deque()
        if reading is not None:
            self.shown = reading.shown
            self._stream = _OVER
            reading.entered = True
            self._ready.extend(reading.batches)
            self._begun = reading.asked
            self._untouched = self._ended = True

    def at(self, position: int) -> bool:
        """Move to `position`, as far as batches in memory reach. True if `batch` then holds it, or the listing is over."""
        while position >= self.end and self._ready:
            self._step(self._ready.popleft())
        return self._stream is not None and position >= self.start and (position < self.end or self._ended)

    def begins(self, ages: Ages) -> bool:
        """True if this request for position 0 may get what `begin` has read: it is the first request, and soon after."""
        untouched, self._untouched = self._untouched, False
        return untouched and ages.may_show_again(self._begun, self.shown.extent, self._limits.just_seconds)

    def begin(self) -> None:
        """Read the first batches after `restart`, or all of a small directory. Blocks: for a worker thread."""
        self._untouched = True
        deadline = Deadline(self._limits.beginning_seconds)
        while self._all is not None and (batch := self._next()) is not None:
            self._ready.append(batch)
            if not batch or deadline.passed:
                break
        self._ready = deque(_merge(self._ready))

    def whole(self) -> KnownListing | None:
        """Return the whole directory; None if it has not been read to its end, or is too large to keep."""
        if not self._ended or self._all is None:
            return None
        reading = KnownListing(self.directory, self.shown, _merge(self._all), self._begun)
        reading.entered = True
        return reading

    def fetch(self, position: int, rewind: bool) -> None:
        """Move the batch to `position` or towards it; `rewind` begins a new listing.

        Blocks: for a worker thread, one at a time. Returns early after an empty batch, which means that the directory is
        still being read: call again.
        """
        if rewind or self._stream is None or position < self.start:
            self.restart()
        while not self._ended and position >= self.end:
            self._step(())
            batch = self._next()
            if batch is not None:
                self._step(batch)
                if not batch:
                    return

    def goes_on(self, ready: int) -> bool:
        """True if there is more to read, and fewer than `ready` batches wait for the kernel."""
        return self._stream is not None and not self._ended and len(self._ready) < ready

    def ahead(self) -> None:
        """Read the next batch. Blocks: for a worker thread, and never beside `fetch`."""
        if self._stream is not None and (batch := self._next()) is not None:
            self._ready.append(batch)

    @property
    def first(self) -> int | None:
        """The position, in its space, of the first numbered entry; None if none has been read so far."""
        batch = self._ready[0] if self._ready else self.batch
        if isinstance(batch, Numbered):
            return cast(int, batch[0].node) if batch else None
        return next((entry.node for entry in batch[:FIRST_ENTRIES] if isinstance(entry.node, int)), None)

    @property
    def holds(self) -> bool:
        """True if the store may hold something open for this listing."""
        return self._stream is not None and not self._ended

    def close(self) -> None:
        """Drop the stream, and with it what the store holds open for it (may block)."""
        self._stream = None
        self.batch, self.end = (), self.start

    def restart(self) -> None:
        """Begin a new listing of the directory's present contents. Blocks: for a worker thread."""
        self._begun, self._collecting = time.monotonic(), math.inf
        self.shown = self.directory.refresh()
        self._stream = iter(self.shown.entries())
        self._ready.clear()
        self._all, self._kept = [], 0
        self.batch, self.start, self.end, self._ended = (), 0, 0, False
        self.reading = None

    def _next(self) -> Sequence[Entry] | None:
        """Return the next batch with the time at which it was asked for; None at the end."""
        stream = self._stream
        assert stream is not None
        try:
            with as_of(context.as_of, context.listed) as answers:
                batch = next(stream, None)
        except BaseException:
            self._stream = None  # after an error it would seem to be at its end, so the next call makes a new one
            raise
        if batch is None:
            self._ended = True
            return None
        asked = min(answers.oldest, self._collecting)
        remembered = asked < self._begun  # the next batches may be of the same answer
        self._collecting = asked if remembered or not batch else math.inf
        shown = _date(batch, asked)
        if self._all is not None:
            self._all.append(packed := _pack(shown))
            self._kept += _nbytes(packed)
            if self._kept > self._limits.listing_bytes:
                self._all = None
        return shown

    def _step(self, batch: Sequence[Entry]) -> None:
        self.start = self.end
        self.batch, self.end = batch, self.end + len(batch)
        if isinstance(batch, _TIMED):
            self.asked = batch.asked


_OVER: Iterator[Sequence[Entry]] = iter(())

_TIMED = (Numbered, Dated)  # isinstance takes several times as long for a union as for a tuple


def all_batches(shown: Contents, limits: KernelLimits = USUAL) -> list[Sequence[Entry]] | None:
    """Return everything that a listing shows, in few batches; None if that is too much or takes long.

    Blocks; raises the listing's errors.
    """
    deadline = Deadline(limits.beginning_seconds)
    room = limits.listing_bytes
    batches: list[Sequence[Entry]] = []
    for batch in shown.entries():
        batches.append(_pack(_date(batch, oldest())))
        room -= _nbytes(batches[-1])
        if room < 0 or deadline.passed:
            return None
    return _merge(batches)


class _Pairs(Sequence[tuple[int, int]]):
    """The numbers and mtimes of a `Numbered` batch that is kept. As a list of tuples they would take eight times as much."""

    __slots__ = ("_mtimes", "_numbers")

    def __init__(self, numbers: array[int], mtimes: array[int]) -> None:
        self._numbers = numbers
        self._mtimes = mtimes

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> tuple[int, int]: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[tuple[int, int]]: ...

    def __getitem__(self, index: int | slice) -> tuple[int, int] | Sequence[tuple[int, int]]:
        if isinstance(index, slice):
            return _Pairs(self._numbers[index], self._mtimes[index])
        return self._numbers[index], self._mtimes[index]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._numbers, self._mtimes, strict=True)


def _pack(batch: Sequence[Entry]) -> Sequence[Entry]:
    """Return a batch that takes less memory if it is `Numbered`."""
    if not isinstance(batch, Numbered):
        return batch
    try:
        numbers, mtimes = array("q", [number for number, _ in batch.pairs]), array("q", [time for _, time in batch.pairs])
    except OverflowError:  # a time before 1677 or after 2262
        return batch
    return replace(batch, pairs=_Pairs(numbers, mtimes))


def _nbytes(batch: Sequence[Entry]) -> int:
    packed = isinstance(batch, Numbered) and isinstance(batch.pairs, _Pairs)
    return len(batch) * (NUMBERED_BYTES if packed else ENTRY_BYTES)


def _date(batch: Sequence[Entry], asked: float) -> Sequence[Entry]:
    shown = _leave_out_impossible(batch)
    return replace(shown, asked=asked) if isinstance(shown, Numbered) else Dated(shown, asked)


def _merge(batches: Iterable[Sequence[Entry]]) -> list[Sequence[Entry]]:
    """Return the entries in fewer batches, because each batch costs the kernel a request."""
    merged: list[Sequence[Entry]] = []
    for batch in batches:
        if not batch:
            continue
        last = merged[-1] if merged else None
        if isinstance(batch, Dated) and isinstance(last, Dated):
            merged[-1] = Dated([*last, *batch], min(last.asked, batch.asked))
        else:
            merged.append(batch)
    return merged


def _leave_out_impossible(batch: Sequence[Entry]) -> Sequence[Entry]:
    """Return the batch without names that would make the kernel refuse the whole listing."""
    if isinstance(batch, Numbered):
        return batch
    for entry in batch:
        name = entry.name
        if not _is_possible(name):
            log.warning("a listing has the impossible name %r; it is left out", name)
            return [entry for entry in batch if _is_possible(entry.name)]
    return batch


def _is_possible(name: bytes) -> bool:
    return 0 < len(name) <= MAX_NAME and b"/" not in name and b"\0" not in name and name not in (b".", b"..")


def open_listing(inode: int, ages: Ages, limits: KernelLimits, node: AnyNode) -> Listing:
    """Return a new listing of a directory, with its beginning read. Blocks; raises an error if the directory is gone."""
    before_waiting()
    directory = cast(Directory, node)
    with ages.begin_listing(directory.extent):
        listing = Listing(inode, directory, limits=limits)
        listing.restart()  # this asks for the present state, so the attributes need not
        attrs = node.attrs()
        try:
            listing.begin()
            listing.reading = listing.whole()
            if listing.reading is not None:
                listing.reading.attrs, listing.reading.asked = attrs, oldest()
            return listing
        except Exception:  # any error: the request for the entries meets it again
            return Listing(inode, directory, limits=limits)
