"""Object stores: what they answer, list, remember and let go. Not here: faults on each method (`test_remote.py`).

- 416: `a_range_outside_the_object`; redirects: `a_redirect`
- `Content-Encoding`: `content_encoding`, `compresses_unasked`, `stored_compressed`
- listings without an end, without second pages, a page for people in their place: `never_ends`, `second_pages`, `for_people`
- keys with `//`, `.`, `..`, control characters: `a_key_that_cannot_be_named`; `markers_of_directories`
- 100,000 keys, a part of a listing that fails, listings in no order: `test_listings.py`
"""

from __future__ import annotations

import asyncio
import gzip
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from itertools import chain

import pytest
from fake_s3 import BIG, BUCKET, CHUNK, FakeS3, Fault, Request
from remote_stores import LARGE, SLOW_READERS, A, B, open_store, open_web
from waiting import Clock, until

from fsbridge import asking
from fsbridge.asking import WouldWait, as_of
from fsbridge.config import Limits, RemoteLimits
from fsbridge.errors import (
    CorruptData,
    NotFound,
    Stale,
    TimedOut,
    TooLarge,
    Unlistable,
    Unreachable,
)
from fsbridge.formats.documents import DocumentReader
from fsbridge.store import ROOT, WHOLE, Key
from fsbridge.store.remote.answers import Answers, ListedLevel
from fsbridge.store.remote.client import Object
from fsbridge.store.remote.listings import split
from fsbridge.store.remote.store import ObjectStore


def test_what_is_in_a_bucket_is_read_and_listed(server: FakeS3) -> None:
    store = open_store(server)
    assert store.begin()
    data, stat = store.read(A, 1 << 20)
    assert data == CHUNK
    assert (stat.size, stat.mtime_ns, stat.is_dir) == (len(CHUNK), 10**18, False)
    assert store.stat(A).version == stat.version
    assert store.read_range(LARGE, 5, 10)[0] == BIG[5:15]
    assert store.read_range(LARGE, -10, 10)[0] == BIG[-10:]
    assert store.read_range(LARGE, -10, 4)[0] == BIG[-10:-6]
    assert store.read_range(LARGE, 7, 0)[0] == b""
    assert [(member.name, member.is_dir) for member in store.list(ROOT)] == [("a", True), ("zarr.json", False)]
    assert [(member.name, member.is_dir) for member in store.list(Key("a"), stats=True)] == [
        ("big", False),
        ("c", True),
        ("zarr.json", False),
    ]
    assert store.stat(Key("a")).is_dir
    assert [list(names) for names in store.names(Key("a/c"))] == [["0", "1", "2"]]
    assert store.mtimes(Key("a/c"), ["2", "7"]) == [10**18 + 2 * 10**9, None]
    assert store.describe(A) == f"s3://{BUCKET}/z/a/c/0"
    for absent in ("b", "a/c/9", "a/c/0/1", "a/x y%20+é"):
        with pytest.raises(NotFound):
            store.stat(Key(absent))
        with pytest.raises(NotFound):
            store.read(Key(absent), 100)
    with pytest.raises(NotFound):
        list(store.list(Key("b")))
    with pytest.raises(TooLarge):
        store.read(LARGE, 100)


def test_a_program_with_an_event_loop_of_its_own_lists_too(server: FakeS3) -> None:
    async def cell() -> list[str]:
        store = open_store(server)
        store.begin()
        return [member.name for key in (ROOT, Key("a")) for member in store.list(key)]

    assert asyncio.run(cell()) == ["a", "zarr.json", "big", "c", "zarr.json"]


@pytest.mark.parametrize("span", [(0, len(BIG) + 1), (len(BIG), 1), (-len(BIG) - 1, 5), (len(BIG) - 2, 4)])
@pytest.mark.parametrize("known", [True, False])
def test_a_range_outside_the_object_is_an_error(server: FakeS3, span: tuple[int, int], known: bool) -> None:
    store = open_store(server)
    if known:
        store.stat(LARGE, WHOLE)
    with pytest.raises(CorruptData):
        store.read_range(LARGE, *span)


