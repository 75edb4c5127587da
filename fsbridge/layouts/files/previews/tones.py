"""Numbers as colours: which are missing, the limits of a stretch, colour maps, labels. Pure functions over numpy arrays.

Not here: which elements are looked at (`sampling.py`), how they are put together to a picture (`picture.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

LOWEST, HIGHEST = 1.0, 99.0
"""Percentiles of the elements that are black and white: a few outliers leave the rest visible."""

_VIRIDIS = np.frombuffer(
    bytes.fromhex(
        "440154" "48186a" "472d7b" "424086" "3b528b" "33638d" "2c728e" "26828e" "21918c"
        "1fa088" "28ae80" "3fbc73" "5ec962" "84d44b" "addc30" "d8e219" "fde725"
    ),
    np.uint8,
).reshape(-1, 3)  # fmt: skip
"""matplotlib's colour map `viridis` at 17 places: equal steps look equal, also in grey and to colour-blind eyes."""


def numbers(
    values: NDArray[np.generic], markers: Sequence[float], packing: tuple[float, float] | None
) -> NDArray[np.float64]:
    """Return elements as unpacked real numbers: NaN for those equal to a marker, magnitudes for complex ones."""
    kind = values.dtype.kind
    if kind in "mM":
        found = values.view(np.int64).astype(np.float64)
        found[np.isnat(values)] = np.nan
        return found
    with np.errstate(over="ignore", invalid="ignore"):
        found = np.abs(values).astype(np.float64) if kind == "c" else values.astype(np.float64)
        for marker in markers:
            found[values == np.array(marker).astype(values.dtype)] = np.nan
        return found if packing is None else found * packing[0] + packing[1]


def limits(found: NDArray[np.float64]) -> tuple[float, float] | None:
    """Return the values to be shown darkest and brightest; None if no element is finite.

    They are percentiles, or the extremes if most elements are equal. If all are equal, they are 1 apart.
    """
    finite = found[np.isfinite(found)]
    if not finite.size:
        return None
    low, high = map(float, np.percentile(finite, (LOWEST, HIGHEST)))
    if low == high:
        low, high = float(finite.min()), float(finite.max())
    return (low, high) if low < high else (low, low + 1.0)


def stretched(found: NDArray[np.float64], ends: tuple[float, float] | None) -> NDArray[np.uint8]:
    """Map numbers between both ends to 0 to 255. Numbers beyond an end get that end's value; NaN gets 0."""
    if ends is None:
        return np.zeros(found.shape, np.uint8)
    low, high = ends
    scale = 2.0 ** -max(0, int(np.frexp(max(abs(low), abs(high)))[1]) - 1000)  # the difference of ends may be infinite
    with np.errstate(invalid="ignore", over="ignore"):
        level = (found * scale - low * scale) / (high * scale - low * scale)
        return np.rint(np.nan_to_num(np.clip(level, 0.0, 1.0)) * 255).astype(np.uint8)


def viridis(levels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return red, green and blue for levels of 0 to 255."""
    places = np.linspace(0, 255, len(_VIRIDIS))
    table = np.stack([np.interp(np.arange(256), places, _VIRIDIS[:, part]) for part in range(3)], axis=1)
    found: NDArray[np.uint8] = np.rint(table).astype(np.uint8)[levels]
    return found


def labelled(values: NDArray[np.generic]) -> NDArray[np.uint8]:
    """Return red, green, blue and alpha of labels: unlike colours for neighbouring numbers, 0 is transparent."""
    found = values.astype(np.uint64)  # -1 is the largest number
    mixed = found * np.uint64(0x9E3779B97F4A7C15)  # the 64-bit golden ratio spreads numbers that follow on each other
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    mixed ^= mixed >> np.uint64(32)
    out = np.empty((*found.shape, 4), np.uint8)
    for part in range(3):
        out[..., part] = 64 + ((mixed >> np.uint64(8 * part)) & np.uint64(255)) * 191 // 255  # none is too dark to be seen
    out[..., 3] = np.where(found == 0, 0, 255)
    return out


def composed(levels: Sequence[NDArray[np.uint8]], colors: Sequence[tuple[int, int, int]]) -> NDArray[np.uint8]:
    """Return red, green and blue of channels that are added up in their colours."""
    total = np.zeros((*levels[0].shape, 3), np.uint32)
    for level, color in zip(levels, colors, strict=True):
        total += level[..., None].astype(np.uint32) * np.array(color, np.uint32)
    out: NDArray[np.uint8] = np.minimum(255, (total + 127) // 255).astype(np.uint8)
    return out


def with_alpha(pixels: NDArray[np.uint8], missing: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return the pixels, with an alpha sample added if any pixel is missing."""
    if not missing.any():
        return pixels
    return np.concatenate([pixels, np.where(missing, 0, 255).astype(np.uint8)[..., None]], axis=-1)
