"""Records of the previews: pictures and curves for people, made from a sample of the elements.

Not here: how they are made (`layouts/files/looks/previews/`).
"""

from __future__ import annotations

import math

from fsbridge.config import MIB
from fsbridge.layouts.files.arrays.extents import Generated, View
from fsbridge.layouts.files.filetypes.filetype import FileType, Limit
from fsbridge.layouts.files.looks.previews import DECODED_BYTES
from fsbridge.layouts.files.looks.previews.sampling import drawable, is_table

_WORK_BYTES = 16 * MIB
"""Most bytes of memory for drawing: each pixel of each channel is a number of 8 bytes, in several arrays."""


def preview_png(view: View) -> Generated:
    """Return the plan of a PNG with the picture of one plane, or with curves."""
    from fsbridge.layouts.files.looks.previews.curves import curves
    from fsbridge.layouts.files.looks.previews.drawing import figure_png
    from fsbridge.layouts.files.looks.previews.picture import picture

    made = curves(view, figure_png) if is_table(view) else picture(view)
    return Generated(lambda elements, labels, limit: made.draw(elements), made.order, None, made.selection, _WORK_BYTES)


def preview_svg(view: View) -> Generated:
    """Return the plan of an SVG with curves."""
    from fsbridge.layouts.files.looks.previews.curves import curves
    from fsbridge.layouts.files.looks.previews.drawing import svg

    made = curves(view, svg)
    return Generated(lambda elements, labels, limit: made.draw(elements), made.order, None, made.selection, _WORK_BYTES)


def _chunk_bytes(view: View) -> int:
    """Bytes of the largest chunk."""
    edges = (max(edge) if isinstance(edge, tuple) else edge for edge in view.metadata.grid.edges)
    return math.prod(edges) * view.metadata.dtype.itemsize


def _check(view: View) -> None:
    drawable(view)


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
