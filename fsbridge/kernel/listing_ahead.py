"""Read-ahead within a long listing: the next batch is asked of the store while the kernel takes the one before.

Not here: the listing itself (`handles.py`), directories that somebody will enter next (`walks.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import trio

from fsbridge.errors import TimedOut
from fsbridge.kernel.handles import Listing, Reading
from fsbridge.kernel.jobs import Abandoned, Jobs
from fsbridge.kernel.overdue import Subject

READY_BATCHES = 2
"""Batches of a listing that are kept ready, which is some thousand entries."""


class ListingAhead:
    """Has listings read, by jobs on the metadata lane: one at a time of each listing. For the event loop's thread."""

    def __init__(self, jobs: Jobs, remember: Callable[[int, Reading], object], seconds: float, remote: bool) -> None:
        """`remember` gets all of a directory, with its inode, where that is little; `seconds`: the deadline of each job.

        `remote`: nothing is read before it is asked for, since it takes requests.
        """
        self._jobs = jobs
        self._remember = remember
        self._seconds = seconds
        self._remote = remote

    async def fetch(self, listing: Listing, position: int, rewind: bool) -> None:
        """Bring a listing to `position`, or towards it; see `Listing.fetch`. Raises what that does, and TimedOut."""
        deadline = trio.current_time() + self._seconds
        while (coming := listing.coming) is not None:
            with trio.CancelScope(deadline=deadline):
                await coming.wait()
            if listing.coming is coming:
                raise TimedOut("no answer from the store within the deadline")
            if not rewind:
                return
        await self._jobs.metadata.run(
            partial(listing.fetch, position, rewind), deadline, subject=Subject(listing.inode, None)
        )
        if (reading := listing.whole()) is not None:
            self._remember(listing.inode, reading)

    def shown(self, listing: Listing) -> None:
        """The kernel has taken entries of a listing: read on."""
        if not self._remote and listing.coming is None and listing.goes_on(READY_BATCHES):
            listing.coming = trio.Event()
            trio.lowlevel.spawn_system_task(self._read_on, listing)

    async def _read_on(self, listing: Listing) -> None:
        while (coming := listing.coming) is not None:
            deadline = trio.current_time() + self._seconds
            try:
                await self._jobs.metadata.run(listing.ahead, deadline, subject=Subject(listing.inode, None))
                # The kernel asks for nothing while its reader looks at what he has been told: there is room for more.
                listing.coming = trio.Event() if listing.goes_on(READY_BATCHES) else None
                if (reading := listing.whole()) is not None:
                    self._remember(listing.inode, reading)
            except Abandoned:
                return  # whoever asks for more meets it: the abandoned job still works on this listing
            except Exception:  # whatever it is, it has ended the stream: who asks for more begins anew, and meets it
                listing.coming = None
            finally:
                coming.set()
