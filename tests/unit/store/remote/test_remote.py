"""Object stores: each fault of a server, on every method. No wrong byte, no "absent" for what exists (P2, P3, P7, P9).

What a server does, and the test of it:

- 500, 503, 429, 408, a closed connection, once: `a_fault_that_passes`; for good, as silence, refusals, no bucket, a body
  (of a listing, too) that always breaks off: `a_fault_that_stays`
- a body that breaks off, or stalls, once: `a_body_that_breaks_off`, `a_body_that_stalls`
- an object that was replaced meanwhile, shrunk, removed: `replaced_while_it_is_resumed`, `has_shrunk`, `a_listed_object`
- fewer bytes: `a_body_shorter_than_its_range`; 200 for a range: `ignores_ranges`
- If-Match ignored: `bytes_of_another_version`
- no ETag, or one of time and size: `no_etag_and_no_time`; another one in listings: `etags_that_differ`
- no TLS, no name, no server: `why_no_request_can_be_sent`

Not here: refusals (`test_faults.py`); odd ranges, redirects, encodings, keys, listings without an end (`test_store.py`).
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_s3 import BIG, BUCKET, CHUNK, FakeS3, Fault, Request, recovered
from remote_stores import LARGE, A, B, impatient, open_store, open_web
from waiting import Clock

from fsbridge import asking
from fsbridge.asking import WouldWait
from fsbridge.config import REMOTE_LIMITS, Config, Remote, RemoteLimits
from fsbridge.errors import (
    AccessDenied,
    CorruptData,
    FsbridgeError,
    NotFound,
    SetupError,
    Stale,
    Unreachable,
)
from fsbridge.formats.detect import detect
from fsbridge.formats.open import Opening, open_source
from fsbridge.formats.records import ZARR2
from fsbridge.store import ROOT, WHOLE, Key
from fsbridge.store.remote import faults
from fsbridge.store.remote.answers import Answers
from fsbridge.store.remote.blocks import BlockCache
from fsbridge.store.remote.client import Client
from fsbridge.store.remote.faults import NoRanges, Refused
from fsbridge.store.remote.store import ObjectStore
from fsbridge.store.remote.urls import parse_url


def calls_of(store: ObjectStore) -> dict[str, Callable[[], object]]:
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


METHODS = list(calls_of(ObjectStore.__new__(ObjectStore)))


@pytest.mark.parametrize("method", METHODS)
def test_p7_the_event_loop_makes_no_request(server: FakeS3, method: str) -> None:
    store = open_store(server)
    call = calls_of(store)[method]
    with server.counted() as requests, asking.without_waiting(), pytest.raises(WouldWait):
        call()
    assert not requests
    call()


# ---- faults


@pytest.mark.parametrize("fault", [*(Fault(status=status) for status in (500, 503, 429, 408)), Fault(close=True)])
@pytest.mark.parametrize("method", METHODS)
def test_a_fault_that_passes_is_not_seen(server: FakeS3, method: str, fault: Fault) -> None:
    store = open_store(server)
    server.fault = lambda request: fault if request.number == 0 else None
    calls_of(store)[method]()


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
    server: FakeS3, fault: Fault, error: type[Exception]
) -> None:
    """Every method of a store of its own meets it, all at a time: each waits for several seconds."""
    limits = impatient(fault)
    calls = {method: calls_of(open_store(server, limits=limits))[method] for method in METHODS}
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


def always(fault: Fault | None) -> Callable[[Request], Fault | None]:
    """Answer each request like this."""
    return lambda request: fault


def error_of(call: Callable[[], object]) -> FsbridgeError | None:
    try:
        call()
    except FsbridgeError as error:
        return error
    return None


def test_p2_a_body_that_breaks_off_is_resumed_and_never_short(server: FakeS3) -> None:
    store = open_store(server)
    server.fault = lambda request: Fault(truncate=5000) if request.number == 0 else None
    assert store.read(LARGE, 1 << 24)[0] == BIG
    assert store.read(A, 1 << 24)[0] == CHUNK
    assert len(list(store.list(Key("a")))) == 3  # obstore does not resume a listing: we do
    assert len([name for names in store.names(Key("a/c")) for name in names]) == 3
    store.prefetch_listing(Key("a"))


def test_p9_an_object_that_is_replaced_while_it_is_resumed_is_an_error(server: FakeS3) -> None:
    store = open_store(server)

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
    store = open_store(server)
    server.fault = lambda request: Fault(short=3) if request.range else None
    if method in ("range", "suffix"):
        with pytest.raises(FsbridgeError, match="sent"):
            calls_of(store)[method]()
    else:
        calls_of(store)[method]()


def test_a_server_that_ignores_ranges_is_named(server: FakeS3) -> None:
    server.fault = lambda request: Fault(ignore_range=True)
    for store in (open_store(server), open_web(server)):
        with pytest.raises(NoRanges, match="ignores ranges"):
            store.read_range(LARGE, 5, 10)


def test_a_look_up_of_a_server_that_ignores_ranges_downloads_nothing(server: FakeS3) -> None:
    """Its body would stall."""
    server.fault = lambda request: Fault(ignore_range=True, truncate=10, stall=60.0)
    store = open_web(server)
    assert [store.stat(Key(f"a/c/{number}"), (0, 1)).size for number in range(3)] == [len(CHUNK) - n for n in range(3)]
    server.fault = lambda request: Fault(ignore_range=True)
    assert store.stat(B, (-10, 10)).size == len(CHUNK) - 1
    assert store.read_range(B, -10, 10)[0] == CHUNK[-10:], "a small object came as a whole"


def test_p7_a_body_that_stalls_is_resumed(server: FakeS3) -> None:
    metadata, data = (replace(patience, timeout=1.0) for patience in (REMOTE_LIMITS.metadata, REMOTE_LIMITS.data))
    store = open_store(server, limits=RemoteLimits(metadata=metadata, data=data))
    server.fault = lambda request: Fault(truncate=5000, stall=30.0) if request.number == 0 else None
    assert store.read(LARGE, 1 << 24)[0] == BIG


def test_p9_an_object_that_has_shrunk_since_it_was_looked_at_is_stale(server: FakeS3) -> None:
    """The range of the one is beyond the end of the other: the server says 416, or 412 before that."""
    for fault in (None, Fault(ignore_match=True)):
        server.put("z/a/big", BIG, 1e9)
        server.fault = always(fault)
        store = open_store(server)
        store.stat(LARGE, (0, 10))
        server.put("z/a/big", b"short", 2e9)
        with pytest.raises((Stale, CorruptData)):
            store.read_range(LARGE, len(BIG) - 100, 100)


def test_p3_a_listed_object_that_the_server_has_no_longer_is_not_found(server: FakeS3) -> None:
    store = open_store(server, ttl=0.0)
    assert store.begin()
    assert len(list(store.list(Key("a/c")))) == 3
    del server.objects["z/a/c/1"]
    with pytest.raises(NotFound):
        store.read(B, 1 << 20)
    server.put("z/a/c/9", CHUNK, 1e9)  # not in the remembered listing, but opened by its name
    assert store.read(Key("a/c/9"), 1 << 20)[0] == CHUNK


def test_p3_an_empty_object_is_damage_where_bytes_are_wanted_and_never_absent(server: FakeS3) -> None:
    server.put("z/a/c/0", b"", 1e9)
    store = open_store(server)
    assert store.stat(A, WHOLE).size == 0
    for span in ((-64, 64), (0, 10)):
        fresh = open_store(server)
        with pytest.raises(CorruptData):
            fresh.stat(A, span)
        with pytest.raises(CorruptData):
            fresh.read_range(A, *span)


@pytest.mark.parametrize("ignore", [False, True])
def test_p9_bytes_of_another_version_are_noticed(server: FakeS3, ignore: bool) -> None:
    """Many servers ignore If-Match: comparing the answer's ETag is the check."""
    server.fault = lambda request: Fault(ignore_match=ignore)
    store = open_store(server)
    before = store.stat(LARGE, (-64, 64))
    server.put("z/a/big", bytes(len(BIG)), 1e9)
    with pytest.raises(Stale):
        store.read_range(LARGE, 0, 10)
    assert store.stat(LARGE, WHOLE).version != before.version
    assert store.read_range(LARGE, 0, 10)[0] == bytes(10)


