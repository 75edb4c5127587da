"""LZO1X, which PyTables wrote into HDF5 files for many years (filter 305). Not here: whether the library is installed.

The library (`lzallright`, safe Rust) decodes as long as there is input, whatever size is expected, up to 255 bytes for
each byte. So it only gets input that cannot grow large, from one thread at a time.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from fsbridge.codecs import native
from fsbridge.codecs.chain import Buffer, CodecAbilities, Decoder
from fsbridge.errors import CorruptData, Unsupported

LARGEST_CHUNK = 512 << 10
"""Most decoded bytes. PyTables' chunks have 8 to 512 KiB; a bomb of this size takes 140 MB for a moment."""

_turn = threading.Lock()


@dataclass(frozen=True, slots=True)
class LZO(CodecAbilities):
    """A raw LZO1X stream."""

    name: str = "lzo"

    def encoded_size(self, decoded: int) -> int | None:
        return None

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        if size is None or size > LARGEST_CHUNK:
            raise Unsupported(f"LZO chunk of {size} bytes: only up to {LARGEST_CHUNK} are decoded")
        if len(data) > size + size // 16 + 67:  # the longest stream that LZO makes, from incompressible data
            raise CorruptData(f"LZO stream of {len(data)} bytes for {size}")
        library = native.lzo()
        with _turn:
            try:
                found = library.LZOCompressor().decompress(bytes(data), size)
            except (library.LZOError, library.InputNotConsumed) as error:
                raise CorruptData(f"LZO stream: {error}") from None
            if len(found) != size:
                raise CorruptData(f"LZO stream of {len(found)} bytes where {size} were expected")
        if out is None:
            return bytes(found)
        out[:] = found
        return out


def lzo() -> Decoder:
    """Return the decoder. Raises Unsupported, with the command that helps, if the library is not installed."""
    native.lzo()
    return LZO()
