"""Read-ahead of directories: a program that enters a directory after its sibling will enter the next siblings, too.

In a local store, one job on one thread reads the directory and its next siblings, until 10 ms are over. Without it a walk of
small directories takes twice as long, most of it for handing each one to a thread and back. The directories below each
sibling are read with it if they are few. In a remote store, where reading is waiting, each sibling is a job of its own.
Siblings come in the order of the listing or of their names, chunk directories in that of their numbers. Not here: what was
read (`directories.py`), read-ahead within a long listing (`__init__.py`) and of files (`files.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeAlias, cast

import trio

from fsbridge.errors import FsbridgeError
from fsbridge.kernel.ages import Ages
from fsbridge.kernel.directories import Directories, read_directory, read_tree
from fsbridge.kernel.handles import KnownListing
from fsbridge.kernel.inodes import InodeTable
from fsbridge.kernel.jobs import Jobs
from fsbridge.kernel.limits import USUAL, KernelLimits
from fsbridge.kernel.records import HELD, Record
from fsbridge.threads.deadlines import Stopwatch
from fsbridge.threads.workers import Workers
from fsbridge.tree import Directory, Space

MOST_SIBLINGS = 64
"""Most directories that are read at a time."""

GAP = 4
"""A program is followed if one of so many siblings before was read: a chunk directory may not exist, others be left out."""

_Sibling: TypeAlias = tuple[int, Callable[[], KnownListing | None]]
"""The inode of a directory, and what reads it."""


class Siblings:
    """The directories that are being read ahead. For the event loop's thread."""

    def __init__(
        self,
        inodes: InodeTable,
        directories: Directories,
        jobs: Jobs,
        ages: Ages,
        threads: Workers,
        remote: bool,
        limits: KernelLimits = USUAL,
    ) -> None:
        """Take what read-ahead needs; the directories it reads are handed to `directories`.

        `threads`: one thread if the store is local, because two would slow each other and the event loop down. `remote`:
        True if all reads wait for a server. Chunk directories are not read then, because that takes further requests.
        """
        self._inodes = inodes
        self._directories = directories
        self._jobs = jobs
        self._ages = ages
        self._threads = threads
        self._remote = remote
        self._limits = limits
        self._awaited: dict[int, trio.Event] = {}  # the directories being read, and what is set when they have been
        # Chunk directories that were read and not entered yet, by the first number of their space. The kernel may not know
        # them, so it may never send a `forget` for them.
        self._unentered: dict[int, set[int]] = {}

    def __len__(self) -> int:
        return self.reading + len(self._unentered)

    @property
    def reading(self) -> int:
        """Return the number of directories that are being read now."""
        return len(self._awaited)

    def forget_space(self, base: int) -> None:
        """Forget what was read of the space with the range at `base`: the kernel has forgotten it, or it was parked."""
        for inode in self._unentered.pop(base, ()):
            self._directories.forget(inode)

    def clear(self) -> None:
        """Forget which chunk directories were not entered."""
        self._unentered.clear()

    async def note_entering(self, inode: int, known: bool) -> None:
        """Have the directory `inode` and its next siblings read. `known`: what it contains is in memory.

        Waits for it, but not for long.
        """
        if self._unentered and (place := self._inodes.place(inode)) is not None:
            self._unentered.get(inode - place.position, set()).discard(inode)
        late = any(read.is_set() for read in self._awaited.values())
        if self._remote or not (known or late or inode in self._awaited):
            self._read_next(inode)
        if not known and (read := self._awaited.get(inode)) is not None:
            with trio.move_on_after(self._limits.wait_seconds):
                await read.wait()
            read.set()  # if it is late, nobody else waits for anything in the same job, or gives the thread another one

    def _is_ahead(self, inode: int) -> bool:
        """True if read-ahead is reading the directory `inode` now, or has read it and no program has entered it since."""
        reading = self._directories.peek(inode)
        return inode in self._awaited or (reading is not None and not reading.entered)

    def _read_next(self, inode: int) -> None:
        """Have workers read a directory and the siblings that will probably be entered next."""
        record = self._inodes.record(inode)
        siblings = self._find_numbered(inode) if record is None else self._find_named(record)
        batch = [one for one in siblings if one[0] not in self._awaited and self._directories.find_young(one[0]) is None]
        if self._remote:  # what is known here of a remote directory may be too old at once, for it comes from one listing
            batch = [one for one in batch if not self._is_ahead(one[0])]
        for job in [[one] for one in batch] if self._remote else [batch] if batch else []:
            read = trio.Event()
            self._awaited.update((number, read) for number, _ in job)
            self._threads.submit(partial(self._read, job), partial(self._jobs.on_loop, partial(self._keep, job, ())))

    def _find_named(self, record: Record) -> Sequence[_Sibling]:
        above, parent = self._directories.find(record.parent), record.parent
        if above is None:
            return ()
        read = partial(read_directory if self._remote else read_tree, self._ages, self._limits)
        for names, at in above.orders(record.name):
            following = self._find_following(at, range(len(names)), partial(self._inode, parent, names))
            if following:
                members = [self._inodes.member(parent, names[number]) for number in following]
                return [(member.inode, partial(_read_record, member, read)) for member in members if member is not None]
        return ()

    def _inode(self, parent: int, names: Sequence[bytes], position: int) -> int | None:
        return self._inodes.named(parent, names[position])

    def _find_numbered(self, inode: int) -> Sequence[_Sibling]:
        node = self._inodes.find(inode)
        if self._remote or isinstance(node, HELD) or node.slot is None:
            return ()
        space, position = node.slot
        base = inode - position
        following = self._find_following(position, space.level(position), lambda position: base + position)
        return [(base + number, partial(_read_numbered, self._ages, self._limits, space, number)) for number in following]

    def _find_following(self, at: int, level: range, inode: Callable[[int], int | None]) -> range:
        """Return the positions to read, from `at` on: up to twice as many as were read before it, none if none was.

        `level`: the positions of all siblings.
        """

        def number(position: int) -> int:
            return (inode(position) if position in level else None) or 0

        def is_read(position: int) -> bool:
            reading = self._directories.peek(number(position))
            read = reading is not None and (self._remote or not self._directories.is_expired(reading))
            return read or number(position) in self._awaited

        depth = 1
        while depth < MOST_SIBLINGS and any(is_read(at - depth - gap) for gap in range(GAP)):
            depth *= 2
        if depth == 1 or (self._remote and self._is_ahead(number(at + depth // 2))):  # not yet worth a job
            return range(0)
        return range(at, min(at + depth, level.stop))

    def _read(self, job: Sequence[_Sibling]) -> None:
        """Read directories, on one of the workers' threads. Failures are left to the request that asks for the directory."""
        readings: list[tuple[int, KnownListing]] = []
        begun = Stopwatch()
        try:
            for inode, read in job:
                with suppress(FsbridgeError, OSError):
                    if (reading := read()) is not None:
                        readings.append((inode, reading))
                if begun.seconds > self._limits.batch_seconds:
                    break
        finally:
            self._jobs.on_loop(partial(self._keep, job, readings))

    def _keep(self, job: Sequence[_Sibling], readings: Sequence[tuple[int, KnownListing]]) -> None:
        """Keep what `job` has read, and wake the requests that wait for it."""
        for inode, reading in readings:
            self._directories.remember(inode, reading)
            place = self._inodes.place(inode)
            if place is not None and place.name is None and inode != job[0][0]:
                self._unentered.setdefault(inode - place.position, set()).add(inode)
        for inode, _ in job:
            self._awaited.pop(inode).set()


def _read_record(record: Record, read: Callable[[Directory], KnownListing | None]) -> KnownListing | None:
    """Open the directory of an ordinary inode and return what `read` makes of it. Blocks."""
    return read(cast(Directory, record.open()))


def _read_numbered(ages: Ages, limits: KernelLimits, space: Space, position: int) -> KnownListing | None:
    """Read all of a chunk directory; None also if it is empty, because it may not exist. Blocks."""
    reading = read_directory(ages, limits, cast(Directory, space.node(position)))
    return reading if reading is not None and reading.batches else None
