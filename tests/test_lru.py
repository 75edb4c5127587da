"""The one cache of values by key within a budget."""

from __future__ import annotations

from fsbridge.lru import LRU


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


def test_what_is_dropped_costs_nothing() -> None:
    cache = LRU[str, int](2)
    for name in "abc":
        assert cache.put(name, 1) == 1
    assert (cache.used, cache.get("a")) == (2, None)
    cache.drop("b")
    cache.drop("b")
    assert (cache.used, cache.get("b"), cache.get("c")) == (1, None, 1)
