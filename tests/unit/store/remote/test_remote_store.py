"""Object stores: each fault of a server, on every method. No wrong byte, no "absent" for what exists (P2, P3, P7, P9).

What a server does, and the test of it:

- 500, 503, 429, 408, a closed connection, once: `a_fault_that_passes`; for good, as silence, refusals, no bucket, a body
  (of a listing, too) that always breaks off: `a_fault_that_stays`
- a body that breaks off, or stalls, once: `a_body_that_breaks_off`, `a_body_that_stalls`
- an object that was replaced meanwhile, shrunk, removed: `replaced_while_it_is_resumed`, `has_shrunk`, `a_listing_has`
- fewer bytes: `a_body_shorter_than_its_range`; 200 for a range: `ignores_ranges`; 416: `a_range_outside_the_object`
- If-Match ignored: `bytes_of_another_version`; redirects: `a_redirect`
- `Content-Encoding`: `content_encoding`, `compresses_unasked`, `stored_compressed`
- no ETag, or one of time and size: `no_etag_and_no_time`; another one in listings: `etags_that_differ`
- 403 for what is absent: `a_refusal_is_absence`; a page for it: `has_everything`; a store that vanishes: `loses_the_store`
- refusals for another reason, with `--absent-403`: `another_reason`, `all_at_once_refused`
- errors of the source of credentials: `a_source_of_credentials`
- listings without an end, without second pages, a page for people in their place: `never_ends`, `second_pages`, `for_people`
- no TLS, no name, no server: `why_no_request_can_be_sent`
- keys with `//`, `.`, `..`, control characters: `a_key_that_cannot_be_named`; `markers_of_directories`
- 100,000 keys, a part of a listing that fails, listings in no order: `test_listings.py`
"""

from __future__ import annotations

import asyncio
import gzip
import json
import math
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from email.utils import formatdate
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_s3 import BIG, BUCKET, CHUNK, FakeS3, Fault, Request, recovered
from waiting import Clock, until

from fsbridge import asking
from fsbridge.asking import WouldWait, as_of
from fsbridge.config import Config, Limits, Remote
from fsbridge.errors import (
    AccessDenied,
    CorruptData,
    FsbridgeError,
    NotFound,
    SetupError,
    Stale,
    TimedOut,
    TooLarge,
    Unlistable,
    Unreachable,
)
from fsbridge.formats.detect import detect
from fsbridge.formats.documents import DocumentReader
from fsbridge.formats.open import Opening, open_source
from fsbridge.formats.records import ZARR2
from fsbridge.store import ROOT, WHOLE, Key
from fsbridge.store.remote import answers, backends, client, faults
from fsbridge.store.remote.answers import Answers
from fsbridge.store.remote.blocks import BlockCache
from fsbridge.store.remote.client import Client
from fsbridge.store.remote.faults import NoRanges, Refused
from fsbridge.store.remote.listings import Listings, split
from fsbridge.store.remote.store import ObjectStore
from fsbridge.store.remote.urls import parse_url

A, B, LARGE = Key("a/c/0"), Key("a/c/1"), Key("a/big")


def opened(server: FakeS3, ttl: float = 1.0, **remote: object) -> ObjectStore:
    """The store `z` in the bucket."""
    options = Remote(anonymous=True, region="us-east-1", endpoint=server.endpoint, **remote)  # type: ignore[arg-type]
    return ObjectStore(Client(parse_url(f"s3://{BUCKET}/z"), options), Answers(ttl, 60.0))


def web(server: FakeS3, ttl: float = 1.0) -> ObjectStore:
    """Open the store by plain HTTP."""
    return ObjectStore(Client(parse_url(server.url("z")), Remote()), Answers(ttl, 60.0))


def every(store: ObjectStore) -> dict[str, Callable[[], object]]:
    """One call of each kind for what exists."""
    return {
        "stat": lambda: store.stat(A),
        "stat of what is read next": lambda: store.stat(B, WHOLE),
        "read": lambda: store.read(A, 1 << 20),
        "range": lambda: store.read_range(LARGE, 5, 10),
        "suffix": lambda: store.read_range(LARGE, -10, 10),
        "list": lambda: list(store.list(Key("a"))),
        "names": lambda: list(store.names(Key("a/c"))),
        "mtimes": lambda: store.mtimes(Key("a/c"), ["0"]),
        "prefetch_listing": lambda: store.prefetch_listing(Key("a")),
    }


METHODS = list(every(ObjectStore.__new__(ObjectStore)))


def test_reads_stats_and_lists(server: FakeS3) -> None:
    store = opened(server)
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
        store = opened(server)
        store.begin()
        return [member.name for key in (ROOT, Key("a")) for member in store.list(key)]

    assert asyncio.run(cell()) == ["a", "zarr.json", "big", "c", "zarr.json"]


@pytest.mark.parametrize("span", [(0, len(BIG) + 1), (len(BIG), 1), (-len(BIG) - 1, 5), (len(BIG) - 2, 4)])
@pytest.mark.parametrize("known", [True, False])
def test_a_range_outside_the_object_is_an_error(server: FakeS3, span: tuple[int, int], known: bool) -> None:
    store = opened(server)
    if known:
        store.stat(LARGE, WHOLE)
    with pytest.raises(CorruptData):
        store.read_range(LARGE, *span)


@pytest.mark.usefixtures("kept")
def test_one_get_is_stat_open_and_first_read(server: FakeS3) -> None:
    store = opened(server, ttl=60.0)
    for key, wanted in ((A, CHUNK), (LARGE, BIG)):
        with server.counted() as requests:
            stat = store.stat(key, WHOLE)
            assert store.stat(key, WHOLE) == stat
            assert store.read(key, 1 << 24) == (wanted, stat)
        assert len(requests) == 1
    with server.counted() as requests:
        assert store.read_range(A, 3, 4)[0] == CHUNK[3:7]
    assert not requests


@pytest.mark.parametrize("method", METHODS)
def test_p7_the_event_loop_makes_no_request(server: FakeS3, method: str) -> None:
    store = opened(server)
    call = every(store)[method]
    with server.counted() as requests, asking.without_waiting(), pytest.raises(WouldWait):
        call()
    assert not requests
    call()


