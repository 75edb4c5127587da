"""HDF5 files opened as objects of the fake server, in the test's own process, as a mount of their URL has them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fake_s3 import BUCKET, FakeS3
from remote_stores import SLOW_READERS

from fsbridge.config import Config, Remote, RemoteLimits
from fsbridge.formats.hdf5.blocks import BlockMemory
from fsbridge.formats.hdf5.remote import RemoteFile
from fsbridge.formats.hdf5.source import HDF5Source, open_hdf5
from fsbridge.formats.shared import Shared
from fsbridge.store import Key
from fsbridge.store.remote.answers import Answers
from fsbridge.store.remote.blocks import BlockCache
from fsbridge.store.remote.client import Client
from fsbridge.store.remote.store import ObjectStore
from fsbridge.store.remote.urls import parse_url

FOLDER = f"s3://{BUCKET}/remote"


def remote_store(
    server: FakeS3,
    ttl: float = 1.0,
    blocks: BlockCache | None = None,
    read_ahead: bool = True,
    kind: type[ObjectStore] = ObjectStore,
    limits: RemoteLimits = SLOW_READERS,
) -> ObjectStore:
    """The folder `remote` of the bucket, as a store of a `kind`."""
    location = parse_url(FOLDER)
    options = Remote(anonymous=True, region="us-east-1", endpoint=server.endpoint, limits=limits)
    return kind(Client(location, options), Answers(ttl, 60.0, limits), blocks, read_ahead)


_times = itertools.count(1_000_000_000)


def upload(server: FakeS3, path: Path) -> Key:
    """Put a file there, under its own name, as a new version."""
    number = next(_times)
    server.put(f"remote/{path.name}", path.read_bytes(), number, f"{number:032x}")  # the MD5 of a large file takes long
    return Key(path.name)


@contextmanager
def opened_remote(
    server: FakeS3,
    path: Path,
    shared: Shared | None = None,
    kind: type[ObjectStore] = ObjectStore,
    limits: RemoteLimits = SLOW_READERS,
    **options: Any,
) -> Iterator[HDF5Source]:
    """The file as a source, closed afterwards."""
    shared = shared or Shared()
    file = RemoteFile(
        remote_store(server, read_ahead=options.get("read_ahead", True), kind=kind, limits=limits),
        upload(server, path),
        options.get("allow_external", ()),
        shared.of(BlockMemory),
    )
    source = open_hdf5(file, Config(file.name, "/nowhere", **options), shared)
    try:
        yield source
    finally:
        source.close()
