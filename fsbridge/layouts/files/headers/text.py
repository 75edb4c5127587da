"""Text: `.csv` of tables, compounds and strings, `.txt` of strings one per line. Made as a whole when opened: sizes vary."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fsbridge.errors import CorruptData, TooLarge
from fsbridge.layouts.files.extents import Generated, Unfit, View

MAX_ELEMENTS = 1 << 24
"""Elements of a table; more would be more than the limit of bytes anyway."""
MAX_TEXTS = 1 << 20
"""Elements of variable length, each of which takes some sixty bytes of memory while the file is made."""
MAX_COLUMNS = 1 << 14
"""Columns of a table of compounds: spreadsheets end there."""
_LAST_CHARACTER, _SURROGATES = 0x10FFFF, (0xD800, 0xDFFF)
_BATCH_ROWS, _BATCH_BYTES = 4096, 1 << 20
"""Rows and bytes of elements, at most, that are made text of at a time: meanwhile they take several times their bytes."""


def csv_table(view: View) -> Generated:
    """One row per element of a 1-D array, per row of a 2-D one; a first line with names for compounds only. In C order."""
    _text_like(view)
    if not 1 <= len(view.shape) <= 2:
        raise Unfit(f"a table has 1 or 2 dimensions, the array has {len(view.shape)}")
    if view.dtype is not None and _width(view.dtype) > MAX_COLUMNS:
        raise Unfit(f"more than {MAX_COLUMNS} columns")
    fields = [] if view.dtype is None else _columns("", view.dtype)
    if view.dtype is not None and view.dtype.names is not None and len(view.shape) != 1:
        raise Unfit("a table of compounds has 1 dimension")
    columns = fields if view.dtype is not None and view.dtype.names is not None else []
    return Generated(lambda elements, limit: _csv(elements, columns, limit), tuple(range(len(view.shape))))


def txt_lines(view: View) -> Generated:
    """Strings, one per line; a line break within a string is written as `\\n`."""
    _text_like(view)
    dtype = view.dtype
    if len(view.shape) > 1:
        raise Unfit(f"lines have 1 dimension, the array has {len(view.shape)}")
    if dtype is not None and dtype.kind not in "SU":
        raise Unfit("the elements are no text")
    return Generated(_txt, tuple(range(len(view.shape))))


def _text_like(view: View) -> None:
    if view.dtype is None and view.metadata.dtype.serializer == "bytes":
        raise Unfit(f"numpy has no type for {view.metadata.dtype.native}")
    most = MAX_ELEMENTS if view.dtype is not None else MAX_TEXTS
    if view.selection.size > most:
        raise Unfit(f"more than {most} elements; take a region")


def _width(dtype: np.dtype[Any]) -> int:
    """Number of columns of a compound, at least."""
    if dtype.subdtype is not None:
        return int(np.prod(dtype.shape, dtype=object))
    return sum(_width(dtype[field]) for field in dtype.names or ()) or 1


def _columns(name: str, dtype: np.dtype[Any]) -> list[tuple[str, tuple[str, ...], int | None]]:
    """Names of columns, the path of fields that leads there, and the number within a field that is an array itself."""
    found: list[tuple[str, tuple[str, ...], int | None]] = []
    for field in dtype.names or ():
        below = dtype[field]
        full = f"{name}{field}"
        if below.names is not None:
            found += [(sub, (field, *path), i) for sub, path, i in _columns(f"{full}.", below)]
        elif below.subdtype is not None:
            count = int(np.prod(below.shape))
            found += [(f"{full}.{i}", (field,), i) for i in range(count)]
        else:
            found.append((full, (field,), None))
    return found


def _csv(elements: NDArray[Any], columns: list[tuple[str, tuple[str, ...], int | None]], limit: int) -> bytearray:
    content = bytearray(_rows([[name for name, _, _ in columns]]) if columns else b"")
    for part in _batches(elements):
        if columns:
            content += _rows(zip(*(_cells(_column(part, path, i)) for _, path, i in columns), strict=True))
        elif part.ndim == 1:
            content += _rows([cell] for cell in _cells(part))
        else:
            content += _rows(_cells(row) for row in part)
        _within(len(content), limit)
    return content


def _batches(elements: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """The elements, some rows at a time."""
    start, rows = 0, len(elements)
    while start < rows:
        stop = min(rows, start + _BATCH_ROWS)
        if elements.dtype.kind == "O":
            left = _BATCH_BYTES
            stop = next((i for i in range(start + 1, stop) if (left := left - _length(elements[i - 1])) < 0), stop)
        else:
            stop = min(stop, start + max(1, _BATCH_BYTES // max(1, elements[start].nbytes)))
        yield elements[start:stop]
        start = stop


def _length(row: Any) -> int:
    """Characters or bytes of the elements of a row, each of variable length."""
    return sum(map(len, row.reshape(-1).tolist())) if isinstance(row, np.ndarray) else len(row)


class _Written(list[str]):
    """Rows as a writer of CSV writes them."""

    write = list.append


def _rows(cells: Iterable[Iterable[str]]) -> bytes:
    """The lines of a table, ended by LF. Python quotes what may end the lines that it is told of: both CR and LF do."""
    written = _Written()
    csv.writer(written, lineterminator="\r\n").writerows(cells)
    return _utf8("".join([row[:-2] + "\n" for row in written]))


def _column(part: NDArray[Any], path: tuple[str, ...], number: int | None) -> NDArray[Any]:
    for field in path:
        part = part[field]
    return part if number is None else part.reshape(len(part), -1)[:, number]


def _cells(values: NDArray[Any]) -> list[str]:
    """Each value as text that reads back as the same value."""
    kind = values.dtype.kind
    if kind in "iu":
        return list(map(str, values.tolist()))
    if kind == "f" and values.dtype.itemsize == 8:
        return list(map(repr, values.tolist()))
    if kind == "f" and values.dtype.itemsize < 8:
        # Numpy tells no more digits than the type needs: of 2**31 in float32 2147483600, and readers take it for that.
        exact = values.astype(np.float64).tolist()
        return [repr(number) if number.is_integer() else str(value) for number, value in zip(exact, values, strict=True)]
    if kind == "b":
        return ["true" if value else "false" for value in values.tolist()]
    if kind == "M" and np.datetime_data(values.dtype)[0] == "generic":  # a count without a unit, which numpy cannot spell
        counts = values.astype(np.int64).tolist()
        return ["NaT" if absent else str(count) for count, absent in zip(counts, np.isnat(values), strict=True)]
    return _words(values)


def _words(values: NDArray[Any]) -> list[str]:
    """Each value as text. CorruptData for characters that Unicode has not: nothing could tell them."""
    if values.dtype.kind == "U" and values.dtype.itemsize:
        codes = np.ascontiguousarray(values).view(np.dtype("u4").newbyteorder(values.dtype.byteorder))
        if ((codes > _LAST_CHARACTER) | ((codes >= _SURROGATES[0]) & (codes <= _SURROGATES[1]))).any():
            raise CorruptData("a text holds what is no character of Unicode")
    return [_word(value) for value in values]


def _utf8(text: str) -> bytes:
    """Bytes that were no UTF-8 in the source are as they were."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise CorruptData("a text holds what is no character of Unicode") from None


def _word(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return str(value)


def _txt(elements: NDArray[Any], limit: int) -> bytearray:
    content = bytearray()
    for part in _batches(elements.reshape(-1)):
        lines = [word.replace("\r", "\\r").replace("\n", "\\n") + "\n" for word in _words(part)]
        content += _utf8("".join(lines))
        _within(len(content), limit)
    return content


def _within(size: int, limit: int) -> None:
    if size > limit:
        raise TooLarge(f"a text of more than {limit} bytes is not made in memory; take a region")
