"""Draws a figure as SVG, without scripts or external resources, or as PNG. Pure.

Not here: the positions of its shapes (`curves.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

import numpy as np
from numpy.typing import NDArray

from fsbridge.errors import printable
from fsbridge.layouts.files.looks.previews import SMALL
from fsbridge.layouts.files.looks.previews.curves import (
    BOTTOM,
    LEFT,
    RIGHT,
    TOP,
    Band,
    Figure,
    Letters,
    Line,
    Marks,
    choose_height,
    make_shapes,
)
from fsbridge.layouts.files.looks.previews.png import draw_letters, make_png
from fsbridge.layouts.files.looks.previews.sampling import PIXELS

_WIDTH, _HEIGHT = 720, 1400
_SMALL_WIDTH = 240
"""Pixels of width up to which a drawing has no letters, and thicker curves: thumbnails on a page and in a file manager."""

_AROUND = 4
"""Pixels around the curves in that part."""
_STYLE = (
    "text{font:11px sans-serif;fill:#222}.axis{stroke:#666}.grid{stroke:#ddd}.curve{fill:#2a6fb0;stroke:#2a6fb0;"
    "stroke-linejoin:round}.paper{fill:#fff}@media(prefers-color-scheme:dark){text{fill:#ddd}.axis{stroke:#999}"
    ".grid{stroke:#3a3a40}.curve{fill:#7ab8f0;stroke:#7ab8f0}.paper{fill:#1b1b1f}}"
    f"@media(max-width:{_SMALL_WIDTH}px){{text,.grid,.axis{{display:none}}"
    ".curve{stroke-width:1.6px;vector-effect:non-scaling-stroke}}"
)


def make_svg(figure: Figure) -> bytes:
    """Draw a figure as SVG."""
    height = choose_height(figure, _HEIGHT)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}">'
    box = f"{LEFT} {TOP - _AROUND} {_WIDTH - LEFT - RIGHT} {height - TOP - BOTTOM + 2 * _AROUND}"
    parts = [head, f"<title>{_make_text(figure.title)}</title><style>{_STYLE}</style>"]
    parts.append(f'<view id="{SMALL}" viewBox="{box}" preserveAspectRatio="none"/>')
    parts += [f"<desc>{_make_text(f'{name}: {text}')}</desc>" for name, text in figure.texts.items()]
    parts.append(f'<rect class="paper" width="{_WIDTH}" height="{height}"/>')
    for shape in make_shapes(figure, _WIDTH, height):
        match shape:
            case Line():
                x0, y0, x1, y1 = (f"{place:.1f}" for place in shape[:4])
                parts.append(f'<line class="{shape.kind}" x1="{x0}" y1="{y0}" x2="{x1}" y2="{y1}"/>')
            case Letters():
                where = f'x="{shape.x:.1f}" y="{shape.y:.1f}" text-anchor="{shape.anchor}"'
                parts.append(f"<text {where}>{_make_text(shape.text)}</text>")
            case Band():
                parts.append(f'<path class="curve" d="{"".join(_make_outlines(shape))}"/>')
            case Marks():
                marks = "".join(
                    f"M{x:.0f} {y:.1f}v{shape.height:.1f}" for x, y in zip(shape.x.tolist(), shape.y.tolist(), strict=True)
                )
                parts.append(f'<path class="curve" d="{marks}"/>')
    return "\n".join([*parts, "</svg>\n"]).encode()


def _make_outlines(band: Band) -> Iterator[str]:
    """Yield an SVG path for each run of parts that are not missing: forth along their tops, back along their bottoms."""
    there = np.isfinite(band.top) & np.isfinite(band.x)
    borders = np.flatnonzero(np.diff(np.concatenate([[False], there, [False]]).astype(np.int8)))
    for begin, stop in borders.reshape(-1, 2).tolist():
        forth = _spell_points(band.x[begin:stop], band.top[begin:stop])
        back = _spell_points(band.x[begin:stop][::-1], band.bottom[begin:stop][::-1])
        yield f"M{'L'.join([*forth, *back])}Z"


def _spell_points(x: NDArray[np.float64], y: NDArray[np.float64]) -> list[str]:
    return [f"{a:.1f} {b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True)]


def _make_text(text: str) -> str:
    return escape(printable(text))


_INKS = {"axis": (102, 102, 102), "grid": (221, 221, 221), "curve": (42, 111, 176)}


def make_figure_png(figure: Figure) -> bytes:
    """Draw a figure as PNG."""
    height = choose_height(figure, PIXELS)
    paper = np.full((height, PIXELS, 3), 255, np.uint8)
    for shape in make_shapes(figure, PIXELS, height):
        match shape:
            case Line():
                rows, columns = _make_span(shape.y0, shape.y1), _make_span(shape.x0, shape.x1)
                paper[rows, columns] = _INKS[shape.kind]
            case Letters():
                _write(paper, shape)
            case Band():
                _fill_band(paper, shape)
            case Marks():
                for x, y in zip(shape.x.tolist(), shape.y.tolist(), strict=True):
                    paper[_make_span(y, y + shape.height - 1), _make_span(x, x)] = _INKS["curve"]
    return make_png(paper, {"Title": figure.title, "Software": "fsbridge", **figure.texts})


def _make_span(first: float, last: float) -> slice:
    low, high = sorted((round(first), round(last)))
    return slice(max(0, low), max(0, high + 1))


def _write(paper: NDArray[np.uint8], letters: Letters) -> None:
    pixels = draw_letters(letters.text)
    left = round(letters.x) - {"start": 0, "middle": pixels.shape[1] // 2, "end": pixels.shape[1]}[letters.anchor]
    top = round(letters.y) - 7
    pixels = pixels[:, max(0, -left) :]
    there = paper[top : top + len(pixels), max(0, left) : max(0, left) + pixels.shape[1]]
    there[pixels[: there.shape[0], : there.shape[1]]] = (34, 34, 34)


def _fill_band(paper: NDArray[np.uint8], band: Band) -> None:
    """Draw each part as a vertical line, and connect it with the next part."""
    there = np.isfinite(band.top) & np.isfinite(band.x)
    for i in np.flatnonzero(there).tolist():
        columns = _make_span(band.x[i], band.x[i])
        paper[_make_span(band.top[i], band.bottom[i]), columns] = _INKS["curve"]
        if i + 1 < len(band.x) and there[i + 1]:
            _connect(paper, (band.x[i], (band.top[i] + band.bottom[i]) / 2), band, i + 1)


def _connect(paper: NDArray[np.uint8], start: tuple[float, float], band: Band, to: int) -> None:
    """Draw a straight line from `start`, the middle of a part, to the middle of part `to`."""
    stop = band.x[to], (band.top[to] + band.bottom[to]) / 2
    count = max(1, round(max(abs(stop[0] - start[0]), abs(stop[1] - start[1]))))
    columns = np.rint(np.linspace(start[0], stop[0], count + 1)).astype(int)
    rows = np.rint(np.linspace(start[1], stop[1], count + 1)).astype(int)
    paper[rows, columns] = _INKS["curve"]
