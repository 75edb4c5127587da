"""Long listings in several parts at a time: nothing is lost or told twice, few requests more, and errors stay errors."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
from fake_s3 import BUCKET, FakeS3, Fault, Request
from hypothesis import given
from hypothesis import strategies as st
from waiting import until

from fsbridge.config import REMOTE_LIMITS, Remote, RemoteLimits
from fsbridge.errors import TooLarge, Unreachable
from fsbridge.formats.keyed.chunkkeys import ChunkKeys
from fsbridge.store import Key
from fsbridge.store.remote.answers import Answers
from fsbridge.store.remote.client import Client, Object
from fsbridge.store.remote.listings import PARTS, WAITING_PAGES, beneath
from fsbridge.store.remote.store import ObjectStore
from fsbridge.store.remote.urls import parse_url

NESTED, FLAT = Key("nested/c"), Key("flat")
PAGE = 100
"""Keys of a page: a tenth of what servers send, and ten times as quick."""


@pytest.fixture(scope="module")
def short_pages() -> Iterator[FakeS3]:
    """Two arrays of 200 x 50 chunks, a hundred pages each; among keys of the first, one that looks like a part of them."""
    server = FakeS3()
    server.page = PAGE
    for i in range(200):
        for j in range(50):
            server.put(f"z/nested/c/{i}/{j}", b"x", 1e9)
            server.put(f"z/flat/{i}.{j}", b"x", 1e9)
    server.put("z/nested/c/57.bak", b"x", 1e9)
    yield server
    server.stop()


def open_store(server: FakeS3, limits: RemoteLimits = REMOTE_LIMITS, read_ahead: bool = True) -> ObjectStore:
    remote = Remote(
        anonymous=True, region="us-east-1", endpoint=server.endpoint, limits=replace(limits, page_keys=server.page)
    )
    return ObjectStore(Client(parse_url(f"s3://{BUCKET}/z"), remote), Answers(60.0, 60.0), read_ahead=read_ahead)


def test_a_listing_of_many_pages_is_made_in_parts(short_pages: FakeS3) -> None:
    store = open_store(short_pages)
    with (
        short_pages.counted() as requests,
        short_pages.gathered(PARTS - 1, lambda request: request.query.get("start-after")),
    ):
        store.prefetch_listing(NESTED, ChunkKeys("/", "c").spread((200, 50)))
        assert len(store.listings.level(NESTED)) == 201
        assert all(len(store.listings.level(NESTED / str(i))) == 50 for i in range(200))
        store.prefetch_listing(NESTED)  # is known
    assert len(requests) <= 101 + PARTS


def test_p6_a_reader_that_stops_halfway_stops_the_parts(short_pages: FakeS3, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages wait in a bounded queue: of a listing of ten million keys, no more is kept than a slow reader has room for."""
    waiting = set[int]()

    class Pages(queue.Queue[Any]):
        def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
            try:
                super().put(item, block, timeout)
            except queue.Full:
                waiting.add(threading.get_ident())
                raise

    monkeypatch.setattr(queue, "Queue", Pages)
    first = len(short_pages.requests)
    batches = open_store(short_pages).names(FLAT, ChunkKeys(".").spread((200, 50)))
    for _ in range(3):
        next(batches)
    until(lambda: len(waiting) == PARTS)
    asked = len(short_pages.requests) - first
    assert asked <= 3 + WAITING_PAGES + 3 * PARTS < 100
    assert isinstance(batches, Generator)
    batches.close()
    until(lambda: not waiting & {thread.ident for thread in threading.enumerate()})
    assert len(short_pages.requests) - first <= asked + PARTS


def test_names_of_many_pages_in_parts_come_with_their_times(short_pages: FakeS3) -> None:
    store = open_store(short_pages)
    with short_pages.counted() as requests:
        batches = []
        for names in store.names(FLAT, ChunkKeys(".").spread((200, 50))):
            assert store.mtimes(FLAT, names) == [10**18] * len(names)
            batches.append(names)
        found = list(chain.from_iterable(batches))
        assert sorted(found) == sorted(f"{i}.{j}" for i in range(200) for j in range(50))
        assert store.mtimes(FLAT, ["7.0", "8.0"]) == [10**18] * 2
    assert len(requests) <= 101 + PARTS


