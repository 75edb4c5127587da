"""The value of an array that a page shows in words: of a single element, or of a short list of texts.

Not here: how the page shows it (`page.py`), arrays that are drawn (`previews/`).
"""

from __future__ import annotations

import math

from fsbridge.errors import FsbridgeError, is_lasting
from fsbridge.layouts.files.arrays.extents import View
from fsbridge.layouts.files.arrays.open_array import OpenArray
from fsbridge.layouts.files.arrays.selection import select_all
from fsbridge.layouts.files.filetypes.cells import spelling
from fsbridge.meaning.times import describe_dates
from fsbridge.meaning.units import fold, symbol

MOST_VALUES = 100
"""Values on one page. Each costs a read of a chunk, and on a server a request."""

_MOST_TEXTS = 24
"""Most texts of an array that are shown."""

_MOST_BYTES = 64 * 1024
"""Most bytes of the chunk that has the value, or sixteenth parts of elements of variable length."""


class PageValues:
    """Reads the values that one page shows in words. It reads at most `MOST_VALUES`."""

    def __init__(self) -> None:
        self._left = MOST_VALUES

    def spell(self, array: OpenArray) -> str | None:
        """Return the value of an array as text.

        None if the array has no short value, or the page shows enough values already.
        """
        if self._left <= 0 or not has_value(array.make_view()):
            return None
        self._left -= 1
        try:
            return _spell_value(array)
        except (FsbridgeError, OSError) as error:
            if not is_lasting(error):
                raise
            return "cannot be read"


def has_value(view: View) -> bool:
    """True if an array is a single element, or a short list of texts, which a page can show in words."""
    dtype, size = view.dtype, view.selection.size
    metadata = view.metadata
    if metadata.refused or metadata.varlength or metadata.attributes_error is not None or metadata.dtype.element is not None:
        return False  # without the attributes, a packed number would be another one
    is_text = view.metadata.dtype.serializer == "vlen-utf8" or (dtype is not None and dtype.kind in "SU")
    if not (is_text or (dtype is not None and dtype.kind in "biufcmM" and dtype.subdtype is None)):
        return False
    edges = math.prod(max(edge) if isinstance(edge, tuple) else edge for edge in view.metadata.grid.edges)
    few = size == 1 or (is_text and len(view.shape) == 1 and 0 < size <= _MOST_TEXTS)
    return few and edges * (view.metadata.dtype.itemsize or 16) <= _MOST_BYTES


def _spell_value(array: OpenArray) -> str:
    view, order = array.make_view(), range(len(array.metadata.shape))
    elements = array.read_elements(array.chunks.whole(), select_all(array.metadata.shape), order, _MOST_BYTES).reshape(-1)
    style = spelling(view.meaning.values, elements, absent="missing")
    texts = style.cells(elements)
    if texts == ["missing"] or elements.dtype.kind not in "iufc":
        return ", ".join(texts)
    if view.packing is not None and elements.dtype.kind in "iuf":
        factor, offset = view.packing
        texts = [f"{float(elements[0]) * factor + offset:.7g}"]
    values = view.meaning.values
    is_dated = view.packing is None and describe_dates(values.unit, values.calendar) is not None
    unit = style.unit if is_dated else symbol(fold(values.unit))
    return ", ".join(texts) + (f" {unit}" if unit else "")