def test_one_get_is_stat_open_and_first_read(server: FakeS3) -> None:
    store = open_store(server, ttl=60.0, limits=SLOW_READERS)
    for key, wanted in ((A, CHUNK), (LARGE, BIG)):
        with server.counted() as requests:
            stat = store.stat(key, WHOLE)
            assert store.stat(key, WHOLE) == stat
            assert store.read(key, 1 << 24) == (wanted, stat)
        assert len(requests) == 1
    with server.counted() as requests:
        assert store.read_range(A, 3, 4)[0] == CHUNK[3:7]
    assert not requests


def test_p7_the_event_loop_gets_what_is_known_and_takes_no_body_from_its_reader(server: FakeS3) -> None:
    store = open_store(server, ttl=60.0, limits=SLOW_READERS)
    for key, wanted in ((A, CHUNK), (LARGE, BIG)):
        stat = store.stat(key, WHOLE)
        with server.counted() as requests:
            with asking.without_waiting():
                assert store.stat(key, WHOLE) == stat
                with pytest.raises(WouldWait):
                    store.read(key, 1 << 24)
            assert store.read(key, 1 << 24) == (wanted, stat)
        assert not requests


def test_what_is_read_next_comes_with_the_look_up(server: FakeS3) -> None:
    store = open_store(server, ttl=60.0, limits=SLOW_READERS)
    with server.counted() as requests:
        stat = store.stat(LARGE, (-64, 64))
        assert stat.size == len(BIG)
        assert store.read_range(LARGE, len(BIG) - 64, 64)[0] == BIG[-64:]
        assert store.read_range(LARGE, 10, 5)[0] == BIG[10:15]
    assert [request.range for request in requests] == ["bytes=-64", "bytes=10-14"]


