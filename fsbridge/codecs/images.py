"""Pictures and other data by imagecodecs: each codec is a class of `imagecodecs.numcodecs`.

The classes decode as they do for zarr-python: whatever picture results, its bytes are the chunk's.
Not here: the list (`table.py`), where stored data must end (`ends.py`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fsbridge.codecs import Buffer, Decoder
from fsbridge.codecs.ends import check_end
from fsbridge.errors import CorruptData, Unsupported

PREFIX = "imagecodecs_"

BEYOND = b"\xff" * 4
"""What a decoder of LZW reads as further codes, which are wrong or too many, unless the code of the end comes before."""

REGISTERED = {"jpeg": "jpeg", "jpegxl": "jpegxl", "jpeg2000": "jpeg2k"}
"""Codecs that Zarr v3 knows by names of their own, and imagecodecs' names."""


@dataclass(frozen=True, slots=True)
class Image(Decoder):
    """Decodes by one class of imagecodecs. `options`: its configuration, as JSON text; `shape`: the picture's, if known."""

    name: str
    codec: str
    options: str
    shape: tuple[int, ...] | None = None

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        raw = memoryview(data)  # never a copy: the child process knows what is around these bytes
        options = json.loads(self.options)
        try:
            made = getattr(library(), self.codec.capitalize()).from_config(options)
        except (TypeError, ValueError) as error:
            raise Unsupported(f"codec {self.name!r}: {error}") from None
        check_end(self.codec, raw, options)
        try:
            pixels = made.decode(raw)
            if self.codec == "lzw" and made.decode(bytes(raw) + BEYOND) != pixels:
                raise CorruptData("the LZW data have no end")
        except TypeError as error:  # the codec lacks a parameter, such as the header of LZO
            raise Unsupported(f"codec {self.name!r}: {error}") from None
        if self.shape is not None:
            pixels = np.asarray(pixels)
        if self.shape is not None and _without_ones(pixels.shape) != _without_ones(self.shape):
            raise CorruptData(f"a picture of {list(pixels.shape)} where {list(self.shape)} was expected")
        return np.ascontiguousarray(pixels).view(np.uint8).ravel().data if isinstance(pixels, np.ndarray) else pixels


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(extent for extent in shape if extent != 1)


def image(codec: str, values: Mapping[str, Any]) -> Decoder:
    """Return the decoder of a codec of imagecodecs, by its id."""
    options = {name: value for name, value in values.items() if name != "id"}
    return Image(codec, codec.removeprefix(PREFIX), json.dumps(options))


def registered(codec: str, stored: np.dtype[Any], shape: tuple[int, ...]) -> Decoder:
    """Return the decoder of one of Zarr v3's own codecs of pictures. What it decodes to says itself what it is."""
    if math.prod(shape) < 1 or stored.str[1:] not in (("u1",) if codec == "jpeg" else ("u1", "u2", "i2", "f2", "f4")):
        raise Unsupported(f"codec {codec!r} cannot hold chunks of {list(shape)} {stored}")
    options = {"keeporientation": True} if codec == "jpegxl" else {}
    return Image(codec, REGISTERED[codec], json.dumps(options), shape)


def library() -> Any:
    """Return `imagecodecs.numcodecs`."""
    from imagecodecs import numcodecs

    return numcodecs