@pytest.mark.usefixtures("kept")
def test_p7_the_event_loop_gets_what_is_known_and_takes_no_body_from_its_reader(server: FakeS3) -> None:
    store = opened(server, ttl=60.0)
    for key, wanted in ((A, CHUNK), (LARGE, BIG)):
        stat = store.stat(key, WHOLE)
        with server.counted() as requests:
            with asking.without_waiting():
                assert store.stat(key, WHOLE) == stat
                with pytest.raises(WouldWait):
                    store.read(key, 1 << 24)
            assert store.read(key, 1 << 24) == (wanted, stat)
        assert not requests


@pytest.mark.usefixtures("kept")
def test_what_is_read_next_comes_with_the_look_up(server: FakeS3) -> None:
    store = opened(server, ttl=60.0)
    with server.counted() as requests:
        stat = store.stat(LARGE, (-64, 64))
        assert stat.size == len(BIG)
        assert store.read_range(LARGE, len(BIG) - 64, 64)[0] == BIG[-64:]
        assert store.read_range(LARGE, 10, 5)[0] == BIG[10:15]
    assert [request.range for request in requests] == ["bytes=-64", "bytes=10-14"]


def test_after_the_ttl_one_request_without_a_body_finds_nothing_changed(
    server: FakeS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, clock = opened(server, ttl=60.0), Clock(monkeypatch)
    stat = store.stat(A)
    clock.passes(60.0)
    with server.counted() as requests:
        assert store.stat(A) == stat
    assert [request.headers.get("if-none-match") is not None for request in requests] == [True]
    server.put("z/a/c/0", b"new", 1e9)
    clock.passes(60.0)
    assert store.stat(A).version != stat.version
    assert store.read(A, 100)[0] == b"new"


def test_p11_unread_bodies_are_let_go(server: FakeS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsbridge.store.remote.answers.KEPT_SECONDS", 0.1)
    store = opened(server, ttl=0.1)
    store.stat(LARGE, WHOLE)
    store.stat(A, WHOLE)
    until(lambda: not store._answers._bodies)
    assert store.read(LARGE, 1 << 24)[0] == BIG


def test_one_recursive_listing_answers_for_all_directories(server: FakeS3) -> None:
    for i in range(40):
        for j in range(40):
            server.put(f"z/n/c/{i}/{j}", b"x", 1e9)
    store = opened(server)
    with server.counted() as requests:
        store.prefetch_listing(Key("n/c"))
        assert sorted(member.name for member in store.list(Key("n/c"))) == sorted(map(str, range(40)))
        for i in range(40):
            assert sorted(name for names in store.names(Key(f"n/c/{i}")) for name in names) == sorted(map(str, range(40)))
            assert store.mtimes(Key(f"n/c/{i}"), ["0", "40"]) == [10**18, None]
    assert len(requests) == 2  # pages


def test_p6_a_flat_directory_of_many_chunks_streams_and_is_not_kept(server: FakeS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsbridge.store.remote.listings.MAX_MEMBERS", 2500)
    for number in range(3100):
        server.put(f"z/flat/{number}.0", b"x", 1e9)
        if number < 1100:
            server.put(f"z/few/{number}.0", b"x", 1e9)
    store = opened(server)
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
    store = opened(server)
    assert store.mtimes(Key("a/c"), ["0", "9"]) == [10**18, 11 * 10**18]
    assert store.read(Key("a/c/9"), 1 << 20)[0] == CHUNK


def test_p6_listings_stay_within_their_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MAX_MEMBERS", 10)
    remembered = Answers(60.0, 60.0)
    since = remembered.listed_since()
    now = time.monotonic()
    found = split(ROOT, iter([[client.Object(f"d{i}/{j}", 1, 0, "e") for j in range(3)] for i in range(5)]), now)
    assert found is not None
    remembered.put_tree(ROOT, found, now)
    assert remembered.level(Key("d4"), since) is not None
    assert remembered.level(Key("d0"), since) is None
    assert split(ROOT, iter([[client.Object(f"{i}", 1, 0, None) for i in range(11)]]), 1.0, 10) is None
    assert split(ROOT, iter([[client.Object("/".join("abcdefghijk"), 1, 0, None)]]), 1.0, 10) is None


# ---- faults


@pytest.mark.parametrize("fault", [*(Fault(status=status) for status in (500, 503, 429, 408)), Fault(close=True)])
@pytest.mark.parametrize("method", METHODS)
def test_a_fault_that_passes_is_not_seen(server: FakeS3, method: str, fault: Fault) -> None:
    store = opened(server)
    server.fault = lambda request: fault if request.number == 0 else None
    every(store)[method]()


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault(status=500), Unreachable),
        (Fault(status=503), Unreachable),
        (Fault(status=429), Unreachable),
        (Fault(status=408), Unreachable),
        (Fault(close=True), Unreachable),
        (Fault(truncate=0), FsbridgeError),
        (Fault(truncate=0, stall=30.0), FsbridgeError),
        (Fault(stall=30.0), FsbridgeError),
        (Fault(status=403, body=b"<Error><Code>AccessDenied</Code></Error>"), AccessDenied),
        (Fault(status=401), AccessDenied),
        (Fault(status=400, body=b"<Error><Code>ExpiredToken</Code></Error>"), AccessDenied),
        (Fault(status=404, body=b"<Error><Code>NoSuchBucket</Code></Error>"), Unreachable),
        (Fault(status=403, body=b"<Error><Code>RequestTimeTooSkewed</Code></Error>"), AccessDenied),
        (Fault(status=301), Refused),
        (Fault(status=404, body=b"default backend - 404"), Unreachable),  # of a gateway without its server
        (Fault(status=404, body=b"<Error><Code>ResourceNotFound</Code></Error>"), Unreachable),
    ],
)
def test_p3_p7_a_fault_that_stays_is_an_error_and_never_absence(
    server: FakeS3, impatient: Callable[[Fault], None], fault: Fault, error: type[Exception]
) -> None:
    """Every method of a store of its own meets it, all at a time: each waits for several seconds."""
    impatient(fault)
    calls = {method: every(opened(server))[method] for method in METHODS}
    server.fault = lambda request: fault
    begun = time.monotonic()
    with ThreadPoolExecutor(len(calls)) as pool:
        raised = dict(zip(calls, pool.map(error_of, calls.values()), strict=True))
    assert time.monotonic() - begun < 20
    server.fault = lambda request: None
    for method, call in calls.items():
        assert isinstance(raised[method], error), method
        assert not isinstance(raised[method], NotFound), method
        recovered(call)


