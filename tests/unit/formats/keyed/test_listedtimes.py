"""What listings leave behind for further ones: for how long, how much, and what ends it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import pytest

from fsbridge.asking import as_of
from fsbridge.config import listed_again, listed_lifetime
from fsbridge.formats.keyed.listedtimes import LISTING_BYTES, ListedTimes
from fsbridge.model import Pairs


class Store:
    """Counts how often it is asked; `members` by name."""

    def __init__(self, *members: tuple[int, int], batch: int = 2) -> None:
        self.members = list(members)
        self.batch = batch
        self.asked = 0

    def scan(self) -> Iterator[Pairs]:
        self.asked += 1
        for first in range(0, len(self.members), self.batch):
            yield self.members[first : first + self.batch]


def listed(
    times: ListedTimes, store: Store, directory: str = "p", version: int = 1, ttl: float = 1.0
) -> list[tuple[int, int]]:
    with as_of(time.monotonic(), time.monotonic() - ttl):
        return [pair for batch in times.through(directory, version, store.scan) for pair in batch]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize("ttl", [0.0, 0.1, 1.0, 60.0, math.inf])
@pytest.mark.parametrize("extent", [0, 1000, 10**6, 10**12])
def test_what_is_shown_again_has_time_left(ttl: float, extent: int) -> None:
    again, lifetime = listed_again(ttl, extent), listed_lifetime(ttl, extent)
    assert again < lifetime or again == lifetime in (0.0, math.inf)


def test_a_listing_serves_until_it_is_too_old(clock: list[float]) -> None:
    times, store = ListedTimes(), Store((1, 10), (5, 50), (7, 70))
    for asked, later in ((1, 0.0), (1, 0.9), (2, 0.2), (2, 0.9)):
        clock[0] += later
        assert listed(times, store) == store.members
        assert store.asked == asked


def test_a_changed_directory_is_asked_again(clock: list[float]) -> None:
    times, store = ListedTimes(), Store((1, 10))
    assert listed(times, store, version=1) == listed(times, store, version=2) == [(1, 10)]
    assert store.asked == 2


def test_outside_of_a_question_nothing_is_remembered(clock: list[float]) -> None:
    times, store = ListedTimes(), Store((1, 10))
    for _ in range(2):
        assert [pair for batch in times.through("p", 1, store.scan) for pair in batch] == [(1, 10)]
    assert (store.asked, times.nbytes) == (2, 0)


def test_p9_the_age_of_a_listing_is_known(clock: list[float]) -> None:
    times, store = ListedTimes(), Store((1, 10))
    listed(times, store)
    clock[0] += 5
    with as_of(math.inf, 100.0) as answers:
        assert [pair for batch in times.through("p", 1, store.scan) for pair in batch] == [(1, 10)]
    assert (answers.oldest, store.asked) == (100.0, 1)


def test_an_immutable_store_is_asked_once(clock: list[float]) -> None:
    times, store = ListedTimes(), Store((1, 10))
    listed(times, store)
    clock[0] += 1e9
    assert listed(times, store, ttl=math.inf) == [(1, 10)]
    assert store.asked == 1


@pytest.mark.parametrize(
    ("coordinate", "mtime", "asked"),
    [(1, 10, 1), (3, 11, 1), (1, 9, 2), (2, 10, 2), (2, 11, 2), (0, 10, 2), (4, 11, 2)],  # of one second are many
)
def test_a_look_at_a_member_that_says_otherwise_ends_it(clock: list[float], coordinate: int, mtime: int, asked: int) -> None:
    times, store = ListedTimes(), Store((1, 10), (3, 11))
    listed(times, store)
    times.seen("other", coordinate, mtime)
    times.seen("p", coordinate, mtime)
    assert listed(times, store) == store.members
    assert store.asked == asked


def test_a_listing_during_which_a_member_is_looked_at_is_not_remembered(clock: list[float]) -> None:
    times, store = ListedTimes(), Store((1, 10), (2, 10), (3, 10))
    with as_of(0.0):
        for batch in times.through("p", 1, store.scan):
            times.seen("p", 1, 10)
            assert batch
    assert times.nbytes == 0


def test_a_listing_that_is_given_up_is_not_remembered(clock: list[float]) -> None:
    times, store = ListedTimes(), Store((1, 10), (2, 10), (3, 10))
    with as_of(0.0):
        stream = times.through("p", 1, store.scan)
        next(stream)
        stream.close()
    assert (times.nbytes, times._under_way) == (0, {})


def test_memory_is_bounded(clock: list[float]) -> None:
    budget = 4 * LISTING_BYTES
    times = ListedTimes(budget)
    for number in range(10):
        listed(times, Store((1, 10)), directory=f"{number}")
        assert times.nbytes <= budget
    assert list(times._known) == ["7", "8", "9"]
    large = Store(*((n, n) for n in range(budget // 16)))
    with as_of(0.0):
        for _ in times.through("large", 1, large.scan):
            assert times.nbytes <= budget
    assert listed(times, large, "large") == large.members
    assert (large.asked, times._under_way) == (2, {})


def test_listings_at_the_same_time_share_the_memory(clock: list[float]) -> None:
    budget = 8 * LISTING_BYTES
    times = ListedTimes(budget)
    store = Store(*((n, n) for n in range(3 * LISTING_BYTES // 16)), batch=10)
    with as_of(0.0):
        for batches in zip(*(times.through(directory, 1, store.scan) for directory in "abcab"), strict=True):
            assert times.nbytes <= budget
            assert all(batch == batches[0] for batch in batches)
    assert (times._under_way, times.nbytes) == ({}, sum(known.nbytes for known in times._known.values()))
