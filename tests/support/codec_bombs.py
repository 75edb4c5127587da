"""Small chunks that claim or hold 64 MiB, by codec. Made where they are used: in the process that decodes them."""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
import sys
import zlib
from collections.abc import Callable
from typing import Any

from fsbridge.codecs import Decoder, blosc, filters, lz4, objects, streams, table

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdCompressor
else:
    from backports.zstd import ZstdCompressor

HUGE = 64 << 20
PIECE = bytes(1 << 20)


def _pieces(compressor: Any, *, flush: bool = True) -> bytes:
    """64 MiB of zeros through a compressor object, without holding them."""
    parts = [compressor.compress(PIECE) for _ in range(HUGE // len(PIECE))]
    return b"".join([*parts, compressor.flush()])


def _lz4_zeros(size: int) -> bytes:
    """One LZ4 block of zeros, by the format's own rules: a literal, one long match, five last literals."""
    match = size - 1 - 5 - 4
    return b"\x1f\0\x01\0" + b"\xff" * ((match - 15) // 255) + bytes([(match - 15) % 255]) + b"\x50" + bytes(5)


def _filter(number: int, *values: int) -> Decoder:
    decoder = table.filter_decoder(number, values)
    assert decoder is not None
    return decoder


def _java() -> bytes:
    block = _lz4_zeros(1 << 25)
    header = b"LZ4Block" + struct.pack("<BIII", 0x2F, len(block), 1 << 25, 0)
    return (header + block) * 2 + b"LZ4Block" + struct.pack("<BIII", 0x1F, 0, 0, 0)


def _hdf5_lz4() -> bytes:
    block = _lz4_zeros(HUGE)
    return struct.pack(">QII", 1 << 20, HUGE, len(block)) + block


BOMBS: dict[str, Callable[[], tuple[Decoder, bytes]]] = {
    "gzip": lambda: (streams.Deflate("gzip", "gzip"), _pieces(zlib.compressobj(9, zlib.DEFLATED, 31))),
    "gzip members": lambda: (streams.Deflate("gzip", "gzip"), gzip.compress(PIECE) * 64),
    "zlib": lambda: (streams.Deflate("zlib", "zlib"), _pieces(zlib.compressobj(9))),
    "bz2": lambda: (streams.Bz2(), bz2.compress(PIECE) * 64),
    "xz": lambda: (streams.Lzma("xz", 1), _pieces(lzma.LZMACompressor(preset=0))),
    "lzma alone": lambda: (streams.lzma_stream(2), _pieces(lzma.LZMACompressor(lzma.FORMAT_ALONE, preset=0))),
    "zstd": lambda: (streams.Zstd(), bytes.fromhex("28b52ffda0") + struct.pack("<I", HUGE) + b"\x03\x00\x80\0" * 4),
    "zstd unknown size": lambda: (streams.Zstd(), _pieces(ZstdCompressor())),
    "zstd frames": lambda: (streams.Zstd(), ZstdCompressor().compress(PIECE, ZstdCompressor.FLUSH_FRAME) * 64),
    "lz4": lambda: (lz4.Lz4(), struct.pack("<I", HUGE) + _lz4_zeros(HUGE)),
    "java lz4": lambda: (lz4.N5Lz4(), _java()),
    "blosc": lambda: (blosc.Blosc(), struct.pack("<BBBBIIII", 2, 1, 0x33, 1, HUGE, HUGE, 28, 20) + bytes(8)),
    "hdf5 lz4": lambda: (table.filter_decoder(32004, ()) or lz4.Lz4(), _hdf5_lz4()),
    "hdf5 bitshuffle": lambda: (_filter(32008, 0, 3, 1, 0, 2), struct.pack(">QII", HUGE, HUGE, 5) + bytes(5)),
    "packbits": lambda: (filters.PackBits(), bytes(HUGE // 8 + 1)),
    "json2": lambda: (objects.json2(), b'["' + b"x" * HUGE + b'","|O",[1]]'),
}