def error_of(call: Callable[[], object]) -> FsbridgeError | None:
    try:
        call()
    except FsbridgeError as error:
        return error
    return None


def test_p2_a_body_that_breaks_off_is_resumed_and_never_short(server: FakeS3) -> None:
    store = opened(server)
    server.fault = lambda request: Fault(truncate=5000) if request.number == 0 else None
    assert store.read(LARGE, 1 << 24)[0] == BIG
    assert store.read(A, 1 << 24)[0] == CHUNK
    assert len(list(store.list(Key("a")))) == 3  # obstore does not resume a listing: we do
    assert len([name for names in store.names(Key("a/c")) for name in names]) == 3
    store.prefetch_listing(Key("a"))


def test_p9_an_object_that_is_replaced_while_it_is_resumed_is_an_error(server: FakeS3) -> None:
    store = opened(server)

    def fault(request: Request) -> Fault | None:
        if request.kind == "GET" and request.number == 0:
            return Fault(truncate=5000)
        server.put("z/a/big", bytes(len(BIG)), 2e9)
        return None

    server.fault = fault
    with pytest.raises(FsbridgeError):
        store.read(LARGE, 1 << 24)


@pytest.mark.parametrize("method", ["read", "range", "suffix", "stat of what is read next"])
def test_p2_a_body_shorter_than_its_range_is_an_error(server: FakeS3, method: str) -> None:
    """obstore gives short bytes without a word where Content-Length and Content-Range disagree."""
    store = opened(server)
    server.fault = lambda request: Fault(short=3) if request.range else None
    if method in ("range", "suffix"):
        with pytest.raises(FsbridgeError, match="sent"):
            every(store)[method]()
    else:
        every(store)[method]()


def test_a_server_that_ignores_ranges_is_named(server: FakeS3) -> None:
    server.fault = lambda request: Fault(ignore_range=True)
    for store in (opened(server), web(server)):
        with pytest.raises(NoRanges, match="ignores ranges"):
            store.read_range(LARGE, 5, 10)


def test_a_look_up_of_a_server_that_ignores_ranges_downloads_nothing(server: FakeS3) -> None:
    """Its body would stall."""
    server.fault = lambda request: Fault(ignore_range=True, truncate=10, stall=60.0)
    store = web(server)
    assert [store.stat(Key(f"a/c/{number}"), (0, 1)).size for number in range(3)] == [len(CHUNK) - n for n in range(3)]
    server.fault = lambda request: Fault(ignore_range=True)
    assert store.stat(B, (-10, 10)).size == len(CHUNK) - 1
    assert store.read_range(B, -10, 10)[0] == CHUNK[-10:], "a small object came as a whole"


def test_p7_a_body_that_stalls_is_resumed(server: FakeS3, monkeypatch: pytest.MonkeyPatch) -> None:
    for patience in (client._METADATA, client._DATA):
        monkeypatch.setitem(patience, "timeout", 1.0)
    store = opened(server)
    server.fault = lambda request: Fault(truncate=5000, stall=30.0) if request.number == 0 else None
    assert store.read(LARGE, 1 << 24)[0] == BIG


def test_p9_an_object_that_has_shrunk_since_it_was_looked_at_is_stale(server: FakeS3) -> None:
    """The range of the one is beyond the end of the other: the server says 416, or 412 before that."""
    for fault in (None, Fault(ignore_match=True)):
        server.put("z/a/big", BIG, 1e9)
        server.fault = lambda request, fault=fault: fault  # type: ignore[misc]
        store = opened(server)
        store.stat(LARGE, (0, 10))
        server.put("z/a/big", b"short", 2e9)
        with pytest.raises((Stale, CorruptData)):
            store.read_range(LARGE, len(BIG) - 100, 100)


def test_p3_what_a_listing_has_and_the_server_no_longer_is_an_error_at_once_and_gone_then(server: FakeS3) -> None:
    store = opened(server, ttl=0.0)
    assert store.begin()
    assert len(list(store.list(Key("a/c")))) == 3
    del server.objects["z/a/c/1"]
    with pytest.raises(NotFound):
        store.read(B, 1 << 20)
    server.put("z/a/c/9", CHUNK, 1e9)  # not in the remembered listing, but opened by its name
    assert store.read(Key("a/c/9"), 1 << 20)[0] == CHUNK


def test_p3_an_empty_object_is_damage_where_bytes_are_wanted_and_never_absent(server: FakeS3) -> None:
    server.put("z/a/c/0", b"", 1e9)
    store = opened(server)
    assert store.stat(A, WHOLE).size == 0
    for span in ((-64, 64), (0, 10)):
        fresh = opened(server)
        with pytest.raises(CorruptData):
            fresh.stat(A, span)
        with pytest.raises(CorruptData):
            fresh.read_range(A, *span)


@pytest.mark.parametrize("ignore", [False, True])
def test_p9_bytes_of_another_version_are_noticed(server: FakeS3, ignore: bool) -> None:
    """Many servers ignore If-Match: comparing the answer's ETag is the check."""
    server.fault = lambda request: Fault(ignore_match=ignore)
    store = opened(server)
    before = store.stat(LARGE, (-64, 64))
    server.put("z/a/big", bytes(len(BIG)), 1e9)
    with pytest.raises(Stale):
        store.read_range(LARGE, 0, 10)
    assert store.stat(LARGE, WHOLE).version != before.version
    assert store.read_range(LARGE, 0, 10)[0] == bytes(10)


def test_weak_etags_are_versions_that_no_request_can_be_bound_to(server: FakeS3, tmp_path: Path) -> None:
    """If-Match compares strongly, so that a weak ETag never matches; nor does it stand for these very bytes."""
    server.put("z/a/big", BIG, 1e9, etag="W/5d-1a2b")
    store = web(server)
    version = store.stat(LARGE, (-64, 64)).version
    for start in (0, 10):
        assert store.read_range(LARGE, start, 10) == (BIG[start : start + 10], store.stat(LARGE))
    assert store.read(LARGE, 1 << 30)[0] == BIG
    server.put("z/a/big", BIG, 1e9, etag="5d-1a2b")  # as Apache does, a second later
    assert web(server).stat(LARGE, (-64, 64)).version == version
    server.put("z/a/big", bytes(len(BIG)), 1e9, etag="W/5d-1a2c")
    with pytest.raises(Stale):
        store.read_range(LARGE, 0, 10, len(BIG))
    cached = [
        ObjectStore(
            Client(parse_url(server.url("z")), Remote()), Answers(1.0, 60.0), BlockCache(str(tmp_path / "b"), 1 << 30, "z")
        )
        for _ in range(2)
    ]
    assert cached[0].read(LARGE, 1 << 30)[0] == bytes(len(BIG))
    assert cached[0]._blocks is not None
    cached[0]._blocks.flush()
    assert cached[1]._blocks is not None
    assert not cached[1]._blocks.holds(LARGE)


