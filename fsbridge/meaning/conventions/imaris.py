"""Imaris (`.ims`, an HDF5 file): `DataSetInfo` says where the elements of each level lie, and how channels are shown.

Attributes are lists of single letters. Arrays are padded to whole chunks: `ImageSizeX` and its like, of the group above,
say how many elements the extent of the image is divided into. Not here: times, which belong to no axis of an array.
"""

from __future__ import annotations

import re
from base64 import b64decode
from dataclasses import replace

from fsbridge.meaning import Attributes, Axes, Axis, Channel, Image, Meaning
from fsbridge.meaning.attributes import finite, text
from fsbridge.meaning.convention import Convention, Written, sensible, unknown
from fsbridge.meaning.units import fold
from fsbridge.metadata import JSON

_SIZES = ("ImageSizeZ", "ImageSizeY", "ImageSizeX")

_ARRAY = re.compile(r"DataSet([0-9]*)/ResolutionLevel [0-9]+/TimePoint [0-9]+/(Channel [0-9]+)/Data")
"""Path of an array in a file. Files with several images number them."""


def _array(written: Written, known: Meaning) -> Meaning:
    match = _ARRAY.fullmatch("/".join(written.names[-5:]))
    if match is None or written.rank != len(_SIZES) or not unknown(known.axes):
        return known
    information = (*written.names[:-5], f"DataSetInfo{match[1]}")
    image, channel = (written.distant((*information, name)) for name in ("Image", match[2]))
    axes = known.axes if image is None else _axes(image, written.groups[0])
    return replace(known, axes=axes, image=known.image or (None if channel is None else Image(None, (_channel(channel),))))


def _axes(image: Attributes, level: Attributes) -> Axes:
    """Return the axes of a level, which covers the image's extent. The extent begins at the corner of the first element."""
    axes, unit = [], fold(_text(image, "Unit"))
    for name, number, size in zip("zyx", "210", _SIZES, strict=True):
        ends = [_numbers(image, f"{end}{number}", 1) for end in ("ExtMin", "ExtMax")]
        count, axis = _numbers(level, size, 1), Axis(name, unit, kind="space")
        if ends[0] and ends[1] and count and count[0] > 0:
            scale = (ends[1][0] - ends[0][0]) / count[0]
            axis = axis._replace(scale=scale, offset=ends[0][0] + scale / 2)
        axes.append(axis)
    return sensible(tuple(axes))


def _channel(channel: Attributes) -> Channel:
    color = None if _text(channel, "ColorMode") == "TableColor" else _numbers(channel, "Color", 3)
    window = _numbers(channel, "ColorRange", 2)
    return Channel(
        text(_text(channel, "Name").strip()),
        (_part(color[0]), _part(color[1]), _part(color[2])) if color and all(0 <= part <= 1 for part in color) else None,
        (window[0], window[1]) if window and window[0] < window[1] else None,
    )


def _part(share: float) -> int:
    return round(255 * share)


def _numbers(attributes: Attributes, name: str, count: int) -> list[float] | None:
    """Return the finite numbers that the text of an attribute lists; None unless there are exactly `count`."""
    words = _text(attributes, name).split()
    try:
        values = [finite(float(word)) for word in words]
    except ValueError:
        return None
    numbers = [number for number in values if number is not None]
    return numbers if len(numbers) == len(words) == count else None


def _text(attributes: Attributes, name: str) -> str:
    """Return the text of an attribute; it is empty if there is none."""
    written = attributes.get(name)
    letters = [_bytes(letter) for letter in (written if isinstance(written, list) else [written])]
    content = b"".join(letter or b"" for letter in letters)
    if None in letters:
        return ""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode("latin-1")  # of a Windows program


def _bytes(letter: JSON) -> bytes | None:
    """Return the bytes of a letter. The HDF5 format writes bytes that are no text in base64."""
    encoded = letter.get("_BASE64") if isinstance(letter, dict) else None
    try:
        if isinstance(encoded, str):
            return b64decode(encoded, validate=True)
        return letter.encode() if isinstance(letter, str) else None
    except ValueError:
        return None


IMARIS = Convention("Imaris", _array, particular=frozenset(_SIZES))
