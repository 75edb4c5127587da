"""pcodec (pco), zfpy and zfp: arrays of numbers, by the libraries of the extra `codecs`. Not here: encoding.

A standalone pco file is `pco!`, a header, chunks, and a zero byte at the end.

A zfp stream of numcodecs (`zfpy`) begins with zfp's own header: type, shape and mode. Zarr v3's `zfp` has none; it is made
from the metadata, because all of zfp's modes can be said in a header only. Child processes decode both (`confined`).

The library reads beyond its input if the stream is shorter than the header promises. So it gets a copy with room for the
longest stream that the header allows, and decodes it twice, with different bytes in that room: only a stream that ends
where it should gives the same numbers twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
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
"""The types of zfp, in numpy's spelling without the byte order and in the order of zfp's numbers."""


FACTOR, ROOM = 4, 1 << 20
"""The longest stream that is tried: `FACTOR` times the decoded bytes, plus `ROOM` bytes. Real ones are hardly larger."""


@dataclass(frozen=True, slots=True)
class ZFP(Decoder):
    """Decodes zfp streams to elements of `stored` in the processor's byte order, which is little-endian."""

    stored: np.dtype[Any]
    name: str = "zfpy"

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        if size is None:
            raise CorruptData("the size of the chunk is not known")
        return self.numbers(data, size).view(np.uint8).data

    def numbers(self, data: Buffer, size: int) -> np.ndarray[Any, Any]:
        """Return the numbers, flat, of a stream of `size` decoded bytes."""
        first = self._decompress(data, size, 0)
        if not np.array_equal(first.view(np.uint8), self._decompress(data, size, 0xFF).view(np.uint8)):
            raise CorruptData("the zfp stream ends too early")
        return first

    def _decompress(self, data: Buffer, size: int, padding: int) -> np.ndarray[Any, Any]:
        """Return the numbers of a stream that is followed by bytes of `padding`."""
        needed = self._longest(data, size)
        padded = np.full(max(needed, len(data)) + HEADER_BYTES, padding, np.uint8)
        padded[: len(data)] = np.frombuffer(data, np.uint8)
        try:
            numbers = zfp_library().decompress_numpy(padded)
        except (RuntimeError, ValueError, TypeError) as error:
            raise CorruptData(str(error)[:200]) from None
        flat: np.ndarray[Any, Any] = np.ascontiguousarray(numbers).ravel()
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
            header = zfp_library().header(bytes(data[: 2 * HEADER_BYTES]).ljust(2 * HEADER_BYTES, b"\0"))
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


