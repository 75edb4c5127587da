"""Requests about single objects: at most one for each object at a time.

Many threads may ask, and several objects are asked about in parallel.

Not here: what is asked, and what becomes of the answer (`store.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from fsbridge import asking
from fsbridge.store import Key
from fsbridge.workers import Workers

T = TypeVar("T")

AT_ONCE = 4
"""Requests in the background at a time; the thread that begins one makes a request of its own meanwhile."""
MOST_SECONDS = 10.0
"""Most seconds that a thread waits for a request of another one: a request takes no longer (`client.py`)."""


class Revisits:
    """The objects of one store that are being asked about.

    `ask` makes the request; a thread that waits meets its errors itself.
    """

    def __init__(self, ask: Callable[[Key], object]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._under_way: dict[Key, threading.Event] = {}
        self._threads = Workers("revisit", AT_ONCE, lambda error: None)

    def begin(self, key: Key) -> None:
        """Ask about an object, unless that is under way already. Does not block."""
        with self._lock:
            if key in self._under_way:
                return
            self._under_way[key] = threading.Event()
        self._threads.submit(partial(self._visit, key), partial(self._over, key))

    def once(self, key: Key, ask: Callable[[], T], told: Callable[[], T | None]) -> T:
        """Return what `ask` finds by a request on this thread.

        If a request is under way already, wait for it and return what `told` gives; if that is None, `ask` after all.
        """
        with self._lock:
            mine = key not in self._under_way
            if mine:
                self._under_way[key] = threading.Event()
        if not mine:
            self.wait(key)
            found = told()
            return ask() if found is None else found
        try:
            return ask()
        finally:
            self._over(key)

    def wait(self, key: Key) -> None:
        """Wait for the request about an object, if one is under way."""
        event = self._under_way.get(key)
        if event is not None:
            asking.before_waiting()
            event.wait(MOST_SECONDS)

    def _visit(self, key: Key) -> None:
        try:
            self._ask(key)
        finally:
            self._over(key)

    def _over(self, key: Key) -> None:
        with self._lock:
            self._under_way.pop(key).set()
