"""Whether a web server still has the store: one that lost all of it says "not there" of each object, which is no absence.

Not here: requests for anything else (`objects.py`), what absence looks like at first (`probing.py`).
"""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

from fsbridge.errors import FsbridgeError, NotFound, Unreachable
from fsbridge.store import ROOT, Key
from fsbridge.store.remote.client import Client


class _Asked(NamedTuple):
    """One question whether the store is there: when it was asked (monotonic seconds), by which object, and what failed."""

    began: float
    key: Key
    error: FsbridgeError | None


class Witness:
    """The two objects that a store gave last. For stores that cannot be listed: a listing proves absence by itself."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._given: tuple[tuple[Key, str | None], ...] = ()
        self._asking = threading.Lock()
        self._asked: _Asked | None = None

    def saw(self, key: Key, etag: str | None) -> bool:
        """There is an object at `key`; whether it is the first one."""
        first = not self._given
        self._given = ((key, etag), *(given for given in self._given if given[0] != key))[:2]
        return first

    def confirm(self, missing: Key) -> None:
        """Unreachable where not only `missing`, which the server has just said not to have, is gone. May make a request.

        What the server said before that proves nothing: a server whose store goes away has given objects until that moment.
        """
        told = time.monotonic()
        with self._asking:  # whoever waits here has been told before the next question: they share its answer
            asked = self._asked
            if asked is None or asked.began <= told or asked.key == missing:
                asked = self._ask(missing)
        if asked is not None and asked.error is not None:
            raise asked.error.anew()

    def _ask(self, missing: Key) -> _Asked | None:
        key, etag = next((given for given in self._given if given[0] != missing), (missing, None))
        if key == missing:
            return None
        began = time.monotonic()
        failure: FsbridgeError | None = None
        try:
            self._client.get(str(key), other_than=etag)
            self._given = tuple(given for given in self._given if given[0] != missing)
        except NotFound:
            failure = Unreachable(f"{self._client.place(ROOT)}: the server has lost the store: {key} is gone")
        except FsbridgeError as error:
            failure = error
        self._asked = _Asked(began, key, failure)
        return self._asked