def test_etags_that_differ_between_list_and_get_are_not_changes(server: FakeS3) -> None:
    server.listed_etag = lambda stored: f"other-{stored.etag}"  # type: ignore[method-assign]
    store = opened(server)
    assert store.begin()
    list(store.list(Key("a")))
    list(store.list(Key("a/c")))
    for key in (A, B, A):
        version = store.stat(key, WHOLE).version
        assert store.read(key, 1 << 20)[1].version == version


def test_listed_objects_need_no_request_where_etags_agree(server: FakeS3) -> None:
    store = opened(server, ttl=60.0)
    store.begin()
    store.read(Key("zarr.json"), 100)
    list(store.list(Key("a/c")))
    with server.counted() as requests:
        stat = store.stat(A)
    assert not requests
    assert store.read(A, 1 << 20)[1].version == stat.version


def test_no_etag_and_no_time_is_a_version_that_has_not_settled(server: FakeS3) -> None:
    server.fault = lambda request: Fault(etag="")
    store = opened(server)
    assert store.read(A, 1 << 20)[0] == CHUNK
    server.fault = lambda request: Fault(etag="5f3a1b2c-2800")  # nginx: time and size
    server.put("z/a/c/1", CHUNK[1:], time.time())
    assert not opened(server).stat(B).settled
    assert opened(server).stat(A).settled


NGINX = "5f3a1b2c-2800"
"""An ETag of time and size: two writes of one size within a second share it."""


@pytest.mark.parametrize(
    "etag", ["0x8DB3E1C5F1A4B7C", "d41d8cd98f00b204e9800998ecf8427e-12", "d41d8cd98f00b204e9800998ecf8427e"]
)
def test_etags_that_no_other_bytes_can_have_need_no_second_look(server: FakeS3, etag: str) -> None:
    server.put("z/a/c/0", CHUNK, time.time(), etag)
    assert opened(server).stat(A).settled


@pytest.mark.parametrize("off", [-7200, 7200])
def test_p9_objects_dated_far_from_now_count_as_settled(server: FakeS3, off: int) -> None:
    """A clock was set, or the date is none of a clock: it would not be settled until our clock has caught up."""
    server.put("z/a/c/0", CHUNK, time.time() + off, NGINX)
    assert opened(server).stat(A).settled


def test_p9_a_second_is_over_when_the_servers_clock_says_so(server: FakeS3, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not ten minutes later: so long might our clock be behind, and whole arrays could not be read."""
    server.put("z/a/c/0", CHUNK, time.time(), NGINX)
    server.put("z/a/c/1", CHUNK, time.time() - 30, NGINX)
    store = opened(server, ttl=0.0)
    assert not store.stat(A).settled
    assert store.stat(B).settled  # the clock has shown 30 seconds more than its date
    monkeypatch.setattr(answers, "TICK_SECONDS", 0.0)
    assert store.stat(A).settled


@pytest.mark.parametrize("etag", [NGINX, "3846923741", "s8p4vl7wg"])
def test_p9_an_etag_that_may_stand_for_other_bytes_proves_nothing(server: FakeS3, etag: str) -> None:
    """ETags as nginx, lighttpd and Caddy make them."""
    now = time.time()
    server.put("z/a/c/0", CHUNK, now, etag)
    store = opened(server)
    assert store.read(A, 1 << 20)[0] == CHUNK
    server.put("z/a/c/0", CHUNK[::-1], now, etag)
    known = store._answers.last(A)
    assert known is not None
    store._answers.put(A, known.stat, known.etag, known.asked - 2.0)  # longer ago than is believed
    store.stat(A, WHOLE)
    assert store.read(A, 1 << 20)[0] == CHUNK[::-1]


def test_p9_the_block_cache_keeps_nothing_of_such_an_object(
    server: FakeS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    server.put("z/a/c/0", CHUNK, now, NGINX)
    end = (-16, 16)

    def cached() -> ObjectStore:
        store = opened(server)
        store._blocks = BlockCache(str(tmp_path / "cache"), 1 << 20, "s3://bucket/z")
        return store

    first = cached()
    first.stat(A, end)
    assert first.read_range(A, *end)[0] == CHUNK[-16:]
    assert first._blocks is not None
    first._blocks.flush()
    server.put("z/a/c/0", CHUNK[::-1], now, NGINX)
    monkeypatch.setattr(answers, "COARSE_SECONDS", -1)
    second = cached()
    second.stat(A, end)
    assert second.read_range(A, *end)[0] == CHUNK[::-1][-16:]


def test_p3_a_refusal_is_absence_only_when_the_user_says_so(server: FakeS3) -> None:
    refused = s3_error(403, "AccessDenied")
    server.fault = lambda request: refused if request.kind == "LIST" or request.key == "z/gone" else None
    store = opened(server)
    assert store.begin()
    assert not store.listable
    with pytest.raises(AccessDenied):
        store.stat(Key("gone"), WHOLE)
    with pytest.raises(NotFound):
        opened(server, absent_403=True).stat(Key("gone"), WHOLE)
    with pytest.raises(Unlistable):
        list(store.list(Key("a")))
    assert store.read(A, 1 << 20)[0] == CHUNK


def s3_error(status: int, code: str, message: str = "") -> Fault:
    return Fault(status=status, body=f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode())


@pytest.mark.parametrize(
    "fault",
    [
        s3_error(403, "RequestTimeTooSkewed"),
        s3_error(403, "SignatureDoesNotMatch"),
        s3_error(403, "InvalidObjectState", "The operation is not valid for the object's storage class"),
        s3_error(403, "AccessDenied", "arn:x is not authorized to perform: kms:Decrypt on this resource"),
        s3_error(400, "ExpiredToken"),
        Fault(status=401),
        Fault(status=403, body=b"<html>a gateway's page</html>"),
    ],
)
def test_p3_a_refusal_for_another_reason_is_never_absence(server: FakeS3, fault: Fault) -> None:
    """Credentials that expire while a store is mounted, an archived object: all chunks would be fill values."""
    store = opened(server, absent_403=True)
    assert store.begin()
    server.fault = lambda request: fault
    for key in (A, LARGE):
        with pytest.raises(AccessDenied):
            store.stat(key, WHOLE)
        with pytest.raises(AccessDenied):
            store.read(key, 1 << 24)


@pytest.mark.parametrize(("status", "error"), [(404, Refused), (403, Refused), (412, Refused), (500, Unreachable)])
def test_p3_an_error_of_a_source_of_credentials_is_never_absence(
    server: FakeS3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: int, error: type[Exception]
) -> None:
    """A role that is taken away while a store is mounted is 404 there, or 403: all chunks would be fill values."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{server.endpoint}/{BUCKET}/role")
    (tmp_path / "token").write_text("token")
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
    body = b"<Error><Code>AccessDenied</Code></Error>"
    server.fault = lambda request: Fault(status=status, body=body) if request.key == "role" else None
    options = Remote(region="us-east-1", endpoint=server.endpoint, absent_403=True)
    store = ObjectStore(Client(parse_url(f"s3://{BUCKET}/z"), options), Answers(1.0, 60.0))
    for call in (lambda: store.stat(A, WHOLE), lambda: list(store.list(Key("a"))), store.begin):
        with pytest.raises(error) as caught:
            call()
        assert status == 500 or "no credentials can be obtained: the server answers with status" in str(caught.value)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("Error performing token request: Error performing GET http://h/msi in 1ms - status code: 404 Not Found: ", Refused),
        ("Error performing token request: Error performing POST http://h/t in 1ms - status code: 500 : ", Unreachable),
        ("Error getting token response body: HTTP error: expected value at line 1 column 1", Unreachable),
        ("Error performing POST REDACTED in 1ms - Server returned non-2xx status code: 403 Forbidden: ", Refused),
        ("Error performing PUT http://h/latest/api/token in 1ms - status code: 404 Not Found: ", Refused),
    ],
)
def test_p3_tokens_that_are_not_there_are_no_objects(said: str, error: type[Exception]) -> None:
    """Errors as obstore words them for Azure and Google, for roles by web identity and of machines."""
    found = faults.translate(type("GenericError", (Exception,), {})(f"Generic error: {said}"), "s3://b/z/c/0")
    assert isinstance(found, error)
    assert "no credentials can be obtained" in str(found)


