"""Bounded decoding with the standard library's decompressor objects. Not here: which compressors there are.

Output is taken in pieces of at most 1 MiB, so a decompression bomb costs that much beyond the size expected, and input is
given in windows that grow, so many tiny members in one chunk cost linear time (each decompressor copies what it leaves).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fsbridge.codecs.chain import Buffer, Overflow
from fsbridge.errors import CorruptData

PIECE_BYTES = 1 << 20
FIRST_WINDOW_BYTES = 1 << 12
LAST_WINDOW_BYTES = 1 << 18


class Decompressor(Protocol):
    """What `zlib`, `bz2`, `lzma` and `compression.zstd` objects have in common."""

    def decompress(self, data: Buffer, max_length: int, /) -> bytes: ...

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...


class Target:
    """Decoded bytes of known (`size`) or only bounded (`limit`) number; any byte beyond is an Overflow."""

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
        """The decoded bytes, when there are as many as expected."""
        if self.size is not None and self.used != self.size:
            raise CorruptData(f"decodes to {self.used} bytes, not {self.size}")
        return self.buffer


def expand(
    start: Callable[[], Decompressor], errors: tuple[type[Exception], ...], data: Buffer, target: Target, *, many: bool
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


def _member(decompressor: Decompressor, view: memoryview, position: int, target: Target) -> int:
    """Decode the stream that starts at `position`; the position of its end."""
    window = FIRST_WINDOW_BYTES
    while not decompressor.eof:
        if position == len(view):
            raise CorruptData("the compressed data ends early")
        feed: Buffer = view[position : position + window]
        position += len(feed)
        window = min(2 * window, LAST_WINDOW_BYTES)
        while not decompressor.eof:
            piece = decompressor.decompress(feed, PIECE_BYTES)
            target.add(piece)
            # zlib hands back the input it did not come to; the others keep it.
            feed = getattr(decompressor, "unconsumed_tail", b"")
            if len(piece) < PIECE_BYTES:
                break
    return position - len(decompressor.unused_data)
