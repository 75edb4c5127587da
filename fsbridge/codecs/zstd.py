"""Zstandard frames (RFC 8878). Not here: zstd inside Blosc.

numcodecs decodes straight into the target, but fills only what the frame headers declare. So it is used if the first
frame declares exactly the expected size or none at all (then it demands that the target is filled). Several frames, and
an unknown size, go to the streaming decoder, which never makes more than asked for.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import ClassVar

from fsbridge.codecs import native
from fsbridge.codecs.chain import Buffer, CodecAbilities, Decoder, Overflow
from fsbridge.codecs.streams import Output, expand
from fsbridge.errors import CorruptData

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdDecompressor, ZstdDict, ZstdError
else:
    from backports.zstd import ZstdDecompressor, ZstdDict, ZstdError

MAGIC = b"\x28\xb5\x2f\xfd"
SIZE_BYTES = (0, 2, 4, 8)
DICTIONARY_BYTES = (0, 1, 2, 4)


@dataclass(frozen=True, slots=True)
class Zstd(CodecAbilities):
    """Decodes one or more frames, with or without content size and checksum. Skippable frames are skipped."""

    name: str = "zstd"
    direct: ClassVar[bool] = True

    def encoded_size(self, decoded: int) -> int | None:
        return None

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        declared = content_size(data)
        cap = limit if size is None else size
        if declared is not None and declared > cap:
            raise Overflow(f"the zstd header says {declared} bytes, {'the limit is' if size is None else 'not'} {cap}")
        if size and declared in (None, size) and bytes(data[:4]) == MAGIC:
            return _decompress(data, size, out)
        return expand(ZstdDecompressor, (ZstdError, EOFError), data, Output(size, limit, out), many=True)


def zstd() -> Decoder:
    """Return the decoder of Zstandard frames."""
    return Zstd()


def with_dictionary(data: Buffer, dictionary: bytes, limit: int) -> bytes:
    """Decode one frame that was made with a dictionary, to at most `limit` bytes. Raises CorruptData."""
    try:
        stream = ZstdDecompressor(zstd_dict=ZstdDict(dictionary))
        found: bytes = stream.decompress(data, limit)
    except (ZstdError, ValueError, EOFError) as error:
        raise CorruptData(str(error)) from None
    if not stream.eof or stream.unused_data:
        raise CorruptData("a zstd frame that does not end with its data, or is too large")
    return found


def content_size(data: Buffer) -> int | None:
    """Return the decoded size that the first frame's header declares, or None (RFC 8878, 3.1.1.1)."""
    if len(data) < 5 or bytes(data[:4]) != MAGIC:
        return None
    descriptor = data[4]
    single_segment = bool(descriptor & 0x20)
    width = SIZE_BYTES[descriptor >> 6] or single_segment
    start = 5 + (not single_segment) + DICTIONARY_BYTES[descriptor & 3]
    if not width or start + width > len(data):
        return None
    value = int.from_bytes(data[start : start + width], "little")
    return value + 256 if width == 2 else value


def _decompress(data: Buffer, size: int, out: memoryview | None) -> Buffer:
    target = bytearray(size) if out is None else out
    try:
        native.zstd().decompress(data, target)
    except (RuntimeError, ValueError) as error:
        raise CorruptData(str(error)) from None
    return target
