"""What is remembered of a server, and for how long: one rule for objects, directories and listings."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import pytest
from fake_s3 import BIG, BUCKET, CHUNK, FakeS3
from remote_stores import LARGE, A, open_store
from waiting import Clock, until

from fsbridge.asking import as_of
from fsbridge.config import Remote, RemoteLimits
from fsbridge.store import ROOT, WHOLE, Key, Stat
from fsbridge.store.remote.answers import Answers
from fsbridge.store.remote.client import Client, Object, Response
from fsbridge.store.remote.listings import split
from fsbridge.store.remote.store import ObjectStore
from fsbridge.store.remote.urls import parse_url

OBJECT = bytes(range(200))
KEY = Key("g/a/zarr.json")


def make_stat(settled: bool = True) -> Stat:
    return Stat(False, len(OBJECT), 0, 1, settled)


def fill_answers(ttl: float, listing_ttl: float) -> Answers:
    """A memory that has just got an object and a listing of all that lies beneath the root."""
    answers, now = Answers(ttl, listing_ttl), time.monotonic()
    answers.put(KEY, make_stat(), "etag")
    levels = split(ROOT, iter([[Object(KEY, 1, 0, "etag")]]), now)
    assert levels is not None
    answers.put_tree(ROOT, levels, now)
    return answers


def list_believed(answers: Answers) -> tuple[bool, ...]:
    """Whether an object, a directory for the sake of an object and of a listing, a listing and a tree are believed."""
    objects, listings = answers.since(), answers.listed_since()
    return (
        answers.fresh(KEY) is not None,
        answers.exists(Key("g"), objects),
        answers.exists(Key("g"), listings),
        answers.level(Key("g"), listings) is not None,
        answers.knows_tree(Key("g/a"), listings),
    )


def test_p9_one_rule_of_age_holds_for_all_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    answers, forever = fill_answers(1.0, 60.0), fill_answers(math.inf, 60.0)
    clock.passes(0.9)
    assert list_believed(answers) == (True, True, True, True, True)
    clock.passes(0.2)
    assert list_believed(answers) == (False, False, True, True, True)
    clock.passes(60.0)
    assert list_believed(answers) == (False, False, False, False, False)
    assert list_believed(forever) == (True, True, True, True, True)
    with as_of(time.monotonic() - 600.0):
        assert list_believed(answers) == (True, True, True, True, True)
    with as_of(time.monotonic()):
        assert list_believed(answers) == list_believed(forever) == (False, False, False, False, False)
    with as_of(time.monotonic(), time.monotonic() - 600.0):
        assert list_believed(answers) == list_believed(forever) == (False, False, True, True, True)


def test_p9_an_unsettled_version_is_believed_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, answers = Clock(monkeypatch), Answers(60.0, 60.0)
    answers.put(KEY, make_stat(settled=False), "W/short")
    assert answers.fresh(KEY) is not None
    clock.passes(0.3)
    assert answers.fresh(KEY) is None
    with as_of(time.monotonic() - 60.0):
        assert answers.fresh(KEY) is None
    with as_of(-math.inf):  # immutable
        assert answers.fresh(KEY) is not None


def test_p9_a_reply_made_of_a_remembered_answer_is_as_old_as_that(server: FakeS3, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel keeps a reply for the TTL from then on: attributes were shown for twice as long."""
    store = ObjectStore(
        Client(parse_url(f"s3://{BUCKET}/z"), Remote(anonymous=True, region="us-east-1", endpoint=server.endpoint)),
        Answers(1.0, 60.0),
    )
    clock, key = Clock(monkeypatch), Key("a/c/0")
    before = time.monotonic()
    store.read(key, 1 << 20)
    answered = time.monotonic()
    clock.passes(0.9)
    asks: tuple[Callable[[], object], ...] = (
        lambda: store.stat(key),
        lambda: store.stat(key, WHOLE),
        lambda: store.read(key, 1 << 20),
        lambda: store.read_range(key, 0, 4),
        lambda: store.kept(key, 0, 4),
    )
    for ask in asks:
        with server.counted() as requests, as_of(time.monotonic() - 1.0) as answers:
            ask()
        assert before <= answers.oldest <= answered
        assert not requests
    prefetches: tuple[Callable[[], object], ...] = (lambda: store.fetch(key), lambda: store.prefetch_stat(key))
    for prepare in prefetches:
        with as_of(time.monotonic() - 1.0) as answers:
            prepare()
        assert answers.oldest > answered, "nothing is made of an answer"


def test_p9_a_listing_tells_no_version_that_other_bytes_may_have(server: FakeS3) -> None:
    """Its ETags count as versions like those of objects; one of time and size does not until its second is over."""
    options, now = Remote(anonymous=True, region="us-east-1", endpoint=server.endpoint), time.time()
    server.put("z/a/c/0", CHUNK, now, "5f3a1b2c-2800")
    server.put("z/a/c/1", CHUNK, now - 30, "5f3a1b0e-2800")
    store = ObjectStore(Client(parse_url(f"s3://{BUCKET}/z"), options), Answers(60.0, 60.0))
    store.read(Key("zarr.json"), 100)
    assert store.begin()
    assert [member.stat.settled for member in store.list(Key("a/c")) if member.stat is not None] == [False, True, True]
    with server.counted() as requests:
        stats = [store.stat(Key(f"a/c/{number}")) for number in range(3)]
    assert [stat.settled for stat in stats] == [False, True, True]
    assert [request.key for request in requests] == ["z/a/c/0"]


def test_bytes_are_given_for_the_answer_that_they_came_with() -> None:
    answers = Answers(10.0, 10.0)
    known = answers.put(KEY, make_stat(), "etag")
    answers.keep(KEY, known, 50, OBJECT[50:150])
    for start, length, bytes_kept in ((50, 100, True), (60, 20, True), (49, 2, False), (149, 2, False), (60, 0, True)):
        part = answers.part(KEY, known, start, length)
        assert part == (OBJECT[start : start + length] if bytes_kept else None)
    assert answers.part(KEY, known._replace(asked=0.0), 60, 20) is None
    renewed = answers.renew(KEY, known)
    assert answers.part(KEY, known, 60, 20) is None
    assert answers.part(KEY, renewed, 60, 20) == OBJECT[60:80]
    answers.put(KEY, make_stat(), "other")
    assert answers.part(KEY, renewed, 60, 20) is None


def test_a_response_is_given_to_one_reader() -> None:
    answers, response = Answers(10.0, 10.0), Response.__new__(Response)
    known = answers.put(KEY, make_stat(), "etag")
    answers.keep(KEY, known, 0, response)
    assert answers.part(KEY, known, 0, 1) is None
    assert answers.take(KEY, known._replace(etag="other")) is None
    assert [answers.take(KEY, known) for _ in range(2)] == [response, None]


def test_p6_the_memory_has_a_bound() -> None:
    answers = Answers(60.0, 60.0, RemoteLimits(objects=5, bodies=5, trees=5))
    for number in range(20):
        key = Key(f"{number}/c/0")
        answers.keep(key, answers.put(key, make_stat()), 0, OBJECT)
        answers.put_tree(key, {}, time.monotonic())
    assert answers._objects.used == answers._seen.used == answers._trees.used == len(answers._bodies) == 5


def test_p11_unread_bodies_are_let_go(server: FakeS3) -> None:
    store = open_store(server, ttl=0.1, limits=RemoteLimits(kept_seconds=0.1))
    store.stat(LARGE, WHOLE)
    store.stat(A, WHOLE)
    until(lambda: not store.answers._bodies)
    assert store.read(LARGE, 1 << 24)[0] == BIG
