"""Draws a figure as SVG, without scripts or external resources. Pure. Not here: the positions of its shapes (`plot.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

import numpy as np
from numpy.typing import NDArray

from fsbridge.errors import printable
from fsbridge.layouts.files.previews.plot import Band, Figure, Letters, Line, Marks, height_of, shapes

_WIDTH, _HEIGHT = 720, 1400
_STYLE = (
    "text{font:11px sans-serif;fill:#222}.axis{stroke:#666}.grid{stroke:#ddd}.curve{fill:#2a6fb0;stroke:#2a6fb0;"
    "stroke-linejoin:round}.paper{fill:#fff}@media(prefers-color-scheme:dark){text{fill:#ddd}.axis{stroke:#999}"
    ".grid{stroke:#3a3a40}.curve{fill:#7ab8f0;stroke:#7ab8f0}.paper{fill:#1b1b1f}}"
)


def svg(figure: Figure) -> bytes:
    """Return the file."""
    height = height_of(figure, _HEIGHT)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}">'
    parts = [head, f"<title>{_text(figure.title)}</title><style>{_STYLE}</style>"]
    parts += [f"<desc>{_text(f'{name}: {text}')}</desc>" for name, text in figure.texts.items()]
    parts.append(f'<rect class="paper" width="{_WIDTH}" height="{height}"/>')
    for shape in shapes(figure, _WIDTH, height):
        match shape:
            case Line():
                x0, y0, x1, y1 = (f"{place:.1f}" for place in shape[:4])
                parts.append(f'<line class="{shape.kind}" x1="{x0}" y1="{y0}" x2="{x1}" y2="{y1}"/>')
            case Letters():
                where = f'x="{shape.x:.1f}" y="{shape.y:.1f}" text-anchor="{shape.anchor}"'
                parts.append(f"<text {where}>{_text(shape.text)}</text>")
            case Band():
                parts.append(f'<path class="curve" d="{"".join(_outlines(shape))}"/>')
            case Marks():
                marks = "".join(
                    f"M{x:.0f} {y:.1f}v{shape.height:.1f}" for x, y in zip(shape.x.tolist(), shape.y.tolist(), strict=True)
                )
                parts.append(f'<path class="curve" d="{marks}"/>')
    return "\n".join([*parts, "</svg>\n"]).encode()


def _outlines(band: Band) -> Iterator[str]:
    """Yield an outline for each run of parts that are not missing: along their tops, and back along their bottoms."""
    there = np.isfinite(band.top) & np.isfinite(band.x)
    borders = np.flatnonzero(np.diff(np.concatenate([[False], there, [False]]).astype(np.int8)))
    for begin, stop in borders.reshape(-1, 2).tolist():
        forth = _points(band.x[begin:stop], band.top[begin:stop])
        back = _points(band.x[begin:stop][::-1], band.bottom[begin:stop][::-1])
        yield f"M{'L'.join([*forth, *back])}Z"


def _points(x: NDArray[np.float64], y: NDArray[np.float64]) -> list[str]:
    return [f"{a:.1f} {b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True)]


def _text(text: str) -> str:
    return escape(printable(text))
