"""Bounded decoding with the standard library's decompressor objects. Not here: which compressors there are.

Output is taken in pieces of at most 1 MiB, so a decompression bomb costs at most that much beyond the expected size.
Input is given in windows that grow, because each decompressor copies the input that it leaves: so many tiny members in one
chunk cost linear time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fsbridge.codecs.chain import Buffer, Overflow
from fsbridge.errors import CorruptData

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
