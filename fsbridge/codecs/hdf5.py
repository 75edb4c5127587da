"""The filters that only HDF5 has, from their client data. Not here: their numbers and those of all others (`table.py`).

The parameters come from HDF5's `H5Z*.c` and the registered filters' own sources; all are checked against h5py and
hdf5plugin.

LZO1X (305), which PyTables wrote for many years, is decoded by `lzallright` (safe Rust) as long as there is input,
whatever size is expected, up to 255 bytes for each byte. So it only gets input that cannot grow large, from one thread at
a time.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from fsbridge.codecs import Buffer, Decoder, blosc, check_size, lz4, streams
from fsbridge.codecs.filters import PIECE_ELEMENTS, Verbatim, hdf5_shuffle
from fsbridge.codecs.streams import Output
from fsbridge.errors import CorruptData, Unsupported
from fsbridge.threads.forking import make_lock

ATOMIC, BIG_ENDIAN = 1, 1
INTEGER, FLOAT = 0, 1
FLOAT_DECIMAL, INTEGERS = 0, 2
SCALE_HEADER = struct.Struct("<IBQ")
SCALE_DATA = 21
SHUFFLED_HEADER = struct.Struct(">QI")
SHUFFLED_GROUP = 8
SHUFFLED_TARGET, SHUFFLED_LEAST = 8192, 128
NONE, LZ4, ZSTD = 0, 2, 3
BATCH_ELEMENTS = 1 << 20
"""Bytes that are bit-unshuffled at a time, because a copy of them is needed meanwhile."""
UNPACKED_PIECE = 1 << 13
"""Elements that are unpacked at a time (a multiple of 8), because one byte for each bit is needed meanwhile."""
LARGEST_CHUNK = 512 << 10
"""Most decoded bytes of an LZO chunk. PyTables' chunks have 8 to 512 KiB; a bomb of this size takes 140 MB for a moment."""

_turn = make_lock()


@dataclass(frozen=True, slots=True)
class NBit(Decoder):
    """Elements of which only `precision` bits are stored; they belong `offset` bits above the lowest (H5Znbit.c)."""

    itemsize: int
    big: bool
    precision: int
    offset: int
    count: int
    name: str = "nbit"

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        check_size(self.count * self.itemsize, size, limit)
        numbers = unpack(data, self.count, self.precision, self.itemsize) << np.array(self.offset, f"<u{self.itemsize}")
        ordered: bytes = numbers.astype(f"{'>' if self.big else '<'}u{self.itemsize}").tobytes()
        return ordered


@dataclass(frozen=True, slots=True)
class ScaleOffset(Decoder):
    """Numbers stored as their distance to the chunk's minimum, in as few bits as they need (H5Zscaleoffset.c).

    `fill`: the fill value as little-endian bytes; an element with all bits set stands for it. `decimals`: for floats, the
    power of ten by which the stored distances are divided.
    """

    itemsize: int
    big: bool
    count: int
    fill: bytes | None
    decimals: int | None
    name: str = "scaleoffset"

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        total = self.count * self.itemsize
        check_size(total, size, limit)
        view = memoryview(data).cast("B")
        if len(view) < SCALE_DATA:
            raise CorruptData(f"{len(view)} bytes are too few for the header")
        minbits, width, minimum = SCALE_HEADER.unpack_from(view)
        content = view[SCALE_DATA:]
        if minbits > 8 * self.itemsize or not width:
            raise CorruptData(f"an element of {self.itemsize} bytes cannot be stored in {minbits} bits")
        if width < 8:
            minimum &= (1 << 8 * width) - 1
        if minbits == 8 * self.itemsize:
            if len(content) != total:
                raise CorruptData(f"{len(content)} bytes where {total} were expected")
            return self._order(np.frombuffer(content, f"<u{self.itemsize}"))
        # With 0 bits a number there should be no bytes, but HDF5 writes one.
        packed = unpack(content, self.count, minbits, self.itemsize)
        missing = packed == packed.dtype.type((1 << minbits) - 1) if self.fill is not None else None
        values = self._integers(packed, minimum) if self.decimals is None else self._floats(packed, minimum)
        if missing is not None and self.fill is not None:
            values[missing] = np.frombuffer(self.fill, values.dtype)[0]
        return self._order(values)

    def _integers(self, packed: np.ndarray[Any, Any], minimum: int) -> np.ndarray[Any, Any]:
        """Return `minimum` plus each number. Sums wrap around, so signed and unsigned integers need no distinction."""
        sums: np.ndarray[Any, Any] = packed + packed.dtype.type(minimum & ((1 << 8 * self.itemsize) - 1))
        return sums

    def _floats(self, packed: np.ndarray[Any, Any], minimum: int) -> np.ndarray[Any, Any]:
        """Return floats in the arithmetic of the element type, as HDF5's macros compute them."""
        real = np.dtype(f"<f{self.itemsize}")
        least = np.frombuffer(minimum.to_bytes(8, "little")[: self.itemsize], real)[0]
        power = real.type(10.0 ** (self.decimals or 0))
        values = np.empty(len(packed), real)
        with np.errstate(all="ignore"):
            for start in range(0, len(packed), PIECE_ELEMENTS):
                piece = packed[start : start + PIECE_ELEMENTS].view(f"<i{self.itemsize}").astype(real)
                values[start : start + PIECE_ELEMENTS] = piece / power + least
        return values

    def _order(self, values: np.ndarray[Any, Any]) -> bytes:
        return values.astype(values.dtype.newbyteorder(">")).tobytes() if self.big else values.tobytes()


