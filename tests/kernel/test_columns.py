"""Rows in columns against a plain list, with pages of few rows so that they part and join."""

from __future__ import annotations

import random
from array import array
from typing import TypeAlias

import pytest

from fsbridge.kernel import columns
from fsbridge.kernel.columns import Columns

Page: TypeAlias = "tuple[array[int], list[str]]"


def empty() -> Page:
    return array("q"), []


def rows(table: Columns[Page]) -> list[tuple[int, str]]:
    return [(key, value) for page in table._pages for key, value in zip(*page, strict=True)]


@pytest.mark.parametrize("keys", [3, 40, 10**6], ids=["many of one key", "some of one key", "few of one key"])
@pytest.mark.parametrize("seed", range(5))
def test_rows_come_and_go_as_in_a_sorted_list(seed: int, keys: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "PAGE_ROWS", 8)
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


def test_growing_keys_fill_their_pages() -> None:
    table: Columns[Page] = Columns(empty)
    for key in range(10 * columns.PAGE_ROWS):
        table.add(key, "")
    assert len(table._pages) == 10
