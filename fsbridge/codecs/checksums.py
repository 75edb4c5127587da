"""Checksums stored beside the data, always verified: numcodecs' five and HDF5's. Not here: those of gzip, zstd or LZ4.

Each is four bytes, little endian, before or after the data (numcodecs 0.16 `checksum32`, `fletcher32.pyx`).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import google_crc32c
import numpy as np

from fsbridge.codecs import Buffer, Decoder, native
from fsbridge.errors import CorruptData, Unsupported

CHECKSUM_BYTES = 4
ROW_WORDS = 256
"""A weighted sum of this many words still fits into 32 bits: 65535 * (1 + ... + 256) < 2^32."""
PIECE_ROWS = 2048


@dataclass(frozen=True, slots=True)
class Checksum(Decoder):
    """A checksum. `function` returns the checksums that are accepted for the data."""

    name: str
    function: Callable[[memoryview], tuple[int, ...]]
    location: str

    def encoded_size(self, decoded: int) -> int | None:
        return decoded + CHECKSUM_BYTES

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        view = memoryview(data).cast("B")
        count = len(view) - CHECKSUM_BYTES
        if count < 0 or (size is not None and count != size):
            least = CHECKSUM_BYTES + (0 if size is None else size)
            raise CorruptData(f"{len(view)} bytes where {least} were expected")
        front = self.location == "start"
        stored = int.from_bytes(view[:CHECKSUM_BYTES] if front else view[count:], "little")
        content = view[CHECKSUM_BYTES:] if front else view[:count]
        if stored not in self.function(content):
            raise CorruptData(f"wrong checksum: {stored:#010x} is stored, the data has {self.function(content)[0]:#010x}")
        return content


def crc32(location: str = "start") -> Decoder:
    """Return the decoder of numcodecs' `crc32` (zlib's polynomial)."""
    return _checksum("crc32", lambda data: (zlib.crc32(data),), location)


def adler32(location: str = "start") -> Decoder:
    """Return the decoder of numcodecs' `adler32`."""
    return _checksum("adler32", lambda data: (zlib.adler32(data),), location)


def crc32c(location: str = "end") -> Decoder:
    """Return the decoder of `crc32c` in Zarr v3 and numcodecs (Castagnoli's polynomial)."""
    # google_crc32c takes immutable objects only.
    return _checksum("crc32c", lambda data: (google_crc32c.value(bytes(data)),), location)


def fletcher32() -> Decoder:
    """Return the decoder of numcodecs' `fletcher32`, which is HDF5's."""
    return Checksum("fletcher32", lambda data: (fletcher32_value(data),), "end")


def hdf5_fletcher32() -> Decoder:
    """Return the decoder of HDF5 filter 3, which accepts the byte-swapped sums of HDF5 before 1.6.3 (H5Zfletcher32.c)."""

    def both(data: memoryview) -> tuple[int, ...]:
        value = fletcher32_value(data)
        return value, (value & 0x00FF00FF) << 8 | (value & 0xFF00FF00) >> 8

    return Checksum("fletcher32", both, "end")


def jenkins_lookup3(initval: int = 0, prefix: object = None) -> Decoder:
    """Return the decoder of numcodecs' `jenkins_lookup3`. A prefix cannot be written to JSON and is Unsupported."""
    if prefix is not None or not 0 <= initval < 1 << 32:
        raise Unsupported(f"jenkins_lookup3 cannot have initval {initval} and prefix {prefix!r}")
    return Checksum("jenkins_lookup3", partial(_jenkins, initval), "end")


def _jenkins(initval: int, data: memoryview) -> tuple[int, ...]:
    return (native.jenkins()(data, initval),)


def _checksum(name: str, function: Callable[[memoryview], tuple[int, ...]], location: str) -> Decoder:
    if location not in ("start", "end"):
        raise Unsupported(f"{name} has the unknown location {location!r}")
    return Checksum(name, function, location)


def fletcher32_value(data: Buffer) -> int:
    """Return HDF5's Fletcher-32.

    It sums big-endian 16-bit words in ones' complement; an odd last byte is a word's high byte. HDF5 folds its sums every
    360 words, but any order gives the same value modulo 65535, and only an all-zero input gives 0.
    """
    view = memoryview(data).cast("B")
    words = np.frombuffer(view, ">u2", len(view) // 2)
    weights = np.arange(ROW_WORDS, 0, -1, dtype="u4")
    first = second = 0
    for start in range(0, len(words), ROW_WORDS * PIECE_ROWS):
        piece = words[start : start + ROW_WORDS * PIECE_ROWS]
        whole = len(piece) // ROW_WORDS * ROW_WORDS
        table = piece[:whole].astype("u4").reshape(-1, ROW_WORDS)
        sums = table.sum(axis=1, dtype="u8")
        behind = np.arange(len(table) - 1, -1, -1, dtype="u8") * np.uint64(ROW_WORDS)
        inner = int((table @ weights).sum(dtype="u8")) + int((sums * behind).sum(dtype="u8"))
        first, second = _append(first, second, int(sums.sum()), inner, whole)
        for word in piece[whole:].tolist():
            first, second = first + word, second + first + word
    if len(view) % 2:
        first += view[-1] << 8
        second += first
    return _fold(second) << 16 | _fold(first)


def _append(first: int, second: int, more: int, inner: int, count: int) -> tuple[int, int]:
    """Return both sums after `count` further words, which alone have the sums `more` and `inner`."""
    return first + more, second + count * first + inner


def _fold(total: int) -> int:
    """Return the ones' complement of a sum: modulo 65535, but only 0 itself gives 0."""
    return (total - 1) % 0xFFFF + 1 if total else 0