@dataclass(frozen=True, slots=True)
class BareZFP(Decoder):
    """Decodes zfp streams without a header to elements of `stored`, which zfp knows as those of `native`.

    `header`: the HEADER_BITS bits that a stream would begin with.
    """

    stored: np.dtype[Any]
    native: np.dtype[Any]
    header: int
    name: str = "zfp"

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        if size is None or size % self.stored.itemsize:
            raise CorruptData(f"an array of {self.stored} cannot have {size} bytes")
        whole, bits = divmod(HEADER_BITS, 8)
        stream = np.zeros(whole + 1 + len(data), np.uint8)
        stream[: whole + 1] = np.frombuffer(self.header.to_bytes(whole + 1, "little"), np.uint8)
        stored = np.frombuffer(data, np.uint8)
        stream[whole:-1] |= stored << bits
        stream[whole + 1 :] |= stored >> (8 - bits)
        numbers = ZFP(self.native, self.name).numbers(stream.data, size // self.stored.itemsize * self.native.itemsize)
        return self._demote(numbers).view(np.uint8).data

    def _demote(self, numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return elements of `stored`: zfp's own demotion of small integers, zarrs' clamping of unsigned ones."""
        kind, width = self.stored.kind, 8 * self.stored.itemsize
        if self.stored == self.native or kind in "mM":
            return numbers
        if kind == "f":
            with np.errstate(over="ignore"):
                return numbers.astype(self.stored)
        limits = np.iinfo(self.stored)
        if self.stored.itemsize < self.native.itemsize:
            numbers = (numbers >> (31 - width)) + (1 << (width - 1) if kind == "u" else 0)
        demoted: np.ndarray[Any, Any] = np.clip(numbers, limits.min, min(limits.max, np.iinfo(numbers.dtype).max))
        return demoted.astype(self.stored)


def zfp(stored: np.dtype[Any]) -> Decoder:
    """Return the decoder of an array of `stored`. zfp knows little-endian integers and floats of 4 and 8 bytes."""
    if stored.str[0] == ">" or stored.str[1:] not in ZFP_KINDS:
        raise Unsupported(f"codec 'zfpy' cannot hold elements of {stored}")
    return ZFP(stored)


HEADER_BITS, MAGIC = 148, int.from_bytes(b"zfp\x05", "little")
"""Bits of a header with all four parameters: 32 of `MAGIC`, 52 of type and shape, 64 of the parameters."""

MAX_BITS, MAX_PRECISION, MIN_EXPONENT = 16658, 64, -1074
"""What zfp sets for a parameter that a mode does not use: ZFP_MAX_BITS, ZFP_MAX_PREC, ZFP_MIN_EXP of `zfp.h`."""


def bare_zfp(stored: np.dtype[Any], shape: tuple[int, ...], values: Mapping[str, Any]) -> Decoder:
    """Return the decoder of Zarr v3's `zfp` for chunks of `shape`. Raises Unsupported for what zfp's header cannot say."""
    native = np.dtype(f"i{max(stored.itemsize, 4)}" if stored.kind in "iumM" else f"f{max(stored.itemsize, 4)}")
    if stored.kind not in "iufmM" or native.str[1:] not in ZFP_KINDS:
        raise Unsupported(f"codec 'zfp' cannot hold elements of {stored}")
    extents = shape or (1,)
    if len(extents) > 4 or max(extents) > 1 << 48 // len(extents) or min(extents) < 1:
        raise Unsupported(f"codec 'zfp' cannot hold chunks of {list(shape)}")
    kind, about = ZFP_KINDS.index(native.str[1:]), 0
    for extent in extents:
        about = about << 48 // len(extents) | extent - 1
    minbits, maxbits, precision, exponent = _parameters(values, native, len(extents))
    about = (about << 2 | len(extents) - 1) << 2 | kind
    mode = (((exponent + 16495) << 7 | precision - 1) << 15 | maxbits - 1) << 15 | minbits - 1
    return BareZFP(stored, native, MAGIC | about << 32 | (mode << 12 | 0xFFF) << 84)


def _parameters(values: Mapping[str, Any], native: np.dtype[Any], rank: int) -> tuple[int, int, int, int]:
    """Return zfp's four parameters for a mode, as `zfp_stream_set_rate` and its siblings compute them."""
    mode = values.get("mode")
    if mode == "reversible":
        return 1, MAX_BITS, MAX_PRECISION, MIN_EXPONENT - 1
    if mode == "expert":
        parameters = tuple(int(values[name]) for name in ("minbits", "maxbits", "maxprec", "minexp"))
    elif mode == "fixed_precision":
        parameters = 1, MAX_BITS, min(int(values["precision"]) or MAX_PRECISION, MAX_PRECISION), MIN_EXPONENT
    elif mode == "fixed_accuracy":
        tolerance = float(values["tolerance"])
        exponent = math.frexp(tolerance)[1] - 1 if tolerance > 0 else MIN_EXPONENT
        parameters = 1, MAX_BITS, MAX_PRECISION, max(exponent, MIN_EXPONENT)
    elif mode == "fixed_rate":
        bits = math.floor(4**rank * float(values["rate"]) + 0.5)
        bits = max(bits, {"f4": 9, "f8": 12}.get(native.str[1:], 1))
        parameters = bits, bits, MAX_PRECISION, MIN_EXPONENT
    else:
        raise Unsupported(f"codec 'zfp' has no mode {mode!r}")
    least, most, precision, exponent = parameters
    if not (1 <= least <= most <= 1 << 15 and 1 <= precision <= 1 << 7 and -16495 <= exponent <= 16272):
        raise Unsupported(f"codec 'zfp' cannot have the parameters {dict(values)}")
    return least, most, precision, exponent


def zfp_library() -> Any:
    """Return `zfpy`."""
    import zfpy

    return zfpy
