"""The access log: one line of JSON for each opened file and each read that was not answered from memory.

A thread writes it, because the event loop may not wait for a disk. Not here: what counts as an access (`kernel/`), the
log of what happens (`logs.py`).
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import NamedTuple

from fsbridge.errors import SetupError

QUEUED_LINES = 10_000
"""Most lines that wait for a slow disk. Further ones are dropped; the next written line says how many."""


def open_log(path: str) -> int:
    """Open the access log at `path` for appending; SetupError if it cannot be written."""
    try:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SetupError(f"access log {path}: {error.strerror}") from None


class _Access(NamedTuple):
    time: datetime
    what: str
    path: str
    offset: int
    size: int
    seconds: float


class AccessLog:
    """Writes to `descriptor`, which it owns, until `close`. `path` gives the path of an inode."""

    def __init__(self, descriptor: int, path: Callable[[int], str]) -> None:
        self._descriptor = descriptor
        self._path = path
        self._queue: SimpleQueue[_Access | None] = SimpleQueue()
        self._lost = 0
        threading.Thread(target=self._write, name="fsbridge-accesses", daemon=True).start()

    def tell(self, what: str, inode: int, offset: int, size: int, seconds: float) -> None:
        """Have an access written. Does not block; for the event loop."""
        if self._queue.qsize() < QUEUED_LINES:
            self._queue.put(_Access(datetime.now(UTC), what, self._path(inode), offset, size, seconds))
        else:
            self._lost += 1

    def close(self) -> None:
        """Have the queued lines written and the file closed. Does not wait."""
        self._queue.put(None)

    def _write(self) -> None:
        while (access := self._queue.get()) is not None:
            lost, self._lost = self._lost, 0
            line = {
                "time": access.time.isoformat(timespec="milliseconds"),
                "what": access.what,
                "path": access.path,
                "offset": access.offset,
                "size": access.size,
                "milliseconds": round(access.seconds * 1000, 3),
            }
            if lost:
                line["lost_before"] = lost
            try:
                os.write(self._descriptor, json.dumps(line).encode() + b"\n")
            except OSError:  # a full disk: it is told by the next line that can be written
                self._lost += lost + 1
        os.close(self._descriptor)
