"""Rows in columns against a plain list, with pages of few rows so that they part and join."""

from __future__ import annotations

import random
from array import array
from typing import Any, TypeAlias

import pytest

from fsbridge.kernel import records
from fsbridge.kernel.records import Columns

Page: TypeAlias = "tuple[array[int], list[str]]"


def empty() -> Page:
    return array("q"), []


def rows(table: Columns[Page]) -> list[tuple[int, str]]:
    return [(key, value) for page in table._pages for key, value in zip(*page, strict=True)]


@pytest.mark.parametrize("keys", [3, 40, 10**6], ids=["many of one key", "some of one key", "few of one key"])
@pytest.mark.parametrize("seed", range(5))
def test_rows_come_and_go_as_in_a_sorted_list(seed: int, keys: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "PAGE_ROWS", 8)
    chance = random.Random(seed)
    table: Columns[Page] = Columns(empty)
    model: list[tuple[int, str]] = []
    for step in range(600):
        growing = step % 200 < 120
        if not model or chance.random() < (0.8 if growing else 0.2):
            key, value = chance.randrange(keys), f"v{step}"
            table.add(key, value)
            model.append((key, value))
            model.sort(key=lambda row: row[0])  # stable: behind those of the same key
        else:
            key, value = chance.choice(model)
            page, row = next((page, row) for page, row in table.all(key) if page[1][row] == value)
            table.remove(page, row)
            model.remove((key, value))
        assert rows(table) == model
        assert len(table) == len(model)
        assert table._lows == [page[0][0] for page in table._pages]
        assert all(0 < len(page[0]) <= 8 for page in table._pages)
        key = chance.randrange(keys)
        assert [page[1][row] for page, row in table.all(key)] == [value for at, value in reversed(model) if at == key]
        last, below = table.last(key), [row for row in model if row[0] <= key]
        assert (None if last is None else (last[0][0][last[1]], last[0][1][last[1]])) == (below[-1] if below else None)
    assert len(table._pages) <= 1 + len(model) // 2, "pages that are nearly empty are joined"


@pytest.mark.parametrize("seed", range(10))
def test_rows_are_what_they_were_where_there_was_no_memory_for_a_change(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value more in one column than in the others, and each inode behind it was another file's."""
    monkeypatch.setattr(records, "PAGE_ROWS", 8)
    chance, left = random.Random(seed), 0

    class Scarce(list[Any]):
        """Grows `left` times more."""

        def insert(self, at: Any, value: Any) -> None:
            self._grow()
            super().insert(at, value)

        def __iadd__(self, values: Any) -> Any:
            self._grow()
            return super().__iadd__(values)

        def _grow(self) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise MemoryError

    table: Columns[Any] = Columns(lambda: (Scarce(), Scarce(), Scarce()))
    table._lows = Scarce()
    model: list[tuple[int, int, int]] = []
    failed = 0
    for step in range(2000):
        left = chance.choice([0, 1, 2, 3, 4, 5, 6, 7, 100])
        if not model or chance.random() < (0.8 if step % 200 < 120 else 0.2):
            key = chance.randrange(100)
            try:
                table.add(key, step, step)
            except MemoryError:
                failed += 1
            else:
                model.append((key, step, step))
                model.sort(key=lambda row: row[0])
        else:
            key, value, _ = chance.choice(model)
            page, row = next((page, row) for page, row in table.all(key) if page[1][row] == value)
            table.remove(page, row)
            model.remove((key, value, value))
        assert [row for page in table._pages for row in zip(*page, strict=True)] == model
        assert (len(table), table._lows) == (len(model), [page[0][0] for page in table._pages])
    assert failed > 100


def test_growing_keys_fill_their_pages() -> None:
    table: Columns[Page] = Columns(empty)
    for key in range(10 * records.PAGE_ROWS):
        table.add(key, "")
    assert len(table._pages) == 10