def test_weak_etags_are_versions_that_no_request_can_be_bound_to(server: FakeS3, tmp_path: Path) -> None:
    """If-Match compares strongly, so that a weak ETag never matches; nor does it stand for these very bytes."""
    server.put("z/a/big", BIG, 1e9, etag="W/5d-1a2b")
    store = open_web(server)
    version = store.stat(LARGE, (-64, 64)).version
    for start in (0, 10):
        assert store.read_range(LARGE, start, 10) == (BIG[start : start + 10], store.stat(LARGE))
    assert store.read(LARGE, 1 << 30)[0] == BIG
    server.put("z/a/big", BIG, 1e9, etag="5d-1a2b")  # as Apache does, a second later
    assert open_web(server).stat(LARGE, (-64, 64)).version == version
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
    assert cached[0].blocks is not None
    cached[0].blocks.flush()
    assert cached[1].blocks is not None
    assert not cached[1].blocks.holds(LARGE)


def test_etags_that_differ_between_list_and_get_are_not_changes(server: FakeS3) -> None:
    server.other_etags = True
    store = open_store(server)
    assert store.begin()
    list(store.list(Key("a")))
    list(store.list(Key("a/c")))
    for key in (A, B, A):
        version = store.stat(key, WHOLE).version
        assert store.read(key, 1 << 20)[1].version == version


def test_listed_objects_need_no_request_where_etags_agree(server: FakeS3) -> None:
    store = open_store(server, ttl=60.0)
    store.begin()
    store.read(Key("zarr.json"), 100)
    list(store.list(Key("a/c")))
    with server.counted() as requests:
        stat = store.stat(A)
    assert not requests
    assert store.read(A, 1 << 20)[1].version == stat.version


