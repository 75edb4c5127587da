"""`GROUP.csv`: the one-dimensional arrays of a group that share a dimension, as the columns of one table.

The group says which columns there are (tables of NWB, frames of AnnData); else they are the arrays along the dimension that
most of them have. A column that a table cannot hold is left out, and `GROUP.json` says why. Not here: `NAME.csv` of one
array (`filetypes/text.py`), how cells are written (`filetypes/cells.py`), names of files (`layout.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fsbridge.asking import before_waiting
from fsbridge.errors import CorruptData, NotFound, Stale, TooLarge
from fsbridge.layouts.files.arrays.extents import View
from fsbridge.layouts.files.arrays.open_array import OpenArray
from fsbridge.layouts.files.arrays.selection import select_all
from fsbridge.layouts.files.filetypes.cells import cells_of, fields_of, header_of, join_letters, list_of, spelling
from fsbridge.layouts.files.filetypes.filetype import elements, texts
from fsbridge.layouts.files.filetypes.text import CSV, MAX_TEXTS, rows_of
from fsbridge.layouts.files.groups.group_file import GroupFile
from fsbridge.layouts.files.groups.surroundings import OpenGroup, find_meaning
from fsbridge.layouts.surroundings import Look
from fsbridge.meaning import Path, Values
from fsbridge.meaning.conventions.nwb import index_name
from fsbridge.meaning.reading import read_group
from fsbridge.model import Array, Group, Link, Node, as_array
from fsbridge.tree import Attrs, File

if TYPE_CHECKING:
    from fsbridge.layouts.files.arrays.made import MadeHandle

MAX_COLUMNS = 1024
MAX_CELLS = 1 << 22
"""Most cells of a table: its elements are in memory while it is made."""
_BATCH_CELLS = 1 << 14
"""Most cells that are converted to text at a time. Each takes some hundred bytes of memory."""

_CELL_BYTES = 32
"""Bytes that a number takes in a text, at most."""


class Cells(NamedTuple):
    """The cells of one column, made of elements in memory. `of(slice)` returns the texts of the rows in the slice."""

    name: str
    rows: int
    of: Callable[[slice], list[str]]


class Column(NamedTuple):
    """A member that is one column, or several columns with names that begin with its name. `read` reads their elements."""

    name: str
    rows: int
    arrays: tuple[OpenArray, ...]
    read: Callable[[Reader], list[Cells]]


class Reader:
    """Reads the elements of a table's arrays. TooLarge once their texts have more than `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    def __call__(self, array: OpenArray) -> NDArray[Any]:
        selection = select_all(array.metadata.shape)
        values = array.read_elements(array.current(array.version), selection, range(len(selection.shape)), self._left)
        if values.dtype.kind == "O":
            self._left -= sum(map(len, values.reshape(-1).tolist()))
        return values


def has_order(group: Group) -> bool:
    """True if a group says that it is a table, so that a listing can show its file without opening its arrays."""
    return find_meaning(group).columns is not None


def table_of(directory: OpenGroup) -> TableFile:
    """Return the table of a group; NotFound if the group has none, with the reason."""
    return TableFile(directory, columns_of(directory)[0])


