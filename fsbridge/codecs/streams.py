"""gzip, zlib, bzip2, xz, lzma and Zstandard, and bounded decoding with any decompressor object.

Output is taken in pieces of at most 1 MiB, so a decompression bomb costs at most that much beyond the expected size.
Input is given in windows that grow, because each decompressor copies the input that it leaves. Therefore a chunk of many
tiny members takes linear time.

For gzip and zlib, libdeflate decodes twice as fast as the standard library, but only one whole stream of known decoded
size, so it is tried first. Everything else goes to the standard library, which also finds the reason if something is wrong.

For Zstandard frames (RFC 8878), numcodecs decodes straight into the target, but fills only what the frame headers declare.
So it is used if the first frame declares exactly the expected size or none at all (then it demands that the target is
filled). Several frames, and an unknown size, go to the streaming decoder, which never makes more than asked for.

Not here: HDF5's numbers of filters, zstd inside Blosc.
"""

from __future__ import annotations

import bz2
import lzma
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from fsbridge.codecs import Buffer, Decoder, Overflow, native
from fsbridge.errors import CorruptData, Unsupported

PIECE_BYTES = 1 << 20


class Decompressor(Protocol):
    """What `zlib`, `bz2`, `lzma` and `compression.zstd` objects have in common."""

    def decompress(self, data: Buffer, max_length: int, /) -> bytes: ...

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...


class Output:
    """Collects decoded bytes of known number (`size`) or at most `limit` bytes. Any byte more is an Overflow."""

    def __init__(self, size: int | None, limit: int, out: memoryview | None) -> None:
        self.size = size
        self.cap = limit if size is None else size
        self.used = 0
        self.buffer: bytearray | memoryview
        if size is None:
            self.buffer = bytearray()
        else:
            self.buffer = bytearray(size) if out is None else out

    def add(self, piece: Buffer) -> None:
        """Append decoded bytes."""
        end = self.used + len(piece)
        if end > self.cap:
            raise Overflow(f"decodes to more than {self.cap} bytes")
        if self.size is None:
            assert isinstance(self.buffer, bytearray)
            self.buffer += piece
        else:
            self.buffer[self.used : end] = piece
        self.used = end

    def done(self) -> Buffer:
        """Return the decoded bytes, if there are as many as expected."""
        if self.size is not None and self.used != self.size:
            raise CorruptData(f"decodes to {self.used} bytes, not {self.size}")
        return self.buffer


def expand(
    start: Callable[[], Decompressor], errors: tuple[type[Exception], ...], data: Buffer, target: Output, *, many: bool
) -> Buffer:
    """Decode all of `data`: one stream, or with `many` any positive number of streams one after the other.

    `errors` are what the library raises for bad input. Raises CorruptData also for a stream that ends early, bytes left
    over, and more or fewer bytes than `target` expects.
    """
    view = memoryview(data).cast("B")
    position = 0
    while True:
        try:
            position = _member(start(), view, position, target)
        except errors as error:
            raise CorruptData(str(error) or type(error).__name__) from None
        if position == len(view):
            return target.done()
        if not many:
            raise CorruptData(f"{len(view) - position} bytes after the end of the compressed data")


def _member(decompressor: Decompressor, view: memoryview, position: int, target: Output) -> int:
    """Decode the stream that starts at `position` and return where it ends."""
    window = 1 << 12
    while not decompressor.eof:
        if position == len(view):
            raise CorruptData("the compressed data ends early")
        feed: Buffer = view[position : position + window]
        position += len(feed)
        window = min(2 * window, (1 << 18))
        while not decompressor.eof:
            piece = decompressor.decompress(feed, PIECE_BYTES)
            target.add(piece)
            # zlib returns the input that it did not use; the others keep it.
            feed = getattr(decompressor, "unconsumed_tail", b"")
            if len(piece) < PIECE_BYTES:
                break
    return position - len(decompressor.unused_data)


GZIP_MAGIC = b"\x1f\x8b"
MAX_WBITS = {"gzip": 31, "zlib": 15}


@dataclass(frozen=True, slots=True)
class Deflate(Decoder):
    """Decodes gzip members (RFC 1952), one after the other, or one zlib stream (RFC 1950), and verifies their checksums.

    If `container` is `either`, the first bytes decide: z5 ignores N5's attribute `useZlib`.
    """

    name: str
    container: Literal["gzip", "zlib", "either"]
    direct: ClassVar[bool] = True

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        container = self.container
        if container == "either":
            container = "gzip" if bytes(data[:2]) == GZIP_MAGIC else "zlib"
        if size:
            target = np.empty(size, np.uint8).data if out is None else out
            if native.inflate(container, data, target):
                return target
        return inflate_by_zlib(container, data, Output(size, limit, out))


def inflate_by_zlib(container: Literal["gzip", "zlib"], data: Buffer, target: Output) -> Buffer:
    """Decode what libdeflate does not: several members, an unknown size, a system without the library, damage."""
    start = partial(zlib.decompressobj, MAX_WBITS[container])
    return expand(start, (zlib.error,), data, target, many=container == "gzip")


