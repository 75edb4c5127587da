"""Objects that are asked about on another thread: once each, several at a time, and a failure is raised in the next look."""

from __future__ import annotations

import threading

import pytest
from fake_s3 import BUCKET, CHUNK, FakeS3, Fault

from fsbridge import asking
from fsbridge.asking import WouldWait
from fsbridge.config import Remote
from fsbridge.errors import FsbridgeError, NotFound
from fsbridge.store import WHOLE, Key
from fsbridge.store.remote.answers import Answers
from fsbridge.store.remote.client import Client
from fsbridge.store.remote.prefetching import PrefetchedStats
from fsbridge.store.remote.store import ObjectStore
from fsbridge.store.remote.urls import parse_url
from fsbridge.threads.parallel import each

A, B = Key("a/c/0"), Key("a/c/1")


@pytest.fixture
def store(server: FakeS3) -> ObjectStore:
    """One that believes nothing for long."""
    options = Remote(anonymous=True, region="us-east-1", endpoint=server.endpoint)
    found = ObjectStore(Client(parse_url(f"s3://{BUCKET}/z"), options), Answers(0.0, 60.0))
    for key in (A, B):
        found.read(key, 1 << 20)
    return found


def test_what_is_looked_at_again_is_asked_about_at_a_time(server: FakeS3, store: ObjectStore) -> None:
    with server.counted() as requests, server.gathered(2, lambda request: "if-none-match" in request.headers):
        store.prefetch_stat(A)
        assert store.stat(B).size == len(CHUNK) - 1
        store._prefetched_stats.wait(A)
    assert sorted(request.key for request in requests) == ["z/a/c/0", "z/a/c/1"]


def test_a_look_at_what_is_being_asked_waits_for_that_answer(server: FakeS3, store: ObjectStore) -> None:
    store._answers._ttl = 60.0
    size = store.stat(A, WHOLE).size
    for wrong in (False, True):
        known = store._answers.last(A)
        assert known is not None
        store._answers.put(A, known.stat, known.etag, known.asked - 1000)
        server.latency = 0.3
        server.fault = lambda request, wrong=wrong: Fault(status=403) if wrong else None  # type: ignore[misc]
        with server.counted() as requests:
            found = each(lambda number: _size(store), range(8), 8)
        assert len(requests) == (8 if wrong else 1)
        assert found == 8 * [None if wrong else size]


def _size(store: ObjectStore) -> int | None:
    try:
        return store.stat(A, WHOLE).size
    except FsbridgeError:
        return None


def test_p3_p9_the_next_look_gets_what_a_prefetched_stat_found(server: FakeS3, store: ObjectStore) -> None:
    before = store.stat(A)
    server.put("z/a/c/0", b"new", 2e9)
    store.prefetch_stat(A)
    assert store.stat(A).version != before.version
    server.fault = lambda request: Fault(status=403)
    store.prefetch_stat(A)
    with pytest.raises(FsbridgeError):
        store.stat(A)
    server.fault = lambda request: None
    del server.objects["z/a/c/0"]
    store.prefetch_stat(A)
    with pytest.raises(NotFound):
        store.stat(A, WHOLE)


def test_each_is_asked_once_and_no_look_waits_for_what_is_not_asked() -> None:
    asked: list[Key] = []
    released = threading.Event()

    def ask(key: Key) -> None:
        asked.append(key)
        released.wait(10)
        raise NotFound("gone")

    stats = PrefetchedStats(ask)
    stats.wait(A)
    for key in (A, A, B):
        stats.begin(key)
    with asking.without_waiting(), pytest.raises(WouldWait):
        stats.wait(A)
    released.set()
    stats.wait(A)
    stats.wait(B)
    assert sorted(asked) == [A, B]


@pytest.mark.parametrize("found", [7, None])
def test_a_look_during_a_request_gets_its_answer_or_asks_if_there_is_none(
    monkeypatch: pytest.MonkeyPatch, found: int | None
) -> None:
    stats, under_way, waiting, released = PrefetchedStats(print), threading.Event(), threading.Event(), threading.Event()
    until_asked = stats.wait

    def wait(key: Key) -> None:
        waiting.set()
        until_asked(key)

    def ask() -> int:
        under_way.set()
        assert waiting.wait(10)
        released.set()
        return 1

    def tell() -> int | None:
        assert released.is_set()
        return found

    def second() -> int:
        assert under_way.wait(10)
        return stats.once(A, lambda: 2, tell)

    monkeypatch.setattr(stats, "wait", wait)
    calls = [lambda: stats.once(A, ask, lambda: None), second]
    assert each(lambda call: call(), calls, 2) == [1, found or 2]
