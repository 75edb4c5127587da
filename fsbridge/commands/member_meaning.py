"""What an array means as JSON values: axes with spacing and range, unit, missing and fill value, place, image.

Not here: how it is found out (`meaning/`), the words of the table (`member_table.py`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fsbridge.meaning import Axis, Meaning, Positions
from fsbridge.meaning.attributes import WORDS
from fsbridge.meaning.times import span
from fsbridge.metadata import JSON, ArrayMetadata


def list_facts(metadata: ArrayMetadata, meaning: Meaning) -> dict[str, Any]:
    """Return the fields of a row (`contents.Row`) that say what the array means. What is not known is left out."""
    values, system, image = meaning.values, meaning.system, meaning.image
    known = any(axis.name or axis.unit or axis.scale is not None for axis in meaning.axes)
    axes = [
        _describe_axis(axis, length, meaning.positions.get(number))
        for number, (axis, length) in enumerate(zip(meaning.axes, metadata.shape, strict=True))
    ]
    fields = {
        "axes": axes if known else None,
        "unit": values.unit,
        "missing": list(map(make_number, values.missing)) or None,
        "fill": _find_fill(metadata),
        "packing": None if values.packing is None else dict(zip(("factor", "offset"), values.packing, strict=True)),
        "place": None if system is None else {"epsg": system.code, "geographic": system.geographic},
        "image": None if image is None else {"name": image.name, "channels": [channel.label for channel in image.channels]},
    }
    return {name: value for name, value in fields.items() if value is not None}


def make_number(value: float) -> JSON:
    """Return a number as JSON can have it: if it is not finite, the word for it."""
    return value if math.isfinite(value) else next(word for word, known in WORDS.items() if repr(known) == repr(value))


def _find_fill(metadata: ArrayMetadata) -> JSON:
    """Return the value of elements in chunks that are not stored; None if there is none, or more than one."""
    fill, dtype = metadata.fill, metadata.dtype.numpy
    if not isinstance(fill, bytes):
        return fill
    if dtype is None or metadata.dtype.serializer != "bytes" or dtype.kind not in "biufcUS" or not dtype.itemsize:
        return None
    value = np.frombuffer(fill, dtype)[0]
    if dtype.kind in "cS":
        return str(value) if dtype.kind == "c" else value.decode("ascii", "backslashreplace")
    return make_number(float(value)) if dtype.kind == "f" else value.item()


def _describe_axis(axis: Axis, length: int, positions: Positions | None) -> dict[str, JSON]:
    """Return name and unit of an axis, with spacing and range if they are known; for dates also the calendar."""
    fields: dict[str, JSON] = {"name": axis.name, "unit": axis.unit}
    if positions is not None and len(positions) == length:
        ends = positions[[0, -1]].tolist() if length else []
    elif axis.scale is not None:
        fields["scale"] = axis.scale
        ends = [axis.offset, axis.offset + axis.scale * (length - 1)] if length else []
    else:
        return fields
    dates = span(axis, length, positions)
    if dates is None:
        return fields | dict(zip(("first", "last"), map(make_number, ends), strict=False))
    return fields | {name: text for name, text in dates._asdict().items() if text is not None}
