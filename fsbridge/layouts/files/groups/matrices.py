"""`GROUP.mtx`: a sparse matrix of a group in the format Matrix Market; and `GROUP.barcodes.tsv`, `GROUP.features.tsv`.

All lines have the same length, so the size of the file is known from metadata, and any part of it can be made by itself.
The two other files have the names of the rows and of the columns, one in a line. Not here: which groups are sparse matrices
and which tables describe them (`meaning/`), tables (`tables.py`).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fsbridge.asking import before_waiting
from fsbridge.errors import CorruptData, NotFound, Stale, TooLarge
from fsbridge.layouts.files.arrays.open_array import OpenArray
from fsbridge.layouts.files.arrays.selection import select_all
from fsbridge.layouts.files.elements.reading import ElementReader
from fsbridge.layouts.files.elements.supply import ChunkSupply
from fsbridge.layouts.files.filetypes.cells import cells_of, words
from fsbridge.layouts.files.filetypes.text import CSV, MAX_TEXTS
from fsbridge.layouts.files.groups.group_file import GroupFile
from fsbridge.layouts.files.groups.surroundings import OpenGroup, find_meaning
from fsbridge.layouts.files.groups.tables import Reader
from fsbridge.layouts.nodes import BytesHandle
from fsbridge.meaning import Sparse
from fsbridge.meaning.conventions.anndata import tables_of
from fsbridge.meaning.reading import read_group
from fsbridge.model import Group
from fsbridge.tree import Attrs, Buffer, File, Handle

MAX_ENDS = 1 << 25
"""Most rows (or columns) of a matrix: where each ends is in memory while the file is open."""

_BATCH = 1 << 14
"""Most lines that are made at a time. Each takes some hundred bytes of memory meanwhile."""

_WIDTHS = {"f2": 11, "f4": 23, "f8": 24, "b1": 1}
"""Most characters of a number by its type: `-3.4028234663852886e+38`. A whole number has as many as its type needs."""


def has_matrix(group: Group) -> bool:
    """True if attributes say that a group is a sparse matrix."""
    return find_meaning(group).sparse is not None


class MatrixFile(File):
    """`GROUP.mtx`. Its version consists of the versions of its three arrays."""

    def __init__(self, shown: OpenGroup) -> None:
        self._shown = shown
        self._meaning, self._shape = _sparse(shown)
        elements, numbers, ends = (shown.open_array(part, shown.member_array(part)) for part in self._meaning.parts)
        self._arrays = (elements, numbers, ends)
        place, dtype = shown.path.member, elements.metadata.dtype.numpy
        kinds = [array.metadata.dtype.numpy for array in (numbers, ends)]
        if any(len(array.metadata.shape) != 1 for array in self._arrays) or any(
            k is None or k.kind not in "iu" for k in kinds
        ):
            raise CorruptData(f"{place}: a sparse matrix has three arrays of one dimension, and its numbers are whole")
        if dtype is None or dtype.kind not in "biuf" or dtype.itemsize > 8:
            raise NotFound(f"{place}: Matrix Market has no elements of type {elements.metadata.dtype.native}")
        major = self._shape[self._meaning.by_columns]
        if numbers.metadata.shape != elements.metadata.shape or ends.metadata.shape != (major + 1,):
            raise CorruptData(f"{place}: the arrays of a sparse matrix do not fit together, or its shape {self._shape}")
        if major > MAX_ENDS:
            raise NotFound(f"{place}: the matrix has more than {MAX_ENDS} rows")
        code = f"{dtype.kind}{dtype.itemsize}"
        width = _WIDTHS[code] if code in _WIDTHS else max(len(str(np.iinfo(dtype).min)), len(str(np.iinfo(dtype).max)))
        self._header = _header(self._shape, elements.metadata.shape[0], dtype)
        self._widths = len(str(self._shape[0])), len(str(self._shape[1])), width
        self._size = len(self._header) + elements.metadata.shape[0] * (sum(self._widths) + 3)
        self.version = ("matrix", *(array.version for array in self._arrays))

    def attrs(self) -> Attrs:
        return Attrs("file", self._size, max(array.find_mtime_ns() for array in self._arrays))

    def open(self) -> Handle:
        """Open the file; Stale if an array has changed, CorruptData if the rows do not end where the elements do."""
        before_waiting()
        if MatrixFile(self._shown).version != self.version:
            raise Stale(f"{self._shown.path.member}: the arrays of the matrix have changed")
        elements, numbers, ends = self._arrays
        count = elements.metadata.shape[0]
        bounds = Reader(MAX_ENDS * 8)(ends).astype(np.int64)
        if bounds[0] or bounds[-1] != count or (np.diff(bounds) < 0).any():
            raise CorruptData(f"{ends.name}: the ends do not ascend from 0 to the {count} elements")
        readers = [
            array.make_reader(array.current(array.version), select_all((count,)), (0,)) for array in (elements, numbers)
        ]
        return _MatrixHandle(self, bounds, readers)

    def settle(self) -> None:
        for array in self._arrays:
            array.settle()

    def lines(self, first: int, ends: NDArray[np.int64], values: NDArray[Any], numbers: NDArray[Any]) -> bytes:
        """Return the lines of the elements from number `first` on. `ends`: of the rows; `numbers`: each element's column.

        In a matrix stored by columns, rows and columns change places.
        """
        values, minor = (
            part.view(array.make_view().dtype or part.dtype)
            for part, array in zip((values, numbers), self._arrays, strict=False)
        )
        most = self._shape[not self._meaning.by_columns]
        if len(minor) and (int(minor.min()) < 0 or int(minor.max()) >= most):
            raise CorruptData(f"{self._shown.path.member}: an element lies outside of the matrix {self._shape}")
        major = np.searchsorted(ends, np.arange(first, first + len(values)), "right")  # counted from 1
        minor = minor.astype(np.int64) + 1
        rows, columns = (minor, major) if self._meaning.by_columns else (major, minor)
        cells = cells_of(values.astype("u1") if values.dtype.kind == "b" else values)
        form = "%{}d %{}d %{}s\n".format(*self._widths)
        return "".join([form % line for line in zip(rows.tolist(), columns.tolist(), cells, strict=True)]).encode()

    @property
    def size(self) -> int:
        return self._size

    @property
    def header(self) -> bytes:
        return self._header

    @property
    def step(self) -> int:
        """Number of bytes of a line."""
        return sum(self._widths) + 3


class _MatrixHandle(Handle):
    """An open matrix. Its lines are made when they are read."""

    __slots__ = ("_ends", "_file", "_readers", "size", "version")

    def __init__(self, file: MatrixFile, ends: NDArray[np.int64], readers: list[tuple[ElementReader, ChunkSupply]]) -> None:
        self.size, self.version = file.size, file.version
        self._file, self._ends, self._readers = file, ends, readers

    def read(self, offset: int, size: int) -> Buffer:
        file, header = self._file, self._file.header
        stop = min(offset + size, self.size)
        if offset >= stop:
            return b""
        content, first = bytearray(header[offset:stop]), max(0, offset - len(header))
        begin, end = first // file.step, -(-max(0, stop - len(header)) // file.step)
        for low in range(begin, end, _BATCH):
            values, numbers = (reader.read(low, min(end, low + _BATCH)) for reader, _ in self._readers)
            content += file.lines(low, self._ends, values, numbers)[first - begin * file.step if low == begin else 0 :]
        return memoryview(content)[: stop - offset]

    def close(self) -> None:
        for _, supply in self._readers:
            supply.close()


def _header(shape: tuple[int, int], count: int, dtype: np.dtype[Any]) -> bytes:
    field = "real" if dtype.kind == "f" else "integer"
    return f"%%MatrixMarket matrix coordinate {field} general\n{shape[0]} {shape[1]} {count}\n".encode()


def _sparse(shown: OpenGroup) -> tuple[Sparse, tuple[int, int]]:
    sparse = read_group(shown.group.attributes()).sparse
    if sparse is None:
        raise NotFound(f"{shown.path.member}: the group is no sparse matrix")
    if sparse.shape is None:
        raise NotFound(f"{shown.path.member}: the group does not say the shape of its matrix")
    return sparse, sparse.shape


class NamesFile(File):
    """A file with the names of the rows, or of the columns, of a matrix, one on each line."""

    def __init__(self, shown: OpenGroup, of_columns: bool) -> None:
        self._shown, self._of_columns = shown, of_columns
        self._array = _names(shown, of_columns)
        self.version = ("names", of_columns, self._array.version)

    def attrs(self) -> Attrs:
        return Attrs("file", None, self._array.find_mtime_ns())

    def measure(self) -> Attrs:
        return Attrs("file", len(self._make()), self.attrs().mtime_ns)

    def open(self) -> Handle:
        """Open the file; Stale if the names have changed."""
        before_waiting()
        if NamesFile(self._shown, self._of_columns).version != self.version:
            raise Stale(f"{self._shown.path.member}: the names have changed")
        return BytesHandle(self._make(), self.version)

    def settle(self) -> None:
        self._array.settle()

    def _make(self) -> bytes:
        before_waiting()
        limit = self._array.shared.generated_limit
        values = Reader(limit)(self._array)
        names = words(values) if values.dtype.kind in "OSU" else cells_of(values)
        if any("\n" in name or "\r" in name or "\t" in name for name in names):
            raise CorruptData(f"{self._array.name}: a name has a line break or a tabulator, and cannot stand in a line")
        content = "".join([f"{name}\n" for name in names]).encode("utf-8", "surrogateescape")
        if len(content) > limit:
            raise TooLarge(f"{self._array.name}: names of over {limit} bytes are too large to make")
        return content


def _names(shown: OpenGroup, of_columns: bool) -> OpenArray:
    """Return the array with the names of rows or columns: the index of a table in a group above. NotFound if none fits."""
    _, shape = _sparse(shown)
    names = shown.path.member.names
    table = tables_of(names)[of_columns]
    word = "columns" if of_columns else "rows"
    for depth in range(len(names) - 1, -1, -1):
        if table is None:
            break
        try:
            here = shown.root.group_at((*names[:depth], table))
        except NotFound:
            continue
        columns = read_group(here.group.attributes()).columns
        if columns is None or columns.row_names is None:
            break
        labels = here.array_at((columns.row_names,))
        if labels.metadata.shape != (shape[of_columns],) or shape[of_columns] > MAX_TEXTS:
            break
        return labels
    raise NotFound(f"{shown.path.member}: no table above has a name for each of the {shape[of_columns]} {word}")


MATRIX = GroupFile("mtx", MatrixFile, has_matrix, wanted=CSV.suffix)
ROW_NAMES = GroupFile("barcodes.tsv", partial(NamesFile, of_columns=False), has_matrix)
COLUMN_NAMES = GroupFile("features.tsv", partial(NamesFile, of_columns=True), has_matrix)
