"""Requests: the first answer of a server is raised or kept no longer than needed; a panic of obstore is an error of ours."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from fake_s3 import FakeS3
from remote_stores import A, B, open_store
from waiting import until

from fsbridge.config import Remote
from fsbridge.errors import CorruptData, NotFound, Unreachable
from fsbridge.store import WHOLE, Key
from fsbridge.store.remote.client import Client, FirstAnswer
from fsbridge.store.remote.urls import parse_url


def refuse() -> None:
    raise NotFound("no such key")


def test_p11_an_error_is_freed_with_its_last_user() -> None:
    """Not only when the collector comes: its traceback holds what the request was about."""
    known: list[weakref.ref[BaseException]] = []
    gc.collect()
    gc.disable()
    try:
        try:
            FirstAnswer("https://example.org").of(refuse)
        except NotFound as error:
            known.append(weakref.ref(error))
        until(lambda: known[0]() is None)  # the thread that asked ends a moment later
    finally:
        gc.enable()


def test_later_requests_need_no_thread() -> None:
    first = FirstAnswer("https://example.org")
    assert first.of(threading.get_ident) != threading.get_ident()
    assert first.of(threading.get_ident) == threading.get_ident()


def test_p8_a_panic_of_the_library_is_an_error_without_secrets(server: FakeS3) -> None:
    """Credentials may hold what no header can, or a provider may return such ones later."""

    class PanicException(BaseException):
        """Rust's, as pyo3 raises it."""

    def panic(*_: object, **__: object) -> None:
        raise PanicException("SECRET")

    store = open_store(server)
    store.read(A, 1 << 20)

    async def panic_later(*_: object) -> None:
        panic()

    panicking: Any = SimpleNamespace(get=panic, list=lambda *_, **__: map(panic, [0]), list_with_delimiter_async=panic_later)
    store.client._data = store.client._metadata = panicking
    calls: dict[str, Callable[[], object]] = {
        "read": lambda: store.read(B, 1 << 20),
        "stat": lambda: store.stat(B, WHOLE),
        "list": lambda: list(store.list(Key("a"))),
        "beneath": lambda: list(store.client.beneath("a")),
    }
    for call in calls.values():
        with pytest.raises(Unreachable, match="odd characters") as caught:
            call()
        assert "SECRET" not in str(caught.value)


def test_azure_buckets_say_why_they_cannot_be_listed() -> None:
    location = parse_url("az://box@account.blob.core.windows.net/z")
    found = Client(location, Remote(anonymous=True))._list_error(type("InvalidPathError", (Exception,), {})(), "")
    assert type(found) is CorruptData
    assert "a key in it has an empty part" in str(found)
