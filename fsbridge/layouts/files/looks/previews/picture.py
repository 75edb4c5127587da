"""The picture of an array of two dimensions or more: which elements it needs, how numbers become colours, and a PNG. Pure.

The plane is that of the axes named y and x, or latitude and longitude, in the middle of all other axes. Channels are added
up in their colours. Not here: curves (`curves.py`), which elements are looked at (`sampling.py`), reading
(`arrays/nodes.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fsbridge.layouts.files.arrays.extents import View
from fsbridge.layouts.files.arrays.selection import Selection
from fsbridge.layouts.files.looks.previews.png import HEIGHT, draw_letters, make_png
from fsbridge.layouts.files.looks.previews.sampling import (
    PIXELS,
    THIN_PIXELS,
    Plane,
    Sample,
    Wish,
    check_drawable,
    choose_plane,
    choose_sample,
    compute_aspect,
    enlarge,
    find_step,
)
from fsbridge.meaning import Channel
from fsbridge.meaning.attributes import is_finite

_VIRIDIS = np.frombuffer(
    bytes.fromhex(
        "440154" "48186a" "472d7b" "424086" "3b528b" "33638d" "2c728e" "26828e" "21918c"
        "1fa088" "28ae80" "3fbc73" "5ec962" "84d44b" "addc30" "d8e219" "fde725"
    ),
    np.uint8,
).reshape(-1, 3)  # fmt: skip
"""matplotlib's colour map `viridis` at 17 places: equal steps look equal, also in grey and to colour-blind eyes."""


def convert_to_real(
    values: NDArray[np.generic], markers: Sequence[float], packing: tuple[float, float] | None
) -> NDArray[np.float64]:
    """Convert elements to unpacked real numbers. One that equals a marker becomes NaN, a complex one its magnitude."""
    kind = values.dtype.kind
    if kind in "mM":
        numbers = values.view(np.int64).astype(np.float64)
        numbers[np.isnat(values)] = np.nan
        return numbers
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = np.abs(values).astype(np.float64) if kind == "c" else values.astype(np.float64)
        for marker in markers:
            numbers[values == np.array(marker).astype(values.dtype)] = np.nan
        return numbers if packing is None else numbers * packing[0] + packing[1]


def find_limits(numbers: NDArray[np.float64]) -> tuple[float, float] | None:
    """Return the values to be shown darkest and brightest; None if no element is finite.

    They are the percentiles 1 and 99, because a few outliers should leave the rest visible, or the extremes if most elements
    are equal. If all elements are equal, the limits are 1 apart.
    """
    finite = numbers[np.isfinite(numbers)]
    if not finite.size:
        return None
    low, high = map(float, np.percentile(finite, (1.0, 99.0)))
    if low == high:
        low, high = float(finite.min()), float(finite.max())
    return (low, high) if low < high else (low, low + 1.0)


def stretch(numbers: NDArray[np.float64], ends: tuple[float, float] | None) -> NDArray[np.uint8]:
    """Map numbers between both ends to 0 to 255. A number beyond an end is shown like that end, and NaN becomes 0."""
    if ends is None:
        return np.zeros(numbers.shape, np.uint8)
    low, high = ends
    scale = 2.0 ** -max(0, int(np.frexp(max(abs(low), abs(high)))[1]) - 1000)  # keeps the difference of both ends finite
    with np.errstate(invalid="ignore", over="ignore"):
        level = (numbers * scale - low * scale) / (high * scale - low * scale)
        return np.rint(np.nan_to_num(np.clip(level, 0.0, 1.0)) * 255).astype(np.uint8)


