"""Read-ahead within a long listing: the next batch is read from the store while the kernel takes the one before.

Not here: the listing itself (`kernel/handles.py`), directories that will be entered next (`directories.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import trio

from fsbridge.kernel.ages import Ages
from fsbridge.kernel.handles import Listing, Reading
from fsbridge.kernel.jobs import Abandoned, Jobs
from fsbridge.kernel.overdue import Subject

READY_BATCHES = 2
"""Batches of a listing that are kept ready, which is some thousand entries."""


class ListingAhead:
    """Has listings read, by jobs on the metadata lane: one at a time of each listing. For the event loop's thread."""

    def __init__(self, jobs: Jobs, remember: Callable[[int, Reading], object], ages: Ages, seconds: float) -> None:
        """`remember` gets the inode and all members of a directory if they are few; `seconds`: the deadline of each job."""
        self._jobs = jobs
        self._remember = remember
        self._ages = ages
        self._seconds = seconds

    def shown(self, listing: Listing) -> None:
        """Read the next batch, because the kernel has taken entries of a listing."""
        if listing.coming is None and listing.goes_on(READY_BATCHES):
            listing.coming = trio.Event()
            trio.lowlevel.spawn_system_task(self._read_on, listing)

    async def _read_on(self, listing: Listing) -> None:
        ahead = partial(self._asked, listing, listing.ahead)
        while (coming := listing.coming) is not None:
            deadline = trio.current_time() + self._seconds
            try:
                await self._jobs.metadata.run(ahead, deadline, subject=Subject(listing.inode, None))
                # The kernel asks for nothing while its reader looks at the entries it has: there is room for more.
                listing.coming = trio.Event() if listing.goes_on(READY_BATCHES) else None
                if (reading := listing.whole()) is not None:
                    self._remember(listing.inode, reading)
            except Abandoned:
                return  # the next request meets it: the abandoned job still works on this listing
            except Exception:  # any error has ended the stream: the next request begins anew, and meets it
                listing.coming = None
            finally:
                coming.set()

    def _asked(self, listing: Listing, step: Callable[[], None]) -> None:
        """Run `step`, which reads the listing, with answers as old as a listing may use. Blocks."""
        with self._ages.listed(listing.shown.extent):
            step()
