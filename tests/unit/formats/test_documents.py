"""Metadata documents: strict, bounded, read again only when changed."""

import contextlib
import json
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import Clock

from fsbridge.asking import WouldWait, without_waiting
from fsbridge.config import Limits
from fsbridge.errors import CorruptData, TooLarge
from fsbridge.formats.documents import DocumentReader
from fsbridge.formats.strict_json import Fields, measure, parse, parse_object
from fsbridge.store import Key, Range, Stat
from fsbridge.store.local import LocalStore

LIMITS = Limits(document=4096, json_depth=8)
EXAMPLES = 200


def test_trap_13_bare_nan_and_infinity_tokens_are_read() -> None:
    values = parse_object(b'{"a": NaN, "b": [Infinity, -Infinity]}', "x", LIMITS)
    assert values["a"] != values["a"]
    assert values["b"] == [float("inf"), float("-inf")]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"a": 1, "a": 2}', "'a' occurs twice"),
        (b'{"a": {"b": 1, "b": 1}}', "'b' occurs twice"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b"", "no valid JSON"),
        (b"{} {}", "no valid JSON"),
        (b"[" * 9 + b"]" * 9, "nested deeper than 8"),
        (b"[" * 2000 + b"]" * 2000, "nested deeper than 8"),
        (b"{" + b" " * 5000 + b"}", "the limit is 4096"),
        (b'{"a": ' + b"9" * 4090 + b"}", "the limit is 4096"),
    ],
)
def test_bad_documents_are_corrupt_data(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptData, match=reason):
        parse(data, "place", LIMITS)


def test_integers_of_thousands_of_digits_and_endless_nesting_are_corrupt_data() -> None:
    for data in (b"9" * 5000, b"[" * 200_000):
        with pytest.raises(CorruptData):
            parse(data, "place", Limits())


def test_a_document_must_be_an_object() -> None:
    with pytest.raises(CorruptData, match="a list, not an object"):
        parse_object(b"[]", "place", LIMITS)


def test_large_integers_keep_every_digit() -> None:
    assert parse_object(b'{"f": 18446744073709551615}', "x", LIMITS)["f"] == 2**64 - 1


def test_a_byte_order_mark_and_an_escaped_slash_are_accepted() -> None:
    assert parse_object('﻿{"a": "x\\/y"}'.encode(), "x", LIMITS) == {"a": "x/y"}


class Remote(LocalStore):
    """A store with one document. Within a read of it, the thread says so and waits."""

    remote = True

    def __init__(self) -> None:
        super().__init__("/")
        self.reads = 0
        self.reading, self.go_on = threading.Event(), threading.Event()

    def stat(self, key: Key, read: Range | None = None) -> Stat:
        return Stat(False, 2, 1, "version")

    def read(self, key: Key, limit: int) -> tuple[bytes, Stat]:
        self.reads += 1
        self.reading.set()
        assert self.go_on.wait(30)
        return b"{}", self.stat(key)


def test_threads_that_want_one_remote_document_read_it_once() -> None:
    """Members of a group are opened many at a time, and each needs the consolidated metadata above it."""
    store = Remote()
    reader = DocumentReader(store, LIMITS)
    with ThreadPoolExecutor(2) as pool:
        readings = [pool.submit(reader.read, Key(".zmetadata"))]
        assert store.reading.wait(30)
        with without_waiting(), pytest.raises(WouldWait):
            reader.read(Key(".zmetadata"))
        readings.append(pool.submit(reader.read, Key(".zmetadata")))
        store.go_on.set()
        assert [reading.result(30) is not None for reading in readings] == [True, True]
    assert store.reads == 1


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
@settings(max_examples=EXAMPLES)
def test_any_bytes_parse_or_are_corrupt_data(data: bytes) -> None:
    try:
        value = parse(data, "place", LIMITS)
    except CorruptData:
        return
    json.dumps(value)


def test_getters_return_values_of_their_types() -> None:
    fields = Fields({"i": 3, "l": [1, 2], "s": "x", "o": {"k": 1}, "b": True, "f": 1.0, "n": None}, "here")
    assert fields.integer("i") == 3
    assert fields.integers("l", length=2) == (1, 2)
    assert fields.string("s") == "x"
    assert fields.choice("s", ("x", "y")) == "x"
    assert fields.choice("absent", ("x", "y"), "y") == "y"
    assert fields.fields("o").integer("k") == 1
    assert "i" in fields
    assert "z" not in fields


@pytest.mark.parametrize(
    "call",
    [
        lambda f: f.integer("b"),
        lambda f: f.integer("f"),
        lambda f: f.integer("big"),
        lambda f: f.integer("absent"),
        lambda f: f.integers("l"),
        lambda f: f.integers("long"),
        lambda f: f.integers("pair", length=3),
        lambda f: f.string("b"),
        lambda f: f.choice("s", ("a",)),
        lambda f: f.sequence("s"),
        lambda f: f.mapping("l"),
        lambda f: f.fields("s"),
    ],
)
def test_getters_refuse_values_of_other_types_and_ranges(call: Callable[[Fields], object]) -> None:
    values = {"b": True, "f": 1.5, "l": [1, True], "big": 2**70, "s": "x", "pair": [1, 2], "long": [1] * 33}
    with pytest.raises(CorruptData, match="here: "):
        call(Fields(values, "here"))