@dataclass(frozen=True, slots=True)
class BitShuffle(Decoder):
    """bitshuffle (H5Zbshuf 0.3 and later): blocks of `block` elements, each shuffled by itself and perhaps compressed."""

    element: int
    block: int
    compression: int

    @property
    def name(self) -> str:
        return {NONE: "bitshuffle", LZ4: "bitshuffle(lz4)", ZSTD: "bitshuffle(zstd)"}[self.compression]

    def encoded_size(self, decoded: int) -> int | None:
        return decoded if self.compression == NONE else None

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        block = self.block * self.element
        shuffled: Buffer = data
        if self.compression != NONE:
            shuffled, block = self._decompress(memoryview(data).cast("B"), size, limit)
        if len(shuffled) % self.element:
            raise CorruptData(f"{len(shuffled)} bytes are not a multiple of the element size of {self.element}")
        check_size(len(shuffled), size, limit)
        return bit_unshuffle(shuffled, self.element, block, out)

    def _decompress(self, view: memoryview, size: int | None, limit: int) -> tuple[Buffer, int]:
        """Return the shuffled bytes, and the bytes of a full block."""
        if len(view) < SHUFFLED_HEADER.size:
            raise CorruptData(f"{len(view)} bytes are too few for the header")
        total, block = SHUFFLED_HEADER.unpack_from(view)
        check_size(total, size, limit)
        group = SHUFFLED_GROUP * self.element
        if not block or block % group:
            raise CorruptData(f"blocks of {block} bytes cannot hold elements of {self.element} bytes")
        target = Output(total, limit, None)
        position = SHUFFLED_HEADER.size
        whole = total // group * group
        while target.used < whole:
            stored, position = lz4.hdf5_block(view, position)
            decoded = min(block, whole - target.used)
            target.add(lz4.decode_block(stored, decoded) if self.compression == LZ4 else _zstd_block(stored, decoded))
        if len(view) - position != total - whole:
            raise CorruptData(f"{len(view) - position} bytes where the last {total - whole} were expected")
        target.add(view[position:])
        return target.done(), block


@dataclass(frozen=True, slots=True)
class LZO(Decoder):
    """A raw LZO1X stream, which `library` decodes."""

    library: Any
    name: str = "lzo"

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        if size is None or size > LARGEST_CHUNK:
            raise Unsupported(f"LZO chunk of {size} bytes: only up to {LARGEST_CHUNK} are decoded")
        if len(data) > size + size // 16 + 67:  # the longest stream that LZO makes, from incompressible data
            raise CorruptData(f"an LZO stream of {len(data)} bytes is too long for {size} decoded bytes")
        with _turn:
            try:
                decoded = self.library.LZOCompressor().decompress(bytes(data), size)
            except (self.library.LZOError, self.library.InputNotConsumed) as error:
                raise CorruptData(f"LZO stream: {error}") from None
            if len(decoded) != size:
                raise CorruptData(f"LZO stream of {len(decoded)} bytes where {size} were expected")
        if out is None:
            return bytes(decoded)
        out[:] = decoded
        return out


def lzo() -> Decoder:
    """Return the decoder. Raises ImportError if the library is not installed."""
    import lzallright

    return LZO(lzallright)


def _zstd_block(stored: Buffer, decoded: int) -> Buffer:
    return streams.Zstd().decode(stored, decoded, decoded, None)


def shuffle(values: tuple[int, ...]) -> Decoder | None:
    """Parse the size of an element."""
    return hdf5_shuffle(values[0]) if values and values[0] > 0 else None


