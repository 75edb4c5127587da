"""The cells of tables: how the elements of one column are written, by what they mean, and what the first line says.

Not here: which columns a table has (`text.py` for one array, `groups/tables.py` for a group), meaning itself (`meaning/`).
Imports no library at first, because `fsbridge --help` names the file types.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from fsbridge.errors import CorruptData
from fsbridge.meaning import Names, Path, Values
from fsbridge.meaning.dates import Dates, dates_of, iso_dates, spell_dates, unit_of_dates
from fsbridge.meaning.times import describe_dates

if TYPE_CHECKING:
    from typing import Any

    import numpy as np
    from numpy.typing import NDArray

_LAST_CHARACTER, _SURROGATES = 0x10FFFF, (0xD800, 0xDFFF)


class Spelling(NamedTuple):
    """How the elements of a column are written.

    `unit`: written in the first line after the column's name, if there is one.
    """

    cells: Callable[[NDArray[Any]], list[str]]
    unit: str | None = None

    def head(self, name: str) -> str:
        """Return the column's cell in the first line."""
        return f"{name} ({self.unit})" if self.unit else name


def spelling(meaning: Values, elements: NDArray[Any], absent: str = "", path: Path = ()) -> Spelling:
    """Return how the elements of a column are written: as dates, names, lists, or plainly. `absent`: for missing elements.

    `elements`: the whole column, because dates are only written as dates if all of them can be. `path`: of the field.
    """
    missing = meaning.missing if not path else ()
    if path in meaning.names:
        return Spelling(partial(_spell_names, meaning.names[path], missing, absent))
    if path:
        return Spelling(cells_of)
    if meaning.lists is not None:
        return Spelling(partial(_spell_lists, _parse_type(meaning.lists), meaning.names.get((), {})))
    unit = describe_dates(meaning.unit, meaning.calendar) if meaning.packing is None else None
    if unit is None or elements.dtype.kind not in "iuf":
        return Spelling(partial(cells_of, missing=missing, absent=absent))
    dates = dates_of(meaning.unit, meaning.calendar)
    moments = None if dates is None else _find_dates(elements, missing, dates)
    if dates is None or moments is None:
        return Spelling(partial(cells_of, missing=missing, absent=absent), unit)
    return Spelling(partial(_spell_dates, dates, missing, unit_of_dates(moments)))


def add_words(meaning: Values, words: Mapping[Path, NDArray[Any]]) -> Values:
    """Return `meaning` with the words that numbers stand for, by field; -1 stands for no word."""
    named = {path: {-1: "", **dict(enumerate(cells_of(listed)))} for path, listed in words.items()}
    return replace(meaning, names={**meaning.names, **named})


def header_of(names: Sequence[str]) -> list[str]:
    """Return the cells of the first line. If all names are numbers each gets a letter: readers would take them for a row."""
    return [f"c{name}" for name in names] if all(map(_is_number, names)) else list(names)


def column_names(name: str, labels: NDArray[Any], meaning: Values) -> list[str]:
    """Return names for the columns along a dimension with labels: texts as they are, other labels as `NAME=VALUE`."""
    style = spelling(meaning, labels)
    cells, isolated = style.cells(labels), labels.dtype.kind in "OSU"
    return cells if isolated else [f"{style.head(name)}={cell}" for cell in cells]


def join_letters(letters: NDArray[Any]) -> NDArray[Any]:
    """Join the letters along the last dimension to texts."""
    import numpy as np

    length = letters.shape[-1]
    if not length:
        return np.zeros(letters.shape[:-1], "S1")
    return np.ascontiguousarray(letters).view(f"S{length}")[..., 0]


def _is_number(name: str) -> bool:
    try:
        return not name or float(name) is not None
    except ValueError:
        return False


def _spell_names(names: Names, missing: Sequence[int | float], absent: str, values: NDArray[Any]) -> list[str]:
    cells = [names.get(number, str(number)) for number in values.tolist()]
    return _blank_missing(cells, values, missing, absent)


def _spell_dates(dates: Dates, missing: Sequence[int | float], unit: str, values: NDArray[Any]) -> list[str]:
    moments = _find_dates(values, missing, dates)
    return cells_of(values, missing) if moments is None else spell_dates(moments, unit)


def _find_dates(values: NDArray[Any], missing: Sequence[int | float], dates: Dates) -> NDArray[Any] | None:
    """Convert numbers to dates, missing ones to NaT; None if ISO 8601 cannot write all of them."""
    import numpy as np

    places = _find_missing(values, missing)
    known = values if places is None else values[~places]
    moments = iso_dates(known, dates)
    if moments is None or places is None:
        return moments
    all_moments = np.full(values.shape, "NaT", moments.dtype)
    all_moments[~places] = moments
    return all_moments


def _parse_type(spelled: str) -> np.dtype[Any]:
    """Return the type that numpy spells like this: `<i4`, or a list of fields."""
    import numpy as np

    try:
        dtype = np.dtype(ast.literal_eval(spelled) if spelled.startswith("[") else spelled)
    except (TypeError, ValueError, SyntaxError, MemoryError, RecursionError):
        dtype = np.dtype("V0")
    if dtype.hasobject or not dtype.itemsize:
        raise CorruptData(f"{spelled[:60]!r} is no type of numbers")
    return dtype


