"""Text: `.csv` of tables, compounds and strings, `.txt` of strings one per line. Made as a whole when opened: sizes vary."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from fsbridge.errors import CorruptData, TooLarge
from fsbridge.layouts.files.arrays.extents import Generated, Labels, Unfit, View
from fsbridge.layouts.files.filetypes.filetype import FileType, Limit, elements, texts

if TYPE_CHECKING:
    from typing import Any

    import numpy as np
    from numpy.typing import NDArray

MAX_ELEMENTS = 1 << 24
"""Most elements of a table. More would exceed the limit of bytes anyway."""
MAX_TEXTS = 1 << 20
"""Most elements of variable length. Each takes some sixty bytes of memory while the file is made."""
_MAX_ACROSS = 1 << 17
"""Most columns of a table of plain elements: the texts of a row are in memory together."""
MAX_COLUMNS = 1 << 14
"""Most columns of a table of compounds, because spreadsheets have no more."""
_LAST_CHARACTER, _SURROGATES = 0x10FFFF, (0xD800, 0xDFFF)
_BATCH_ROWS, _BATCH_BYTES = 4096, 1 << 20
"""Most rows and bytes of elements that are converted to text at a time, which takes several times their bytes of memory."""


def csv_table(view: View) -> Generated:
    """Return the plan of a table with one row for each index of the first dimension, and a first line with names.

    Columns are the fields of compounds, the second dimension of a 2-D array (named by its coordinates, else by numbers),
    or the array itself. The first column has the coordinates of the first dimension, if it has a coordinate array.
    Missing elements are empty cells, packed numbers are as they are stored.
    """
    columns = [] if view.dtype is None or view.dtype.names is None else _columns("", view.dtype)
    names, missing = tuple(axis.name or "" for axis in view.axes), view.meaning.values.missing

    def make(elements: NDArray[Any], labels: Labels, limit: int) -> bytearray:
        if columns:
            header = [name for name, _, _ in columns]
        elif elements.ndim == 1:
            header = [labels.name]
        else:
            header = cells_of(labels.values[1]) if 1 in labels.values else [str(i) for i in range(elements.shape[1])]
        index = labels.values.get(0)
        return _csv(elements, columns, header if index is None else [names[0], *header], index, limit, missing)

    return Generated(make, tuple(range(len(view.shape))), labelled=tuple(range(len(view.shape))))


def txt_lines(view: View) -> Generated:
    """Return the plan of strings, one per line; a line break within a string is written as a backslash and an n."""
    return Generated(lambda elements, _, limit: _txt(elements, limit), tuple(range(len(view.shape))))


def _table(view: View) -> None:
    _known(view)
    if not 1 <= len(view.shape) <= 2:
        raise Unfit(f"a table needs 1 or 2 dimensions, and the array has {len(view.shape)}")
    if view.dtype is None:
        return
    if _width(view.dtype) > MAX_COLUMNS:
        raise Unfit(f"the table would have more than {MAX_COLUMNS} columns")
    if view.dtype.names is not None and len(view.shape) != 1:
        raise Unfit(f"a table of compounds needs 1 dimension, and the array has {len(view.shape)}")


def _lines(view: View) -> None:
    _known(view)
    if len(view.shape) > 1:
        raise Unfit(f"lines of text need at most 1 dimension, and the array has {len(view.shape)}")
    if view.dtype is not None and view.dtype.kind not in "SU":
        raise Unfit("the elements are no text")


def _known(view: View) -> None:
    if view.dtype is None and view.metadata.dtype.serializer == "bytes":
        raise Unfit(f"numpy has no type for {view.metadata.dtype.native}")


def _width(dtype: np.dtype[Any]) -> int:
    """Number of columns of a compound, at least."""
    if dtype.subdtype is not None:
        return math.prod(dtype.shape)
    return sum(_width(dtype[field]) for field in dtype.names or ()) or 1


def _columns(name: str, dtype: np.dtype[Any]) -> list[tuple[str, tuple[str, ...], int | None]]:
    """Return for each column its name, its path of fields, and its number within the last field if that is an array."""
    found: list[tuple[str, tuple[str, ...], int | None]] = []
    for field in dtype.names or ():
        below = dtype[field]
        full = f"{name}{field}"
        if below.names is not None:
            found += [(sub, (field, *path), i) for sub, path, i in _columns(f"{full}.", below)]
        elif below.subdtype is not None:
            count = math.prod(below.shape)
            found += [(f"{full}.{i}", (field,), i) for i in range(count)]
        else:
            found.append((full, (field,), None))
    return found


def _csv(
    elements: NDArray[Any],
    columns: list[tuple[str, tuple[str, ...], int | None]],
    header: list[str],
    index: NDArray[Any] | None,
    limit: int,
    missing: Sequence[int | float] = (),
) -> bytearray:
    content, row = bytearray(rows_of([header])), 0
    # Readers skip an empty line, and an empty quoted cell makes some (polars) read the column as text.
    absent = "NaN" if len(header) == 1 and elements.dtype.kind == "f" else ""
    for part in _batches(elements, len(header)):
        if columns:
            cells = [cells_of(_column(part, path, i)) for _, path, i in columns]
        else:
            flat, across = cells_of(part.reshape(-1), missing, absent), part.size // len(part)
            cells = [flat[column::across] for column in range(across)]
        first = [] if index is None else [cells_of(index[row : row + len(part)])]
        content += rows_of(zip(*first, *cells, strict=True))
        row += len(part)
        _within(len(content), limit)
    return content


def _batches(elements: NDArray[Any], across: int = 1) -> Iterator[NDArray[Any]]:
    """The elements, some rows at a time. `across`: cells of a row."""
    start, rows = 0, len(elements)
    while start < rows:
        stop = min(rows, start + _BATCH_ROWS)
        if elements.dtype.kind == "O":
            left = _BATCH_BYTES
            stop = next((i for i in range(start + 1, stop) if (left := left - _length(elements, i - 1)) < 0), stop)
        else:
            stop = min(stop, start + max(1, _BATCH_BYTES // max(1, elements[start].nbytes, 8 * across)))
        yield elements[start:stop]
        start = stop


def _length(elements: NDArray[Any], row: int) -> int:
    """Characters or bytes of the elements of a row, each of variable length."""
    return len(elements[row]) if elements.ndim == 1 else sum(map(len, elements[row].reshape(-1).tolist()))


class _Written(list[str]):
    """A list of text lines that `csv.writer` can write into."""

    write = list.append


def rows_of(cells: Iterable[Sequence[str]]) -> bytes:
    """Return the lines of a table, each ended by LF. Cells with CR or LF are quoted, because either may end a line.

    Rows without any cell that needs quotes, such as numbers, are simply joined, which takes a tenth of the time.
    """
    import csv

    rows = list(cells)
    joined = "\n".join(map(",".join, rows)) + "\n" if rows else ""
    breaks, commas = len(rows), sum(map(len, rows)) - len(rows)
    quoted = '"' in joined or "\r" in joined or joined.count("\n") != breaks or joined.count(",") != commas
    if not quoted and not joined.startswith("\n") and "\n\n" not in joined:
        return _utf8(joined)
    written = _Written()
    csv.writer(written, lineterminator="\r\n").writerows(rows)
    return _utf8("".join([row[:-2] + "\n" for row in written]))


def _column(part: NDArray[Any], path: tuple[str, ...], number: int | None) -> NDArray[Any]:
    for field in path:
        part = part[field]
    return part if number is None else part.reshape(len(part), -1)[:, number]


def cells_of(values: NDArray[Any], missing: Sequence[int | float] = (), absent: str = "") -> list[str]:
    """Each value as text that reads back as the same value, `absent` for those that the source calls missing.

    `missing`: numbers that stand for such elements, as the element type has them.
    """
    import numpy as np

    cells = _spelled(values)
    if values.dtype.kind in "mM":
        places = np.isnat(values)
    elif missing:
        markers = np.array(missing, values.dtype)
        places = np.isin(values, markers)
        if values.dtype.kind == "f" and np.isnan(markers).any():
            places |= np.isnan(values)
    else:
        return cells
    for place in np.flatnonzero(places).tolist():
        cells[place] = absent
    return cells


def _spelled(values: NDArray[Any]) -> list[str]:
    import numpy as np

    kind = values.dtype.kind
    if kind in "iu":
        return list(map(str, values.tolist()))
    if kind == "f" and values.dtype.itemsize == 8:
        return _numbers(map(repr, values.tolist()))
    if kind == "f" and values.dtype.itemsize < 8:
        # Numpy writes no more digits than the type needs: float32's 2**31 is 2147483600, and readers would read that number.
        exact = values.astype(np.float64).tolist()
        return _numbers(repr(n) if n.is_integer() else str(value) for n, value in zip(exact, values, strict=True))
    if kind == "b":
        return ["true" if value else "false" for value in values.tolist()]
    if kind == "M" and np.datetime_data(values.dtype)[0] == "generic":  # without a unit, numpy cannot write it as a date
        return list(map(str, values.astype(np.int64).tolist()))
    return _words(values)


def _numbers(texts: Iterable[str]) -> list[str]:
    """Return texts of numbers, with `NaN` for `nan`: polars reads `nan` as text, and pandas and DuckDB read either."""
    return ["NaN" if text == "nan" else text for text in texts]


def _words(values: NDArray[Any]) -> list[str]:
    """Return each value as text. CorruptData for code points that are not in Unicode."""
    import numpy as np

    if values.dtype.kind == "U" and values.dtype.itemsize:
        codes = np.ascontiguousarray(values).view(np.dtype("u4").newbyteorder(values.dtype.byteorder))
        if ((codes > _LAST_CHARACTER) | ((codes >= _SURROGATES[0]) & (codes <= _SURROGATES[1]))).any():
            raise CorruptData("a text has a code point that is not in Unicode")
    return [_word(value) for value in values]


def _utf8(text: str) -> bytes:
    """Encode text. Bytes that were invalid UTF-8 in the source are written unchanged."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise CorruptData("a text has a code point that is not in Unicode") from None


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
        raise TooLarge(f"the file would have more than {limit} bytes, too many to make in memory; take a region")


def _across(view: View) -> int:
    """Columns of a table of plain elements."""
    return view.shape[1] if len(view.shape) == 2 else 1


_LIMITS = (
    Limit(elements, MAX_ELEMENTS, f"the array has more than {MAX_ELEMENTS} elements; take a region"),
    Limit(texts, MAX_TEXTS, f"the array has more than {MAX_TEXTS} elements of variable length; take a region"),
)
_COLUMNS = Limit(_across, _MAX_ACROSS, f"the table would have more than {_MAX_ACROSS} columns; take a region")
CSV = FileType("csv", csv_table, limits=(*_LIMITS, _COLUMNS), check=_table)
TXT = FileType("txt", txt_lines, limits=_LIMITS, check=_lines)
