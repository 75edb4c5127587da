"""Whether a web server still has the store: one that lost all of it says "not there" of each object, which is no absence.

Not here: requests for anything else (`objects.py`), what absence looks like at first (`probing.py`).
"""

from __future__ import annotations

from fsbridge.errors import NotFound, Unreachable
from fsbridge.store import ROOT, Key
from fsbridge.store.remote.client import Client


class Witness:
    """The two objects that a store gave last. For stores that cannot be listed: a listing proves absence by itself."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._given: tuple[tuple[Key, str | None], ...] = ()

    def saw(self, key: Key, etag: str | None) -> bool:
        """There is an object at `key`; whether it is the first one."""
        first = not self._given
        self._given = ((key, etag), *(given for given in self._given if given[0] != key))[:2]
        return first

    def confirm(self, missing: Key) -> None:
        """Unreachable where not only `missing`, which the server has just said not to have, is gone. Makes a request.

        Each time: a server whose store goes away has given objects until that moment.
        """
        key, etag = next((given for given in self._given if given[0] != missing), (missing, None))
        if key == missing:
            return
        try:
            self._client.get(str(key), other_than=etag)
        except NotFound:
            place = self._client.place(ROOT)
            raise Unreachable(f"{place}: the server has lost the store: {key} is gone") from None
        self._given = tuple(given for given in self._given if given[0] != missing)
