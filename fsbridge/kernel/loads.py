"""Reads of open files on workers: one for all who wait for the same file meanwhile, since it may decode what they want, too.

Statements between two `await`s run alone, which the table of reads relies on. Not here: what is in memory already (`peek`),
replies (`filesystem.py`), the workers (`jobs.py`).
"""

from __future__ import annotations

from collections.abc import Hashable

import trio

from fsbridge.errors import TimedOut
from fsbridge.kernel.handles import OpenFile
from fsbridge.kernel.jobs import Abandoned, Lane
from fsbridge.kernel.overdue import Subject
from fsbridge.tree import Buffer


class Loads:
    """The reads under way of one mount, of `seconds` each at most."""

    def __init__(self, lane: Lane, seconds: float) -> None:
        self._lane = lane
        self._seconds = seconds
        self._under_way: dict[tuple[int, Hashable], trio.Event] = {}

    async def read(self, file: OpenFile, offset: int, size: int, subject: Subject) -> Buffer:
        """`size` bytes of the file from `offset` on. Who comes while it is being read waits without a thread. TimedOut."""
        lane, handle, key = self._lane, file.handle, (file.inode, file.version)
        deadline = trio.current_time() + min(self._seconds, lane.overdue.patience(subject))
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
            raise  # the read goes on without us: until it is over nobody else may take a thread for the same file
        except BaseException:
            over(None)
            raise
        over(None)
        return data