def test_no_etag_and_no_time_is_a_version_that_has_not_settled(server: FakeS3) -> None:
    server.fault = lambda request: Fault(etag="")
    store = open_store(server)
    assert store.read(A, 1 << 20)[0] == CHUNK
    server.fault = lambda request: Fault(etag="5f3a1b2c-2800")  # nginx: time and size
    server.put("z/a/c/1", CHUNK[1:], time.time())
    assert not open_store(server).stat(B).settled
    assert open_store(server).stat(A).settled


NGINX = "5f3a1b2c-2800"
"""An ETag of time and size: two writes of one size within a second share it."""


@pytest.mark.parametrize(
    "etag", ["0x8DB3E1C5F1A4B7C", "d41d8cd98f00b204e9800998ecf8427e-12", "d41d8cd98f00b204e9800998ecf8427e"]
)
def test_etags_that_no_other_bytes_can_have_need_no_second_look(server: FakeS3, etag: str) -> None:
    server.put("z/a/c/0", CHUNK, time.time(), etag)
    assert open_store(server).stat(A).settled


@pytest.mark.parametrize("off", [-7200, 7200])
def test_p9_objects_dated_far_from_now_count_as_settled(server: FakeS3, off: int) -> None:
    """A clock was set, or the date is none of a clock: it would not be settled until our clock has caught up."""
    server.put("z/a/c/0", CHUNK, time.time() + off, NGINX)
    assert open_store(server).stat(A).settled


def test_p9_a_second_is_over_when_the_servers_clock_says_so(server: FakeS3, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not ten minutes later: so long might our clock be behind, and whole arrays could not be read."""
    server.put("z/a/c/0", CHUNK, time.time(), NGINX)
    server.put("z/a/c/1", CHUNK, time.time() - 30, NGINX)
    store = open_store(server, ttl=0.0)
    assert not store.stat(A).settled
    assert store.stat(B).settled  # the clock has shown 30 seconds more than its date
    Clock(monkeypatch).passes(3.0)
    assert store.stat(A).settled


@pytest.mark.parametrize("etag", [NGINX, "3846923741", "s8p4vl7wg"])
def test_p9_an_etag_that_may_stand_for_other_bytes_proves_nothing(server: FakeS3, etag: str) -> None:
    """ETags as nginx, lighttpd and Caddy make them."""
    now = time.time()
    server.put("z/a/c/0", CHUNK, now, etag)
    store = open_store(server)
    assert store.read(A, 1 << 20)[0] == CHUNK
    server.put("z/a/c/0", CHUNK[::-1], now, etag)
    known = store.answers.last(A)
    assert known is not None
    store.answers.put(A, known.stat, known.etag, known.asked - 2.0)  # longer ago than is believed
    store.stat(A, WHOLE)
    assert store.read(A, 1 << 20)[0] == CHUNK[::-1]


def test_p9_the_block_cache_keeps_nothing_of_such_an_object(
    server: FakeS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    server.put("z/a/c/0", CHUNK, now, NGINX)
    end = (-16, 16)

    def open_cached() -> ObjectStore:
        blocks = BlockCache(str(tmp_path / "cache"), 1 << 20, "s3://bucket/z")
        return ObjectStore(open_store(server).client, Answers(1.0, 60.0), blocks)

    first = open_cached()
    first.stat(A, end)
    assert first.read_range(A, *end)[0] == CHUNK[-16:]
    assert first.blocks is not None
    first.blocks.flush()
    server.put("z/a/c/0", CHUNK[::-1], now, NGINX)
    Clock(monkeypatch).passes(1000.0)  # so long ago that it counts as settled
    second = open_cached()
    second.stat(A, end)
    assert second.read_range(A, *end)[0] == CHUNK[::-1][-16:]


def test_a_flat_array_at_the_root_is_mounted_before_all_its_chunks_are_listed(server: FakeS3) -> None:
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
    store = open_store(server, limits=RemoteLimits(root_seconds=0.1))
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
    names: list[str | Path] = [
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
def test_p7_opening_a_store_of_a_silent_server_fails_with_the_reason(silent: str, url: str) -> None:
    assert REMOTE_LIMITS.first_seconds < 4.5, "a line within five seconds of the command"
    url = url.format(silent)
    options = Remote(anonymous=True, region="us-east-1", endpoint=silent, limits=RemoteLimits(first_seconds=0.3))
    with pytest.raises(SetupError, match=re.escape(url) + ".*no answer from the server within 0.3 seconds; check"):
        open_source(url, Config(url, "", remote=options))


def test_a_server_that_is_slow_is_no_silent_one(server: FakeS3) -> None:
    """The first page of a listing is an answer, however long the rest takes."""
    limits = RemoteLimits(root_seconds=0.1, first_seconds=1.0)
    for number in range(2000):
        server.put(f"many/{number}", b"x", 1e9)
    server.fault = lambda request: Fault(stall=2.0) if "continuation-token" in request.query else None
    options = Remote(anonymous=True, region="us-east-1", endpoint=server.endpoint, limits=limits)
    store = ObjectStore(Client(parse_url(f"s3://{BUCKET}/many"), options), Answers(60.0, 60.0))
    assert store.begin()
    assert len(list(store.list(ROOT))) == 2000
