"""Elements that may be missing: zarrs' `optional` codec. Not here: how the two parts are encoded.

The format is `u64 LE length of the mask, u64 LE length of the data, mask, data`. The mask has a bool for each element,
the data only the present elements, one after the other.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

import numpy as np

from fsbridge.codecs.chain import Buffer, CodecAbilities, CodecChain, Decoder
from fsbridge.errors import CorruptData, TooLarge

HEADER = struct.Struct("<QQ")
U32 = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Optional(CodecAbilities):
    """Decodes both parts and keeps the format: one byte an element in the mask, `itemsize` bytes an element in the data.

    `items`: elements of a chunk, None if they differ. `itemsize` is 0 for elements of variable length.
    """

    items: int | None
    mask: CodecChain
    data: CodecChain
    itemsize: int
    name: str = "optional"

    def encoded_size(self, decoded: int) -> int | None:
        return None

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        view = memoryview(data).cast("B")
        if len(view) < HEADER.size:
            raise CorruptData(f"{len(view)} bytes where two lengths were expected")
        masked, stored = HEADER.unpack_from(view)
        if HEADER.size + masked + stored != len(view):
            raise CorruptData(f"lengths of {masked} and {stored} bytes in {len(view)}")
        if self.items is not None and self.items > limit:
            raise TooLarge(f"a mask of {self.items} elements, the limit is {limit} bytes")
        middle = HEADER.size + masked
        mask = bytes(self.mask.decode(view[HEADER.size : middle], self.items, limit))
        if mask.count(0) + mask.count(1) != len(mask):
            raise CorruptData("a mask that holds something else than 0 and 1")
        present = int(np.count_nonzero(np.frombuffer(mask, np.uint8)))
        elements = self._elements(view[middle:], present, limit)
        if HEADER.size + len(mask) + len(elements) > limit:
            raise TooLarge(f"{HEADER.size + len(mask) + len(elements)} bytes, the limit is {limit}")
        return b"".join((HEADER.pack(len(mask), len(elements)), mask, elements))

    def _elements(self, view: memoryview, present: int, limit: int) -> bytes:
        """Return the decoded data of `present` elements. If none is present, nothing may be stored."""
        if not present and not len(view):
            return b""
        last = self.data.steps[-1] if self.data.steps else None
        if isinstance(last, Optional):  # its mask has `present` elements
            chain = CodecChain((*self.data.steps[:-1], replace(last, items=present)))
            return bytes(chain.decode(view, None, limit))
        found = bytes(self.data.decode(view, present * self.itemsize if self.itemsize else None, limit))
        if not self.itemsize and U32.unpack_from(found)[0] != present:
            raise CorruptData(f"{U32.unpack_from(found)[0]} elements where the mask has {present}")
        return found


def optional(items: int | None, mask: CodecChain, data: CodecChain, itemsize: int) -> Decoder:
    """Return the decoder of elements that may be missing, `itemsize` bytes each (0: of variable length)."""
    return Optional(items, mask, data, itemsize)
