"""Many rows in little memory: columns of numbers and references, in pages sorted by the first column.

A million rows as objects in dicts would take a gigabyte, most of it for finding them again; here a row takes only the memory
of its values, finding it takes two bisections, and the memory of an emptied page is freed at once. If there is no memory for
a change, nothing is changed, because columns of different lengths would mix up the rows. Not here: what the rows mean. Not
thread-safe.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, MutableSequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

PAGE_ROWS = 512
"""Most rows of a page. A row inserted into a page moves up to that many values in each column."""

P = TypeVar("P", bound=tuple[MutableSequence[Any], ...])


class Columns(Generic[P]):
    """A table of rows with one value per column. The first value, an integer, is the key. `empty` makes an empty page.

    A row is identified by its page and its place there, which are valid until a row is added or removed.
    """

    def __init__(self, empty: Callable[[], P]) -> None:
        self._empty = empty
        self._pages: list[P] = []
        self._lows: list[int] = []  # the first key of each page
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    def last(self, key: int) -> tuple[P, int] | None:
        """Return the last row with a key of at most `key`."""
        number = bisect_right(self._lows, key) - 1
        if number < 0:
            return None
        page = self._pages[number]
        return page, bisect_right(page[0], key) - 1

    def all(self, key: int) -> Iterator[tuple[P, int]]:
        """Yield all rows with that key, the last one first."""
        number = bisect_right(self._lows, key) - 1
        while number >= 0:
            page = self._pages[number]
            row = bisect_right(page[0], key) - 1
            while row >= 0:
                if page[0][row] != key:
                    return
                yield page, row
                row -= 1
            number -= 1

    def add(self, *values: Any) -> tuple[P, int]:
        """Add a row after the rows with the same key."""
        key = values[0]
        number = max(0, bisect_right(self._lows, key) - 1)
        if not self._pages:
            self._begin(0, self._empty(), key)
        page = self._pages[number]
        row = bisect_right(page[0], key)
        if len(page[0]) >= PAGE_ROWS:
            at = row if row == len(page[0]) and page is self._pages[-1] else PAGE_ROWS // 2  # growing keys leave full pages
            below, above = self._part(page, slice(at)), self._part(page, slice(at, None))
            self._begin(number + 1, above, above[0][0] if above[0] else key)
            self._pages[number] = page = below
            if row >= at:
                number, page, row = number + 1, above, row - at
        before = len(page[0])
        try:
            for column, value in zip(page, values, strict=True):
                column.insert(row, value)
        except BaseException:
            for column in page:
                if len(column) > before:
                    del column[row]
            if not before:
                self._end(number)
            raise
        if not row:
            self._lows[number] = key
        self._rows += 1
        return page, row

    def remove(self, page: P, row: int) -> None:
        """Remove a row, and join its page with a neighbour if the two have few rows together."""
        number = bisect_right(self._lows, page[0][row]) - 1
        while self._pages[number] is not page:  # several pages may begin with the same key
            number -= 1
        for column in page:
            del column[row]
        self._rows -= 1
        if not page[0]:
            self._end(number)
            return
        self._lows[number] = page[0][0]
        for lower in (number, number - 1):
            if lower >= 0 and lower + 1 < len(self._pages):
                first, second = self._pages[lower], self._pages[lower + 1]
                if len(first[0]) + len(second[0]) <= PAGE_ROWS // 2:
                    with suppress(MemoryError):  # then they stay apart
                        self._pages[lower] = self._part(first, also=second)
                        self._end(lower + 1)
                    return

    def _part(self, page: P, rows: slice = slice(None), also: P | None = None) -> P:
        """Return a page made of some rows of one page and all rows of another."""
        part = self._empty()
        for column, values in zip(part, page, strict=True):
            column += values[rows]
        for column, values in zip(part, also or (), strict=also is not None):
            column += values
        return part

    def _begin(self, number: int, page: P, low: int) -> None:
        self._pages.insert(number, page)
        try:
            self._lows.insert(number, low)
        except BaseException:
            del self._pages[number]
            raise

    def _end(self, number: int) -> None:
        del self._pages[number], self._lows[number]
