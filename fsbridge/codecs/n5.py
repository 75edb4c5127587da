"""N5's blocks: the header before every stored block, and whole blocks of fixed-size elements (Zarr v3's `n5_default`).

Source: N5's specification and its Java writer (n5 2.5 to 4.0). All numbers are big-endian:

    mode 0 (default):    00 00 | u16 nDim | nDim x u32 size | payload
    mode 1 (varlength):  00 01 | u16 nDim | nDim x u32 size | u32 numElements | payload
    mode 2 (object):     00 02 |                              u32 numElements | payload

The specification shows dimensions for mode 2, but the Java code has never written any. `numElements` counts bytes for the
data types `string` and `object`, else elements. Not here: the chunks of N5 arrays (`formats/n5/blocks.py`), N5's
compressions (`table.py`).
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

import numpy as np

from fsbridge.codecs import Buffer, CodecChain, Decoder, check_size
from fsbridge.errors import CorruptData

DEFAULT, VARLENGTH, OBJECT = 0, 1, 2

_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Block:
    """A parsed header. `sizes`: extents, first dimension first (None in mode 2); `payload`: where the payload begins."""

    mode: int
    sizes: tuple[int, ...] | None
    elements: int
    payload: int

    @property
    def regular(self) -> bool:
        """True if the header's number of elements agrees with its sizes."""
        return self.sizes is not None and self.elements == math.prod(self.sizes)


def header_size(rank: int) -> int:
    """Return the bytes of the longest header of a block with `rank` dimensions."""
    return 8 + 4 * rank


def parse_header(data: Buffer, rank: int) -> Block:
    """Read the header at the beginning of `data`. Raises CorruptData for a cut header, an unknown mode or another rank."""
    position = _U16.size
    mode = _field(_U16, data, 0)
    if mode not in (DEFAULT, VARLENGTH, OBJECT):
        raise CorruptData(f"N5 block of unknown mode {mode}")
    sizes: tuple[int, ...] | None = None
    if mode != OBJECT:
        dimensions = _field(_U16, data, position)
        if dimensions != rank:
            raise CorruptData(f"N5 block of {dimensions} dimensions in an array of {rank}")
        position += _U16.size
        sizes = tuple(_field(_U32, data, position + 4 * dimension) for dimension in range(rank))
        position += 4 * rank
        if mode == DEFAULT:
            return Block(mode, sizes, math.prod(sizes), position)
    return Block(mode, sizes, _field(_U32, data, position), position + _U32.size)


def put_at_origin(payload: Buffer, sizes: tuple[int, ...], full: tuple[int, ...], itemsize: int, out: memoryview) -> None:
    """Put a smaller block at the origin of a full one and zero the rest, as TensorStore and zarr-python place it.

    `sizes` and `full` are extents with the first dimension fastest; `out` has the bytes of the full block.
    """
    # Whole elements if the processor has them, because a copy by bytes is several times slower.
    unit = f"u{itemsize}" if itemsize in (1, 2, 4, 8) else "u1"
    tail = (itemsize // np.dtype(unit).itemsize,)
    target = np.frombuffer(out, unit).reshape(full[::-1] + tail)
    target[...] = 0
    target[tuple(slice(size) for size in reversed(sizes))] = np.frombuffer(payload, unit).reshape(sizes[::-1] + tail)


@dataclass(frozen=True, slots=True)
class DefaultBlock(Decoder):
    """Decodes a block with its header to a full one of `full` elements, first dimension fastest.

    A smaller block is put at the origin of a full one. `payload` decodes the bytes after the header.
    """

    full: tuple[int, ...]
    itemsize: int
    payload: CodecChain
    name: str = "n5_default"

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        block = parse_header(data, len(self.full))
        if block.mode != DEFAULT or block.sizes is None:
            raise CorruptData(f"N5 block of mode {block.mode}")
        if any(map(int.__gt__, block.sizes, self.full)):
            raise CorruptData(f"N5 block of {list(block.sizes)} elements where a chunk has {list(self.full)}")
        decoded = self.payload.decode(memoryview(data).cast("B")[block.payload :], block.elements * self.itemsize, limit)
        if block.sizes == self.full:
            return decoded
        total = math.prod(self.full) * self.itemsize
        check_size(total, size, limit)
        target = bytearray(total) if out is None else out
        put_at_origin(decoded, block.sizes, self.full, self.itemsize, memoryview(target))
        return target


def _field(form: struct.Struct, data: Buffer, position: int) -> int:
    if position + form.size > len(data):
        raise CorruptData(f"{len(data)} bytes are too few for the header of an N5 block")
    value: int = form.unpack_from(data, position)[0]
    return value
