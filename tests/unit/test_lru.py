"""The one cache of values by key within a budget; what is only kept goes at once when memory is wanted."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from waiting import Clock

from fsbridge import lru
from fsbridge.formats.keyed.storedchunks import FlatDirectories, Numbers
from fsbridge.lru import LRU, Recent, drop_all
from fsbridge.store import Key
from fsbridge.store.local import LocalStore


def test_recent_values_go_in_the_order_of_their_use() -> None:
    recent = Recent[str | None, int](3)
    assert recent.latest() is None
    assert [recent.put(key, number) for number, key in enumerate(("a", None, "b"))] == [[], [], []]
    assert (recent.get("a"), recent.peek(None), recent.latest()) == (0, 1, 0)
    assert recent.put("c", 3) == [(None, 1)], "a look without use does not count"
    assert (list(recent), recent.values()) == (["b", "a", "c"], [2, 0, 3])
    assert recent.put("b", 4, 3) == [("b", 2), ("a", 0), ("c", 3)], "its older value first"
    assert (recent.pop("b"), recent.pop("b"), recent.used, len(recent)) == (4, None, 0, 0)


def test_the_cache_forgets_the_least_recently_used() -> None:
    cache = LRU[str, str](100)
    for name in "abc":
        cache.put(name, name, 40)
    assert cache.get("a") is None
    assert cache.get("b") == "b"
    cache.put("d", "d", 40)
    assert cache.get("c") is None
    assert cache.used == 80
    cache.put("e", "e", 1000)
    assert cache.get("e") == "e"
    assert cache.used == 1000
    cache.put("e", "f", 10)
    assert cache.used == 10


def test_dropping_an_entry_frees_its_cost() -> None:
    cache = LRU[str, int](2)
    for name in "abc":
        assert cache.put(name, 1) == 1
    assert (cache.used, cache.get("a")) == (2, None)
    cache.drop("b")
    cache.drop("b")
    assert (cache.used, cache.get("b"), cache.get("c")) == (1, None, 1)


def test_what_goes_is_released_once() -> None:
    gone: list[int] = []
    cache = LRU[str, int](2, gone.append)
    for number, name in enumerate("abc"):
        cache.put(name, number)
    assert gone == [0]
    cache.put("b", 7)
    assert gone == [0, 1]
    cache.drop_where(lambda key: key == "c")
    assert gone == [0, 1, 2]
    cache.put("d", 9)
    cache.clear()
    assert (gone, cache.used) == ([0, 1, 2, 7, 9], 0)


def test_drop_all_empties_every_cache() -> None:
    kept: LRU[str, int] = LRU(10)
    kept.put("a", 1)
    drop_all()
    assert kept.get("a") is None


def test_listings_of_chunks_go_too_but_those_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that does not change is not listed again, except after SIGHUP."""
    (tmp_path / "a").mkdir()
    Clock(monkeypatch).settles()
    directories = FlatDirectories(LocalStore(str(tmp_path)))
    passes: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    def read(others: list[str]) -> Iterator[Numbers]:
        passes.append(len(passes))
        yield np.array(passes[-1:], np.uint64)

    def slow(others: list[str]) -> Iterator[Numbers]:
        begun.set()
        assert go_on.wait(60)
        yield np.zeros(1, np.uint64)

    for _ in range(2):
        assert directories.join(Key("a"), "done", read).wait(60) is not None
    under_way = directories.join(Key("a"), "slow", slow)
    assert begun.wait(60)
    drop_all()
    assert directories.peek(Key("a"), "done") is None
    assert directories.join(Key("a"), "slow", read) is under_way
    go_on.set()
    assert under_way.wait(60) is not None
    assert directories.join(Key("a"), "done", read).wait(60) is not None
    assert passes == [0, 1]


def test_p11_caches_that_are_gone_are_not_held() -> None:
    kept: LRU[str, int] = LRU(10)
    gone = weakref.ref(kept)
    del kept
    gc.collect()
    assert gone() is None
    assert all(found is not None for found in lru._known)
