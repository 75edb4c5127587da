"""Zarr v3's `packbits` (zarr-extensions): elements of a few bits, without gaps. Not here: numcodecs' (`filters.py`).

The specification does not say in which order bits fill a byte. zarrs (zarrs-python 0.2.3), the one writer we know, begins
with the least significant bit whatever the padding, so this is not numcodecs' layout.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fsbridge.codecs.chain import Buffer, CodecAbilities, Decoder
from fsbridge.errors import CorruptData, Unsupported

Octets = npt.NDArray[np.uint8]

PIECE_ELEMENTS = 1 << 14
"""Numbers unpacked at a time: a multiple of 8, so that pieces begin at whole bytes."""

PADDINGS = ("none", "first_byte", "last_byte")


@dataclass(frozen=True, slots=True)
class PackedBits(CodecAbilities):
    """Numbers of `width` bytes with only the bits [first, first + bits) stored; `signed` numbers are sign-extended."""

    width: int
    first: int
    bits: int
    signed: bool
    padding: str
    name: str = "packbits"

    def encoded_size(self, decoded: int) -> int | None:
        return -(-(decoded // self.width * self.bits) // 8) + (self.padding != "none")

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        if size is None or size % self.width or self.encoded_size(size) != len(data):
            raise CorruptData(f"{len(data)} bytes are not {size} bytes packed to {self.bits} bits of {8 * self.width}")
        packed = np.frombuffer(data, np.uint8)
        count = size // self.width
        if self.padding != "none":
            unused = int(packed[0] if self.padding == "first_byte" else packed[-1])
            if unused != -(count * self.bits) % 8:
                raise CorruptData(f"{unused} unused bits announced where {-(count * self.bits) % 8} are")
            packed = packed[1:] if self.padding == "first_byte" else packed[:-1]
        target = bytearray(size) if out is None else out
        result = np.frombuffer(target, np.uint8).reshape(count, self.width)
        for start in range(0, count, PIECE_ELEMENTS):
            some = min(PIECE_ELEMENTS, count - start)
            stored = packed[start * self.bits // 8 : -(-(start + some) * self.bits // 8)]
            result[start : start + some] = self._unpack(stored, some)
        return target

    def _unpack(self, stored: Octets, count: int) -> Octets:
        some = np.unpackbits(stored, count=count * self.bits, bitorder="little").reshape(count, self.bits)
        whole = np.zeros((count, 8 * self.width), np.uint8)
        whole[:, self.first : self.first + self.bits] = some
        if self.signed:
            whole[:, self.first + self.bits :] = some[:, -1:]
        return np.packbits(whole, axis=1, bitorder="little")


def packed_bits(width: int, bits: int, signed: bool, first: int | None, last: int | None, padding: str) -> Decoder:
    """Return the decoder of numbers with `bits` meaningful bits in `width` bytes.

    Only the bits `first` to `last` are stored; None: all.
    """
    low = 0 if first is None else first
    high = bits - 1 if last is None else last
    if not 0 <= low <= high < bits or padding not in PADDINGS:
        raise Unsupported(f"packbits from bit {low} to {high} of {bits} with padding {padding!r}")
    return PackedBits(width, low, high - low + 1, signed, padding)
