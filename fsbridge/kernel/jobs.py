"""The lanes of worker threads, and the reads of open files and directories that they do.

The lanes are apart so that reads that hang do not take the threads that listings need. A version of a file is read by one
job at a time. That job may decode what other reads want, too, so they wait without taking a thread. Statements between two
`await`s run alone, which the table of reads relies on.

Not here: how a lane works (`lanes.py`), what is in memory already (`peek`), replies (`filesystem.py`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Hashable

import trio

from fsbridge.config import Config
from fsbridge.errors import TimedOut
from fsbridge.kernel.ages import Ages
from fsbridge.kernel.handles import Listing, OpenFile
from fsbridge.kernel.lanes import Abandoned, Lane, Returns, Subject
from fsbridge.tree import Buffer

METADATA_THREADS = 4
"""Listings and lookups are short; four of them hide the latency of a network disk."""

REMOTE_METADATA_THREADS, REMOTE_DATA_THREADS = 16, 32
"""Threads for a source on the network: they wait for answers, not for a processor."""

DATA_THREADS = (os.cpu_count() or 1) + 2
"""Decoding needs one thread per processor; two more wait for the disk meanwhile."""

SIZE_THREADS, REMOTE_SIZE_THREADS = 2, 8
"""Threads that make a file's bytes only to find its size. They are separate so that file managers never delay readers."""

METADATA_SLOW, DATA_SLOW = 1.0, 5.0
"""Seconds after which a job's thread gets a substitute: far more than a listing step or a chunk takes."""

METADATA_SUSPECTED, DATA_SUSPECTED = 1.0, 10.0
"""Shorter deadline, in seconds, of a job while another one in the same directory hangs, so that waits do not add up."""


class Jobs:
    """All lanes. `start` and `stop` belong to the event loop's thread."""

    def __init__(self, metadata: int = METADATA_THREADS, data: int = DATA_THREADS, sizes: int = SIZE_THREADS) -> None:
        self.metadata = Lane("metadata", metadata, METADATA_SLOW, METADATA_SUSPECTED)
        self.data = Lane("data", data, DATA_SLOW, DATA_SUSPECTED)
        self.sizes = Lane("sizes", sizes, DATA_SLOW, DATA_SUSPECTED, "; the file is still being made: try again later")
        self._returns: Returns | None = None

    @classmethod
    def remote(cls) -> Jobs:
        """Return the lanes for a source on the network."""
        return cls(REMOTE_METADATA_THREADS, REMOTE_DATA_THREADS, REMOTE_SIZE_THREADS)

    def start(self) -> None:
        """Start the threads; called once, inside trio."""
        self._returns = Returns(trio.lowlevel.current_trio_token().run_sync_soon)
        for lane in self._lanes:
            lane.start(self._returns)

    def due(self) -> bool:
        """True if something waits for the event loop: a finished job, or a call of another thread."""
        return self._returns is not None and self._returns.due

    def on_loop(self, call: Callable[[], object]) -> None:
        """Run `call` on the event loop soon, unless the loop has ended. For any thread."""
        if self._returns is not None:
            with contextlib.suppress(trio.RunFinishedError):
                self._returns.put(call)

    def stop(self) -> None:
        """Tell the threads to end; does not wait for them."""
        for lane in self._lanes:
            lane.stop()

    @property
    def running(self) -> int:
        """How many jobs of all lanes are on threads now."""
        return sum(lane.running for lane in self._lanes)

    @property
    def _lanes(self) -> tuple[Lane, ...]:
        return self.metadata, self.data, self.sizes


class Loads:
    """The reads under way of one mount. For the event loop's thread."""

    def __init__(self, jobs: Jobs, config: Config, ages: Ages) -> None:
        self._jobs = jobs
        self._ages = ages
        self._config = config
        self._under_way: dict[tuple[int, Hashable], trio.Event] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    async def read(self, file: OpenFile, offset: int, size: int, subject: Subject) -> Buffer:
        """Return `size` bytes of the file from `offset` on. Raises TimedOut, and the errors of the read."""
        lane, handle, key = self._jobs.data, file.handle, (file.inode, file.version)
        deadline = trio.current_time() + min(self._config.read_deadline, lane.patience(subject))
        other = self._under_way.get(key)
        if other is not None:
            with trio.CancelScope(deadline=deadline):
                await other.wait()
            if not other.is_set():
                raise TimedOut("the store did not answer within the deadline")
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
        """Call `Listing.fetch` on a worker thread. Raises what it raises, and TimedOut."""
        deadline = trio.current_time() + self._config.metadata_deadline
        while (coming := listing.coming) is not None:
            with trio.CancelScope(deadline=deadline):
                await coming.wait()
            if listing.coming is coming:
                raise TimedOut("the store did not answer within the deadline")
            if not rewind:
                return

        def fetch() -> None:
            with self._ages.begin_listing(listing.shown.extent):
                listing.fetch(position, rewind)

        await self._jobs.metadata.run(fetch, deadline, subject=Subject(listing.inode, None))
