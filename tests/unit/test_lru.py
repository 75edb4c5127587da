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
