"""Finds out if a web server still has the store: a server that lost all of it answers "not there" for each object.

Such an answer is no absence. Not here: requests for anything else (`objects.py`), what absence looks like at first
(`probing.py`).
"""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

from fsbridge.errors import FsbridgeError, NotFound, Unreachable
from fsbridge.store import ROOT, Key
from fsbridge.store.remote.client import Client


class _Asked(NamedTuple):
    """One check of whether the store is still there.

    When it was asked (monotonic seconds), about which object, and what failed.
    """

    began: float
    key: Key
    error: FsbridgeError | None


class Witness:
    """The first object that a store gave, and the last two. For stores without listings: a listing proves absence."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._given: tuple[tuple[Key, str | None], ...] = ()
        self._lock = threading.Lock()  # for `_given`
        self._asking = threading.Lock()
        self._asked: _Asked | None = None

    def saw(self, key: Key, etag: str | None) -> bool:
        """Note that there is an object at `key`. Returns whether it is the first one."""
        with self._lock:
            first = not self._given
            others = [given for given in self._given if given[0] != key]
            self._given = ((key, etag), *others[:1], *others[1:][-1:])
        return first

    def confirm(self, missing: Key) -> None:
        """Raise Unreachable if the server, which has just reported `missing` absent, has lost other objects, too.

        May make a request. An object that the server gave earlier proves nothing: its store may have gone away since.
        """
        told = time.monotonic()
        with self._asking:  # a thread that waits here was told "not there" before the next question, so it shares the answer
            asked = self._asked
            if asked is None or asked.began <= told or asked.key == missing:
                asked = self._ask(missing)
        if asked is not None and asked.error is not None:
            raise asked.error.anew()

    def _ask(self, missing: Key) -> _Asked | None:
        """Ask for other known objects. Returns None if there is none."""
        asked, gone = None, [missing]
        for key, etag in [given for given in self._given if given[0] != missing]:
            began = time.monotonic()
            try:
                self._client.get(str(key), other_than=etag)
            except NotFound:
                lost = Unreachable(f"{self._client.place(ROOT)}: the server has lost the store: {key} is gone")
                asked = _Asked(began, key, lost)
                gone.append(key)
            except FsbridgeError as error:
                asked = _Asked(began, key, error)
                break
            else:
                asked = _Asked(began, key, None)
                with self._lock:  # the store is there, so those that are gone were removed one by one
                    self._given = tuple(given for given in self._given if given[0] not in gone)
                break
        self._asked = asked
        return asked
