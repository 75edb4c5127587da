"""Text: `.csv` of tables, compounds and strings, `.txt` of strings one per line. Made as a whole when opened: sizes vary."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fsbridge.errors import TooLarge
from fsbridge.layouts.files.extents import Generated, Unfit, View

MAX_ELEMENTS = 1 << 24
"""Elements of a table; more would be more than the limit of bytes anyway."""
MAX_TEXTS = 1 << 20
"""Elements of variable length, each of which takes some sixty bytes of memory while the file is made."""
MAX_COLUMNS = 1 << 14
"""Columns of a table of compounds: spreadsheets end there."""
_BATCH_ROWS = 4096
"""Rows written between two looks at the limit."""


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
    if view.metadata.varlength:
        raise Unfit("elements of different sizes are no table")
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


def _csv(elements: NDArray[Any], columns: list[tuple[str, tuple[str, ...], int | None]], limit: int) -> bytes:
    content = bytearray()
    if columns:
        stream = io.StringIO()
        csv.writer(stream, lineterminator="\n").writerow([name for name, _, _ in columns])
        content += stream.getvalue().encode("utf-8", "surrogateescape")
    for start in range(0, len(elements), _BATCH_ROWS):
        part = elements[start : start + _BATCH_ROWS]
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        if columns:
            writer.writerows(zip(*(_cells(_column(part, path, i)) for _, path, i in columns), strict=True))
        elif part.ndim == 1:
            writer.writerows([cell] for cell in _cells(part))
        else:
            writer.writerows(_cells(row) for row in part)
        content += stream.getvalue().encode("utf-8", "surrogateescape")
        _within(len(content), limit)
    return bytes(content)


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
    if kind == "b":
        return ["true" if value else "false" for value in values.tolist()]
    return [_word(value) for value in values]


def _word(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return str(value)


def _txt(elements: NDArray[Any], limit: int) -> bytes:
    lines: Iterable[str] = (_word(value) for value in elements.reshape(-1))
    content = "".join(line.replace("\r", "\\r").replace("\n", "\\n") + "\n" for line in lines)
    _within(len(content), limit)
    return content.encode("utf-8", "surrogateescape")


def _within(size: int, limit: int) -> None:
    if size > limit:
        raise TooLarge(f"a text of more than {limit} bytes is not made in memory; take a region")
