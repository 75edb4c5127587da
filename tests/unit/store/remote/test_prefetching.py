"""What an object store fetches or asks ahead: once, within a budget, never another version's, and failures are told."""

from __future__ import annotations

import threading
from functools import partial

import pytest
from fake_s3 import BIG, CHUNK, FakeS3, Fault, Request
from remote_stores import LARGE, A, B, open_store
from waiting import Clock, until

from fsbridge import asking
from fsbridge.asking import WouldWait
from fsbridge.config import RemoteLimits
from fsbridge.errors import CorruptData, FsbridgeError, NotFound
from fsbridge.store import WHOLE, Key
from fsbridge.store.remote.answers import stat_of
from fsbridge.store.remote.client import Object
from fsbridge.store.remote.prefetching import Fetched, FetchedPart, Prefetched, PrefetchedStats
from fsbridge.store.remote.store import ObjectStore
from fsbridge.threads.parallel import each

UNHURRIED = RemoteLimits(fetched_seconds=60.0)
"""Received bytes wait for their reader, however busy the machine is."""


@pytest.fixture
def store(server: FakeS3) -> ObjectStore:
    return open_store(server, 60.0, limits=UNHURRIED)


def await_ranges(store: ObjectStore, count: int) -> None:
    """Wait until so many ranges have come."""
    ahead = store.prefetched
    until(lambda: sum(part.arrived.is_set() for parts in ahead._parts.values() for part in parts) >= count)


@pytest.mark.parametrize("wait", [False, True])
def test_a_reader_of_what_is_prefetched_waits_for_it_and_sends_no_request(
    server: FakeS3, store: ObjectStore, wait: bool
) -> None:
    server.latency = 0.05
    with server.counted() as requests:
        for key in (A, B, LARGE, A):
            store.fetch(key)
        if wait:
            await_ranges(store, 3)
        assert store.stat(A, WHOLE).size == len(CHUNK)
        assert store.read(A, 1 << 24)[0] == CHUNK
        assert store.read_range(LARGE, 5, 10)[0] == BIG[5:15]
        assert store.read(LARGE, 1 << 24)[0] == BIG
        assert store.read(B, 1 << 24)[0] == CHUNK[1:]
    assert sorted(request.key for request in requests) == ["z/a/big", "z/a/c/0", "z/a/c/1"]
    assert store.prefetched.nbytes == 0


def test_p7_the_event_loop_takes_what_has_come_and_waits_for_nothing(server: FakeS3, store: ObjectStore) -> None:
    with server.counted() as requests, server.held(lambda request: True) as goes_on:
        store.fetch(A)
        with asking.without_waiting(), pytest.raises(WouldWait):
            store.stat(A, WHOLE)
        goes_on()
        await_ranges(store, 1)
        with asking.without_waiting():
            assert store.stat(A, WHOLE).size == len(CHUNK)
            assert store.read(A, 1 << 24)[0] == CHUNK
    assert [request.key for request in requests] == ["z/a/c/0"]


def test_many_are_on_their_way_at_once(server: FakeS3, store: ObjectStore) -> None:
    for number in range(40):
        server.put(f"z/n/{number}", CHUNK, 1e9)
    with server.gathered(32, lambda request: request.key.startswith("z/n/")):
        for number in range(40):
            store.fetch(Key(f"n/{number}"))
        assert all(store.read(Key(f"n/{number}"), 1 << 20)[0] == CHUNK for number in range(40))
    assert server.most_in_flight == 32


