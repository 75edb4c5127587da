"""LZ4 blocks in their wrappings: numcodecs, N5's three dialects, HDF5's filter 32004. Not here: LZ4 frames.

numcodecs' decoder is the only one used. It wants `u32 LE decoded size` before a block and checks it against the target.
LZ4 itself checks that the block ends exactly there.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar

import xxhash

from fsbridge.codecs import Buffer, Decoder, Overflow, native
from fsbridge.codecs.streams import Output
from fsbridge.errors import CorruptData

MAX_BYTES = 0x7E000000
"""LZ4_MAX_INPUT_SIZE."""
U32 = struct.Struct("<I")

JAVA_MAGIC = b"LZ4Block"
JAVA_HEADER = struct.Struct("<8sBIII")
JAVA_STORED, JAVA_COMPRESSED = 0x10, 0x20

HDF5_HEADER = struct.Struct(">QI")
HDF5_LENGTH = struct.Struct(">I")


def decode_block(block: Buffer, size: int, out: memoryview | None = None) -> Buffer:
    """Decode one bare LZ4 block of exactly `size` decoded bytes. Raises CorruptData if it has another size."""
    if not size:
        if bytes(block) not in (b"", b"\0"):
            raise CorruptData(f"an LZ4 block of {len(block)} bytes where an empty one was expected")
        return b""
    if size > MAX_BYTES or len(block) > MAX_BYTES:
        raise CorruptData(f"LZ4 block of {size} bytes, the limit is {MAX_BYTES}")
    target = bytearray(size) if out is None else out
    try:
        native.lz4().decompress(b"".join((U32.pack(size), block)), target)
    except (RuntimeError, ValueError) as error:
        raise CorruptData(str(error)) from None
    return target


def hdf5_block(view: memoryview, position: int) -> tuple[memoryview, int]:
    """Return the block of an HDF5 filter that begins with its length at `position`, and the position behind it."""
    start = position + HDF5_LENGTH.size
    if start <= len(view):
        (length,) = HDF5_LENGTH.unpack_from(view, position)
        if start + length <= len(view):
            return view[start : start + length], start + length
    raise CorruptData("the compressed data ends early")


@dataclass(frozen=True, slots=True)
class Lz4(Decoder):
    """Decodes numcodecs' LZ4: `u32 LE decoded size`, one LZ4 block."""

    name: str = "lz4"
    direct: ClassVar[bool] = True

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        if len(data) < U32.size:
            raise CorruptData(f"{len(data)} bytes are too few for an LZ4 header")
        (declared,) = U32.unpack_from(data)
        if size is not None and declared != size:
            raise CorruptData(f"the LZ4 header says {declared} bytes, not {size}")
        if limit < declared <= MAX_BYTES:
            raise Overflow(f"the LZ4 header says {declared} bytes, the limit is {limit}")
        return decode_block(memoryview(data)[U32.size :], declared, out)


@dataclass(frozen=True, slots=True)
class N5Lz4(Decoder):
    """Decodes N5's `lz4`. The bytes tell the dialect: lz4-java's stream, numcodecs (zarr-python 2), a bare block (z5)."""

    name: str = "lz4"
    direct: ClassVar[bool] = True

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        if bytes(data[:8]) == JAVA_MAGIC:
            return _decode_java(memoryview(data), Output(size, limit, out))
        if size is None:
            return Lz4().decode(data, size, limit, out)
        if len(data) >= U32.size and U32.unpack_from(data)[0] == size:
            try:
                return Lz4().decode(data, size, limit, out)
            except CorruptData:
                pass
        return decode_block(data, size, out)


@dataclass(frozen=True, slots=True)
class Hdf5Lz4(Decoder):
    """Decodes HDF5 filter 32004: `u64 BE decoded size, u32 BE block size`, then blocks of `u32 BE length` and bytes.

    The bytes of a block are LZ4, or verbatim if there are as many of them as decoded ones.
    """

    name: str = "lz4"
    direct: ClassVar[bool] = True

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        view = memoryview(data)
        if len(view) < HDF5_HEADER.size:
            raise CorruptData(f"{len(view)} bytes are too few for an LZ4 header")
        total, block = HDF5_HEADER.unpack_from(view)
        cap = limit if size is None else size
        if total > cap or (size is not None and total != size):
            raise CorruptData(f"the LZ4 header says {total} bytes, not {cap}")
        if total and not block:
            raise CorruptData("LZ4 blocks of 0 bytes")
        target = Output(total, limit, out)
        position = HDF5_HEADER.size
        while target.used < total:
            stored, position = hdf5_block(view, position)
            decoded = min(block, total - target.used)
            target.add(stored if len(stored) == decoded else decode_block(stored, decoded))
        if position != len(view):
            raise CorruptData(f"{len(view) - position} bytes after the end of the compressed data")
        return target.done()


def _decode_java(view: memoryview, target: Output) -> Buffer:
    """Decode lz4-java's LZ4BlockOutputStream.

    Its blocks are `magic, token, u32 LE stored, u32 LE decoded, u32 LE checksum, bytes`. The checksum is XXH32 cut to 28
    bits (lz4-java's `StreamingXXHash32.asChecksum`). An empty block is the required end.
    """
    position = 0
    while True:
        if position + JAVA_HEADER.size > len(view):
            raise CorruptData("the compressed data ends before its end mark")
        magic, token, stored, decoded, checksum = JAVA_HEADER.unpack_from(view, position)
        position += JAVA_HEADER.size
        method, largest = token & 0xF0, 1 << 10 + (token & 0x0F)
        if magic != JAVA_MAGIC or method not in (JAVA_STORED, JAVA_COMPRESSED):
            raise CorruptData(f"no LZ4 block at byte {position - JAVA_HEADER.size}")
        if decoded > largest or (not decoded) != (not stored) or (method == JAVA_STORED and stored != decoded):
            raise CorruptData(f"impossible LZ4 block: {stored} bytes for {decoded}")
        if not decoded:
            break
        if position + stored > len(view):
            raise CorruptData("the compressed data ends early")
        if target.used + decoded > target.cap:
            raise Overflow(f"decodes to more than {target.cap} bytes")
        block: Buffer = view[position : position + stored]
        position += stored
        if method == JAVA_COMPRESSED:
            block = decode_block(block, decoded)
        if xxhash.xxh32_intdigest(block, 0x9747B28C) & 0x0FFFFFFF != checksum:
            raise CorruptData("wrong checksum of an LZ4 block")
        target.add(block)
    if checksum or position != len(view):
        raise CorruptData(f"{len(view) - position} bytes after the end mark")
    return target.done()
