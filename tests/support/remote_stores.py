"""Stores on the fake server, by either protocol, and their objects. Not here: HDF5 files (`remote_hdf5.py`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fake_s3 import BUCKET, FakeS3, Fault

from fsbridge.config import REMOTE_LIMITS, Patience, Remote, RemoteLimits
from fsbridge.store import Key
from fsbridge.store.remote.answers import Answers
from fsbridge.store.remote.client import Client
from fsbridge.store.remote.store import ObjectStore
from fsbridge.store.remote.urls import parse_url

A, B, LARGE = Key("a/c/0"), Key("a/c/1"), Key("a/big")

SLOW_READERS = RemoteLimits(kept_seconds=60.0)
"""Bodies wait for their readers however busy the machine is; what must not be asked again needs a long TTL, too."""


def impatient(fault: Fault) -> RemoteLimits:
    """Return limits of stores that give such a fault up ten times as soon as they would.

    Only silence is waited for a second at most: a busy machine takes as long for a request now and then.
    """

    def shorten(patience: Patience) -> Patience:
        timeout = 1.0 if fault.stall else patience.timeout
        return Patience(timeout, patience.retry_timeout / 10, 3, patience.max_backoff / 10)

    return replace(REMOTE_LIMITS, metadata=shorten(REMOTE_LIMITS.metadata), data=shorten(REMOTE_LIMITS.data))


def open_store(server: FakeS3, ttl: float = 1.0, **remote: Any) -> ObjectStore:
    """The store `z` in the bucket."""
    options = Remote(anonymous=True, region="us-east-1", endpoint=server.endpoint, **remote)
    return ObjectStore(Client(parse_url(f"s3://{BUCKET}/z"), options), Answers(ttl, 60.0, options.limits))


def open_web(server: FakeS3, ttl: float = 1.0) -> ObjectStore:
    """Open the store by plain HTTP."""
    return ObjectStore(Client(parse_url(server.url("z")), Remote()), Answers(ttl, 60.0))
