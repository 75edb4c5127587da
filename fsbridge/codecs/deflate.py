"""gzip and zlib. Not here: HDF5's numbering of filters (`hdf5.py`).

libdeflate decodes twice as fast as the standard library, but only one whole stream of known decoded size; so it has the
first word. Everything else goes to the standard library, which also finds the reason when something is wrong.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np

from fsbridge.codecs import native
from fsbridge.codecs.chain import Buffer, Decoder
from fsbridge.codecs.stream import Target, expand

GZIP_MAGIC = b"\x1f\x8b"
MAX_WBITS = {"gzip": 31, "zlib": 15}


@dataclass(frozen=True, slots=True)
class Deflate:
    """RFC 1952 members one after the other, or one RFC 1950 stream; `either` looks at the first bytes."""

    name: str
    container: Literal["gzip", "zlib", "either"]
    direct: ClassVar[Literal[True]] = True

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
