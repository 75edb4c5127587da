"""gzip and zlib. Not here: HDF5's numbering of filters (`hdf5.py`).

libdeflate decodes twice as fast as the standard library but wants the decoded size and one stream, and does not tell how
much it read; so it has the first word, and its result is taken when it is certain that the stream ends where the input
does. Everything else goes to the standard library, which also finds the reason when something is wrong.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import partial
from typing import Literal

import deflate

from fsbridge.codecs import native
from fsbridge.codecs.chain import Buffer, Decoder
from fsbridge.codecs.stream import Target, expand

GZIP_MAGIC = b"\x1f\x8b"
GZIP_LEAST_BYTES = 18
ZLIB_LEAST_BYTES = 8
MAX_WBITS = {"gzip": 31, "zlib": 15}


@dataclass(frozen=True, slots=True)
class Deflate:
    """RFC 1952 members one after the other, or one RFC 1950 stream; `either` looks at the first bytes."""

    name: str
    container: Literal["gzip", "zlib", "either"]

    def encoded_size(self, decoded: int) -> int | None:
        return None

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        container = self.container
        if container == "either":
            container = "gzip" if bytes(data[:2]) == GZIP_MAGIC else "zlib"
        if size and size < 1 << 32:
            fast = _gzip_fast(data, size) if container == "gzip" else _zlib_fast(data, size)
            if fast is not None:
                return fast
        start = partial(zlib.decompressobj, MAX_WBITS[container])
        return expand(start, (zlib.error,), data, Target(size, limit, out), many=container == "gzip")


def gzip() -> Decoder:
    """One or more gzip members (RFC 1952), each with its CRC-32 and length verified."""
    return Deflate("gzip", "gzip")


def zlib_stream() -> Decoder:
    """One zlib stream (RFC 1950), its Adler-32 verified."""
    return Deflate("zlib", "zlib")


def n5_gzip() -> Decoder:
    """N5's `gzip`: z5 ignores `useZlib`, so what the bytes say counts more than the attribute."""
    return Deflate("gzip", "either")


def _gzip_fast(data: Buffer, size: int) -> bytearray | None:
    """The content of exactly one gzip member of `size` decoded bytes; None when it is anything else."""
    if len(data) < GZIP_LEAST_BYTES or int.from_bytes(data[-4:], "little") != size:
        return None
    try:
        result = deflate.gzip_decompress(data, size)
    except (deflate.DeflateError, ValueError):
        return None
    trailer = deflate.crc32(result).to_bytes(4, "little") + size.to_bytes(4, "little")
    return result if len(result) == size and _ends_with_only(data, trailer) else None


def _zlib_fast(data: Buffer, size: int) -> bytearray | None:
    """The content of exactly one zlib stream of `size` decoded bytes; None when it is anything else."""
    if len(data) < ZLIB_LEAST_BYTES:
        return None
    try:
        result = deflate.zlib_decompress(data, size)
    except (deflate.DeflateError, ValueError):
        return None
    return result if len(result) == size and _ends_with_only(data, deflate.adler32(result).to_bytes(4, "big")) else None


def _ends_with_only(data: Buffer, trailer: bytes) -> bool:
    """Whether the stream that libdeflate decoded ends where `data` does.

    It verified that the stream ends with `trailer`; when these bytes occur nowhere but at the end, that is where it ends.
    """
    return native.find(data, trailer) == len(data) - len(trailer)