def test_p3_what_is_listed_or_all_at_once_refused_is_not_absent(server: FakeS3) -> None:
    store = opened(server, absent_403=True)
    assert store.begin()
    store.read(Key("zarr.json"), 100)
    list(store.list(Key("a/c")))
    server.fault = lambda request: s3_error(403, "AccessDenied") if request.key == f"z/{A}" else None
    with pytest.raises(AccessDenied):
        store.read(A, 1 << 20)
    server.fault = lambda request: s3_error(403, "AccessDenied") if request.key == "z/x/b" else None
    with pytest.raises(NotFound):
        store.read(Key("x/b"), 1 << 20)
    server.fault = lambda request: s3_error(403, "AccessDenied")
    with pytest.raises(Unreachable):
        store.read(Key("x/c"), 1 << 20)


def test_p3_a_server_that_has_everything_is_refused(server: FakeS3) -> None:
    soft = Fault(status=200, body=b"<html>not found</html>")
    server.fault = lambda request: soft if request.key[2:10] == "fsbridge" else None
    with pytest.raises(SetupError, match="answers as if every name existed"):
        web(server).begin()


def test_p3_a_web_server_that_loses_the_store_is_an_error(server: FakeS3) -> None:
    store = web(server, ttl=0.0)
    store.begin()
    store.read(Key("zarr.json"), 100)
    with pytest.raises(NotFound):
        store.stat(Key("a/c/9"), WHOLE)
    store.read(A, 1 << 20)
    server.objects.clear()  # in the moment after it was there
    for key in (Key("a/c/8"), A, Key("zarr.json")):
        with pytest.raises(Unreachable, match="lost the store"):
            store.stat(key, WHOLE)


def test_p3_an_object_that_is_removed_from_a_web_server_does_not_make_the_others_errors(server: FakeS3) -> None:
    store = web(server, ttl=0.0)
    for key in (A, B, Key("zarr.json")):
        store.read(key, 1 << 20)
    del server.objects["z/zarr.json"]
    with pytest.raises(NotFound):
        store.stat(Key("zarr.json"), WHOLE)
    with server.counted() as requests, pytest.raises(NotFound):
        store.stat(Key("a/c/9"), WHOLE)
    assert [request.key for request in requests] == ["z/a/c/9", "z/a/c/1"]
    assert requests[1].headers["if-none-match"]  # so that no body is sent


def test_p3_an_array_that_is_removed_from_a_web_server_is_absent(server: FakeS3) -> None:
    store = web(server, ttl=0.0)
    for key in (Key("zarr.json"), A, B):
        store.read(key, 1 << 20)
    for name in [name for name in server.objects if name.startswith("z/a/")]:
        del server.objects[name]
    for _ in range(2):
        with server.counted() as requests, pytest.raises(NotFound):
            store.stat(Key("a/zarr.json"), WHOLE)
    assert [request.key for request in requests] == ["z/a/zarr.json", "z/zarr.json"]


def test_p3_a_store_without_any_of_its_objects_is_no_empty_group(server: FakeS3) -> None:
    store = opened(server, ttl=0.0)
    store._answers._listing_ttl = 0.0
    assert store.begin()
    server.objects.clear()
    with pytest.raises(Stale, match="no longer there"):
        list(store.list(ROOT))
    assert not opened(server).begin()


