"""The one interface between requests and read-ahead: `filesystem.py` says what it was asked, and gets nothing in return.

So read-ahead changes when an answer comes, and never which answer: with `NoReadAhead` (`--no-read-ahead`) a mount shows the
same. Everything here belongs to the event loop's thread. Not here: which files, listings and directories are wanted next
(`files.py`, `listings.py`, `directories.py`), how they are made (`workers.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from fsbridge.config import Config
from fsbridge.kernel.ages import Ages
from fsbridge.kernel.directories import Directories
from fsbridge.kernel.handles import Listing, OpenFile
from fsbridge.kernel.inodes import InodeTable
from fsbridge.kernel.jobs import Jobs
from fsbridge.kernel.readahead.directories import Walks
from fsbridge.kernel.readahead.files import REMOTE, REMOTE_MAKERS, REMOTE_THREADS, THREADS, Readers
from fsbridge.kernel.readahead.listings import ListingAhead
from fsbridge.tree import AnyNode, Space
from fsbridge.workers import Workers


class NoReadAhead:
    """Prefetch nothing. This base class is the interface of read-ahead, with no effect at all."""

    def __len__(self) -> int:
        """Return the number of walks followed and of directories being read ahead."""
        return 0

    def opening(self, node: AnyNode, seen: bool) -> None:
        """A file is about to be opened. `seen`: it was open before, so that the kernel may have its bytes."""

    def opened(self, file: OpenFile) -> None:
        """A file is open."""

    def read(self, file: OpenFile, start: int, stop: int) -> None:
        """Bytes [start, stop) of an open file have been read."""

    def listed(self, listing: Listing) -> None:
        """A directory is open."""

    def shown(self, listing: Listing) -> None:
        """The kernel has taken more than the beginning of a listing."""

    async def entered(self, inode: int, known: bool) -> None:
        """A directory is about to be opened; `known`: what it contains is in memory.

        Returns late, if at all, only while that directory is being read ahead.
        """

    def forgotten(self, inode: int) -> None:
        """The kernel knows an inode no more."""

    def forgotten_space(self, base: int, space: Space | None) -> None:
        """The kernel no longer knows any inode of a space; the numbers of its range began at `base`."""

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
    ) -> None:
        """`directories` gets what is read of them; `report` gets bugs, on the threads that meet them."""
        self._remote = remote = config.is_remote
        threads = Workers("ahead", REMOTE_THREADS if remote else THREADS, report)
        makers = Workers("make", REMOTE_MAKERS, report) if remote else threads
        self.readers = Readers(threads, REMOTE if remote else None, makers)
        self.walks = Walks(inodes, directories, jobs, Workers("walk", 1, report), threads, ages, remote)
        self._listings = ListingAhead(jobs, directories.remember, ages, config.metadata_deadline)
        self._remembers = config.immutable or config.metadata_ttl > 0  # otherwise a listing read ahead would be too old

    def __len__(self) -> int:
        return len(self.walks)

    def opening(self, node: AnyNode, seen: bool) -> None:
        if self._remote:  # what comes next is sent meanwhile
            self.readers.opened(node.slot, again=seen)

    def opened(self, file: OpenFile) -> None:
        if not self._remote and not file.quick:
            self.readers.opened(file.slot, file.size)

    def read(self, file: OpenFile, start: int, stop: int) -> None:
        self.readers.read(file, start, stop)

    def listed(self, listing: Listing) -> None:
        self.readers.listed(listing.directory, listing.first)

    def shown(self, listing: Listing) -> None:
        if not self._remote:  # in a remote store a batch takes requests
            self._listings.shown(listing)

    async def entered(self, inode: int, known: bool) -> None:
        if self._remembers:
            await self.walks.entered(inode, known)

    def forgotten(self, inode: int) -> None:
        self.walks.forget(inode)

    def forgotten_space(self, base: int, space: Space | None) -> None:
        self.walks.forget_space(base)
        self.readers.forget(space)

    def clear(self) -> None:
        self.walks.clear()


def read_ahead(
    config: Config,
    inodes: InodeTable,
    directories: Directories,
    jobs: Jobs,
    ages: Ages,
    report: Callable[[Exception], object],
) -> NoReadAhead:
    """Return the read-ahead of one mount, see `ReadAhead`."""
    return ReadAhead(config, inodes, directories, jobs, ages, report) if config.read_ahead else NoReadAhead()