def _spell_lists(dtype: np.dtype[Any], names: Names, values: NDArray[Any]) -> list[str]:
    """Return each element as a list in JSON's spelling, of numbers or of their `names`, with `NaN` for what is no number."""
    import numpy as np

    cells = []
    for value in values.reshape(-1).tolist():
        if len(value) % dtype.itemsize:
            raise CorruptData(f"a list has {len(value)} bytes, which are no elements of {dtype.itemsize}")
        items = np.frombuffer(value, dtype).tolist()
        cells.append(json.dumps([names.get(item, item) for item in items] if names else items, default=_spell_word))
    return cells


def list_of(cells: Sequence[str], is_text: bool) -> str:
    """Join cells to one list in JSON's spelling."""
    return "[" + ", ".join(json.dumps(cell, ensure_ascii=False) if is_text else cell for cell in cells) + "]"


def cells_of(values: NDArray[Any], missing: Sequence[int | float] = (), absent: str = "") -> list[str]:
    """Return each value as text that reads back as the same value, or as `absent` if the source calls it missing.

    `missing`: the values that the source calls missing.
    """
    return _blank_missing(_spell(values), values, missing, absent)


def _blank_missing(cells: list[str], values: NDArray[Any], missing: Sequence[int | float], absent: str) -> list[str]:
    """Write `absent` in the cells of missing elements."""
    import numpy as np

    places = _find_missing(values, missing)
    for place in () if places is None else np.flatnonzero(places).tolist():
        cells[place] = absent
    return cells


def _find_missing(values: NDArray[Any], missing: Sequence[int | float]) -> NDArray[np.bool_] | None:
    """Return an array that is True where an element is missing; None if no element can be missing."""
    import numpy as np

    if values.dtype.kind in "mM":
        return np.asarray(np.isnat(values))
    if not missing:
        return None
    markers = np.array(missing, values.dtype)
    places: NDArray[np.bool_] = np.isin(values, markers)
    if values.dtype.kind == "f" and np.isnan(markers).any():
        places |= np.isnan(values)
    return places


def _spell(values: NDArray[Any]) -> list[str]:
    import numpy as np

    kind = values.dtype.kind
    if kind in "iu":
        return list(map(str, values.tolist()))
    if kind == "f" and values.dtype.itemsize == 8:
        return _mark_nans(map(repr, values.tolist()))
    if kind == "f" and values.dtype.itemsize < 8:
        # Numpy writes no more digits than the type needs: float32's 2**31 is 2147483600, and readers would read that number.
        exact = values.astype(np.float64).tolist()
        return _mark_nans(repr(n) if n.is_integer() else str(value) for n, value in zip(exact, values, strict=True))
    if kind == "b":
        return ["TRUE" if value else "FALSE" for value in values.tolist()]  # logical for R, pandas, polars and DuckDB
    if kind == "M" and np.datetime_data(values.dtype)[0] == "generic":  # without a unit, numpy cannot write it as a date
        return list(map(str, values.astype(np.int64).tolist()))
    return words(values)


def _mark_nans(texts: Iterable[str]) -> list[str]:
    """Write `NaN` in place of `nan`: polars takes `nan` for text, and pandas and DuckDB read both."""
    return ["NaN" if text == "nan" else text for text in texts]


def words(values: NDArray[Any]) -> list[str]:
    """Return each value as text. CorruptData for code points that are not in Unicode."""
    import numpy as np

    if values.dtype.kind == "U" and values.dtype.itemsize:
        codes = np.ascontiguousarray(values).view(np.dtype("u4").newbyteorder(values.dtype.byteorder))
        if ((codes > _LAST_CHARACTER) | ((codes >= _SURROGATES[0]) & (codes <= _SURROGATES[1]))).any():
            raise CorruptData("a text has a code point that is not in Unicode")
    return [_spell_word(value) for value in values]


def _spell_word(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return str(value)


def width(dtype: np.dtype[Any]) -> int:
    """Return the least number of columns of a table of such elements: one for each number in each field."""
    if dtype.subdtype is not None:
        return math.prod(dtype.shape) * width(dtype.base)
    return sum(width(dtype[field]) for field in dtype.names or ()) or 1


class CompoundColumn(NamedTuple):
    """One column of a compound.

    `path`: names of nested fields; `steps`: the same, with the number of the element after each field that is an array.
    """

    path: Path
    steps: tuple[str | int, ...]

    @property
    def name(self) -> str:
        return ".".join(map(str, self.steps))

    def of(self, elements: NDArray[Any]) -> NDArray[Any]:
        """Return the values of the column in `elements`."""
        for step in self.steps:
            elements = elements[step] if isinstance(step, str) else elements.reshape(len(elements), -1)[:, step]
        return elements


def fields_of(dtype: np.dtype[Any], within: CompoundColumn = CompoundColumn((), ())) -> list[CompoundColumn]:  # noqa: B008  # it is immutable
    """Return the columns of a compound."""
    columns: list[CompoundColumn] = []
    for field in dtype.names or ():
        below, here = dtype[field], CompoundColumn((*within.path, field), (*within.steps, field))
        counts: list[tuple[int, ...]] = [()] if below.subdtype is None else [(i,) for i in range(math.prod(below.shape))]
        for count in counts:
            one = here._replace(steps=(*here.steps, *count))
            columns += [one] if below.base.names is None else fields_of(below.base, one)
    return columns