def test_a_flat_array_of_many_chunks_at_the_root_is_mounted_before_all_are_listed(
    server: FakeS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsbridge.store.remote.probing.LISTING_SECONDS", 0.1)
    server.objects.clear()
    document = {
        "chunks": [1],
        "compressor": None,
        "dtype": "<i4",
        "fill_value": 0,
        "filters": None,
        "order": "C",
        "shape": [20000],
    }
    server.put("z/.zarray", json.dumps({**document, "zarr_format": 2}).encode(), 1e9)
    for number in range(20000):
        server.put(f"z/{number}", number.to_bytes(4, "little"), 1e9)
    store = opened(server)
    with server.counted() as requests, server.held(lambda request: "continuation-token" in request.query):
        assert store.begin()
    assert len(requests) < 10, "not a page for each thousand chunks"
    assert detect(store, Config("", "")) == ZARR2
    root: Any = Opening().open_in_store("zarr2", store, Config("", "")).root
    out = bytearray(4)
    root.chunks.read_into((12345,), root.chunks.find((12345,)), memoryview(out))
    assert int.from_bytes(out, "little") == 12345


@pytest.fixture
def encrypting(tmp_path: Path) -> Iterator[int]:
    """The port of a server with a certificate of its own making, which ends each connection at once."""
    certificate = tmp_path / "certificate.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = [
        "-addext",
        "subjectAltName=DNS:localhost",
        "-addext",
        "basicConstraints=CA:FALSE",
        "-keyout",
        tmp_path / "key.pem",
        "-out",
        certificate,
    ]
    subprocess.run([*words, *names], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, tmp_path / "key.pem")
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:

        def serve() -> None:
            while True:
                try:
                    connection = listening.accept()[0]
                except OSError:  # the test is over
                    return
                with connection, suppress(OSError):
                    context.wrap_socket(connection, server_side=True).close()

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


def test_why_no_request_can_be_sent_is_said(encrypting: int) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # no other process gets this port meanwhile
        closed = silent.getsockname()[1]
        for place, said in (
            (
                f"https://localhost:{encrypting}",
                "this machine does not trust the server's certificate; SSL_CERT_FILE may name",
            ),
            (f"http://127.0.0.1:{closed}", "nothing listens at the server's address"),
        ):
            for url, endpoint in ((f"{place}/z", ""), ("s3://bucket/z", place)):
                options = Remote(anonymous=True, region="us-east-1", endpoint=endpoint)
                with pytest.raises(Unreachable, match=said):
                    ObjectStore(Client(parse_url(url), options), Answers(1.0, 60.0)).begin()
    text = (
        'HTTP error: error sending request\n\nDebug source:\nConnectError("dns error", Custom {})'  # no server is asked here
    )
    assert "this machine cannot find the server's name" in str(faults.translate(RuntimeError(text), "http://server/z"))


