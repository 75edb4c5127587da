"""Draws a figure as PNG. Pure. Not here: the positions of its shapes (`plot.py`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fsbridge.layouts.files.previews.lettering import lettered
from fsbridge.layouts.files.previews.plot import Band, Figure, Letters, Line, Marks, height_of, shapes
from fsbridge.layouts.files.previews.png import png
from fsbridge.layouts.files.previews.sampling import PIXELS

_INKS = {"axis": (102, 102, 102), "grid": (221, 221, 221), "curve": (42, 111, 176)}


def figure_png(figure: Figure) -> bytes:
    """Return the file."""
    height = height_of(figure, PIXELS)
    paper = np.full((height, PIXELS, 3), 255, np.uint8)
    for shape in shapes(figure, PIXELS, height):
        match shape:
            case Line():
                rows, columns = _span(shape.y0, shape.y1), _span(shape.x0, shape.x1)
                paper[rows, columns] = _INKS[shape.kind]
            case Letters():
                _write(paper, shape)
            case Band():
                _fill(paper, shape)
            case Marks():
                for x, y in zip(shape.x.tolist(), shape.y.tolist(), strict=True):
                    paper[_span(y, y + shape.height - 1), _span(x, x)] = _INKS["curve"]
    return png(paper, {"Title": figure.title, "Software": "fsbridge", **figure.texts})


def _span(first: float, last: float) -> slice:
    low, high = sorted((round(first), round(last)))
    return slice(max(0, low), max(0, high + 1))


def _write(paper: NDArray[np.uint8], letters: Letters) -> None:
    pixels = lettered(letters.text)
    left = round(letters.x) - {"start": 0, "middle": pixels.shape[1] // 2, "end": pixels.shape[1]}[letters.anchor]
    top = round(letters.y) - 7
    pixels = pixels[:, max(0, -left) :]
    there = paper[top : top + len(pixels), max(0, left) : max(0, left) + pixels.shape[1]]
    there[pixels[: there.shape[0], : there.shape[1]]] = (34, 34, 34)


def _fill(paper: NDArray[np.uint8], band: Band) -> None:
    """Draw each part as a vertical line, and connect it with the next part."""
    there = np.isfinite(band.top) & np.isfinite(band.x)
    for i in np.flatnonzero(there).tolist():
        columns = _span(band.x[i], band.x[i])
        paper[_span(band.top[i], band.bottom[i]), columns] = _INKS["curve"]
        if i + 1 < len(band.x) and there[i + 1]:
            _connect(paper, (band.x[i], (band.top[i] + band.bottom[i]) / 2), band, i + 1)


def _connect(paper: NDArray[np.uint8], start: tuple[float, float], band: Band, to: int) -> None:
    """Draw a straight line between the middles of neighbouring parts."""
    stop = band.x[to], (band.top[to] + band.bottom[to]) / 2
    count = max(1, round(max(abs(stop[0] - start[0]), abs(stop[1] - start[1]))))
    columns = np.rint(np.linspace(start[0], stop[0], count + 1)).astype(int)
    rows = np.rint(np.linspace(start[1], stop[1], count + 1)).astype(int)
    paper[rows, columns] = _INKS["curve"]