def test_a_short_listing_is_not_cut(server: FakeS3) -> None:
    for i in range(100):
        for j in range(10 * (REMOTE_LIMITS.part_pages - 1)):
            server.put(f"z/n/c/{i}/{j}", b"x", 1e9)
    store = open_store(server)
    with server.counted() as requests:
        store.prefetch_listing(Key("n/c"), ChunkKeys("/", "c").spread((100, 100)))
    assert len(requests) == REMOTE_LIMITS.part_pages - 1


def test_p6_what_would_be_too_much_is_noticed_by_its_first_page(short_pages: FakeS3) -> None:
    store = open_store(short_pages, RemoteLimits(members=2_000))
    with short_pages.counted() as requests:
        for i in range(3):
            store.prefetch_listing(NESTED, ChunkKeys("/", "c").spread((200, 50)))
            assert len(list(store.list(NESTED / str(i)))) == 50
    assert len(requests) == 4


def open_walkable(server: FakeS3, chunks: int, limits: RemoteLimits = REMOTE_LIMITS, read_ahead: bool = True) -> ObjectStore:
    """A store of a group with the arrays a0 to a99; its members have been listed."""
    for i in range(100):
        for j in range(chunks):
            server.put(f"z/g/a{i}/c/{j}", b"x", 1e9)
    store = open_store(server, limits, read_ahead)
    assert len(list(store.list(Key("g")))) == 100
    return store


def test_listing_the_third_of_many_directories_lists_all_of_them(server: FakeS3) -> None:
    store = open_walkable(server, 30)
    with server.counted() as requests:
        for i in range(100):
            assert [member.name for member in store.list(Key(f"g/a{i}"))] == ["c"]
            assert sum(map(len, store.names(Key(f"g/a{i}/c")))) == 30
            store.prefetch_listing(Key(f"g/a{i}/c"))
    assert len(requests) <= 4 + 3 + 2  # pages; what was listed before


def test_a_walk_through_too_much_lists_one_directory_at_a_time(server: FakeS3) -> None:
    """The first page says that; then there is no further request."""
    store = open_walkable(server, 1000)
    with server.counted() as requests:
        for i in range(20):
            assert [member.name for member in store.list(Key(f"g/a{i}"))] == ["c"]
    assert len(requests) == 20 + 1


@pytest.mark.parametrize(("seconds", "read_ahead"), [(-1.0, True), (10.0, False)], ids=["too few", "no read-ahead"])
def test_a_few_listings_are_no_walk_and_without_read_ahead_nothing_is(
    server: FakeS3, seconds: float, read_ahead: bool
) -> None:
    store = open_walkable(server, 2, RemoteLimits(walk_seconds=seconds), read_ahead)
    with server.counted() as requests:
        for i in range(20):
            assert [member.name for member in store.list(Key(f"g/a{i}"))] == ["c"]
    assert all(request.query.get("delimiter") for request in requests)
    assert len(requests) == 20


def test_p3_a_part_that_fails_makes_the_listing_fail(short_pages: FakeS3) -> None:
    store = open_store(short_pages)
    short_pages.fault = lambda request: Fault(status=403) if request.query.get("start-after", "") > "z/flat/5" else None
    with pytest.raises(Exception, match="refused"):
        list(store.names(FLAT, ChunkKeys(".").spread((200, 50))))
    short_pages.fault = lambda request: None
    assert sum(map(len, store.names(FLAT, ChunkKeys(".").spread((200, 50))))) == 10_000


def test_a_part_that_breaks_off_is_asked_for_again(short_pages: FakeS3) -> None:
    store = open_store(short_pages)
    broken: set[str] = set()

    def fault(request: Request) -> Fault | None:
        after = request.query.get("start-after", "")
        if after in broken:
            return None
        broken.add(after)
        return Fault(truncate=5000) if after else None

    short_pages.fault = fault
    assert len(set(chain.from_iterable(store.names(FLAT, ChunkKeys(".").spread((200, 50)))))) == 10_000
    assert len(broken) >= PARTS


