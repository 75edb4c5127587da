"""Stores that links of another one lead into: each opened once, none waiting for another."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
from fake_model import FakeGroup, FakeSource
from waiting import until

from fsbridge.config import Config
from fsbridge.errors import CorruptData
from fsbridge.formats.collection import CollectionSource
from fsbridge.formats.shared import OpenedSources, Shared
from fsbridge.metadata import Format
from fsbridge.model import Source
from fsbridge.store import Key
from fsbridge.store.local import LocalStore


class Name(str):
    """A name that can be referred to weakly."""


class Closing(FakeSource):
    closed = False

    def __init__(self) -> None:
        super().__init__(FakeGroup({}))

    def close(self) -> None:
        self.closed = True


def test_p8_a_store_that_hangs_while_it_is_opened_holds_up_no_other() -> None:
    externals, go_on, opened = OpenedSources[str](), threading.Event(), list[str]()
    stores = {path: Closing() for path in ("/hung", "/other")}

    def opener(path: str) -> Source:
        opened.append(path)
        if path == "/hung":
            go_on.wait(20)
        return stores[path]

    found: list[Any] = []
    waiting = [threading.Thread(target=lambda: found.append(externals.open("/hung", opener)), daemon=True) for _ in range(2)]
    for thread in waiting:
        thread.start()
    until(lambda: opened == ["/hung"])
    assert externals.open("/other", opener) is externals.open("/other", opener) is stores["/other"]
    assert not found
    go_on.set()
    for thread in waiting:
        thread.join(20)
    assert found == [stores["/hung"]] * 2
    assert sorted(opened) == ["/hung", "/other"]
    externals.close()
    assert all(store.closed for store in stores.values())


def test_p11_of_a_store_that_cannot_be_opened_nothing_is_kept() -> None:
    """Waiting threads try again, one after the other; links can name as many such stores as they like."""
    sources, begun, go_on, stores = OpenedSources[str](), list[str](), threading.Event(), [Closing(), Closing()]

    def opener(path: str) -> Source:
        begun.append(path)
        if len(begun) == 1:
            go_on.wait(20)
            raise CorruptData(path)
        return stores[len(begun) - 2]

    found: list[Any] = []

    def open_it() -> None:
        try:
            found.append(sources.open("/a", opener))
        except CorruptData as error:
            found.append(str(error))

    waiting = [threading.Thread(target=open_it, daemon=True) for _ in range(4)]
    for thread in waiting:
        thread.start()
    until(lambda: begun == ["/a"])
    go_on.set()
    for thread in waiting:
        thread.join(20)
    assert sorted(map(str, found)) == sorted(["/a", *[str(stores[0])] * 3])
    assert begun == ["/a"] * 2
    sources.close()
    assert [store.closed for store in stores] == [True, False]

    def fails(path: str) -> Source:
        raise CorruptData(path)

    names = [Name("/b") for _ in range(10)]
    kept = list(map(weakref.ref, names))
    while names:
        with pytest.raises(CorruptData):
            sources.open(names.pop(), fails)
    gc.collect()
    assert [name() for name in kept] == [None] * 10


def test_p11_a_collection_keeps_nothing_of_members_that_cannot_be_opened(tmp_path: Path) -> None:
    for number in range(10):
        (tmp_path / f"{number}.zip").write_bytes(b"PK\x03\x04")
    members = list[weakref.ref[Source]]()

    def open_member(form: Format, key: Key, config: Config) -> Source:
        member = Closing()
        members.append(weakref.ref(member))
        raise CorruptData(key)

    source = CollectionSource(LocalStore(str(tmp_path)), Config("", "", format="collection"), open_member, Shared())
    for number in range(10):
        with pytest.raises(CorruptData):
            source.root.child(f"{number}.zip")
    gc.collect()
    assert [member() for member in members] == [None] * 10
    source.close()


class Resting(Closing):
    rested = False

    def __init__(self, can_rest: bool) -> None:
        super().__init__()
        self.can_rest = can_rest

    @property
    def rests(self) -> bool:
        return self.can_rest

    def rest(self) -> None:
        self.rested = True


def test_p11_sources_that_can_rest_are_let_go_when_others_are_used() -> None:
    sources, stores = OpenedSources[str](2), {name: Resting(name != "lasting") for name in ("lasting", "a", "b", "c")}
    opened = list[str]()

    def opener(name: str) -> Source:
        opened.append(name)
        return stores[name]

    for name in ("lasting", "a", "b", "a", "c", "a", "lasting", "b"):
        assert sources.open(name, opener) is stores[name]
    assert opened == ["lasting", "a", "b", "c", "b"]
    assert (stores["b"].rested, stores["c"].rested, stores["a"].rested, stores["lasting"].rested) == (
        True,
        True,
        False,
        False,
    )
    assert not any(store.closed for store in stores.values())
    sources.close()
    assert (stores["lasting"].closed, stores["a"].closed, stores["a"].rested) == (True, True, False)