def test_after_the_ttl_one_request_without_a_body_finds_nothing_changed(
    server: FakeS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, clock = open_store(server, ttl=60.0), Clock(monkeypatch)
    stat = store.stat(A)
    clock.passes(60.0)
    with server.counted() as requests:
        assert store.stat(A) == stat
    assert [request.headers.get("if-none-match") is not None for request in requests] == [True]
    server.put("z/a/c/0", b"new", 1e9)
    clock.passes(60.0)
    assert store.stat(A).version != stat.version
    assert store.read(A, 100)[0] == b"new"


def test_one_recursive_listing_answers_for_all_directories(server: FakeS3) -> None:
    for i in range(40):
        for j in range(40):
            server.put(f"z/n/c/{i}/{j}", b"x", 1e9)
    store = open_store(server)
    with server.counted() as requests:
        store.prefetch_listing(Key("n/c"))
        assert sorted(member.name for member in store.list(Key("n/c"))) == sorted(map(str, range(40)))
        for i in range(40):
            assert sorted(name for names in store.names(Key(f"n/c/{i}")) for name in names) == sorted(map(str, range(40)))
            assert store.mtimes(Key(f"n/c/{i}"), ["0", "40"]) == [10**18, None]
    assert len(requests) == 2  # pages


def test_p6_a_flat_directory_of_many_chunks_streams_and_is_not_kept(server: FakeS3) -> None:
    for number in range(3100):
        server.put(f"z/flat/{number}.0", b"x", 1e9)
        if number < 1100:
            server.put(f"z/few/{number}.0", b"x", 1e9)
    store = open_store(server, limits=RemoteLimits(members=2500))
    store.begin()
    store.read(Key("zarr.json"), 100)
    for name, count, pages in (("flat", 3100, 4), ("few", 1100, 2)):
        with server.counted() as requests:
            batches = list(store.names(Key(name)))
            assert sorted(chain.from_iterable(batches)) == sorted(f"{number}.0" for number in range(count))
            assert len(batches) == pages
            assert store.mtimes(Key(name), ["7.0", "8.0"]) == [10**18] * 2
        assert len(requests) == pages


def test_p8_times_in_the_far_future_hide_no_object(server: FakeS3) -> None:
    server.put("z/a/c/9", CHUNK, 11e9)
    store = open_store(server)
    assert store.mtimes(Key("a/c"), ["0", "9"]) == [10**18, 11 * 10**18]
    assert store.read(Key("a/c/9"), 1 << 20)[0] == CHUNK


def test_p6_listings_stay_within_their_budget() -> None:
    remembered = Answers(60.0, 60.0, RemoteLimits(members=10))
    since = remembered.listed_since()
    now = time.monotonic()
    levels = split(ROOT, iter([[Object(f"d{i}/{j}", 1, 0, "e") for j in range(3)] for i in range(5)]), now)
    assert levels is not None
    remembered.put_tree(ROOT, levels, now)
    assert remembered.level(Key("d4"), since) is not None
    assert remembered.level(Key("d0"), since) is None
    assert split(ROOT, iter([[Object(f"{i}", 1, 0, None) for i in range(11)]]), 1.0, 10) is None
    assert split(ROOT, iter([[Object("/".join("abcdefghijk"), 1, 0, None)]]), 1.0, 10) is None


def test_p3_a_slow_listing_of_nothing_is_nothing(server: FakeS3) -> None:
    server.objects.clear()
    server.page_latency = 0.2
    assert not open_store(server, limits=RemoteLimits(root_seconds=0.01)).begin()


def test_the_web_has_no_listings(server: FakeS3) -> None:
    store = open_web(server)
    assert store.begin()
    assert store.read(A, 1 << 20)[0] == CHUNK
    assert store.read_range(LARGE, -10, 10)[0] == BIG[-10:]
    with pytest.raises(NotFound):
        store.stat(Key("b"))
    assert store.stat(Key("a")).is_dir  # because something was found beneath
    with pytest.raises(Unlistable):
        list(store.names(Key("a/c")))
    store.prefetch_listing(Key("a/c"))


@pytest.fixture(params=["all extras", "no extras"])
def extras(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain installation has no boto3."""
    if request.param == "no extras":
        for name in ("boto3", "botocore"):
            monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.usefixtures("extras")
@pytest.mark.parametrize("page", [2, 1000])
@pytest.mark.parametrize("key", ["z/a//x", "z/a/../x", "z/a/./x", "z/a/x\ty", "z/a/x\ny", "z/a/\x7f", "z/a/\x01/y"])
def test_p8_a_key_that_cannot_be_named_hides_no_other(
    server: FakeS3, key: str, page: int, caplog: pytest.LogCaptureFixture
) -> None:
    server.put(key, b"x", 1e9)
    server.page = page
    store = open_store(server)
    assert [member.name for member in store.list(Key("a"))] == ["big", "c", "zarr.json"]
    assert sorted(name for names in store.names(Key("a")) for name in names) == ["big", "c", "zarr.json"]
    assert [list(names) for names in store.names(Key("a/c"))] == [["0", "1", "2"]]
    assert sum("no path can have this name" in record.message for record in caplog.records) >= 1
    assert {"the key 'a/" in said for said in store.left_out(Key("a"))} == {True}
    assert list(store.left_out(Key("a/c"))) == []
    assert store.read(A, 1 << 20)[0] == CHUNK


def test_markers_of_directories_are_no_objects(server: FakeS3) -> None:
    server.put("z/a/c/", b"", 1e9)
    server.put("z/a/", b"", 1e9)
    store = open_store(server)
    assert [member.name for member in store.list(Key("a"))] == ["big", "c", "zarr.json"]
    assert [list(names) for names in store.names(Key("a/c"))] == [["0", "1", "2"]]
    store = open_store(server)
    store.prefetch_listing(Key("a"))
    assert [list(names) for names in store.names(Key("a/c"))] == [["0", "1", "2"]]


def make_page(keys: Iterable[str], token: str = "") -> Fault:
    """The body of a listing with these keys; `token`: of the next page, "-" for a next one without."""
    entries = "".join(
        f"<Contents><Key>{key}</Key><LastModified>2001-09-09T01:46:40.000Z</LastModified><ETag>0</ETag><Size>1</Size></Contents>"
        for key in keys
    )
    more = f"<NextContinuationToken>{token}</NextContinuationToken>" if token.strip("-") else ""
    cut = f"<IsTruncated>{str(bool(token)).lower()}</IsTruncated>{more}"
    return Fault(status=200, body=f"<ListBucketResult>{cut}{entries}</ListBucketResult>".encode())


LISTINGS = ["list", "names", "prefetch_listing"]


def listing_calls(store: ObjectStore, key: Key) -> dict[str, Callable[[], object]]:
    """Return the calls that list the directory `key`, by `LISTINGS`."""
    return {
        "list": lambda: list(store.list(key)),
        "names": lambda: list(store.names(key)),
        "prefetch_listing": lambda: store.prefetch_listing(key),
    }


@pytest.mark.parametrize(("method", "many"), [("list", 0), *((method, many) for method in LISTINGS for many in (700, 1000))])
def test_p6_p8_a_listing_that_never_ends_is_given_up(server: FakeS3, method: str, many: int) -> None:
    """A server that takes no continuation token gives the first page for ever; it filled all memory."""
    store = open_store(server, limits=RemoteLimits(level_seconds=0.5))
    store.read(A, 1 << 20)  # the server has been heard
    again = make_page([f"z/a/c/{number:04}" for number in range(many)], "again")
    server.fault = lambda request: again if request.kind == "LIST" else None
    calls = listing_calls(store, Key("a/c"))
    with pytest.raises((Unreachable, TimedOut)):
        calls[method]()
    answered: list[int] = []
    for _ in range(2):  # the first time, what was on its way
        answered.append(sum(request.kind == "LIST" for request in server.requests))
        for _ in range(50):
            assert store.client.get("a/c/0") is not None
    assert sum(request.kind == "LIST" for request in server.requests) == answered[1]
    server.fault = lambda request: None
    until(lambda: not server.in_flight)
    assert len(list(store.list(Key("a/c")))) == 3


@pytest.mark.parametrize("method", LISTINGS)
@pytest.mark.parametrize("behind", [True, False])
def test_p3_a_server_without_second_pages_has_none_of_them_taken_for_absent(
    server: FakeS3, method: str, behind: bool
) -> None:
    """A server that knows only the first version of LIST. `behind`: it can begin behind a key."""
    keys = [f"z/n/c/{number:04}" for number in range(2500)]

    def fault(request: Request) -> Fault | None:
        if request.kind != "LIST":
            return None
        after = request.query.get("start-after", "") if behind else ""
        return make_page([key for key in keys if key > after][:1000], "-")

    server.fault = fault
    store = open_store(server)
    calls = listing_calls(store, Key("n/c"))
    if method == "list" or not behind:
        with pytest.raises(Unreachable, match=r"no more than 1000 members|again and again"):
            calls[method]()
    else:
        calls[method]()
        assert len(store.listings.level(Key("n/c"))) == 2500


@pytest.mark.parametrize("method", [*LISTINGS, "begin"])
def test_p3_a_page_for_people_in_place_of_a_listing_is_no_empty_one(server: FakeS3, method: str) -> None:
    store = open_store(server)
    login = Fault(status=200, body=b"<html>please log in</html>", headers={"Content-Type": "text/html"})
    server.fault = lambda request: login if request.kind == "LIST" or "zarr" not in request.key else None
    calls = {**listing_calls(store, Key("a/c")), "begin": store.begin}
    with pytest.raises(Unreachable, match="lists nothing, but answers as if every name existed"):
        calls[method]()


# ---- what servers do besides


def test_p9_a_redirect_is_followed_and_its_answer_is_checked(server: FakeS3) -> None:
    """obstore follows redirects to any host and cannot be told not to: the version must still be the one that was seen."""
    other = FakeS3()
    try:
        other.put("z/a/c/0", CHUNK, 1e9)
        other.put("z/a/big", bytes(len(BIG)), 1e9)

        def fault(request: Request) -> Fault | None:
            location = f"{other.endpoint}/{BUCKET}/{request.key}"
            return Fault(status=302, headers={"Location": location}) if request.kind == "GET" and request.key else None

        store = open_store(server)
        version = store.stat(LARGE, (-64, 64)).version
        server.fault = fault
        with pytest.raises(Stale):
            store.read_range(LARGE, 0, 10)
        assert store.read(A, 1 << 20)[0] == CHUNK
        assert store.stat(LARGE, WHOLE).version != version
        other.objects.clear()
        with pytest.raises(NotFound):
            store.stat(B, WHOLE)
    finally:
        other.stop()


def send_encoded(server: FakeS3, encoding: str, objects: Mapping[str, bytes]) -> None:
    """Let the server answer with these bytes, and call them encoded."""
    headers = {"ETag": '"e"', "Last-Modified": formatdate(1e9, usegmt=True), "Content-Encoding": encoding}

    def answer(request: Request) -> Fault | None:
        stored = objects.get(request.key)
        return None if stored is None else Fault(status=200, body=stored, headers=headers)

    server.fault = answer


@pytest.mark.parametrize("encoding", ["gzip", "X-GZIP", "aws-chunked, br"])
@pytest.mark.parametrize("path", ["z/a/c/0", "z/zarr.json"])
def test_a_web_server_that_compresses_unasked_is_named(server: FakeS3, encoding: str, path: str) -> None:
    """What it sends is not the object, which any other reader of the web would get."""
    send_encoded(server, encoding, {path: gzip.compress(CHUNK)})
    with pytest.raises(Unreachable, match=r"sends it compressed \(Content-Encoding: (x-)?(gzip|br)\)"):
        open_web(server).read(Key(path.removeprefix("z/")), 1 << 20)


@pytest.mark.parametrize("encoding", ["identity", "aws-chunked", "utf-8", ""])
def test_a_web_server_that_does_not_compress_is_read(server: FakeS3, encoding: str) -> None:
    send_encoded(server, encoding, {"z/a/c/0": CHUNK})
    assert open_web(server).read(A, 1 << 20)[0] == CHUNK


def test_a_document_that_was_stored_compressed_is_named(server: FakeS3) -> None:
    send_encoded(server, "gzip", {"z/zarr.json": gzip.compress(b"{}")})
    with pytest.raises(CorruptData, match="compressed with gzip"):
        DocumentReader(open_store(server), Limits()).read(Key("zarr.json"))


def test_content_encoding_is_left_alone(server: FakeS3) -> None:
    """Reads of an object store return the stored bytes, whatever a header says of them: the metadata name the codecs."""
    stored = gzip.compress(CHUNK)
    headers = {"ETag": '"e"', "Last-Modified": formatdate(1e9, usegmt=True), "Content-Encoding": "gzip"}
    server.fault = lambda request: Fault(status=200, body=stored, headers=headers) if request.key == "z/a/c/0" else None
    data, stat = open_store(server).read(A, 1 << 20)
    assert (bytes(data), stat.size) == (stored, len(stored))


def test_p11_unused_connections_are_closed(server: FakeS3) -> None:
    store = open_store(server, limits=RemoteLimits(idle_seconds=1.0))
    store.client.get("a/c/0")
    with server.gathered(4, lambda request: request.key == "z/a/c/0"), ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: store.client.get("a/c/0"), range(8)))
    assert server.connections > 1
    until(lambda: not server.connections)


def test_p11_complete_listings_are_remembered_for_few_directories(server: FakeS3) -> None:
    store = open_store(server, limits=RemoteLimits(trees=2))
    for number in range(5):
        server.put(f"z/{number}/c/0", b"x", 1e9)
        store.prefetch_listing(Key(f"{number}"))
    with server.counted() as requests:
        for number in (4, 0):
            store.prefetch_listing(Key(f"{number}"))
    assert [request.query["prefix"] for request in requests] == ["z/0/"]


def test_two_listings_at_a_time_are_one_request(server: FakeS3) -> None:
    store = open_store(server)
    server.latency = 0.1
    with server.counted() as requests, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: [member.name for member in store.list(Key("a"))], range(8)))
        list(pool.map(lambda _: store.prefetch_listing(Key("a/c")), range(8)))
    assert found == [["big", "c", "zarr.json"]] * 8
    assert len(requests) == 2


def test_a_listing_that_was_answered_meanwhile_is_not_asked_for_again(server: FakeS3) -> None:
    """Another reader begins and ends between the look at what is remembered and the request."""
    others = iter(["other"])

    class Late(Answers):
        def level(self, key: Key, since: float) -> ListedLevel | None:
            level = super().level(key, since)
            if key == "a":
                for _ in others:
                    assert len(list(store.list(key))) == 3
            return level

    store = ObjectStore(open_store(server).client, Late(60.0, 60.0))
    with server.counted() as requests:
        assert len(list(store.list(Key("a")))) == 3
    assert len(requests) == 1


def test_a_second_look_at_known_neighbours_lists_them_at_once(server: FakeS3) -> None:
    """A second `ls -lR` asked for each document by a request of its own."""
    keys = [Key(f"b{number}/zarr.json") for number in range(40)]
    for key in keys:
        server.put(f"z/{key}", b"{}" + key.encode(), 1e9)
    store = open_store(server, ttl=60.0)
    store.begin()
    before = [store.read(key, 100)[1] for key in keys]
    server.put("z/b20/zarr.json", b"other", 1e9)
    del server.objects["z/b21/zarr.json"]
    now = time.monotonic()  # what was read is too old by now, the listing of the root is not
    with server.counted() as requests, as_of(now, now - 60.0):
        for key, old in zip(keys, before, strict=True):
            if key == "b21/zarr.json":
                with pytest.raises(NotFound):
                    store.stat(key)
            else:
                assert (store.stat(key).version == old.version) == (key != "b20/zarr.json")
    assert [request.kind for request in requests].count("GET") <= 3
    assert len(requests) <= 4


def test_neighbours_are_not_listed_if_that_takes_longer_than_single_requests(server: FakeS3) -> None:
    keys = [Key(f"b{number}/zarr.json") for number in range(40)]
    for key in keys:
        server.put(f"z/{key}", b"{}", 1e9)
        for number in range(100):
            server.put(f"z/{key.parent}/c/{number}", b"x", 1e9)
    store = open_store(server, ttl=60.0)
    store.begin()
    for key in keys:
        store.read(key, 100)
    for listings in (2, 0):
        now = time.monotonic()
        with server.counted() as requests, as_of(now, now - 60.0):
            for key in keys:
                store.stat(key)
        assert [request.kind for request in requests].count("LIST") <= listings
        assert [request.kind for request in requests].count("GET") == len(keys)


def test_a_listing_that_was_slow_once_is_tried_again_later(server: FakeS3, monkeypatch: pytest.MonkeyPatch) -> None:
    """One busy moment made each `ls -lR` ask for each document, for as long as the store was mounted."""
    keys = [Key(f"b{number}/zarr.json") for number in range(40)]
    for key in keys:
        server.put(f"z/{key}", b"{}", 1e9)
    clock, store = Clock(monkeypatch), open_store(server, ttl=60.0)
    for key in keys:
        store.read(key, 100)
    for slow, later, gets in ((True, 0.0, 3), (False, 0.0, 40), (False, 60.0, 3)):
        server.page_latency = 1.0 if slow else 0.0
        clock.passes(later)
        store.begin()
        now = time.monotonic()
        with server.counted() as requests, as_of(now, now - 60.0):
            for key in keys:
                store.stat(key)
        assert abs([request.kind for request in requests].count("GET") - gets) <= 1


def test_a_directory_is_there_as_long_as_a_listing_of_it_is_believed(server: FakeS3) -> None:
    """Not only for as long as an answer about an object is: the second `find` on a slow machine asked again."""
    store = open_store(server, ttl=0.0)
    store.prefetch_listing(Key("a/c"))
    with server.counted() as requests:
        assert store.stat(Key("a/c")).is_dir
    assert not requests


def test_p9_an_answer_too_old_for_a_question_is_asked_again_whatever_the_ttl(server: FakeS3) -> None:
    """After a SIGHUP, say: nothing will do that was asked for before."""
    for ttl in (600.0, math.inf):
        store = open_store(server, ttl=ttl)
        before, names = store.stat(A), [member.name for member in store.list(Key("a"))]
        server.put(f"z/{A}", b"another text", 2e9)
        server.put(f"z/a/new{ttl}", b"new", 2e9)
        with as_of(time.monotonic() - 600):
            assert (store.stat(A), [member.name for member in store.list(Key("a"))]) == (before, names)
        with as_of(time.monotonic()):
            assert store.stat(A).size == store.stat(A, WHOLE).size == len(b"another text")
            assert [member.name for member in store.list(Key("a"))] == sorted([*names, f"new{ttl}"])
            with server.counted() as requests:
                store.stat(A), list(store.list(Key("a")))
            assert not requests, "once is enough for one question"
        server.put(f"z/{A}", b"a third one", 2e9)
        with as_of(time.monotonic()):
            assert bytes(store.read(A, 1 << 20)[0]) == b"a third one"
