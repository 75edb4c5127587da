"""Whether a web server still has the store: one that lost all of it says "not there" of each object, which is no absence.

Not here: requests for anything else (`objects.py`), what absence looks like at first (`probing.py`).
"""

from __future__ import annotations

import time

from fsbridge.errors import NotFound, Unreachable
from fsbridge.store import ROOT, Key
from fsbridge.store.remote.client import Client

CONFIRMED_SECONDS = 5.0
"""Seconds for which a server that has given an object is believed to have the store."""


class Witness:
    """The first object that was seen in a store. For stores that cannot be listed: a listing proves absence by itself."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._key: Key | None = None
        self._answered = 0.0

    def saw(self, key: Key) -> bool:
        """There is an object at `key`; whether it is the first one."""
        first = self._key is None
        if first:
            self._key = key
        return first

    def answered(self) -> None:
        """The server has given an object just now."""
        self._answered = time.monotonic()

    def confirm(self, missing: Key) -> None:
        """Unreachable where not only `missing`, which the server does not have, is gone. May make a request."""
        if self._key in (None, missing) or time.monotonic() - self._answered < CONFIRMED_SECONDS:
            return
        try:
            self._client.get(str(self._key))
        except NotFound:
            place = self._client.place(ROOT)
            raise Unreachable(f"{place}: the server has lost the store: {self._key} is gone") from None
        self.answered()