@pytest.mark.parametrize(
    "url", ["https://localhost/z", "s3://bucket/z", "gs://bucket/z", "az://box@account.blob.core.windows.net/z"]
)
def test_a_machine_without_certificates_is_told_so(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty.pem").touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "empty.pem"))
    for name in ("SSL_CERT_DIR", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SetupError, match=r"no certificates .*; install ca-certificates, or set SSL_CERT_FILE"):
        ObjectStore(Client(parse_url(url), Remote(anonymous=True, region="us-east-1")), Answers(1.0, 60.0)).begin()


def test_amazons_own_variable_for_trusted_certificates_is_heeded(
    encrypting: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Remote(anonymous=True, region="us-east-1", endpoint=f"https://localhost:{encrypting}")
    for name, error, said in (
        ("certificate.pem", Unreachable, "the connection to the server failed or broke off"),  # it ends each one
        ("gone.pem", SetupError, "AWS_CA_BUNDLE .*gone.pem: no such file"),
    ):
        monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / name))
        with pytest.raises(error, match=said):
            ObjectStore(Client(parse_url("s3://bucket/z"), options), Answers(1.0, 60.0)).begin()


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that accepts connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("url", ["s3://bucket/z", "{}/z", "{}/z.h5", "s3://bucket/z.h5"])
def test_p7_opening_a_store_of_a_silent_server_fails_with_the_reason(
    silent: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client._METADATA["timeout"] < client.FIRST_SECONDS, "what answers just within a request's time is there"
    assert client.FIRST_SECONDS < 4.5, "a line within five seconds of the command"
    monkeypatch.setattr(client, "FIRST_SECONDS", 0.3)
    url = url.format(silent)
    options = Remote(anonymous=True, region="us-east-1", endpoint=silent)
    with pytest.raises(SetupError, match=re.escape(url) + ".*no answer from the server within 0.3 seconds; check"):
        open_source(url, Config(url, "", remote=options))


def test_a_server_that_is_slow_is_no_silent_one(server: FakeS3, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first page of a listing is an answer, however long the rest takes."""
    monkeypatch.setattr("fsbridge.store.remote.probing.LISTING_SECONDS", 0.1)
    monkeypatch.setattr(client, "FIRST_SECONDS", 1.0)
    for number in range(2000):
        server.put(f"many/{number}", b"x", 1e9)
    server.fault = lambda request: Fault(stall=2.0) if "continuation-token" in request.query else None
    options = Remote(anonymous=True, region="us-east-1", endpoint=server.endpoint)
    store = ObjectStore(Client(parse_url(f"s3://{BUCKET}/many"), options), Answers(60.0, 60.0))
    assert store.begin()
    assert len(list(store.list(ROOT))) == 2000


def test_p3_a_slow_listing_of_nothing_is_nothing(server: FakeS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsbridge.store.remote.probing.LISTING_SECONDS", 0.01)
    server.objects.clear()
    server.page_latency = 0.2
    assert not opened(server).begin()


def test_the_web_has_no_listings(server: FakeS3) -> None:
    store = web(server)
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
    store = opened(server)
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
    store = opened(server)
    assert [member.name for member in store.list(Key("a"))] == ["big", "c", "zarr.json"]
    assert [list(names) for names in store.names(Key("a/c"))] == [["0", "1", "2"]]
    store = opened(server)
    store.prefetch_listing(Key("a"))
    assert [list(names) for names in store.names(Key("a/c"))] == [["0", "1", "2"]]


def test_what_servers_say_is_not_passed_on(server: FakeS3) -> None:
    """Servers repeat tokens in their error texts."""
    secret = "AKIAPLANTED/SECRET+"
    for status, code in ((403, "InvalidToken"), (400, "ExpiredToken"), (500, "InternalError"), (404, "NoSuchKey")):
        body = f"<Error><Code>{code}</Code><Message>{secret}</Message><Token>{secret}</Token></Error>".encode()
        server.fault = lambda request, status=status, body=body: Fault(status=status, body=body)  # type: ignore[misc]
        with pytest.raises(FsbridgeError) as caught:
            opened(server).read(A, 1 << 20)
        assert secret not in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (Fault(status=301), "wrong region; say --region"),
        (Fault(status=301, headers={"x-amz-bucket-region": "eu-west-1"}), "it is eu-west-1; say --region eu-west-1"),
        (Fault(status=301, headers={"x-amz-bucket-region": "eu-west-1?token=PLANTED"}), "wrong region; say --region NAME"),
        (
            Fault(status=400, body=b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region></Error>"),
            "wrong region: it is eu-west-1; say --region",
        ),
        (Fault(status=403, body=b"<Error><Code>RequestTimeTooSkewed</Code></Error>"), "clock is wrong"),
        (Fault(status=403, body=b"<Error><Code>SignatureDoesNotMatch</Code></Error>"), "credentials are wrong"),
        (Fault(status=404, body=b"<Error><Code>NoSuchBucket</Code></Error>"), "bucket does not exist"),
    ],
)
def test_mistakes_are_one_line_that_says_what_helps(server: FakeS3, fault: Fault, text: str) -> None:
    server.fault = lambda request: fault
    with pytest.raises(FsbridgeError, match=text):
        opened(server).begin()


@pytest.mark.parametrize("fault", [Fault(status=500), Fault(close=True)])
def test_errors_never_mention_names_that_only_fsbridge_asks_for(server: FakeS3, fault: Fault) -> None:
    server.fault = lambda request: fault if request.key.rpartition("/")[2].startswith("fsbridge-") else None
    with pytest.raises(FsbridgeError) as caught:
        web(server).begin()
    assert str(caught.value).startswith(f"{server.url('z')}: ")
    assert "fsbridge-" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "variables"),
    [("s3://b/z", "AWS_ACCESS_KEY_ID and"), ("gs://b/z", "GOOGLE_APPLICATION_CREDENTIALS"),
     ("az://b@a.blob.core.windows.net/z", "AZURE_STORAGE_ACCOUNT_KEY"), ("abfs://b/z", "AZURE_STORAGE_ACCOUNT_KEY")],
)  # fmt: skip
def test_without_credentials_the_error_says_where_they_are_looked_for(url: str, variables: str) -> None:
    found = faults.translate(RuntimeError("error sending request for url (http://169.254.169.254/metadata)"), url)
    assert str(found).startswith(f"{url}: no credentials; set {variables}")


@pytest.mark.parametrize(
    "place", ["http://169.254.169.254/latest/api/token", "http://metadata.google.internal/computeMetadata"]
)
def test_what_the_clouds_own_address_does_not_answer_means_no_credentials(place: str) -> None:
    """Errors as obstore words them; nothing but loopback addresses is asked here."""
    text = f"Generic S3 error: Error performing PUT {place} in 1s, after 3 retries - HTTP error: error sending request"
    found = faults.translate(RuntimeError(text), "s3://bucket/z")
    assert isinstance(found, Refused)
    assert str(found).startswith("s3://bucket/z: no credentials; set AWS_ACCESS_KEY_ID")
    assert "--anonymous" in str(found)


def test_p8_a_panic_of_the_library_is_an_error_without_secrets(server: FakeS3) -> None:
    """Credentials may hold what no header can, or a provider may return such ones later."""

    class PanicException(BaseException):
        """Rust's, as pyo3 raises it."""

    def panic(*_: object, **__: object) -> None:
        raise PanicException("SECRET")

    store = opened(server)
    store.read(A, 1 << 20)

    async def panic_later(*_: object) -> None:
        panic()

    store.client._data = store.client._metadata = SimpleNamespace(  # type: ignore[assignment]
        get=panic, list=lambda *_, **__: map(panic, [0]), list_with_delimiter_async=panic_later
    )
    calls = {
        "read": lambda: store.read(B, 1 << 20),
        "stat": lambda: store.stat(B, WHOLE),
        "list": lambda: list(store.list(Key("a"))),
        "beneath": lambda: list(store.client.beneath("a")),
    }
    for call in calls.values():
        with pytest.raises(Unreachable, match="odd characters") as caught:
            call()
        assert "SECRET" not in str(caught.value)


def page(keys: Iterable[str], token: str = "") -> Fault:
    """The body of a listing with these keys; `token`: of the next page, "-" for a next one without."""
    entries = "".join(
        f"<Contents><Key>{key}</Key><LastModified>2001-09-09T01:46:40.000Z</LastModified><ETag>0</ETag><Size>1</Size></Contents>"
        for key in keys
    )
    more = f"<NextContinuationToken>{token}</NextContinuationToken>" if token.strip("-") else ""
    cut = f"<IsTruncated>{str(bool(token)).lower()}</IsTruncated>{more}"
    return Fault(status=200, body=f"<ListBucketResult>{cut}{entries}</ListBucketResult>".encode())


LISTINGS = ["list", "names", "prefetch_listing"]


@pytest.mark.parametrize(("method", "many"), [("list", 0), *((method, many) for method in LISTINGS for many in (700, 1000))])
def test_p6_p8_a_listing_that_never_ends_is_given_up(
    server: FakeS3, monkeypatch: pytest.MonkeyPatch, method: str, many: int
) -> None:
    """A server that takes no continuation token gives the first page for ever; it filled all memory."""
    monkeypatch.setattr(client, "LEVEL_SECONDS", 0.5)
    store = opened(server)
    store.read(A, 1 << 20)  # the server has been heard
    again = page([f"z/a/c/{number:04}" for number in range(many)], "again")
    server.fault = lambda request: again if request.kind == "LIST" else None
    calls = {
        "list": lambda: list(store.list(Key("a/c"))),
        "names": lambda: list(store.names(Key("a/c"))),
        "prefetch_listing": lambda: store.prefetch_listing(Key("a/c")),
    }
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
        return page([key for key in keys if key > after][:1000], "-")

    server.fault = fault
    store = opened(server)
    calls = {
        "list": lambda: list(store.list(Key("n/c"))),
        "names": lambda: list(store.names(Key("n/c"))),
        "prefetch_listing": lambda: store.prefetch_listing(Key("n/c")),
    }
    if method == "list" or not behind:
        with pytest.raises(Unreachable, match=r"no more than 1000 members|again and again"):
            calls[method]()
    else:
        calls[method]()
        assert len(store._listings.level(Key("n/c"))) == 2500


@pytest.mark.parametrize("method", [*LISTINGS, "begin"])
def test_p3_a_page_for_people_in_place_of_a_listing_is_no_empty_one(server: FakeS3, method: str) -> None:
    store = opened(server)
    login = Fault(status=200, body=b"<html>please log in</html>", headers={"Content-Type": "text/html"})
    server.fault = lambda request: login if request.kind == "LIST" or "zarr" not in request.key else None
    calls = {
        "list": lambda: list(store.list(Key("a/c"))),
        "names": lambda: list(store.names(Key("a/c"))),
        "prefetch_listing": lambda: store.prefetch_listing(Key("a/c")),
        "begin": store.begin,
    }
    with pytest.raises(Unreachable, match="lists nothing, but answers as if every name existed"):
        calls[method]()


# ---- what servers do besides


def test_p9_a_redirect_is_followed_and_what_comes_from_there_is_checked_like_anything_else(server: FakeS3) -> None:
    """obstore follows redirects to any host and cannot be told not to: the version must still be the one that was seen."""
    other = FakeS3()
    try:
        other.put("z/a/c/0", CHUNK, 1e9)
        other.put("z/a/big", bytes(len(BIG)), 1e9)

        def fault(request: Request) -> Fault | None:
            location = f"{other.endpoint}/{BUCKET}/{request.key}"
            return Fault(status=302, headers={"Location": location}) if request.kind == "GET" and request.key else None

        store = opened(server)
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


def encoded(server: FakeS3, encoding: str, objects: Mapping[str, bytes]) -> None:
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
    encoded(server, encoding, {path: gzip.compress(CHUNK)})
    with pytest.raises(Unreachable, match=r"sends it compressed \(Content-Encoding: (x-)?(gzip|br)\)"):
        web(server).read(Key(path.removeprefix("z/")), 1 << 20)


@pytest.mark.parametrize("encoding", ["identity", "aws-chunked", "utf-8", ""])
def test_a_web_server_that_does_not_compress_is_read(server: FakeS3, encoding: str) -> None:
    encoded(server, encoding, {"z/a/c/0": CHUNK})
    assert web(server).read(A, 1 << 20)[0] == CHUNK


def test_a_document_that_was_stored_compressed_is_named(server: FakeS3) -> None:
    encoded(server, "gzip", {"z/zarr.json": gzip.compress(b"{}")})
    with pytest.raises(CorruptData, match="compressed with gzip"):
        DocumentReader(opened(server), Limits()).read(Key("zarr.json"))


def test_content_encoding_is_left_alone(server: FakeS3) -> None:
    """Reads of an object store return the stored bytes, whatever a header says of them: the metadata name the codecs."""
    stored = gzip.compress(CHUNK)
    headers = {"ETag": '"e"', "Last-Modified": formatdate(1e9, usegmt=True), "Content-Encoding": "gzip"}
    server.fault = lambda request: Fault(status=200, body=stored, headers=headers) if request.key == "z/a/c/0" else None
    data, stat = opened(server).read(A, 1 << 20)
    assert (bytes(data), stat.size) == (stored, len(stored))


def test_p11_unused_connections_are_closed(server: FakeS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "LINGER_SECONDS", 1)
    store = opened(server)
    store.client.get("a/c/0")
    with server.gathered(4, lambda request: request.key == "z/a/c/0"), ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: store.client.get("a/c/0"), range(8)))
    assert server.connections > 1
    until(lambda: not server.connections)