def test_p6_values_are_counted_before_anything_is_parsed() -> None:
    """15 MiB of `[],[],...` made the daemon 1.8 GB large and held it up for 36 s.

    Both documents are no JSON from their first letter on, which would be said if they were parsed.
    """
    bomb = b'?{"x":[' + b"[]," * (5 << 20) + b"[]]}"
    with pytest.raises(TooLarge, match="values, the limit is 1000000"):
        parse(bomb, "here", Limits())
    with pytest.raises(CorruptData, match="nested deeper than 64"):
        parse(b"?" + b'{"x":' * 65 + b"1" + b"}" * 65, "here", Limits())
    with pytest.raises(CorruptData, match="no valid JSON"):
        parse(b'?{"x":1}', "here", Limits())


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(alphabet='a,:[]{}"\\\u20ac', max_size=6),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text('ab,:[{"\\', max_size=3), inner, max_size=5),
    max_leaves=40,
)


@given(value=VALUES, ascii_only=st.booleans(), times=st.sampled_from([1, 700]))
def test_p6_the_count_is_never_too_low_and_the_depth_exact(value: object, ascii_only: bool, times: int) -> None:
    document = [value] * times  # many: else they are not looked at closely
    text = json.dumps(document, ensure_ascii=ascii_only).encode()
    found = measure(text, Limits(json_depth=0))

    def count(value: object) -> int:
        members = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
        return 1 + sum(map(count, members))

    def depth(value: object) -> int:
        members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
        return 0 if members is None else 1 + max(map(depth, members), default=0)

    assert count(document) <= found.values <= 2 * count(document)
    assert found.depth == depth(document)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path))


def test_reader_parses_again_only_when_the_version_changed(
    tmp_path: Path, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"v": 1}')
    Clock(monkeypatch).settles()
    reader = DocumentReader(store, Limits())
    first = reader.read(Key("a.json"))
    assert first is not None
    assert first.values == {"v": 1}
    assert reader.read(Key("a.json")) is first
    path.write_text('{"v": 23}')
    os.utime(path, ns=(5, 5))
    second = reader.read(Key("a.json"))
    assert second is not None
    assert second.values == {"v": 23}
    path.unlink()
    assert reader.read(Key("a.json")) is None
    assert reader.read(Key("b/c.json")) is None


def test_immutable_reader_never_looks_again(tmp_path: Path, store: LocalStore) -> None:
    path = tmp_path / "a.json"
    path.write_text("{}")
    reader = DocumentReader(store, Limits(), immutable=True)
    first = reader.read(Key("a.json"))
    path.unlink()
    assert reader.read(Key("a.json")) is first


def test_reader_errors_name_the_document(tmp_path: Path, store: LocalStore) -> None:
    (tmp_path / "d.json").mkdir()
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "big.json").write_text("{" + " " * 5000 + "}")
    reader = DocumentReader(store, LIMITS)
    with pytest.raises(CorruptData, match=r"d\.json: there is a directory"):
        reader.read(Key("d.json"))
    with pytest.raises(CorruptData, match=r"bad\.json: it is no valid JSON"):
        reader.read(Key("bad.json"))
    with pytest.raises(TooLarge):
        reader.read(Key("big.json"))


def test_reader_memory_is_bounded(tmp_path: Path, store: LocalStore) -> None:
    reader = DocumentReader(store, Limits())
    for number in range(6):
        (tmp_path / f"{number}.json").write_text('{"a": "' + "x" * (2 << 20) + '"}')
        assert reader.read(Key(f"{number}.json")) is not None
    assert 0 < reader._known.used <= 8 << 20
    assert reader._known.get(Key("5.json")) is not None
    assert reader._known.get(Key("0.json")) is None


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda x: st.lists(x, max_size=3)))
@settings(max_examples=EXAMPLES)
def test_getters_return_the_type_or_corrupt_data(value: object) -> None:
    fields = Fields({"x": value}, "here")
    for getter in (fields.integer, fields.integers, fields.string, fields.sequence, fields.mapping, fields.fields):
        with contextlib.suppress(CorruptData):
            getter("x")


class WholeSeconds(LocalStore):
    """A store with a clock that has stood still since everything was written, and then goes on."""

    settled = False

    def stat(self, key: Key, read: Range | None = None) -> Stat:
        return self._coarse(super().stat(key, read))

    def read(self, key: Key, limit: int) -> tuple[bytes, Stat]:
        data, stat = super().read(key, limit)
        return data, self._coarse(stat)

    def _coarse(self, stat: Stat) -> Stat:
        return stat._replace(version=stat.size, settled=self.settled)


def test_p9_two_documents_of_one_size_and_time_are_two_versions(tmp_path: Path) -> None:
    document, key, store = tmp_path / "x.json", Key.parse("x.json"), WholeSeconds(str(tmp_path))
    reader = DocumentReader(store, LIMITS)
    document.write_text('{"shape": [64, 8]}')
    first = reader.read(key)
    assert first is not None
    assert reader.same(key, first.stat)
    document.write_text('{"shape": [8, 64]}')
    assert not reader.same(key, first.stat)
    second = reader.read(key)
    assert second is not None
    assert second.values == {"shape": [8, 64]}
    assert second.stat.version != first.stat.version
    store.settled = True
    assert reader.same(key, second.stat)
    assert not reader.same(key, first.stat)
    again = reader.read(key)
    assert again is not None
    assert again.stat.version == second.stat.version
    assert again is reader.read(key)
    assert reader.same(key, again.stat)