def nbit(values: tuple[int, ...]) -> Decoder | None:
    """Parse the filter's parameters; None if the elements are not of an atomic type, or the parameters make no sense.

    They are the number of parameters, a flag that the filter leaves the bytes as they are, the number of elements, the class
    of the type, and for an atomic type its size, byte order, precision and offset. For a compound, others follow the class.
    """
    if len(values) >= 3 and values[1]:
        return Verbatim("nbit")
    if len(values) < 8 or values[3] != ATOMIC:
        return None
    itemsize, order, precision, offset = values[4:8]
    if itemsize not in (1, 2, 4, 8) or not 0 < precision <= 8 * itemsize - offset:
        return None
    return NBit(itemsize, order == BIG_ENDIAN, precision, offset, values[2])


def scale_offset(values: tuple[int, ...]) -> Decoder | None:
    """Parse `scale type, factor, elements, class, size, signed, order, fill value defined, fill value...`."""
    if len(values) < 8:
        return None
    kind, factor, count, number, itemsize, _, order, defined = values[:8]
    factor -= (factor & 0x80000000) << 1
    if (kind, number) not in ((INTEGERS, INTEGER), (FLOAT_DECIMAL, FLOAT)) or itemsize not in (1, 2, 4, 8):
        return None
    if number == FLOAT and itemsize < 4:
        return None
    if number == INTEGER and factor == 8 * itemsize:
        return Verbatim("scaleoffset")
    fill = None
    if defined:
        fill = struct.pack(f"<{len(values) - 8}I", *(value & 0xFFFFFFFF for value in values[8:]))[:itemsize]
        if len(fill) != itemsize:
            return None
    return ScaleOffset(itemsize, order == BIG_ENDIAN, count, fill, factor if number == FLOAT else None)


def bitshuffle(values: tuple[int, ...]) -> Decoder | None:
    """Parse `major, minor, element size, block size in elements (0: default), compression, level`."""
    if len(values) < 3 or values[2] < 1:
        return None
    element = values[2]
    block = values[3] if len(values) > 3 else 0
    compression = values[4] if len(values) > 4 else NONE
    if compression not in (NONE, LZ4, ZSTD) or block % SHUFFLED_GROUP:
        return None
    default = max(SHUFFLED_TARGET // element // SHUFFLED_GROUP * SHUFFLED_GROUP, SHUFFLED_LEAST)
    return BitShuffle(element, block or default, compression)


def unpack(packed: Buffer, count: int, bits: int, itemsize: int) -> np.ndarray[Any, Any]:
    """Return packed numbers of `bits` bits each as little-endian unsigned integers of `itemsize` bytes.

    Numbers are packed from the most significant bit of a byte on. `packed` may have one byte more than needed, because HDF5
    counts a last byte even when it is empty (H5Znbit.c, H5Zscaleoffset.c).
    """
    needed = math.ceil(count * bits / 8)
    if len(packed) not in (needed, count * bits // 8 + 1):
        raise CorruptData(f"{count} numbers of {bits} bits take {needed} bytes, not {len(packed)}")
    result = np.zeros(count, f"<u{itemsize}")
    source = np.frombuffer(packed, "u1")
    for start in range(0, count, UNPACKED_PIECE) if bits else ():
        some = min(UNPACKED_PIECE, count - start)
        first = start * bits // 8
        field = np.zeros((some, 8 * itemsize), "u1")
        field[:, 8 * itemsize - bits :] = np.unpackbits(source[first:], count=some * bits).reshape(some, bits)
        result[start : start + some] = np.packbits(field).view(f">u{itemsize}")
    return result


def bit_unshuffle(shuffled: Buffer, element: int, block: int, out: memoryview | None) -> Buffer:
    """Undo bitshuffle (kiyo-masui) block by block. `block`: bytes of a full block, a multiple of 8 elements.

    A shorter block of whole groups of 8 elements follows the full ones, then up to 7 elements that are not shuffled.
    """
    view = memoryview(shuffled).cast("B")
    whole = len(view) // (8 * element) * 8 * element
    target = bytearray(len(view)) if out is None else out
    result = memoryview(target).cast("B")
    step = max(block, BATCH_ELEMENTS // block * block) if element <= blosc.MAX_TYPE_BYTES else block
    for start in range(0, whole, step):
        stop = min(start + step, whole)
        if element <= blosc.MAX_TYPE_BYTES:
            blosc.bit_unshuffle(view[start:stop], element, min(block, stop - start), result[start:stop])
        else:
            _unshuffle_wide(view[start:stop], element, result[start:stop])
    result[whole:] = view[whole:]
    return target


def _unshuffle_wide(block: memoryview, element: int, out: memoryview) -> None:
    """Unshuffle one block of elements too wide for Blosc: row `r` holds bit `r` of all elements, 8 elements a byte."""
    rows = np.frombuffer(block, "u1").reshape(8 * element, -1)
    bits = np.unpackbits(rows, axis=1, bitorder="little")
    np.frombuffer(out, "u1")[:] = np.packbits(bits.T.ravel(), bitorder="little")
