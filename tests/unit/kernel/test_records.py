"""Rows of inodes against plain objects in a list, with so few places that rows collide and are compacted."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator
from typing import Any, TypeVar

import pytest

from fsbridge.kernel.records import InodeRows, Row, Rows

T = TypeVar("T")

PARENTS = 3
NAMES = (b"a", b"b", b"c", b"d", None)


class Model:
    """The same rows as objects: number, size, parent, name and version, and whether the name leads to this row."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def named(self, parent: int, name: bytes | None, version: Hashable) -> dict[str, Any] | None:
        for row in self.rows:
            same = row["version"] == version if name is None else row["parent"] == parent
            if row["current"] and row["name"] == name and same:
                return row
        return None


def describe(row: Row | None) -> tuple[object, ...] | None:
    if row is None:
        return None
    rows, at = row
    return rows.numbers[at], rows.sizes[at], rows.parents[at], rows.names[at], rows.versions[at], rows.counts[at]


def describe_known(row: dict[str, Any] | None) -> tuple[object, ...] | None:
    return None if row is None else tuple(row[name] for name in ("number", "size", "parent", "name", "version", "count"))


def check(table: InodeRows, model: Model) -> None:
    assert len(table) == len(model.rows)
    owners = {row["number"] + place: row for row in model.rows for place in range(row["size"])}
    for number in range(table.next + 2):
        assert describe(table.row(number)) == describe_known(owners.get(number))
    for parent in range(PARENTS):
        for name in NAMES[:-1]:
            assert name is not None
            assert describe(table.member(parent, name)) == describe_known(model.named(parent, name, None))
    for version in range(8):
        assert describe(table.space(version)) == describe_known(model.named(0, None, version))


def change(table: InodeRows, model: Model, chance: random.Random, growing: bool) -> None:
    """Add a row, let a name lead to no row any more, or remove a row."""
    if model.rows and chance.random() < (0.3 if growing else 0.8):
        gone = chance.choice(model.rows)
        row = table.row(gone["number"])
        assert row is not None
        if growing:
            table.mark_outdated(row)
            gone["current"] = False
        else:
            table.remove(row)
            model.rows.remove(gone)
        return
    parent, name, version, size = (
        chance.randrange(PARENTS),
        chance.choice(NAMES),
        chance.randrange(8),
        chance.choice([1, 1, 7]),
    )
    former = model.named(parent, name, version)
    if former is not None:
        row = table.row(former["number"])
        assert row is not None
        table.mark_outdated(row)
        former["current"] = False
    rows, at = table.add(parent, name, "file", version, 1, size)
    told = {"number": rows.numbers[at], "size": size, "parent": parent, "name": name, "version": version, "count": 1}
    model.rows.append({**told, "current": True})


@pytest.mark.parametrize("seed", range(10))
def test_rows_come_and_go_as_objects_do(seed: int) -> None:
    chance, table, model = random.Random(seed), InodeRows(1, least_places=4), Model()
    for step in range(400):
        change(table, model, chance, growing=step % 100 < 60)
        if step % 10 == 0 or len(model.rows) < 8:
            check(table, model)
    check(table, model)
    for row in list(model.rows):
        place = table.row(row["number"])
        assert place is not None
        table.remove(place)
    assert len(table) == 0
    assert len(table._rows.numbers) <= 1, "removed rows are compacted"
    assert len(table._table) == 4


def test_a_member_that_is_replaced_again_and_again_is_found_at_once() -> None:
    """All its rows have one hash; those of the past must not stand before the present one."""
    table = InodeRows(1)
    for number in range(600):
        table.add(0, b"%d" % number, "file", None, 1)
    row = table.add(1, b"x", "file", 0, 1)
    for version in range(1, 500):
        table.mark_outdated(row)
        row = table.add(1, b"x", "file", version, 1)
    assert describe(table.member(1, b"x")) == describe(row)
    assert sum(place > 0 for place in table._table) <= 601


class Room:
    """How many values more there is memory for in all columns."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise MemoryError


class Scarce(list[Any]):
    """A column that grows while there is room."""

    def __init__(self, room: Room) -> None:
        super().__init__()
        self.room = room

    def append(self, value: Any) -> None:
        self.room.take()
        super().append(value)


@pytest.mark.parametrize("left", range(8))
def test_rows_are_what_they_were_where_there_was_no_memory_for_another(left: int) -> None:
    """A value more in one column than in the others, and each inode behind it was another file's."""
    table, room = InodeRows(1), Room(16)
    table._rows = Rows(*(Scarce(room) for _ in table._rows.columns))
    first, second = describe(table.add(0, b"a", "file", 1, 1)), describe(table.add(0, b"b", "file", 2, 1))
    room.left = left
    with pytest.raises(MemoryError):
        table.add(0, b"c", "file", 3, 1)
    assert {len(column) for column in table._rows} == {2}
    assert (len(table), table.member(0, b"c")) == (2, None)
    assert (describe(table.member(0, b"a")), describe(table.member(0, b"b"))) == (first, second)
    room.left = 8
    assert describe(table.add(0, b"c", "file", 3, 1)) == describe(table.member(0, b"c"))


class Unreadable(list[T]):
    """A column of which no copy can be made for want of memory."""

    def __iter__(self) -> Iterator[T]:
        raise MemoryError


def test_rows_remain_where_there_is_no_memory_to_compact_them() -> None:
    table = InodeRows(1)
    numbers = [rows.numbers[at] for rows, at in (table.add(0, b"%d" % number, "file", None, 1) for number in range(400))]
    names = Unreadable(table._rows.names)
    table._rows = table._rows._replace(names=names)
    for number in numbers[:300]:
        row = table.row(number)
        assert row is not None
        table.remove(row)
    assert len(table) == 100
    table._rows = table._rows._replace(names=names.copy())
    row = table.row(numbers[300])
    assert row is not None
    table.remove(row)
    assert len(table._rows.numbers) == len(table) == 99
    assert describe(table.member(0, b"399")) == describe(table.row(numbers[399]))
