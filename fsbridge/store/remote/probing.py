"""The first requests to a remote store: whether anything is there, whether it may be listed, how absence is reported.

Not here: any later request (`store.py`).
"""

from __future__ import annotations

import http.client
import logging
import secrets
import urllib.parse

from fsbridge import asking
from fsbridge.errors import CorruptData, FsbridgeError, NotFound, SetupError
from fsbridge.store import ROOT
from fsbridge.store.remote.client import Client
from fsbridge.store.remote.faults import REGION, Refused, Unusable, WrongRegion, in_region
from fsbridge.store.remote.listings import Listings
from fsbridge.threads.parallel import Answer

log = logging.getLogger(__name__)

REGION_SECONDS = 2.0
"""Seconds for finding the bucket's region, if it is not the one that was asked."""


def begin(client: Client, listings: Listings) -> bool:
    """Return False if nothing lies below the location, True also if that is unknown.

    Raises SetupError if it cannot be a store, Refused without permission.
    """
    if listings.listable:
        try:
            return _anything(client, listings)
        except WrongRegion as error:
            region = _region(client)
            raise error if region is None else in_region(client.location.text, region) from None
        except Unusable:
            raise
        except CorruptData as error:  # a key with an impossible name: what is beside it can be looked up
            log.warning("%s", error)
            return True
        except Refused:
            log.warning("%s: no permission to list: only members with a known name can be opened", client.location.text)
            listings.listable = False
    _probe(client)
    return True


def _anything(client: Client, listings: Listings) -> bool:
    """Tell whether the root has members. For a long listing, which continues meanwhile, the first page decides."""

    def members() -> int:
        with asking.from_now():
            return len(listings.level(ROOT))

    count = Answer(members, "fsbridge-root")
    if count.wait(client.limits.root_seconds):
        return count.get() > 0
    return len(next(client.beneath(ROOT), ())) == client.limits.page_keys or count.get() > 0


def _region(client: Client) -> str | None:
    """Return the bucket's region, which S3 sends in a header that obstore hides; None if the header is missing."""
    server = urllib.parse.urlsplit(client.endpoint or "https://s3.amazonaws.com")
    kind = http.client.HTTPSConnection if server.scheme == "https" else http.client.HTTPConnection
    try:
        connection = kind(server.hostname or "", server.port, timeout=REGION_SECONDS)
        try:
            connection.request("HEAD", f"/{urllib.parse.quote(client.location.root)}")
            region = connection.getresponse().getheader("x-amz-bucket-region") or ""
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError):
        return None
    return region if REGION.fullmatch(region) else None


def _probe(client: Client) -> None:
    """Ask for an object that cannot exist. Raises SetupError if the server sends one: it never reports an absence."""
    text, name = client.location.text, f"fsbridge-{secrets.token_hex(8)}"
    try:
        client.get(name)
    except NotFound:
        return
    except Refused:
        hint = "chunks that were never written give errors; with --absent-403 a refused object counts as absent"
        log.warning("%s: the server refuses absent objects like forbidden ones: %s", text, hint)
        return
    except FsbridgeError as error:  # the name that was asked for would confuse the user
        raise type(error)(str(error).replace(client.place(name), text)) from None
    raise SetupError(
        f"{text}: the server answers as if every name existed, so missing chunks would not be noticed",
        "give the URL of the store itself, not of a page about it",
    )
