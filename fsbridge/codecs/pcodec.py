"""pcodec (pco), the numcodecs codec `pcodec`: arrays of numbers. Not here: encoding; the library is the extra `codecs`.

The stored bytes are a standalone pco file: `pco!`, a header, chunks, and a zero byte at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fsbridge.codecs import native
from fsbridge.codecs.chain import Buffer, CodecAbilities, Decoder
from fsbridge.errors import CorruptData, Unsupported

MAGIC, END = b"pco!", b"\0"
KINDS = ("u2", "u4", "u8", "i2", "i4", "i8", "f2", "f4", "f8")
"""What numcodecs encodes, in numpy's spelling without the byte order."""


@dataclass(frozen=True, slots=True)
class PCodec(CodecAbilities):
    """Elements of `stored` in the processor's byte order, which is little-endian."""

    stored: np.dtype[Any]
    name: str = "pcodec"

    def encoded_size(self, decoded: int) -> int | None:
        return None

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        if size is None or size % self.stored.itemsize:
            raise CorruptData(f"no array of {self.stored} has {size} bytes")
        raw = bytes(data)
        if not raw.startswith(MAGIC) or not raw.endswith(END):
            raise CorruptData("no whole pco file")
        target = bytearray(size) if out is None else out
        # One element more, because the library stops where its target ends and does not say whether there was more.
        numbers = np.zeros(size // self.stored.itemsize + 1, self.stored)
        try:
            progress = native.pcodec().simple_decompress_into(raw, numbers)
        except (RuntimeError, TypeError, ValueError) as error:
            raise CorruptData(str(error)[:200]) from None
        except BaseException as error:  # a panic in Rust, which pyo3 does not make an Exception
            if type(error).__name__ != "PanicException":
                raise
            raise CorruptData(f"pco: {str(error)[:200]}") from None
        if progress.n_processed != len(numbers) - 1 or not progress.finished:
            raise CorruptData(f"{progress.n_processed} elements where {len(numbers) - 1} were expected")
        memoryview(target).cast("B")[:] = numbers[:-1].view(np.uint8).data
        return target


def pcodec(stored: np.dtype[Any]) -> Decoder:
    """Return the decoder of an array of `stored`. pco knows little-endian numbers of 2, 4 and 8 bytes."""
    if stored.str[0] == ">" or stored.str[1:] not in KINDS:
        raise Unsupported(f"codec 'pcodec' of elements of {stored}")
    native.pcodec()
    return PCodec(stored)
