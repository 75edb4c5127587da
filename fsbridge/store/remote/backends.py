"""obstore's stores, made from the user's options and environment with our own timeouts.

Not here: requests (`client.py`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from fsbridge import __version__
from fsbridge.config import Remote
from fsbridge.errors import FsbridgeError, SetupError
from fsbridge.store.remote.urls import Location, region_of

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Backend

LINGER_SECONDS = 10
"""Seconds that an unused connection stays open, and at most twice that, because obstore looks only that often."""


def backend(location: Location, remote: Remote, patience: dict[str, float], connections: int) -> Backend:
    """Return an obstore store with these timeouts, which keeps this many unused connections. Asks nothing of the server."""
    from datetime import timedelta

    from obstore import store as stores

    plain = remote.allow_http or location.root.startswith("http://") or remote.endpoint.startswith("http://")
    client: Any = {
        "timeout": timedelta(seconds=patience["timeout"]),
        "connect_timeout": timedelta(seconds=2),
        "pool_idle_timeout": timedelta(seconds=LINGER_SECONDS),
        "pool_max_idle_per_host": str(connections),
        "user_agent": f"fsbridge/{__version__}",
        **({"allow_http": True} if plain else {}),
        **({"root_certificate": bundle} if (bundle := _bundle(location)) else {}),
    }
    retry: Any = {
        "max_retries": int(patience["max_retries"]),
        "retry_timeout": timedelta(seconds=patience["retry_timeout"]),
        "backoff": {
            "init_backoff": timedelta(milliseconds=100),
            "max_backoff": timedelta(seconds=patience["max_backoff"]),
            "base": 2,
        },
    }
    shared: Any = {"client_options": client, "retry_config": retry}
    try:
        if location.kind == "http":
            return stores.HTTPStore(location.text, **shared)
        if location.path:
            shared["prefix"] = location.path
        if remote.anonymous:
            shared["skip_signature"] = True
        if location.kind == "s3":
            return _s3(location, remote, shared)
        if location.kind == "gs":
            options: Any = {"config": {"base_url": remote.endpoint}} if remote.endpoint else {}
            return stores.GCSStore(location.root, **options, **shared)
        more: Any = {"account_name": location.account} if location.account else {}
        if remote.endpoint:
            more["endpoint"] = remote.endpoint
        return stores.AzureStore(location.root, **more, **shared)
    except FsbridgeError:
        raise
    except Exception as error:
        raise SetupError(f"{location.text}: {_configuration(error, location)}") from None


def _bundle(location: Location) -> bytes:
    """Return the certificates in the file that AWS_CA_BUNDLE names, which Amazon's own programs trust, too.

    Empty if it is unset or the store is not S3. Raises SetupError if they cannot be read.
    """
    path = os.environ.get("AWS_CA_BUNDLE", "") if location.kind == "s3" else ""
    if not path:
        return b""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise SetupError(f"AWS_CA_BUNDLE {path}: {(error.strerror or str(error)).lower()}") from None


def _configuration(error: Exception, location: Location) -> str:
    """Return why a store cannot be made. The error is not quoted, because it may contain a secret."""
    if location.kind == "gs":
        return "its credentials cannot be used; check GOOGLE_APPLICATION_CREDENTIALS, or say --anonymous"
    if location.kind == "az" and "account" in str(error).lower():
        return "names no account; write az://CONTAINER@ACCOUNT.blob.core.windows.net/PATH or set AZURE_STORAGE_ACCOUNT_NAME"
    return f"cannot be reached as it is configured ({type(error).__name__})"


def _s3(location: Location, remote: Remote, shared: Any) -> Backend:
    from obstore.store import S3Store

    from fsbridge.store.remote import profiles

    if remote.endpoint:
        shared["endpoint"] = remote.endpoint
    name = remote.profile or ("" if remote.anonymous else profiles.implied())
    configured = profiles.region(name)
    if name:
        shared["credential_provider"] = profile = profiles.Profile(name)
        configured = profile.region
    if any(os.environ.get(variable) for variable in ("AWS_REGION", "AWS_DEFAULT_REGION")) and not remote.profile:
        configured = ""  # obstore takes the region from there
    if region := region_of(remote.region) or configured:
        shared["region"] = region
    return S3Store(location.root, **shared)