def test_p11_complete_listings_are_remembered_for_few_directories(server: FakeS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsbridge.store.remote.answers.KNOWN_TREES", 2)
    store = opened(server)
    for number in range(5):
        server.put(f"z/{number}/c/0", b"x", 1e9)
        store.prefetch_listing(Key(f"{number}"))
    assert store._answers._trees.used <= 2


def test_two_listings_at_a_time_are_one_request(server: FakeS3) -> None:
    store = opened(server)
    server.latency = 0.1
    with server.counted() as requests, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: [member.name for member in store.list(Key("a"))], range(8)))
        list(pool.map(lambda _: store.prefetch_listing(Key("a/c")), range(8)))
    assert found == [["big", "c", "zarr.json"]] * 8
    assert len(requests) == 2


def test_a_listing_that_was_answered_meanwhile_is_not_asked_for_again(
    server: FakeS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another reader begins and ends between the look at what is remembered and the request."""
    store = opened(server, ttl=60.0)
    walk, others = Listings._walk, iter(["other"])

    def late(listings: Listings, key: Key, since: float) -> bool:
        for _ in others:
            assert len(list(store.list(key))) == 3
        return walk(listings, key, since)

    monkeypatch.setattr(Listings, "_walk", late)
    with server.counted() as requests:
        assert len(list(store.list(Key("a")))) == 3
    assert len(requests) == 1


def test_a_second_look_at_known_neighbours_lists_them_at_once(server: FakeS3) -> None:
    """A second `ls -lR` asked for each document by a request of its own."""
    keys = [Key(f"b{number}/zarr.json") for number in range(40)]
    for key in keys:
        server.put(f"z/{key}", b"{}" + key.encode(), 1e9)
    store = opened(server, ttl=60.0)
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


def test_what_lies_beside_is_not_listed_where_that_takes_longer_than_the_requests(server: FakeS3) -> None:
    keys = [Key(f"b{number}/zarr.json") for number in range(40)]
    for key in keys:
        server.put(f"z/{key}", b"{}", 1e9)
        for number in range(100):
            server.put(f"z/{key.parent}/c/{number}", b"x", 1e9)
    store = opened(server, ttl=60.0)
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
    clock, store = Clock(monkeypatch), opened(server, ttl=60.0)
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
    store = opened(server, ttl=0.0)
    store.prefetch_listing(Key("a/c"))
    with server.counted() as requests:
        assert store.stat(Key("a/c")).is_dir
    assert not requests


def test_p9_what_a_question_does_not_accept_is_asked_again_however_long_answers_are_believed(server: FakeS3) -> None:
    """After a SIGHUP, say: nothing will do that was asked for before."""
    for ttl in (600.0, math.inf):
        store = opened(server, ttl=ttl)
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
