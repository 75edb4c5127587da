"""AnnData: data frames, and columns that are groups (categories with codes, values with a mask)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fsbridge.meaning import Attributes, Columns, Encoded, GroupMeaning
from fsbridge.meaning.convention import Convention

_ENCODING = "encoding-type"

MARKS = frozenset((_ENCODING,))
"""Attributes that mark a file or an object of AnnData, which Python programs read."""

_MASKED = Encoded(("values", "mask"), False)
_COLUMNS: Mapping[str, Encoded] = {
    "categorical": Encoded(("codes", "categories"), True),
    **dict.fromkeys(("nullable-integer", "nullable-boolean", "nullable-string-array"), _MASKED),
}


def _group(attributes: Attributes, known: GroupMeaning) -> GroupMeaning:
    columns, names, index = known.columns, attributes.get("column-order"), attributes.get("_index")
    if columns is None and isinstance(names, list) and all(isinstance(name, str) for name in names):
        columns = Columns(tuple(names), index if isinstance(index, str) else None, True)
    return replace(known, columns=columns, encoded=known.encoded or _COLUMNS.get(str(attributes.get(_ENCODING))))


ANNDATA = Convention("AnnData", group=_group)
