"""Records of the previews: pictures and curves for people, made from a sample of the elements.

Not here: how they are made (`layouts/files/looks/previews/`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from fsbridge.config import MIB
from fsbridge.layouts.files.arrays.extents import Generated, Label, Labels, View
from fsbridge.layouts.files.filetypes.filetype import FileType, Limit
from fsbridge.layouts.files.looks.previews import DECODED_BYTES
from fsbridge.layouts.files.looks.previews.sampling import check_drawable, is_table

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from fsbridge.layouts.files.looks.previews.curves import Figure

_WORK_BYTES = 16 * MIB
"""Most bytes of memory for drawing: each pixel of each channel is a number of 8 bytes, in several arrays."""


_MOST_POSITIONS = 1 << 22
"""Longest coordinate that is read for curves. Shorter ones than 65,536 are known without that."""


def preview_png(view: View) -> Generated:
    """Return the plan of a PNG with the picture of one plane, or with curves."""
    from fsbridge.layouts.files.looks.previews.drawing import make_figure_png
    from fsbridge.layouts.files.looks.previews.picture import plan_picture

    if is_table(view):
        return _curves(view, make_figure_png)
    made = plan_picture(view)
    return Generated(lambda elements, labels, limit: made.draw(elements), made.order, None, made.selection, _WORK_BYTES)


def preview_svg(view: View) -> Generated:
    """Return the plan of an SVG with curves."""
    from fsbridge.layouts.files.looks.previews.drawing import make_svg

    return _curves(view, make_svg)


def _curves(view: View, drawn: Callable[[Figure], bytes]) -> Generated:
    """Return the plan of curves.

    Unknown positions along the axis are read from a coordinate, if there is one, with the elements.
    """
    from fsbridge.layouts.files.looks.previews.curves import plan_curves

    made = plan_curves(view, drawn)
    unplaced = len(view.shape) > 0 and view.axes[0].scale is None and view.find_positions(0) is None
    labelled = (0,) if unplaced and view.shape[0] <= _MOST_POSITIONS else ()

    def make(elements: NDArray[Any], labels: Labels, limit: int) -> bytes:
        label = labels.along.get(0)
        if label is None or label.values.dtype.kind not in "iuf":
            return made.draw(elements)
        return plan_curves(_place(view, label), drawn).draw(elements)

    return Generated(make, made.order, None, made.selection, _WORK_BYTES, labelled)


def _place(view: View, label: Label) -> View:
    """Return the view with positions along its first dimension, which are those of its label."""
    import numpy as np

    number, pick = view.selection.kept[0], view.selection.picks[view.selection.kept[0]]
    factor, offset = label.meaning.packing or (1.0, 0.0)
    places = np.full(view.metadata.shape[number], np.nan)
    places[[pick.start + pick.step * i for i in range(pick.length)]] = label.values * factor + offset
    return replace(view, meaning=replace(view.meaning, positions={**view.meaning.positions, number: places}))


def _chunk_bytes(view: View) -> int:
    """Return the bytes of the largest chunk."""
    edges = (max(edge) if isinstance(edge, tuple) else edge for edge in view.metadata.grid.edges)
    return math.prod(edges) * view.metadata.dtype.itemsize


def _check(view: View) -> None:
    check_drawable(view)


def _is_picture(view: View) -> int:
    return not is_table(view)


def _is_point(view: View) -> int:
    """Return 1 for a single element, which a page shows as a number, else 0."""
    return view.selection.size == 1 and is_table(view)


_POINT = Limit(_is_point, 0, "a single element is no curve")
_CHUNKS = Limit(
    _chunk_bytes, DECODED_BYTES, f"a chunk has more than {DECODED_BYTES // MIB} MiB, and a preview decodes no more"
)

PICTURE = FileType("preview.png", preview_png, limits=(_CHUNKS, _POINT), check=_check, chosen=False)
CURVES = FileType(
    "preview.svg",
    preview_svg,
    limits=(_CHUNKS, _POINT, Limit(_is_picture, 0, "the array is drawn as a picture (preview.png), not as curves")),
    check=_check,
    chosen=False,
)