class TableFile(File):
    """The table file. Its version consists of the versions of all its columns."""

    def __init__(self, directory: OpenGroup, columns: Sequence[Column]) -> None:
        self._directory = directory
        self._columns = columns
        self._arrays = [array for column in columns for array in column.arrays]
        self.version = ("table", *((column.name, *(a.version for a in column.arrays)) for column in columns))

    def attrs(self) -> Attrs:
        return Attrs("file", None, max(array.find_mtime_ns() for array in self._arrays))

    def measure(self) -> Attrs:
        return Attrs("file", len(self._make()), self.attrs().mtime_ns)

    def open(self) -> MadeHandle:
        """Open the table; Stale if a column has changed, or columns were added or removed."""
        before_waiting()
        if table_of(self._directory).version != self.version:
            raise Stale(f"{self._directory.path.member}: the table's columns have changed")
        return self._arrays[0].shared.made.make_handle(self._make(), self.version)

    def settle(self) -> None:
        for array in self._arrays:
            array.settle()

    def _make(self) -> memoryview:
        before_waiting()
        shared, cache = self._arrays[0].shared, self._arrays[0].chunks.cache
        key = self.version, tuple([array.current(array.version) for array in self._arrays])
        sizes = [(array.make_view().selection.size, array.metadata.dtype.itemsize or _CELL_BYTES) for array in self._arrays]
        limit, taken = shared.generated_limit, sum(count * size for count, size in sizes)
        most = min(limit, sum(count * max(_CELL_BYTES, 2 * size) for count, size in sizes))
        content = cache.peek(key)
        if content is not None:
            return content
        if taken > limit:
            raise TooLarge(f"{self._directory.path.member}: a table of over {limit} bytes is too large to make")
        with shared.made.room.take(taken + 2 * most):
            content = cache.peek(key)
            if content is None:  # the elements are read first, because making room for the text evicts chunks
                reader = Reader(limit)
                read = [cells for column in self._columns for cells in column.read(reader)]
                content = cache.get_all(key, lambda: self._text(read, limit), min(most, cache.budget // 2))
            return content

    def _text(self, read: Sequence[Cells], limit: int) -> bytearray:
        content, step = bytearray(rows_of([header_of([cells.name for cells in read])])), max(1, _BATCH_CELLS // len(read))
        for start in range(0, read[0].rows, step):
            content += rows_of(zip(*(cells.of(slice(start, start + step)) for cells in read), strict=True))
            if len(content) > limit:
                raise TooLarge(f"{self._directory.path.member}: a table of over {limit} bytes is too large to make")
        return content


def columns_of(directory: OpenGroup) -> tuple[list[Column], dict[str, str]]:
    """Return the columns of a group's table, the index first, and by name the reasons why others are left out."""
    group, place, listed = directory.group, directory.path.member, read_group(directory.group.attributes()).columns
    index = None if listed is None else listed.row_names
    if listed is None:
        wanted = _along_one_dimension(directory)
    elif index is None or (not listed.required and _child(group, index) is None):
        index, wanted = None, list(listed.names)
    else:
        wanted = [index, *listed.names]
    if not wanted:
        raise NotFound(f"{place}: the group has no one-dimensional arrays that form a table")
    if len(wanted) > MAX_COLUMNS:
        raise NotFound(f"{place}: the table would have more than {MAX_COLUMNS} columns")
    look, columns, left_out = directory.look(), list[Column](), dict[str, str]()
    for name in dict.fromkeys(wanted):
        try:
            columns.append(_column(directory, name, look, wanted))
        except NotFound as error:
            if name == index:
                raise
            left_out[name] = str(error)
    counts = Counter(column.rows for column in (columns if index is None else columns[:1]))
    rows = max(counts.items(), key=itemgetter(1), default=(0, 0))[0]
    for column in [column for column in columns if column.rows != rows]:
        columns.remove(column)
        left_out[column.name] = f"{place}/{column.name}: the column has {column.rows} rows, and the table {rows}"
    if not [column for column in columns if column.name != index] and left_out:
        raise NotFound(next(iter(left_out.values())))
    for most, kind, count in ((MAX_CELLS, "cells", elements), (MAX_TEXTS, "texts", texts)):
        while sum(_count(column, count) for column in columns) > most:
            wide = [column for column in columns if column.name != index and len(column.arrays[0].metadata.shape) > 1]
            if not wide:
                raise NotFound(f"{place}: the table would have more than {most} {kind}; read the arrays one by one")
            largest = max(wide, key=lambda column: _count(column, count))
            columns.remove(largest)
            left_out[largest.name] = (
                f"{place}/{largest.name}: the table would have more than {most} {kind}; read it by itself"
            )
    return columns, left_out


def _count(column: Column, count: Callable[[View], int]) -> int:
    return sum(count(array.make_view()) for array in column.arrays)


def _along_one_dimension(directory: OpenGroup) -> list[str]:
    """Return the names of the one-dimensional arrays along the dimension that most of them share, its coordinate first.

    Arrays without dimension names are a table only if the group has no other arrays: equal lengths may be chance.
    """
    by_dimension: dict[Hashable, list[str]] = {}
    look, arrays = directory.look(), 0
    for number, child in enumerate(directory.group.children()):
        if number == MAX_COLUMNS:
            return []
        node = None if child.link is not None else directory.group.child(child.name)
        array = None if node is None or isinstance(node, Link) else as_array(node)
        arrays += array is not None
        rank = 0 if array is None else len(array.metadata.shape)
        if array is None or not (rank == 1 or (rank == 2 and array.metadata.dtype.numpy == np.dtype("S1"))):
            continue
        opened = directory.open_array(child.name, array, look)
        if rank == 1 or opened.meaning.values.characters:
            axis = opened.axes[0].name
            by_dimension.setdefault((axis, array.metadata.shape[0]), []).append(child.name)
    (axis, _), names = cast(
        "tuple[tuple[str | None, int], list[str]]",
        max(by_dimension.items(), key=lambda item: len(item[1]), default=((None, 0), [])),
    )
    if len(names) < 2 or (axis is None and len(names) < arrays):
        return []
    return sorted(names, key=lambda name: name != axis)


def _child(group: Group, name: str) -> Node | None:
    try:
        return group.child(name)
    except NotFound:
        return None


def _column(directory: OpenGroup, name: str, look: Look, listed: Sequence[str]) -> Column:
    """Return the column that the member `name` is: an array, a ragged array with its index, or a group of AnnData.

    Older AnnData put a column with a "/" in its name into a group. A member that is `listed` is a column of its own, even if
    it is called like the index of another.
    """
    place = f"{directory.path.member}/{name}"
    here, last = directory, name
    node = _child(directory.group, name)
    if node is None and "/" in name.strip("/"):
        *groups, last = name.strip("/").split("/")
        try:
            here = directory.group_at(groups)
        except NotFound:
            raise NotFound(f"{place}: the group lists this column, but does not have it") from None
        node, look = _child(here.group, last), here.look()
    if node is None:
        raise NotFound(f"{place}: the group lists this column, but does not have it")
    if isinstance(node, Link):
        raise NotFound(f"{place}: the column is a link; read it by itself")
    array = as_array(node)
    if array is None:
        return _make_encoded(here, last, name, cast(Group, node), place)
    opened = here.open_array(last, array, look)
    index = None if index_name(name) in listed else _child(here.group, index_name(last))
    ends = None if index is None or isinstance(index, Link) else as_array(index)
    words = _words(here, opened, place)
    if ends is not None:
        return _make_ragged(name, opened, here.open_array(index_name(last), ends, look), words, here.group, place)
    _fits(array, place, 2)
    if len(array.metadata.shape) == 2 and _is_compound(array):
        raise NotFound(f"{place}: each row of the column has several compounds; read it by itself")
    if array.metadata.shape[1:] == (0,):
        raise NotFound(f"{place}: the rows of the column have no elements")

    def read(values_of: Reader) -> list[Cells]:
        values, meaning = values_of(opened), opened.meaning.values
        if values.dtype.names is not None:
            return [
                _cells(f"{name}.{field.name}", field.of(values), meaning, field.path) for field in fields_of(values.dtype)
            ]
        if words is not None:
            return [Cells(name, len(values), _make_picker(values, values_of(words), place))]
        if meaning.characters:
            values = join_letters(values)
        if values.ndim == 1:
            return [_cells(name, values, meaning)]
        return [_cells(f"{name}.{i}", values[:, i], meaning) for i in range(values.shape[1])]

    return Column(name, array.metadata.shape[0], (opened,) if words is None else (opened, words), read)


def _words(here: OpenGroup, numbers: OpenArray, place: str) -> OpenArray | None:
    """Return the array with the words that the elements of `numbers` stand for; None if they stand for none."""
    where, dtype = numbers.meaning.values.words.get(()), numbers.metadata.dtype.numpy
    if where is None or dtype is None or dtype.kind not in "iu" or len(numbers.metadata.shape) != 1:
        return None
    from_root, path = where
    try:
        words = (here.root if from_root else here).array_at(path)
    except NotFound as error:
        raise NotFound(f"{place}: the words that its numbers stand for are not there: {error}") from None
    _fits(words.array, place, 1)
    return words


def _make_picker(numbers: NDArray[Any], words: NDArray[Any], place: str) -> Callable[[slice], list[str]]:
    """Return a function that returns the words of some rows, empty for the number -1.

    CorruptData for another number without a word.
    """
    codes = numbers.astype(np.int64)
    if ((codes < -1) | (codes >= len(words))).any():
        raise CorruptData(f"{place}: the codes name a category that does not exist")
    texts = [*cells_of(words), ""]  # -1 picks the last one
    return lambda rows: [texts[code] for code in codes[rows].tolist()]


def _cells(name: str, values: NDArray[Any], meaning: Values, path: Path = ()) -> Cells:
    style = spelling(meaning, values, path=path)
    return Cells(style.head(name), len(values), lambda rows: style.cells(values[rows]))


def _make_ragged(name: str, data: OpenArray, index: OpenArray, words: OpenArray | None, group: Group, place: str) -> Column:
    """Return a column with a list in each cell: `NAME_index` has the end of each row's elements (hdmf's VectorIndex)."""
    if _child(group, index_name(index_name(name.rpartition("/")[2]))) is not None:
        raise NotFound(f"{place}: the column has lists of lists; read it by itself")
    _fits(data.array, place, 1)
    if _is_compound(data.array):
        raise NotFound(f"{place}: each row of the column has several compounds; read it by itself")
    _fits(index.array, index_name(place), 1)

    def read(values_of: Reader) -> list[Cells]:
        elements, ends = values_of(data), np.append(0, values_of(index).astype(np.int64))
        if (ends[1:] < ends[:-1]).any() or ends[-1] > len(elements):
            raise CorruptData(
                f"{index_name(place)}: the ends of rows do not ascend, or are beyond the {len(elements)} elements"
            )

        spell = _cells(name, elements, data.meaning.values).of
        if words is not None:
            spell = _make_picker(elements, values_of(words), place)
        is_text = words is not None or () in data.meaning.values.names or elements.dtype.kind not in "iufb"

        def lists(rows: slice) -> list[str]:
            bounds = ends[rows.start : rows.stop + 1].tolist()
            first, values = bounds[0], spell(slice(bounds[0], bounds[-1]))
            values = [value.lower() for value in values] if elements.dtype.kind == "b" else values  # as JSON has them
            return [list_of(values[low - first : high - first], is_text) for low, high in pairwise(bounds)]

        return [Cells(name, len(ends) - 1, lists)]

    arrays = (data, index) if words is None else (data, index, words)
    return Column(name, index.array.metadata.shape[0], arrays, read)


def _make_encoded(directory: OpenGroup, member: str, name: str, group: Group, place: str) -> Column:
    """Return a column that AnnData keeps as a group: categories with codes (-1: missing), or values with a mask."""
    below = cast(OpenGroup, directory.directory(member, group).refresh())
    encoded = read_group(group.attributes()).encoded
    if encoded is None:
        raise NotFound(f"{place}: the group is no column of a known encoding")
    arrays = tuple([below.open_array(part, below.member_array(part)) for part in encoded.parts])
    for array in arrays:
        _fits(array.array, place, 1)

    count, masked_count = (array.array.metadata.shape[0] for array in arrays)
    if not encoded.coded and count != masked_count:
        raise NotFound(f"{place}: there are {count} values, but {masked_count} elements in the mask")

    def read(values_of: Reader) -> list[Cells]:
        first, second = (values_of(array) for array in arrays)
        if not encoded.coded:

            def blank_masked(rows: slice) -> list[str]:
                return [
                    "" if gone else cell for cell, gone in zip(cells_of(first[rows]), second[rows].tolist(), strict=True)
                ]

            return [Cells(name, len(first), blank_masked)]
        return [Cells(name, len(first), _make_picker(first, second, place))]

    return Column(name, arrays[0].array.metadata.shape[0], arrays, read)


def _is_compound(array: Array) -> bool:
    return array.metadata.dtype.numpy is not None and array.metadata.dtype.numpy.names is not None


def _fits(array: Array, place: str, most: int) -> None:
    metadata = array.metadata
    if not 1 <= len(metadata.shape) <= most:
        raise NotFound(f"{place}: the column has {len(metadata.shape)} dimensions; read it by itself")
    if metadata.refused or (metadata.dtype.numpy is None and metadata.dtype.serializer == "bytes"):
        raise NotFound(f"{place}: text cannot show elements of type {metadata.dtype.native}")


TABLE = GroupFile(CSV.suffix, table_of, has_order, wanted=CSV.suffix)
