"""The daemon's side of the process that reads a Hangar repository's databases: started when needed, again after a crash.

One process for all databases of a repository, over the client and the messages of the HDF5 processes. Thread-safe. Not here:
the other side (`lmdb.py`), what is asked and why (`repository.py`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import Any

from fsbridge.children.client import Child, ChildDied
from fsbridge.errors import CorruptData, FsbridgeError

log = logging.getLogger(__name__)

MODULE = "fsbridge.formats.hangar.lmdb"
ANSWER_LIMIT = 260 << 20
"""Bytes of values in one answer: `hangar_lmdb.VALUE_LIMIT`, and a page of a scan with one such value."""
CRASHES, CRASH_WINDOW = 3, 60.0
"""A process that crashes this often within so many seconds is not started again before the time is over."""


class DatabaseProcess:
    """Answers about the databases below `root`, within `seconds` each."""

    def __init__(self, root: str, seconds: float) -> None:
        self._root = root
        self._seconds = seconds
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._crashes: deque[float] = deque(maxlen=CRASHES)
        self._closed = False

    def ask(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytearray]:
        """The answer and its values. Raises CorruptData for a damaged database, Stale for one that changes too fast."""
        child = self._ready()
        try:
            answer, attachments = child.ask(request, ANSWER_LIMIT, self._seconds)
        except ChildDied as error:
            self._crashed(child)
            raise CorruptData(f"{self._root}/{request['path']}: {error}") from None
        except FsbridgeError as error:
            raise error.at(self._root) from None
        return answer, attachments[0] if attachments else bytearray()

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._closed = True
            child, self._child = self._child, None
        if child is not None:
            child.close()

    def _ready(self) -> Child:
        with self._lock:
            if self._closed:
                raise CorruptData(f"{self._root}: closed")
            if self._child is not None and not self._child.alive:  # somebody else ended it: no question's fault
                self._ended()
            if self._child is None:
                if len(self._crashes) == CRASHES and time.monotonic() - self._crashes[0] < CRASH_WINDOW:
                    raise CorruptData(f"{self._root}: the database process ended {CRASHES} times within a minute")
                self._child = self._start()
            return self._child

    def _start(self) -> Child:
        try:
            return Child([self._root], 0, MODULE)
        except ChildDied as error:
            self._crashes.append(time.monotonic())
            raise CorruptData(f"{self._root}: {error}") from None

    def _crashed(self, child: Child) -> None:
        """Take note of a crash, once however many were waiting for the answer."""
        with self._lock:
            if self._child is child:
                self._ended()

    def _ended(self) -> None:
        if self._child is not None:
            self._child.close()
        self._child = None
        self._crashes.append(time.monotonic())
        log.warning("%s: the database process ended", self._root)
