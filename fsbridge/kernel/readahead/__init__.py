"""The one interface between requests and read-ahead: `filesystem.py` says what it was asked, and gets nothing in return.

So read-ahead changes when an answer comes, and never which answer: with `NoReadAhead` (`--no-read-ahead`) a mount shows the
same. Everything here belongs to the event loop's thread. Not here: which files, listings and directories are wanted next
(`files.py`, `directories.py`), how they are made (`threads/workers.py`).
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from fsbridge.config import Config
from fsbridge.kernel.ages import Ages
from fsbridge.kernel.directories import Directories
from fsbridge.kernel.handles import Listing, OpenFile
from fsbridge.kernel.inodes import InodeTable
from fsbridge.kernel.jobs import Jobs
from fsbridge.kernel.lanes import Abandoned, Subject
from fsbridge.kernel.limits import USUAL, KernelLimits
from fsbridge.kernel.readahead.directories import Siblings
from fsbridge.kernel.readahead.files import REMOTE, REMOTE_MAKERS, REMOTE_THREADS, THREADS, Readers
from fsbridge.threads.workers import Workers
from fsbridge.tree import AnyNode, Space

READY_BATCHES = 2
"""Batches of a listing that are kept ready, which is some thousand entries."""


class NoReadAhead:
    """Prefetch nothing. This base class is the interface of read-ahead, with no effect at all."""

    def __len__(self) -> int:
        """Return the number of directories being read ahead plus that of spaces with directories read but not entered."""
        return 0

    def note_opening(self, node: AnyNode, seen: bool) -> None:
        """Note that a file is about to be opened. `seen`: it was open before, so the kernel may have its bytes."""

    def note_open(self, file: OpenFile) -> None:
        """Note that a file is open."""

    def note_read(self, file: OpenFile, start: int, stop: int) -> None:
        """Note that the bytes [start, stop) of an open file have been read."""

    def note_listing(self, listing: Listing) -> None:
        """Note that a directory is open."""

    def note_progress(self, listing: Listing) -> None:
        """Note that the kernel has taken more than the beginning of a listing."""

    async def note_entering(self, inode: int, known: bool) -> None:
        """Note that a directory is about to be opened; `known`: what it contains is in memory.

        Waits a moment if that directory is just being read ahead, else not at all.
        """

    def forget_space(self, base: int, space: Space | None) -> None:
        """Forget a space, because the kernel knows none of its inodes any more. Their numbers began at `base`."""

    def clear(self) -> None:
        """Forget what was read ahead and is kept here."""


class ReadAhead(NoReadAhead):
    """Read-ahead of files, of long listings, and of directories that are entered one after the other."""

    def __init__(
        self,
        config: Config,
        inodes: InodeTable,
        directories: Directories,
        jobs: Jobs,
        ages: Ages,
        report: Callable[[Exception], object],
        limits: KernelLimits = USUAL,
    ) -> None:
        """`directories` keeps what is read ahead of directories; `report` gets bugs, on the thread where they happen."""
        self._remote = remote = config.is_remote
        threads = Workers("ahead", REMOTE_THREADS if remote else THREADS, report)
        makers = Workers("make", REMOTE_MAKERS, report) if remote else threads
        self.readers = Readers(threads, REMOTE if remote else None, makers)
        walk = threads if remote else Workers("walk", 1, report)
        self.siblings = Siblings(inodes, directories, jobs, ages, walk, remote, limits)
        self._directories = directories
        self._jobs = jobs
        self._ages = ages
        self._seconds = config.metadata_deadline

    def __len__(self) -> int:
        return len(self.siblings)

    def note_opening(self, node: AnyNode, seen: bool) -> None:
        if self._remote:  # what comes next is sent meanwhile
            self.readers.note_open(node.slot, again=seen)

    def note_open(self, file: OpenFile) -> None:
        if not self._remote:
            self.readers.note_open(file.slot, file.size)

    def note_read(self, file: OpenFile, start: int, stop: int) -> None:
        self.readers.note_read(file, start, stop)

    def note_listing(self, listing: Listing) -> None:
        self.readers.note_listing(listing.directory, listing.first)

    def note_progress(self, listing: Listing) -> None:
        # The next batch is read from the store while the kernel takes this one; in a remote store a batch takes requests.
        if not self._remote and listing.coming is None and listing.goes_on(READY_BATCHES):
            listing.coming = trio.Event()
            trio.lowlevel.spawn_system_task(self._read_on, listing)

    async def note_entering(self, inode: int, known: bool) -> None:
        if self._ages.remembers:  # otherwise a listing read ahead would be too old
            await self.siblings.note_entering(inode, known)

    def forget_space(self, base: int, space: Space | None) -> None:
        self.siblings.forget_space(base)
        self.readers.forget(space)

    def clear(self) -> None:
        self.siblings.clear()

    async def _read_on(self, listing: Listing) -> None:
        """Read batches of a listing, one job at a time on the metadata lane, until enough of them are ready."""

        def read() -> None:
            with self._ages.begin_listing(listing.shown.extent):
                listing.ahead()

        while (coming := listing.coming) is not None:
            deadline = trio.current_time() + self._seconds
            try:
                await self._jobs.metadata.run(read, deadline, subject=Subject(listing.inode, None))
                # The kernel asks for nothing while its reader looks at the entries it has: there is room for more.
                listing.coming = trio.Event() if listing.goes_on(READY_BATCHES) else None
                if (reading := listing.whole()) is not None:
                    self._directories.remember(listing.inode, reading)
            except Abandoned:
                return  # `coming` stays: the next request gets TimedOut, because the job still works on this listing
            except Exception:  # any error has ended the stream: the next request begins anew, and meets it
                listing.coming = None
            finally:
                coming.set()
