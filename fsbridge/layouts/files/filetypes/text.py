"""Text: `.csv` of tables, compounds and strings, `.txt` of strings one per line. Made as a whole when opened: sizes vary."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from fsbridge.errors import CorruptData, TooLarge
from fsbridge.layouts.files.arrays.extents import Generated, Label, Labels, Unfit, View
from fsbridge.layouts.files.filetypes.cells import (
    add_words,
    column_names,
    fields_of,
    header_of,
    join_letters,
    spelling,
    width,
    words,
)
from fsbridge.layouts.files.filetypes.filetype import FileType, Limit, elements, texts
from fsbridge.meaning import Values

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

MAX_ELEMENTS = 1 << 24
"""Most elements of a table. More would exceed the limit of bytes anyway."""
MAX_TEXTS = 1 << 20
"""Most elements of variable length. Each takes some sixty bytes of memory while the file is made."""
_MAX_ACROSS = 1 << 17
"""Most columns of a table of plain elements: the texts of a row are in memory together."""
MAX_COLUMNS = 1 << 14
"""Most columns of a table of compounds, because spreadsheets have no more."""
_BATCH_ROWS, _BATCH_BYTES = 4096, 1 << 20
"""Most rows and bytes of elements that are converted to text at a time, which takes several times their bytes of memory."""


def csv_table(view: View) -> Generated:
    """Return the plan of a table with one row for each index of the first dimension, and a first line with names.

    The columns are the fields of compounds, the second dimension of a 2-D array (named by its labels, else by numbers), or
    the array itself. The first column has the labels of the first dimension, if it has any. Missing elements are empty
    cells, and packed numbers stay packed.
    """
    values = view.meaning.values
    fields = [] if view.dtype is None else fields_of(view.dtype)

    def make(elements: NDArray[Any], labels: Labels, limit: int) -> bytearray:
        meaning = add_words(values, labels.words)
        if meaning.characters and elements.ndim == 2:
            elements = join_letters(elements)
        index = labels.along.get(0)
        # Readers skip an empty line, and an empty quoted cell makes some (polars) read the column as text.
        lone = elements.ndim == 1 and index is None and not fields and elements.dtype.kind == "f"
        style = spelling(meaning, elements, "NaN" if lone else "")
        if fields:
            names = [field.name for field in fields]
        elif elements.ndim == 1:
            names = [style.head(labels.name)]
        elif 1 in labels.along:
            across = labels.along[1]
            names = column_names(across.name, across.values, across.meaning)
        else:
            names = [style.head(f"c{i}") for i in range(elements.shape[1])]

        def cells(part: NDArray[Any]) -> list[list[str]]:
            if fields:
                return [spelling(meaning, part, path=field.path).cells(field.of(part)) for field in fields]
            flat, across = style.cells(part.reshape(-1)), part.size // len(part)
            return [flat[column::across] for column in range(across)]

        return _csv(elements, names, cells, index, limit)

    return Generated(make, tuple(range(len(view.shape))), labelled=tuple(range(len(view.shape))))


def txt_lines(view: View) -> Generated:
    """Return the plan of strings, one per line; a line break within a string is written as a backslash and an n."""
    lists = view.meaning.values if view.meaning.values.lists is not None else None
    return Generated(lambda elements, _, limit: _txt(elements, limit, lists), tuple(range(len(view.shape))))


def _check_table(view: View) -> None:
    _check_type(view)
    if not 1 <= len(view.shape) <= 2:
        raise Unfit(f"a table needs 1 or 2 dimensions, and the array has {len(view.shape)}")
    if view.dtype is None:
        return
    if width(view.dtype) > MAX_COLUMNS:
        raise Unfit(f"the table would have more than {MAX_COLUMNS} columns")
    if view.dtype.names is not None and len(view.shape) != 1:
        raise Unfit(f"a table of compounds needs 1 dimension, and the array has {len(view.shape)}")


def _lines(view: View) -> None:
    _check_type(view)
    if len(view.shape) > 1:
        raise Unfit(f"lines of text need at most 1 dimension, and the array has {len(view.shape)}")
    if view.dtype is not None and view.dtype.kind not in "SU":
        raise Unfit("the elements are no text")


def _check_type(view: View) -> None:
    if view.dtype is None and view.metadata.dtype.serializer == "bytes":
        raise Unfit(f"numpy has no type for {view.metadata.dtype.native}")


def _csv(
    elements: NDArray[Any],
    names: list[str],
    cells: Callable[[NDArray[Any]], list[list[str]]],
    index: Label | None,
    limit: int,
) -> bytearray:
    if index is None:
        content, first = bytearray(rows_of([header_of(names)])), None
    else:
        values = join_letters(index.values) if index.values.ndim == 2 else index.values
        first = spelling(index.meaning, values)
        title = f"{index.name} ({index.unit})" if index.unit else first.head(index.name)
        content = bytearray(rows_of([header_of([title, *names])]))
    row = 0
    for part in _batches(elements, len(names)):
        before = [] if first is None else [first.cells(values[row : row + len(part)])]
        content += rows_of(zip(*before, *cells(part), strict=True))
        row += len(part)
        _check_size(len(content), limit)
    return content


def _batches(elements: NDArray[Any], across: int = 1) -> Iterator[NDArray[Any]]:
    """Yield the elements, a batch of rows at a time. `across`: number of cells in a row."""
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
    """Return the characters or bytes of all elements of a row, which have a variable length."""
    return len(elements[row]) if elements.ndim == 1 else sum(map(len, elements[row].reshape(-1).tolist()))


class _Written(list[str]):
    """A list of text lines that `csv.writer` can write into."""

    write = list.append


def rows_of(cells: Iterable[Sequence[str]]) -> bytes:
    """Return the lines of a table, each ended by LF. Cells with CR or LF are quoted, because either may end a line.

    Rows in which no cell needs quotes, such as numbers, are simply joined, which takes a tenth of the time.
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


def _utf8(text: str) -> bytes:
    """Encode text. Bytes that were invalid UTF-8 in the source are written unchanged."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise CorruptData("a text has a code point that is not in Unicode") from None


def _txt(elements: NDArray[Any], limit: int, lists: Values | None = None) -> bytearray:
    content = bytearray()
    for part in _batches(elements.reshape(-1)):
        texts = words(part) if lists is None else spelling(lists, part).cells(part)
        lines = [word.replace("\r", "\\r").replace("\n", "\\n") + "\n" for word in texts]
        content += _utf8("".join(lines))
        _check_size(len(content), limit)
    return content


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise TooLarge(f"the file would have more than {limit} bytes, too many to make in memory; take a region")


def _across(view: View) -> int:
    """Return the number of columns of a table of elements that are no compounds."""
    return view.shape[1] if len(view.shape) == 2 else 1


_LIMITS = (
    Limit(elements, MAX_ELEMENTS, f"the array has more than {MAX_ELEMENTS} elements; take a region"),
    Limit(texts, MAX_TEXTS, f"the array has more than {MAX_TEXTS} elements of variable length; take a region"),
)
_COLUMNS = Limit(_across, _MAX_ACROSS, f"the table would have more than {_MAX_ACROSS} columns; take a region")
CSV = FileType("csv", csv_table, limits=(*_LIMITS, _COLUMNS), check=_check_table)
TXT = FileType("txt", txt_lines, limits=_LIMITS, check=_lines)
