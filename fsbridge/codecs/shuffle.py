"""Byte shuffle: the bytes of all elements grouped by significance. Not here: shuffles inside Blosc, bit shuffle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fsbridge.codecs.chain import Buffer, CodecAbilities, Decoder
from fsbridge.errors import CorruptData, Unsupported

WIDE_BYTES = 256
"""Wider elements are copied one by one instead of byte plane by byte plane."""


@dataclass(frozen=True, slots=True)
class Shuffle(CodecAbilities):
    """Undoes the shuffle. `leftover`: bytes of no whole element follow unshuffled (HDF5); numcodecs refuses such lengths."""

    element: int
    leftover: bool
    name: str = "shuffle"

    def encoded_size(self, decoded: int) -> int | None:
        return decoded

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        if size is not None and len(data) != size:
            raise CorruptData(f"{len(data)} bytes where {size} were expected")
        if len(data) % self.element and not self.leftover:
            raise CorruptData(f"{len(data)} bytes are no whole elements of {self.element}")
        count = len(data) // self.element
        if self.element == 1 or count <= 1:
            return data
        target = bytearray(len(data)) if out is None else out
        source = np.frombuffer(data, "u1")
        result = np.frombuffer(target, "u1")
        whole = count * self.element
        planes = source[:whole].reshape(self.element, count)
        elements = result[:whole].reshape(count, self.element)
        # Plane by plane is five times faster than one transposed copy, unless there are few elements and many planes. For
        # elements of two bytes, arithmetic is twice as fast again.
        if self.element == 2:
            pairs = result[:whole].view("<u2")
            np.left_shift(planes[1], 8, out=pairs, dtype="<u2")
            pairs |= planes[0]
        elif self.element <= WIDE_BYTES:
            for i in range(self.element):
                elements[:, i] = planes[i]
        else:
            np.copyto(elements, planes.T)
        result[whole:] = source[whole:]
        return target


def shuffle(element: int = 4) -> Decoder:
    """Return the decoder of numcodecs' `shuffle` (its default element size is 4; 1 and 0 mean none)."""
    return Shuffle(_element(element), leftover=False)


def hdf5_shuffle(element: int) -> Decoder:
    """Return the decoder of HDF5 filter 2."""
    return Shuffle(_element(element), leftover=True)


def _element(element: int) -> int:
    if not 0 <= element < 1 << 31:
        raise Unsupported(f"shuffle of elements of {element} bytes")
    return max(element, 1)
