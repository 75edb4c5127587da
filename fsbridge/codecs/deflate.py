"""gzip and zlib. Not here: HDF5's numbers of filters (`hdf5.py`).

libdeflate decodes twice as fast as the standard library, but only one whole stream of known decoded size, so it is tried
first. Everything else goes to the standard library, which also finds the reason if something is wrong.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np

from fsbridge.codecs import native
from fsbridge.codecs.chain import Buffer, CodecAbilities, Decoder
from fsbridge.codecs.stream import Output, expand

GZIP_MAGIC = b"\x1f\x8b"
MAX_WBITS = {"gzip": 31, "zlib": 15}


@dataclass(frozen=True, slots=True)
class Deflate(CodecAbilities):
    """RFC 1952 members one after the other, or one RFC 1950 stream; `either` decides by the first bytes."""

    name: str
    container: Literal["gzip", "zlib", "either"]
    direct: ClassVar[bool] = True

    def encoded_size(self, decoded: int) -> int | None:
        return None

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        container = self.container
        if container == "either":
            container = "gzip" if bytes(data[:2]) == GZIP_MAGIC else "zlib"
        if size:
            target = np.empty(size, np.uint8).data if out is None else out
            if native.inflate(container, data, target):
                return target
        start = partial(zlib.decompressobj, MAX_WBITS[container])
        return expand(start, (zlib.error,), data, Output(size, limit, out), many=container == "gzip")


def gzip() -> Decoder:
    """Return the decoder of one or more gzip members (RFC 1952), whose CRC-32 and length are verified."""
    return Deflate("gzip", "gzip")


def zlib_stream() -> Decoder:
    """Return the decoder of one zlib stream (RFC 1950), whose Adler-32 is verified."""
    return Deflate("zlib", "zlib")


def n5_gzip() -> Decoder:
    """Return the decoder of N5's `gzip`. z5 ignores `useZlib`, so the bytes decide and not the attribute."""
    return Deflate("gzip", "either")
