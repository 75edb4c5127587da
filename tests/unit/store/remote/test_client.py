"""The first answer of a server: what it raises is raised, and kept no longer than it is needed."""

from __future__ import annotations

import gc
import threading
import weakref

from waiting import until

from fsbridge.errors import NotFound
from fsbridge.store.remote.client import FirstAnswer


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