def test_p9_bytes_that_were_fetched_before_the_object_was_replaced_are_not_used(
    server: FakeS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, clock = open_store(server, 50.0, limits=UNHURRIED), Clock(monkeypatch)
    store.fetch(A)
    await_ranges(store, 1)
    server.put("z/a/c/0", b"new", 2e9)
    clock.passes(50.0)  # the answer's lifetime
    assert store.stat(A, WHOLE).size == 3
    assert store.read(A, 1 << 20)[0] == b"new"


def test_p2_a_range_beyond_the_object_is_an_error_though_its_bytes_have_come(server: FakeS3, store: ObjectStore) -> None:
    store.fetch(LARGE, (len(BIG) - 2, 4))
    await_ranges(store, 1)
    with pytest.raises(CorruptData):
        store.read_range(LARGE, len(BIG) - 2, 4)


def test_p3_a_prefetch_that_fails_raises_nothing_and_the_reader_asks_again(server: FakeS3, store: ObjectStore) -> None:
    store.fetch(Key("a/c/9"))
    with pytest.raises(NotFound):
        store.stat(Key("a/c/9"), WHOLE)
    server.fault = lambda request: Fault(status=403)
    store.fetch(A)
    with pytest.raises(FsbridgeError):
        store.read(A, 1 << 20)
    server.fault = lambda request: None
    store.fetch(A)
    assert store.read(A, 1 << 20)[0] == CHUNK


def answer(key: Key, start: int, length: int | None) -> Fetched:
    """Answer for an object of 100 bytes."""
    found = Object(key, 100, 0, "e")
    return found, start, memoryview(bytes(100 if length is None else length)), stat_of(found)


def test_p6_p11_prefetched_bytes_stay_within_their_budget_and_go_if_unread() -> None:
    released = threading.Event()

    def get(key: Key, start: int, length: int | None) -> Fetched:
        released.wait(10)
        return answer(key, start, length)

    ahead = Prefetched(get, 250, 0.2)
    assert ahead.begin(A, WHOLE, 100)
    assert ahead.begin(A, (10, 20), 20), "it is a part of what is under way"
    assert ahead.begin(B, (0, 90), 90)
    assert not ahead.begin(LARGE, WHOLE, None)
    assert ahead.nbytes == 190
    released.set()
    assert ahead.take(B, 5, 10) is not None
    assert ahead.take(B, 80, 20) is None, "beyond what was asked for"
    until(lambda: not ahead.nbytes)
    assert ahead.take(A, 0, None) is None


def test_p2_only_what_lies_within_a_fetched_range_is_taken() -> None:
    get = HeldBack()
    get.released.set()
    ahead = Prefetched(get, 250)
    assert ahead.begin(A, WHOLE, 100)
    assert ahead.begin(B, (20, 30), 30)
    for key, start, length in ((A, 1, None), (B, 10, 20), (B, 19, None), (B, 20, None), (B, 21, 30), (B, 50, 1)):
        assert ahead.take(key, start, length, last=False) is None
    for key, start, length in ((A, 0, None), (A, 99, 1), (B, 20, 30), (B, 49, 1)):
        assert ahead.take(key, start, length, last=False) is not None


class HeldBack:
    """A server of objects of 100 bytes that answers once it is `released`."""

    def __init__(self) -> None:
        self.asked: list[Key] = []
        self.released = threading.Event()

    def __call__(self, key: Key, start: int, length: int | None) -> Fetched:
        self.asked.append(key)
        self.released.wait(10)
        return answer(key, start, None)


def test_p6_what_has_no_room_waits_in_order_unless_its_reader_comes_first() -> None:
    get = HeldBack()
    ahead, keys = Prefetched(get, 250), [Key(f"{number}") for number in range(6)]
    for key in keys:
        assert ahead.begin(key, WHOLE, 100)
    assert ahead.nbytes == 200
    assert ahead.take(keys[2], 0, None) is None, "it was not requested: its reader asks"
    get.released.set()
    assert ahead.take(keys[4], 0, None) is None
    for key in (keys[0], keys[1], keys[3], keys[5]):
        until(partial(get.asked.__contains__, key))
        assert ahead.take(key, 0, None) is not None
    assert sorted(get.asked) == [keys[number] for number in (0, 1, 3, 5)]
    assert ahead.nbytes == 0
    assert ahead.begin(keys[0], WHOLE, 100)
    assert ahead.begin(keys[1], WHOLE, 200)
    ahead.take(keys[0], 0, None, last=False)
    ahead.clear()
    assert ahead.nbytes == 0
    assert keys[1] not in ahead._parts


def test_none_of_many_is_left_out() -> None:
    get = HeldBack()
    ahead, keys = Prefetched(get, 9000), [Key(f"{number}") for number in range(250)]
    assert all(ahead.begin(key, WHOLE, 100) for key in keys)
    get.released.set()
    for key in keys:
        until(partial(get.asked.__contains__, key))
        assert ahead.take(key, 0, None) is not None
    assert len(get.asked) == len(keys)
    assert ahead.nbytes == ahead._asked == 0


def test_p7_a_reader_of_a_request_that_is_just_forgotten_does_not_wait_for_it() -> None:
    came = threading.Event()

    class Arrived(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            came.set()
            return super().wait(timeout)

    class Interrupted(Prefetched):
        """One in which a reader of what is dropped comes at the last moment, once."""

        def _drop(self, key: Key, part: FetchedPart) -> None:
            if not came.is_set():
                part.arrived = Arrived()
                visitor.start()
                assert came.wait(10)
            super()._drop(key, part)

    get = HeldBack()
    ahead = Interrupted(get, 150)
    taken: list[Fetched | None] = []
    visitor = threading.Thread(target=lambda: taken.append(ahead.take(B, 0, None)), daemon=True)
    assert ahead.begin(A, WHOLE, 100)
    assert ahead.begin(B, WHOLE, 100), "which waits for room"
    ahead.clear()
    get.released.set()
    visitor.join(10)
    assert taken == [None]


@pytest.fixture
def forgetful(server: FakeS3) -> ObjectStore:
    """One that believes nothing for long."""
    store = open_store(server, 0.0, limits=UNHURRIED)
    for key in (A, B):
        store.read(key, 1 << 20)
    return store


def test_what_is_looked_at_again_is_asked_about_at_a_time(server: FakeS3, forgetful: ObjectStore) -> None:
    with server.counted() as requests, server.gathered(2, lambda request: "if-none-match" in request.headers):
        forgetful.prefetch_stat(A)
        assert forgetful.stat(B).size == len(CHUNK) - 1
        forgetful.prefetched_stats.wait(A)
    assert sorted(request.key for request in requests) == ["z/a/c/0", "z/a/c/1"]


def test_a_look_at_what_is_being_asked_waits_for_that_answer(server: FakeS3, store: ObjectStore) -> None:
    size = store.stat(A, WHOLE).size
    for wrong in (False, True):
        known = store.answers.last(A)
        assert known is not None
        store.answers.put(A, known.stat, known.etag, known.asked - 1000)
        server.latency = 0.3
        server.fault = refuse if wrong else lambda request: None
        with server.counted() as requests:
            sizes = each(lambda number: _size(store), range(8), 8)
        assert len(requests) == (8 if wrong else 1)
        assert sizes == 8 * [None if wrong else size]


def refuse(request: Request) -> Fault:
    return Fault(status=403)


def _size(store: ObjectStore) -> int | None:
    try:
        return store.stat(A, WHOLE).size
    except FsbridgeError:
        return None


def test_p3_p9_the_next_look_gets_what_a_prefetched_stat_found(server: FakeS3, forgetful: ObjectStore) -> None:
    before = forgetful.stat(A)
    server.put("z/a/c/0", b"new", 2e9)
    forgetful.prefetch_stat(A)
    assert forgetful.stat(A).version != before.version
    server.fault = lambda request: Fault(status=403)
    forgetful.prefetch_stat(A)
    with pytest.raises(FsbridgeError):
        forgetful.stat(A)
    server.fault = lambda request: None
    del server.objects["z/a/c/0"]
    forgetful.prefetch_stat(A)
    with pytest.raises(NotFound):
        forgetful.stat(A, WHOLE)


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


@pytest.mark.parametrize("known", [7, None])
def test_a_look_during_a_request_gets_its_answer_or_asks_if_there_is_none(known: int | None) -> None:
    under_way, waiting, released = threading.Event(), threading.Event(), threading.Event()

    class Watched(PrefetchedStats):
        def wait(self, key: Key) -> None:
            waiting.set()
            super().wait(key)

    def ask() -> int:
        under_way.set()
        assert waiting.wait(10)
        released.set()
        return 1

    def tell() -> int | None:
        assert released.is_set()
        return known

    def second() -> int:
        assert under_way.wait(10)
        return stats.once(A, lambda: 2, tell)

    stats = Watched(print)
    calls = [lambda: stats.once(A, ask, lambda: None), second]
    assert each(lambda call: call(), calls, 2) == [1, known or 2]
