"""Opens a location as a store. Not here: what is in it (`store.py`), how a URL names it (`urls.py`).

Client libraries take long to import, so they are imported only for a remote store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsbridge.config import Config

if TYPE_CHECKING:
    from fsbridge.store.remote.store import ObjectStore
    from fsbridge.store.remote.urls import Location


def object_store(location: Location, config: Config) -> ObjectStore:
    """Return the store at `location`, reached as `config` says. Asks nothing of the server."""
    from fsbridge.store.remote.ages import Ages
    from fsbridge.store.remote.blocks import BlockCache
    from fsbridge.store.remote.client import Client
    from fsbridge.store.remote.store import ObjectStore
    from fsbridge.store.remote.urls import identity

    remote = config.remote
    client = Client(location, remote)
    name = identity(location, client.endpoint)
    blocks = BlockCache(remote.block_cache, remote.block_cache_size, name) if remote.block_cache else None
    return ObjectStore(client, Ages.of(config), blocks)
