"""Stores on the fake server, by either protocol, and their objects. Not here: HDF5 files (`remote_hdf5.py`)."""

from __future__ import annotations

from typing import Any

from fake_s3 import BUCKET, FakeS3

from fsbridge.config import Remote
from fsbridge.store import Key
from fsbridge.store.remote.answers import Answers
from fsbridge.store.remote.client import Client
from fsbridge.store.remote.store import ObjectStore
from fsbridge.store.remote.urls import parse_url

A, B, LARGE = Key("a/c/0"), Key("a/c/1"), Key("a/big")


def opened(server: FakeS3, ttl: float = 1.0, **remote: Any) -> ObjectStore:
    """The store `z` in the bucket."""
    options = Remote(anonymous=True, region="us-east-1", endpoint=server.endpoint, **remote)
    return ObjectStore(Client(parse_url(f"s3://{BUCKET}/z"), options), Answers(ttl, 60.0, options.limits))


def web(server: FakeS3, ttl: float = 1.0) -> ObjectStore:
    """Open the store by plain HTTP."""
    return ObjectStore(Client(parse_url(server.url("z")), Remote()), Answers(ttl, 60.0))