def test_p3_a_server_that_cannot_start_after_a_key_is_asked_page_by_page(short_pages: FakeS3) -> None:
    """Once an error, and from then on right: never a listing that lacks something."""
    store = open_store(short_pages)
    short_pages.starts_after = False
    with pytest.raises(Unreachable, match="does not list keys in their order"):
        list(store.names(FLAT, ChunkKeys(".").spread((200, 50))))
    for thread in threading.enumerate():  # of the first listing
        if thread.name == "fsbridge-part":
            thread.join(20)
    until(lambda: not short_pages.in_flight)
    short_pages.most_in_flight = 0
    found = list(chain.from_iterable(store.names(FLAT, ChunkKeys(".").spread((200, 50)))))
    assert len(found) == len(set(found)) == 10_000
    assert short_pages.most_in_flight == 1


def test_beginnings_of_chunk_names_are_spread_over_the_grid() -> None:
    assert ChunkKeys("/", "c").spread((3,)) == ["0", "1", "2"]
    assert ChunkKeys(".", "c").spread((1, 1, 100))[:2] == ["c.0.0.0", "c.0.0.1"]
    assert ChunkKeys(".").spread((2, 40, 1000))[-1] == "1.39"
    assert 64 <= len(ChunkKeys("/").spread((10**9, 10**9))) <= 4096
    assert ChunkKeys("/").spread(()) == [""]
    assert ChunkKeys("/").spread((0, 5)) == []


class PagesOfThree(Client):
    """Stands for a client of a server that sends pages of three keys, or fewer."""

    def __init__(self, names: list[str], full: bool, part_pages: int) -> None:
        self.ordered = True
        self.limits = RemoteLimits(page_keys=3, part_pages=part_pages)
        self.begun: list[str] = []
        self._names = names
        self._full = full

    def place(self, key: str) -> str:
        return key

    def beneath(self, prefix: str, after: str | None = None) -> Iterator[Sequence[Object]]:
        self.begun.append(after or "")
        items = [Object(name, 1, 1, None) for name in self._names if name > (after or "")]
        for start in range(0, len(items), 3):
            yield items[start : start + 3]
            if not self._full and after:
                yield []  # some servers have such pages


@given(
    st.lists(st.text("ab/", min_size=1, max_size=4), unique=True, max_size=40),
    st.lists(st.text("ab/", max_size=4), max_size=40),
    st.integers(1, 4),
    st.booleans(),
)
def test_each_key_is_listed_once_for_any_keys_and_any_cuts(
    names: list[str], cuts: list[str], pages: int, full: bool
) -> None:
    client = PagesOfThree(sorted(f"z/{name}" for name in names), full, pages)
    keys = [item.key for page in beneath(client, "z", cuts) for item in page]
    assert sorted(keys) == client._names
    assert len(keys) == len(names)
    assert len(client.begun) <= PARTS
    assert client.begun[0] == ""  # the others have threads, which begin in any order


def test_a_listing_is_cut_into_as_many_parts_as_its_first_page_says_evenly() -> None:
    names = [f"z/{number:03}" for number in range(60)]
    evenly = {
        1: ["", "z/017", "z/031", "z/045"],  # 3 of 60 cuts are passed: 20 pages
        2: ["", "z/011", "z/021", "z/031", "z/041", "z/051"],  # one of 30: 30 pages, as it seems
        10: [""],  # none of 6, so these are 6 pages
    }
    for cut, begun in evenly.items():
        client = PagesOfThree(names, True, 5)
        cuts = [name[2:] for name in names[cut - 1 :: cut]]
        assert sum(map(len, beneath(client, "z", cuts))) == 60
        assert (cut, sorted(client.begun)) == (cut, begun)
    client = PagesOfThree(names, True, 5)
    with pytest.raises(TooLarge, match="about 60 keys"):
        list(beneath(client, "z", [name[2:] for name in names], 59))
    assert sum(map(len, beneath(client, "z", [name[2:] for name in names], 60))) == 60
    client.ordered = False
    client.begun.clear()
    assert sum(map(len, beneath(client, "z", [name[2:] for name in names]))) == 60
    assert client.begun == [""]
