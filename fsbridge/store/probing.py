"""The first requests to a store elsewhere: whether anything is there, whether it may be listed, and what absence looks like.

Not here: any later request (`object.py`).
"""

from __future__ import annotations

import logging
import secrets
from concurrent.futures import Future

from fsbridge import confinement
from fsbridge.errors import NotFound, SetupError
from fsbridge.store import ROOT
from fsbridge.store.client import PAGE_KEYS, Client, Refused
from fsbridge.store.listings import Listings

log = logging.getLogger(__name__)

LISTING_SECONDS = 2.0
"""For which a mount waits for the listing of the root: a flat array of a million chunks there has a thousand pages."""


def begin(client: Client, listings: Listings) -> bool:
    """False when nothing lies below the location; SetupError when it cannot be a store, Refused when nobody lets us in."""
    if listings.listable:
        try:
            return _anything(client, listings)
        except Refused as error:
            if "region" in str(error) or "credentials" in str(error) or "clock" in str(error):
                raise
            log.warning("%s: no permission to list: only what is named can be looked up", client.location.text)
            listings.listable = False
    _probe(client)
    return True


def _anything(client: Client, listings: Listings) -> bool:
    """Whether the root has members; of a long listing, which goes on meanwhile, the first page tells."""
    found: Future[int] = Future()

    def count() -> None:
        try:
            found.set_result(len(listings.level(ROOT, 0.0)))
        except BaseException as error:
            found.set_exception(error)

    confinement.start(count, "fsbridge-root")
    try:
        return found.result(LISTING_SECONDS) > 0
    except TimeoutError:
        if found.done():  # it was the server's, or the listing has come in this moment
            return found.result() > 0
    return len(next(client.beneath(ROOT), ())) == PAGE_KEYS or found.result() > 0


def _probe(client: Client) -> None:
    """Ask for what cannot be there: a server that has it takes everything for present, or nothing for absent."""
    text = client.location.text
    try:
        client.get(f"fsbridge-{secrets.token_hex(8)}")
    except NotFound:
        return
    except Refused:
        hint = "a chunk that is refused stays an error; --absent-403 takes a refusal for absence"
        log.warning("%s: the server refuses what is not there, as it does what may not be read: %s", text, hint)
        return
    raise SetupError(
        f"{text}: the server has an answer for every name, so nothing on it is ever absent",
        "give the URL of the store itself, not of a page about it",
    )