MEMORY_BYTES = 256 << 20
"""Most bytes of a decoder's dictionary. The highest preset (9) needs 65 MiB."""
FILTER_KEYS = {
    lzma.FILTER_LZMA1: ("preset", "dict_size", "lc", "lp", "pb"),
    lzma.FILTER_LZMA2: ("preset", "dict_size", "lc", "lp", "pb"),
    lzma.FILTER_DELTA: ("dist",),
}
BRANCH_FILTERS = (
    lzma.FILTER_X86,
    lzma.FILTER_POWERPC,
    lzma.FILTER_IA64,
    lzma.FILTER_ARM,
    lzma.FILTER_ARMTHUMB,
    lzma.FILTER_SPARC,
)


@dataclass(frozen=True, slots=True)
class Bz2(Decoder):
    """Decodes one or more bzip2 streams."""

    name: str = "bz2"
    direct: ClassVar[bool] = True

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        errors = (OSError, ValueError, EOFError)
        return expand(bz2.BZ2Decompressor, errors, data, Output(size, limit, out), many=True)


@dataclass(frozen=True, slots=True)
class Lzma(Decoder):
    """Decodes LZMA. `format` is as in `lzma`: 0 automatic, 1 xz (one or more streams), 2 alone, 3 raw with `filters`."""

    name: str
    format: int
    filters: tuple[tuple[tuple[str, int], ...], ...] = ()
    direct: ClassVar[bool] = True

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        errors = (lzma.LZMAError, ValueError, EOFError)
        return expand(self._start, errors, data, Output(size, limit, out), many=self.format == lzma.FORMAT_XZ)

    def _start(self) -> Decompressor:
        if self.format == lzma.FORMAT_RAW:
            return lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=[dict(entry) for entry in self.filters])
        return lzma.LZMADecompressor(self.format, MEMORY_BYTES)


def lzma_stream(format: int = lzma.FORMAT_XZ, filters: Sequence[Mapping[str, Any]] | None = None) -> Decoder:
    """Return the decoder of numcodecs' `lzma`. `filters` belong to the raw format (3); the others do not need them.

    Raises Unsupported for a format or filter that liblzma does not have.
    """
    if format not in (lzma.FORMAT_AUTO, lzma.FORMAT_XZ, lzma.FORMAT_ALONE, lzma.FORMAT_RAW):
        raise Unsupported(f"unknown lzma format {format!r}")
    if format != lzma.FORMAT_RAW:
        return Lzma("lzma", format)
    if not isinstance(filters, (list, tuple)):
        raise Unsupported(f"raw lzma needs a list of filters, not {filters!r}")
    decoder = Lzma("lzma", format, tuple(_filter(entry) for entry in filters))
    try:
        decoder._start()
    except (lzma.LZMAError, ValueError, OverflowError) as error:
        raise Unsupported(f"liblzma refuses the filters {filters!r}: {error}") from None
    return decoder


def _filter(entry: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """Return one filter's parameters that decoding needs, checked."""
    try:
        number = int(entry["id"])
        keys = ("start_offset",) if number in BRANCH_FILTERS else FILTER_KEYS[number]
        chosen = [(key, int(entry[key])) for key in keys if key in entry]
    except (KeyError, TypeError, ValueError):
        raise Unsupported(f"unknown or damaged lzma filter {entry!r}") from None
    if dict(chosen).get("dict_size", 0) > MEMORY_BYTES:
        raise Unsupported(f"lzma dictionary of {dict(chosen)['dict_size']} bytes; the limit is {MEMORY_BYTES}")
    return (("id", number), *chosen)


if sys.version_info >= (3, 14):
    from compression.zstd import ZstdDecompressor, ZstdDict, ZstdError
else:
    from backports.zstd import ZstdDecompressor, ZstdDict, ZstdError

MAGIC = b"\x28\xb5\x2f\xfd"
SIZE_BYTES = (0, 2, 4, 8)
DICTIONARY_BYTES = (0, 1, 2, 4)


@dataclass(frozen=True, slots=True)
class Zstd(Decoder):
    """Decodes one or more frames, with or without content size and checksum. Skippable frames are skipped."""

    name: str = "zstd"
    direct: ClassVar[bool] = True

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        declared = content_size(data)
        cap = limit if size is None else size
        if declared is not None and declared > cap:
            raise Overflow(f"the zstd header says {declared} bytes, {'the limit is' if size is None else 'not'} {cap}")
        if size and declared in (None, size) and bytes(data[:4]) == MAGIC:
            return _decompress(data, size, out)
        return expand(ZstdDecompressor, (ZstdError, EOFError), data, Output(size, limit, out), many=True)


def with_dictionary(data: Buffer, dictionary: bytes, limit: int) -> bytes:
    """Decode one frame that was made with a dictionary, to at most `limit` bytes. Raises CorruptData."""
    try:
        stream = ZstdDecompressor(zstd_dict=ZstdDict(dictionary))
        decoded: bytes = stream.decompress(data, limit)
    except (ZstdError, ValueError, EOFError) as error:
        raise CorruptData(str(error)) from None
    if not stream.eof or stream.unused_data:
        raise CorruptData("a zstd frame that does not end with its data, or is too large")
    return decoded


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
