"""What is remembered of a store's answers, and which requests may use it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import Clock

from fsbridge.asking import as_of, oldest, without_waiting
from fsbridge.errors import NotFound
from fsbridge.store import ROOT, Key, Member, Range, Stat, StoreAbilities
from fsbridge.store.local import LocalStore
from fsbridge.store.remembered import MOST_MEMBERS, Remembered
from fsbridge.store.zip import ZipStore


class Counted(LocalStore):
    """Counts what it is asked."""

    asked = 0

    def stat(self, key: Key, read: Range | None = None) -> Stat:
        self.asked += 1
        return super().stat(key, read)

    def list(self, key: Key, stats: bool = False) -> Iterator[Member]:
        self.asked += 1
        return super().list(key, stats)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[tuple[Counted, Remembered]]:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/a").write_bytes(b"a")
    (tmp_path / "d/b").write_bytes(b"bb")
    clock.settles()
    below = Counted(str(tmp_path))
    above = Remembered(below)
    yield below, above
    above.close()


def test_p9_outside_of_a_question_every_answer_is_a_present_one(store: tuple[Counted, Remembered]) -> None:
    below, above = store
    with as_of(-math.inf):
        above.stat(Key("d/a"))
    for number in range(2):
        above.stat(Key("d/a"))
        assert below.asked == 2 + number


def test_p9_an_answer_is_given_while_it_is_young_enough_with_its_age(
    store: tuple[Counted, Remembered], clock: Clock
) -> None:
    below, above = store
    with as_of(-math.inf):
        first = above.stat(Key("d/a"))
        asked = oldest()
    clock.passes(60.0)
    with as_of(asked) as answers:
        assert above.stat(Key("d/a")) is first
    assert asked <= answers.oldest < time.monotonic() - 60.0
    assert below.asked == 1
    with as_of(time.monotonic()) as answers:
        now = time.monotonic()
        assert above.stat(Key("d/a")) == first
    assert below.asked == 2
    assert answers.oldest <= now + 30.0


def test_p9_a_present_answer_takes_the_place_of_the_remembered_one(
    store: tuple[Counted, Remembered], tmp_path: Path, clock: Clock
) -> None:
    _, above = store
    with as_of(-math.inf):
        old = above.stat(Key("d/a"))
        listed = {member.name: member.stat for member in above.list(Key("d"), stats=True)}
    assert listed["a"] == old
    (tmp_path / "d/a").write_bytes(b"aaa")
    clock.settles()
    with as_of(-math.inf):
        assert above.stat(Key("d/a")) == old
    assert above.stat(Key("d/a")).size == 3, "an open finds it as it is"
    with as_of(-math.inf):
        assert above.stat(Key("d/a")).size == 3
        assert {member.name: member.stat.size for member in above.list(Key("d"), stats=True) if member.stat} == {
            "a": 3,
            "b": 2,
        }


def test_p9_reading_an_object_is_a_look_at_it(store: tuple[Counted, Remembered], tmp_path: Path, clock: Clock) -> None:
    below, above = store
    with as_of(-math.inf):
        above.stat(Key("d/a"))
        (tmp_path / "d/a").write_bytes(b"aaa")
        clock.settles()
        data, read = above.read(Key("d/a"), 10)
        assert (bytes(data), above.stat(Key("d/a"))) == (b"aaa", read)
    assert below.asked == 1


def test_p3_absence_and_errors_are_never_remembered(store: tuple[Counted, Remembered], tmp_path: Path, clock: Clock) -> None:
    _, above = store
    with as_of(-math.inf):
        with pytest.raises(NotFound):
            above.stat(Key("d/c"))
        list(above.list(Key("d"), stats=True))
        (tmp_path / "d/c").write_bytes(b"c")
        clock.settles()
        assert above.stat(Key("d/c")).size == 1
        assert {member.name for member in above.list(Key("d"), stats=True)} == {"a", "b", "c"}
        (tmp_path / "d/c").unlink()
    with pytest.raises(NotFound):
        above.stat(Key("d/c"))
    with as_of(-math.inf):
        with pytest.raises(NotFound):
            above.stat(Key("d/c"))
        assert {member.name for member in above.list(Key("d"), stats=True)} == {"a", "b"}


def test_p9_what_may_change_without_showing_it_is_not_remembered(
    store: tuple[Counted, Remembered], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below, above = store
    monkeypatch.setattr("fsbridge.store.local.status.TICK_NS", 10**12)  # a clock slow enough for any machine
    (tmp_path / "d/a").write_bytes(b"x")
    with as_of(-math.inf):
        for _ in range(2):
            assert not above.stat(Key("d/a")).settled
    assert below.asked == 2


def test_a_listing_answers_for_its_members(store: tuple[Counted, Remembered]) -> None:
    below, above = store
    with as_of(-math.inf):
        assert [member.name for member in above.list(ROOT, stats=True)] == ["d"]
        members = sorted(above.list(Key("d"), stats=True))
        assert [above.stat(Key("d") / member.name) for member in members] == [member.stat for member in members]
        with without_waiting():
            assert sorted(above.list(Key("d"), stats=True)) == members
    assert below.asked == 2
    assert sorted(above.list(Key("d"), stats=True)) == members
    assert below.asked == 3


def test_p3_what_a_link_to_nothing_is_listed_with_answers_no_look(store: tuple[Counted, Remembered], tmp_path: Path) -> None:
    _, above = store
    (tmp_path / "d/c").symlink_to("nothing")
    with as_of(-math.inf):
        assert [member.name for member in above.list(Key("d"), stats=True) if member.hidden] == ["c"]
        with pytest.raises(Exception, match="a link to something that is not there"):
            above.stat(Key("d/c"))


def test_p6_a_listing_of_many_members_is_not_remembered(tmp_path: Path) -> None:
    for number in range(MOST_MEMBERS + 1):
        (tmp_path / str(number)).touch()
    below = Counted(str(tmp_path))
    above = Remembered(below)
    with as_of(-math.inf):
        for _ in range(2):
            assert len(list(above.list(ROOT, stats=True))) == MOST_MEMBERS + 1
    assert below.asked == 2
    above.close()


def test_p6_answers_stay_within_a_budget(store: tuple[Counted, Remembered]) -> None:
    below, _ = store
    above = Remembered(below, budget=2048)
    with as_of(-math.inf):
        for _ in range(2):
            for name in ("", "d", "d/a", "d/b"):
                above.stat(Key(name))
    assert below.asked == 8
    assert above._stats.used <= 1024


def test_an_archive_is_remembered_as_a_directory_is(tmp_path: Path, clock: Clock) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("d/a", "a")
    clock.settles()
    above: Any = Remembered(ZipStore(str(tmp_path / "x.zip")))
    with as_of(-math.inf):
        found = above.stat(Key("d/a"))
        with without_waiting():
            assert above.stat(Key("d/a")) is found
    assert (above.rests, above.listable, above.prefixes, above.remote, above.vouches) == (True, True, False, False, False)
    above.close()


def test_every_ability_of_the_store_below_is_passed_on() -> None:
    abilities = {name for name in vars(StoreAbilities) if not name.startswith("_")}
    assert abilities <= vars(Remembered).keys()