def color_viridis(levels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Convert levels of 0 to 255 to red, green and blue."""
    places = np.linspace(0, 255, len(_VIRIDIS))
    table = np.stack([np.interp(np.arange(256), places, _VIRIDIS[:, part]) for part in range(3)], axis=1)
    colors: NDArray[np.uint8] = np.rint(table).astype(np.uint8)[levels]
    return colors


def color_labels(values: NDArray[np.generic], colors: Mapping[int, tuple[int, int, int, int]]) -> NDArray[np.uint8]:
    """Convert labels to red, green, blue and alpha: neighbouring numbers get unlike colours, and 0 is transparent.

    `colors`: for each number that has a colour of its own.
    """
    numbers = values.astype(np.uint64)  # -1 becomes the largest number
    mixed = numbers * np.uint64(0x9E3779B97F4A7C15)  # the 64-bit golden ratio: neighbouring numbers become distant
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    mixed ^= mixed >> np.uint64(32)
    out = np.empty((*numbers.shape, 4), np.uint8)
    for part in range(3):
        out[..., part] = 64 + ((mixed >> np.uint64(8 * part)) & np.uint64(255)) * 191 // 255  # 64 and more: none is too dark
    out[..., 3] = np.where(numbers == 0, 0, 255)
    for number in np.unique(values).tolist() if colors else ():
        if number in colors:
            out[values == number] = colors[number]
    return out


def compose(levels: Sequence[NDArray[np.uint8]], colors: Sequence[tuple[int, int, int]]) -> NDArray[np.uint8]:
    """Give each channel its colour and add the channels up. Returns red, green and blue."""
    total = np.zeros((*levels[0].shape, 3), np.uint32)
    for level, color in zip(levels, colors, strict=True):
        total += level[..., None].astype(np.uint32) * np.array(color, np.uint32)
    out: NDArray[np.uint8] = np.minimum(255, (total + 127) // 255).astype(np.uint8)
    return out


def add_alpha(pixels: NDArray[np.uint8], missing: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return the pixels, with an alpha sample added if any pixel is missing."""
    if not missing.any():
        return pixels
    return np.concatenate([pixels, np.where(missing, 0, 255).astype(np.uint8)[..., None]], axis=-1)


_MOST_CHANNELS = 7
_COLORS = ((255, 0, 255), (0, 255, 0), (0, 255, 255), (255, 255, 0), (255, 0, 0), (0, 0, 255), (255, 255, 255))
"""Colours for channels without any.

If there are more channels than these and the metadata say nothing of them, only the middle channel is shown.
"""

_LEGEND_ROWS, _LEGEND_COLUMNS = 22, 160
"""Height and least width in pixels of the colour legend below a map."""


@dataclass(frozen=True, slots=True)
class Preview:
    """What a preview is made of. `draw` gets the elements of `selection`, with dimensions in `order`, and returns the file.

    `middle`: only the middle of the array is shown.
    """

    selection: Selection
    order: tuple[int, ...]
    middle: bool
    draw: Callable[[NDArray[Any]], bytes]


def plan_picture(view: View) -> Preview:
    """Plan the PNG of an array; Unfit if nothing can be drawn."""
    how = plan_drawing(view)
    return Preview(how.sample.selection, how.order, how.sample.middle, partial(_draw, how))


def plan_drawing(view: View) -> Drawn:
    """Decide how an array becomes a picture; Unfit if nothing can be drawn."""
    dtype = check_drawable(view)
    chosen = choose_plane(view)
    steps = find_step(view, chosen.rows), find_step(view, chosen.columns)
    ratio = compute_aspect(view.axes[chosen.rows], view.axes[chosen.columns], steps)
    height, width = _fit(view.shape[chosen.rows], view.shape[chosen.columns], ratio)
    colors = view.image.channels if view.image is not None else ()
    count = 1 if chosen.channels is None else view.shape[chosen.channels]
    single = chosen.channels is not None and not chosen.color and count > _MOST_CHANNELS and not colors
    shown = {chosen.rows: Wish(height), chosen.columns: Wish(width)}
    at = {i: n // 2 for i, n in enumerate(view.shape) if i not in shown and (i != chosen.channels or single)}
    kept = {} if chosen.channels is None or single else {chosen.channels: min(count, _MOST_CHANNELS)}
    sample = choose_sample(view.metadata, view.selection, shown, at, kept)
    wanted = [*kept, chosen.rows, chosen.columns]
    remaining = sorted(wanted)
    flips = (chosen.geographic and (steps[0] or -1) > 0, chosen.geographic and (steps[1] or 1) < 0)
    size = enlarge(
        _fit(_measure_extent(sample, view, chosen.rows), _measure_extent(sample, view, chosen.columns), ratio), ratio
    )
    labels = view.meaning.values.labels or dtype == np.dtype(np.uint64).newbyteorder(dtype.byteorder)
    order = tuple(remaining.index(i) for i in wanted)
    return Drawn(view, chosen, sample, order, size, flips, labels and dtype.kind in "iu")


def _fit(rows: int, columns: int, ratio: float | None) -> tuple[int, int]:
    """Return height and width, at most `PIXELS`, of a picture of elements that are `ratio` times as high as wide.

    If `ratio` is None, no side becomes shorter than `THIN_PIXELS`.
    """
    height, width = rows * max(1.0, ratio or 1.0), columns * max(1.0, 1 / (ratio or 1.0))
    scale, thin = max(1.0, max(height, width) / PIXELS), THIN_PIXELS if ratio is None else 1
    return max(min(rows, thin), round(height / scale)), max(min(columns, thin), round(width / scale))


def _measure_extent(sample: Sample, view: View, dimension: int) -> int:
    """Return how many elements of the region lie between the picture's edges along a dimension."""
    return sample.selection.picks[view.selection.kept[dimension]].length * sample.steps[dimension]


@dataclass(frozen=True, slots=True)
class Drawn:
    """How elements become pixels. `size`: rows and columns; `flips`: whether rows and columns are reversed.

    `order`: the dimensions, channels first, then rows and columns; `labels`: elements have the colours of labels.
    """

    view: View
    plane: Plane
    sample: Sample
    order: tuple[int, ...]
    size: tuple[int, int]
    flips: tuple[bool, bool]
    labels: bool

    @property
    def channels(self) -> Sequence[Channel]:
        return self.view.image.channels if self.view.image is not None else ()

    def arrange_layers(self, elements: NDArray[Any]) -> NDArray[Any]:
        """Return the elements as channel × row × column of the picture, with the first row at the top."""
        layers = elements.reshape(-1, *elements.shape[-2:])
        return layers[:, :: -1 if self.flips[0] else 1, :: -1 if self.flips[1] else 1]

    def is_stretched(self, layers: NDArray[Any]) -> bool:
        """True if elements are shown between limits, because they are neither colours nor labels."""
        return not self.plane.color and not (self.labels and len(layers) == 1)

    def unpack(self, layers: NDArray[Any]) -> NDArray[np.float64]:
        """Convert elements to unpacked real numbers, NaN where one is missing."""
        return convert_to_real(layers, find_markers(self.view), self.view.packing)


Ends = tuple[float, float] | None
"""The values that are shown darkest and brightest; None if a channel has no finite element."""


def find_windows(pictures: Sequence[tuple[Drawn, NDArray[Any]]]) -> list[Ends]:
    """Return for each channel the ends that all pictures share, so that they can be compared.

    They are the channel's window if the metadata of all pictures give the same one, else percentiles of all elements. Each
    picture has its elements as `Drawn.arrange_layers` returns them.
    """
    compared = [(how, layers) for how, layers in pictures if how.is_stretched(layers)]
    ends: list[Ends] = []
    for place in range(max((len(layers) for _, layers in compared), default=0)):
        said = {_find_channel(how.channels, place).window for how, _ in compared}
        if all(how.view.dtype == np.bool_ for how, _ in compared):
            ends.append((0.0, 1.0))
        elif len(said) == 1 and (window := said.pop()) is not None:
            ends.append(window)
        else:
            numbers = [how.unpack(layers[place]).reshape(-1) for how, layers in compared if place < len(layers)]
            ends.append(find_limits(np.concatenate(numbers)))
    return ends


def make_pixels(how: Drawn, layers: NDArray[Any], ends: Sequence[Ends]) -> NDArray[np.uint8]:
    """Convert `layers`, as `Drawn.arrange_layers` returns them, to row × column × samples. There are 1 to 4 samples."""
    if how.plane.color:
        return np.ascontiguousarray(np.moveaxis(layers, 0, -1).astype(np.uint8))
    if not how.is_stretched(layers):
        return color_labels(layers[0], dict(how.view.meaning.values.colors))
    numbers = how.unpack(layers)
    levels = [stretch(number, end) for number, end in zip(numbers, ends, strict=False)]
    missing = np.asarray(np.isnan(numbers).all(axis=0))
    if how.plane.geographic and len(layers) == 1:
        return add_alpha(color_viridis(levels[0]), missing)
    own = [_find_channel(how.channels, i).color for i in range(len(levels))]
    if len(levels) == 1 and own[0] is None:
        return add_alpha(levels[0][..., None], missing)
    colors = [own[i] or _COLORS[i] for i in range(len(levels))]
    return add_alpha(compose(levels, colors), missing)


def _draw(how: Drawn, elements: NDArray[Any]) -> bytes:
    view, layers = how.view, how.arrange_layers(elements)
    texts = {"Title": view.name, "Software": "fsbridge", "Elements": spell_region(how.sample.selection)}
    ends = find_windows([(how, layers)])
    shown = make_pixels(how, resize(layers, how.size), ends)
    if not ends:
        return make_png(shown, texts if how.plane.color else texts | {"Colors": "labels"})
    texts["Limits"] = spell_ends(ends)
    if unit := view.unit:
        texts["Unit"] = unit
    if how.plane.geographic and len(ends) == 1 and ends[0] is not None:
        shown = _add_legend(shown, ends[0], unit)
    return make_png(shown, texts)


def _find_channel(channels: Sequence[Channel], number: int) -> Channel:
    return channels[number] if number < len(channels) else Channel()


def resize(layers: NDArray[Any], size: tuple[int, int]) -> NDArray[Any]:
    """Resize layers to `size`, rows and columns, by taking the nearest element for each pixel."""
    rows, columns = ((2 * np.arange(new) + 1) * old // (2 * new) for new, old in zip(size, layers.shape[1:], strict=True))
    return layers[:, rows[:, None], columns]


def _add_legend(pixels: NDArray[np.uint8], ends: tuple[float, float], unit: str | None) -> NDArray[np.uint8]:
    """Return the map with a strip of its colours below it, the values at both ends of the strip, and the unit."""
    height, width = pixels.shape[:2]
    wide = max(width, _LEGEND_COLUMNS)
    out = np.zeros((height + _LEGEND_ROWS, wide, 4), np.uint8)
    left = (wide - width) // 2
    out[:height, left : left + width, : pixels.shape[2]] = pixels
    if pixels.shape[2] == 3:
        out[:height, left : left + width, 3] = 255
    out[height:] = 255
    out[height + 2 : height + 12, 4:-4, :3] = color_viridis(np.linspace(0, 255, wide - 8).astype(np.uint8))
    low, high = (draw_letters(f"{end:.4g}") for end in ends)
    middle = draw_letters((unit or "")[: max(0, (wide - 16 - low.shape[1] - high.shape[1]) // 6)])
    for letters, at in ((low, 4), (high, wide - 3 - high.shape[1]), (middle, (wide - middle.shape[1]) // 2)):
        out[height + 14 : height + 14 + HEIGHT, at : at + letters.shape[1], :3][letters] = 0
    return out


def find_markers(view: View) -> list[float]:
    """Return the finite values that stand for missing elements. NaN and infinities always count as missing."""
    return [value for value in view.meaning.values.missing if is_finite(value)]


def spell_ends(ends: Sequence[Ends]) -> str:
    """Return the ends of all channels as text."""
    return "; ".join("none" if end is None else f"{end[0]:.9g} {end[1]:.9g}" for end in ends)


def spell_region(selection: Selection) -> str:
    """Return a selection in numpy's index syntax."""
    parts = []
    for pick in selection.picks:
        stop = pick.start + pick.length * pick.step
        parts.append(str(pick.start) if pick.dropped else f"{pick.start}:{'' if stop < 0 else stop}:{pick.step}")
    return f"[{','.join(parts)}]"
