"""Reads of open files and of open directories on workers.

A version of a file is read by one job at a time. That job may decode what other reads want, too, so they wait without
taking a thread.
Statements between two `await`s run alone, which the table of reads relies on. Not here: what is in memory already (`peek`),
replies (`filesystem.py`), the workers (`jobs.py`).
"""

from __future__ import annotations

from collections.abc import Hashable

import trio

from fsbridge.config import Config
from fsbridge.errors import TimedOut
from fsbridge.kernel.ages import Ages
from fsbridge.kernel.handles import Listing, OpenFile
from fsbridge.kernel.jobs import Abandoned, Jobs
from fsbridge.kernel.overdue import Subject
from fsbridge.tree import Buffer


class Loads:
    """The reads under way of one mount. For the event loop's thread."""

    def __init__(self, jobs: Jobs, config: Config, ages: Ages) -> None:
        self._jobs = jobs
        self._ages = ages
        self._config = config
        self._under_way: dict[tuple[int, Hashable], trio.Event] = {}

    async def read(self, file: OpenFile, offset: int, size: int, subject: Subject) -> Buffer:
        """Return `size` bytes of the file from `offset` on. Raises TimedOut, and the errors of the read."""
        lane, handle, key = self._jobs.data, file.handle, (file.inode, file.version)
        deadline = trio.current_time() + min(self._config.read_deadline, lane.overdue.patience(subject))
        other = self._under_way.get(key)
        if other is not None:
            with trio.CancelScope(deadline=deadline):
                await other.wait()
            if not other.is_set():
                raise TimedOut("no answer from the store within the deadline")
            data = handle.peek(offset, size)
            if data is not None:
                return data
            return await lane.run(lambda: handle.read(offset, size), deadline, subject=subject)
        loaded = trio.Event()

        def over(_result: object) -> None:
            self._under_way.pop(key, None)
            loaded.set()

        self._under_way[key] = loaded
        try:
            data = await lane.run(lambda: handle.read(offset, size), deadline, over, subject)
        except Abandoned:
            raise  # the read goes on without us: until it is over no other request may take a thread for the same file
        except BaseException:
            over(None)
            raise
        over(None)
        return data

    async def list(self, listing: Listing, position: int, rewind: bool) -> None:
        """Move a listing to `position`, or towards it; see `Listing.fetch`. Raises its errors, and TimedOut."""
        deadline = trio.current_time() + self._config.metadata_deadline
        while (coming := listing.coming) is not None:
            with trio.CancelScope(deadline=deadline):
                await coming.wait()
            if listing.coming is coming:
                raise TimedOut("no answer from the store within the deadline")
            if not rewind:
                return

        def fetch() -> None:
            with self._ages.listed(listing.shown.extent):
                listing.fetch(position, rewind)

        await self._jobs.metadata.run(fetch, deadline, subject=Subject(listing.inode, None))
