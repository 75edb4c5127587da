"""obstore after a fork: a copy of its library makes requests, and nobody else's obstore is exchanged."""

from __future__ import annotations

import resource
import sys

import obstore
import pytest
from fake_s3 import BUCKET, CHUNK, FakeS3
from forked import in_fork

from fsbridge.config import Remote
from fsbridge.errors import NotFound, SetupError
from fsbridge.store.remote.client import Client
from fsbridge.store.remote.library import library
from fsbridge.store.remote.urls import parse_url


def read(server: FakeS3) -> None:
    """Make a request of each kind."""
    client = Client(parse_url(f"s3://{BUCKET}/z"), Remote(anonymous=True, region="us-east-1", endpoint=server.endpoint))
    answer = client.get("a/c/0")
    assert answer is not None
    assert answer.body() == CHUNK
    assert client.level("a")[0] == ["a/c"]
    assert sum(map(len, client.beneath(""))) > 3
    with pytest.raises(NotFound):
        client.get("a/c/9")


def test_a_forked_process_makes_requests_with_a_copy_of_the_library(server: FakeS3) -> None:
    read(server)
    before = {name: module for name, module in sys.modules.items() if name.startswith("obstore")}

    def child() -> None:
        assert library() is not obstore
        read(server)
        assert {name: sys.modules[name] for name in before} == before, "other importers keep theirs"
        assert in_fork(lambda: read(server)) == ""

    for _ in range(2):
        assert in_fork(child) == ""
    assert library() is obstore
    read(server)


def test_where_no_copy_can_be_loaded_an_error_says_what_helps(server: FakeS3) -> None:
    read(server)

    def child() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # no file can be written, not even one in memory
        with pytest.raises(SetupError, match=r"(?s)cannot load obstore again.*'spawn'"):
            read(server)

    assert in_fork(child) == ""
    read(server)
