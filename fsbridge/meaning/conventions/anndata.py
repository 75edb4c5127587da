"""AnnData: data frames, columns that are groups (categories with codes, values with a mask), and sparse matrices.

Before AnnData 0.8, the attribute `categories` of codes leads to the array with the words. Before 0.7, a frame is a compound
that begins with the names of rows, and the words of its column NAME are `uns/NAME_categories` if all codes have one there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fsbridge.meaning import Attributes, Columns, EncodedColumn, GroupMeaning, Meaning, Path, Sparse
from fsbridge.meaning.attributes import place, text
from fsbridge.meaning.convention import Convention, Written
from fsbridge.metadata import JSON

_ENCODING = "encoding-type"

_COLUMNS: Mapping[str, EncodedColumn] = {
    "categorical": EncodedColumn(("codes", "categories"), True),
    **dict.fromkeys(
        ("nullable-integer", "nullable-boolean", "nullable-string-array"), EncodedColumn(("values", "mask"), False)
    ),
}


_SPARSE = {"csr_matrix": False, "csc_matrix": True, "csr": False, "csc": True}
_OF_ROWS, _OF_COLUMNS = "obs", "var"
_TABLES = {"obsp": (_OF_ROWS, _OF_ROWS), "varp": (_OF_COLUMNS, _OF_COLUMNS), "obsm": (_OF_ROWS, None),
           "varm": (_OF_COLUMNS, None), "uns": (None, None)}  # fmt: skip
"""Tables of rows and of columns of a matrix, by the name of the group that has it."""


def _array(written: Written, known: Meaning) -> Meaning:
    categories, dtype = place(written.attributes.get("categories")), written.metadata.dtype.numpy
    words: Mapping[Path, tuple[bool, Path]] = {} if categories is None else {(): categories}
    if dtype is not None and dtype.names is not None and written.rank == 1 and dtype[0].kind in "SUO":
        coded = [name for name in dtype.names if dtype[name].kind in "iu"]
        words = {(name,): (False, ("uns", f"{name}_categories")) for name in coded}
    return known if known.values.words else replace(known, values=replace(known.values, words=words))


def _group(attributes: Attributes, known: GroupMeaning) -> GroupMeaning:
    columns, names, index = known.columns, attributes.get("column-order"), attributes.get("_index")
    if columns is None and isinstance(names, list) and all(isinstance(name, str) for name in names):
        columns = Columns(tuple(names), index if isinstance(index, str) else None, True)
    encoded = known.encoded or _COLUMNS.get(str(attributes.get(_ENCODING)))
    return replace(known, columns=columns, encoded=encoded, sparse=known.sparse or _sparse(attributes))


def _sparse(attributes: Attributes) -> Sparse | None:
    """Return the sparse matrix that a group is; None if it is none.

    `h5sparse_format` is how AnnData before 0.7 marks one.
    """
    by_columns = _SPARSE.get(text(attributes.get(_ENCODING)) or text(attributes.get("h5sparse_format")) or "")
    shape: JSON = attributes.get("shape", attributes.get("h5sparse_shape"))
    whole = isinstance(shape, list) and len(shape) == 2 and all(type(n) is int and n >= 0 for n in shape)
    if by_columns is None:
        return None
    return Sparse(by_columns, (shape[0], shape[1]) if whole else None, ("data", "indices", "indptr"))


def tables_of(names: Sequence[str]) -> tuple[str | None, str | None]:
    """Return the names of the tables that describe the rows and the columns of the matrix at a path; None if there are none.

    The tables lie in the nearest group above that has a member of that name.
    """
    return next((_TABLES[name] for name in reversed(names[:-1]) if name in _TABLES), (_OF_ROWS, _OF_COLUMNS))


ANNDATA = Convention("AnnData", _array, _group)
