"""pcodec (pco) and zfpy (zfp): arrays of numbers, by the libraries of the extra `codecs`. Not here: encoding.

A standalone pco file is `pco!`, a header, chunks, and a zero byte at the end.

A zfp stream begins with zfp's own header: type, shape and mode. The library reads beyond its input if the stream is
shorter than the header promises. So it gets a copy with room for the longest stream that the header allows, and decodes
it twice, with different bytes in that room: only a stream that ends where it should gives the same numbers twice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fsbridge.codecs import Buffer, Decoder
from fsbridge.errors import CorruptData, Unsupported

PCO_MAGIC, PCO_END = b"pco!", b"\0"
PCO_KINDS = ("u2", "u4", "u8", "i2", "i4", "i8", "f2", "f4", "f8")
"""What numcodecs encodes, in numpy's spelling without the byte order."""


@dataclass(frozen=True, slots=True)
class PCodec(Decoder):
    """Elements of `stored` in the processor's byte order, which is little-endian. `library`: `pcodec.standalone`."""

    stored: np.dtype[Any]
    library: Any
    name: str = "pcodec"

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        if size is None or size % self.stored.itemsize:
            raise CorruptData(f"an array of {self.stored} cannot have {size} bytes")
        raw = bytes(data)
        if not raw.startswith(PCO_MAGIC) or not raw.endswith(PCO_END):
            raise CorruptData("the pco data has no start or no end mark")
        target = bytearray(size) if out is None else out
        # One element more, because the library stops where its target ends and does not say whether there was more.
        numbers = np.zeros(size // self.stored.itemsize + 1, self.stored)
        try:
            progress = self.library.simple_decompress_into(raw, numbers)
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
    """Return the decoder of an array of `stored`. pco knows little-endian numbers of 2, 4 and 8 bytes.

    Raises ImportError if the library is not installed.
    """
    if stored.str[0] == ">" or stored.str[1:] not in PCO_KINDS:
        raise Unsupported(f"codec 'pcodec' cannot hold elements of {stored}")
    from pcodec import standalone

    return PCodec(stored, standalone)


HEADER_BYTES = 24
"""Bytes that are enough for zfp's header, which has at most 148 bits."""

ZFP_KINDS = ("i4", "i8", "f4", "f8")
"""The types of zfp, in numpy's spelling without the byte order."""


FACTOR, ROOM = 4, 1 << 20
"""The longest stream that is tried: `FACTOR` times the decoded bytes, plus `ROOM` bytes. Real ones are hardly larger."""


@dataclass(frozen=True, slots=True)
class ZFP(Decoder):
    """Decodes zfp streams to elements of `stored` in the processor's byte order, which is little-endian."""

    stored: np.dtype[Any]
    library: Any
    name: str = "zfpy"

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        if size is None:
            raise CorruptData("the size of the chunk is not known")
        first = self._decompress(data, size, 0)
        if not np.array_equal(first.view(np.uint8), self._decompress(data, size, 0xFF).view(np.uint8)):
            raise CorruptData("the zfp stream ends too early")
        target = bytearray(size) if out is None else out
        memoryview(target).cast("B")[:] = first.view(np.uint8).data
        return target

    def _decompress(self, data: Buffer, size: int, padding: int) -> np.ndarray[Any, Any]:
        """Return the numbers, flat, of a stream that is followed by bytes of `padding`."""
        needed = self._longest(data, size)
        padded = np.full(max(needed, len(data)) + HEADER_BYTES, padding, np.uint8)
        padded[: len(data)] = np.frombuffer(data, np.uint8)
        try:
            found = self.library.decompress_numpy(padded)
        except (RuntimeError, ValueError, TypeError) as error:
            raise CorruptData(str(error)[:200]) from None
        flat: np.ndarray[Any, Any] = np.ascontiguousarray(found).ravel()
        if flat.dtype != self.stored or flat.nbytes != size:
            raise CorruptData(f"{flat.nbytes} bytes of {flat.dtype} where {size} of {self.stored} were expected")
        return flat

    def _longest(self, data: Buffer, size: int) -> int:
        """Return the bytes of the longest stream that the header allows.

        Raises CorruptData if it describes another array.
        """
        if len(data) < HEADER_BYTES // 2:
            raise CorruptData(f"{len(data)} bytes are too few for a zfp stream")
        try:
            header = self.library.header(bytes(data[: 2 * HEADER_BYTES]).ljust(2 * HEADER_BYTES, b"\0"))
        except (RuntimeError, ValueError, TypeError, KeyError) as error:
            raise CorruptData(f"damaged zfp header: {str(error)[:200]}") from None
        shape = [extent for name in ("nx", "ny", "nz", "nw") if (extent := header[name])]
        if header["type"] is not self.stored.type or math.prod(shape) * self.stored.itemsize != size or not shape:
            raise CorruptData(f"a zfp array of {header['type']} {shape} where {size} bytes of {self.stored} were expected")
        # Bits of a block beside those of its values: an exponent of at most 11 bits, a number of planes, the mode.
        bits = max(4 ** len(shape) * (8 * self.stored.itemsize + 1) + 32, header["config"]["expert"]["minbits"])
        longest: int = -(-math.prod(-(-extent // 4) for extent in shape) * bits // 8) + HEADER_BYTES
        if longest > FACTOR * size + ROOM:
            raise Unsupported(f"the zfp header allows {longest} bytes for {size} decoded ones, which is too much")
        return longest


def zfp(stored: np.dtype[Any]) -> Decoder:
    """Return the decoder of an array of `stored`. zfp knows little-endian integers and floats of 4 and 8 bytes.

    Raises ImportError if the library is not installed.
    """
    if stored.str[0] == ">" or stored.str[1:] not in ZFP_KINDS:
        raise Unsupported(f"codec 'zfpy' cannot hold elements of {stored}")
    import zfpy

    return ZFP(stored, zfpy)
