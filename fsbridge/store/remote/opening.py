"""A location as a store. Not here: what it is in (`store.py`), how a URL names it (`urls.py`).

Client libraries take long to import: whoever needs no store elsewhere does without.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fsbridge.config import Config

if TYPE_CHECKING:
    from fsbridge.store.remote.store import ObjectStore
    from fsbridge.store.remote.urls import Location


def object_store(location: Location, config: Config) -> ObjectStore:
    """The store at `location`, reached as `config` says. Nothing is asked of the server yet."""
    from fsbridge.store.remote.blocks import BlockCache
    from fsbridge.store.remote.client import Client
    from fsbridge.store.remote.store import ObjectStore
    from fsbridge.store.remote.urls import identity

    remote, ttl = config.remote, math.inf if config.immutable else config.metadata_ttl
    client = Client(location, remote)
    name = identity(location, client.endpoint)
    blocks = BlockCache(remote.block_cache, remote.block_cache_size, name) if remote.block_cache else None
    return ObjectStore(client, ttl, max(ttl, remote.listing_ttl), blocks)
