"""Blosc-1 frames: a guard before numcodecs, and reading a range without decoding the whole frame. Not here: Blosc-2.

The frame (c-blosc README_CHUNK_FORMAT) is `version, versionlz, flags, typesize, u32 nbytes, u32 blocksize, u32 cbytes`,
little endian. Unless the data is stored verbatim, one u32 offset per block follows. A block is one stream, or `typesize`
streams if it is split. A stream is `u32 length, bytes`. c-blosc reads and writes out of bounds if the header lies, so
every number in it is checked before the call.

Snappy streams, in some frames of TensorStore, PyTables and old numcodecs, are decoded by cramjam, a library in safe Rust.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from fsbridge.codecs import Buffer, Decoder, Overflow, Read, native
from fsbridge.errors import CorruptData, TooLarge, Unsupported
from fsbridge.threads.forking import make_lock

HEADER = struct.Struct("<BBBBIII")
U32 = struct.Struct("<I")
VERSION = 2
MAX_BYTES = 2**31 - 1 - 16
"""BLOSC_MAX_BUFFERSIZE."""

BYTE_SHUFFLE, VERBATIM, BIT_SHUFFLE, ONE_STREAM = 0x01, 0x02, 0x04, 0x10
KNOWN_FLAGS = BYTE_SHUFFLE | VERBATIM | BIT_SHUFFLE | ONE_STREAM | 0xE0
COMPRESSOR = 0xE0
LZ4_FORMAT = 1 << 5
MAX_TYPE_BYTES = 255
COMPRESSORS = ("blosclz", "lz4", "snappy", "zlib", "zstd")
SNAPPY = 2
KNOWN = frozenset({0, 1, SNAPPY, 3, 4})

SNAPPY_BYTES = 1 << 20
"""Most decoded bytes of Snappy blocks that are passed to numcodecs together, because they are in memory twice.

A larger block is passed alone.
"""
LARGEST_SNAPPY_BLOCK = 32 << 20
"""Most decoded bytes of a Snappy block; c-blosc makes blocks of some 100 KB unless told otherwise."""
MAX_SNAPPY_STREAMS = 1 << 20
"""Most Snappy streams in a frame, for some seconds of work. A frame of 2 GB in blocks of 32 KB has as many."""

_alone = make_lock()
"""Held while Snappy blocks above SNAPPY_BYTES are decoded, so that only one thread has such a block in memory twice."""

MAX_PART_BLOCKS = 64
"""Most blocks that are read one by one.

For more, such as the tiny ones of a hostile frame, decoding everything is faster.
"""


def snappy_into(data: memoryview, out: memoryview) -> None:
    """Decode a stream to exactly the bytes of `out`; CorruptData for any other stream."""
    import cramjam  # takes 10 ms, and such data is rare

    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size == len(out):
            size = cramjam.snappy.decompress_raw_into(data, out)
    except cramjam.DecompressionError as error:
        raise CorruptData(str(error)) from None
    if size != len(out):
        raise CorruptData(f"snappy data of {size} bytes where {len(out)} were expected")


@dataclass(slots=True)  # not frozen: that would take three times as long to make
class Frame:
    """A frame of `cbytes` bytes. `head`: its checked header and block offsets; `blocks`: how many, 0 for verbatim data."""

    read: Read
    cbytes: int
    head: memoryview
    flags: int
    typesize: int
    nbytes: int
    blocksize: int
    blocks: int

    @classmethod
    def parse(cls, data: Buffer) -> Frame:
        """Return the frame that is all of `data`."""
        view = memoryview(data).cast("B")
        return cls.begin(lambda offset, length: view[offset : offset + length], len(view))

    @classmethod
    def begin(cls, read: Read, stored: int) -> Frame:
        """Check every number of the header and the block offsets against the `stored` bytes."""
        if stored < HEADER.size:
            raise CorruptData(f"{stored} bytes are too few for a Blosc header")
        # Enough for the header and the offsets of a thousand blocks.
        head = memoryview(read(0, min(stored, 4096)))
        version, _, flags, typesize, nbytes, blocksize, cbytes = HEADER.unpack_from(head)
        if version != VERSION or flags & ~KNOWN_FLAGS or (flags & BYTE_SHUFFLE and flags & BIT_SHUFFLE):
            raise Unsupported(f"Blosc format version {version} with flags {flags:#04x}; fsbridge reads Blosc-1")
        if cbytes != stored:
            raise CorruptData(f"the Blosc header says {cbytes} stored bytes, there are {stored}")
        if nbytes > MAX_BYTES or cbytes > MAX_BYTES + HEADER.size or not typesize:
            raise CorruptData(f"impossible Blosc header: {nbytes} bytes of elements of {typesize}")
        if nbytes and not 0 < blocksize <= nbytes:
            raise CorruptData(f"impossible Blosc block size {blocksize} for {nbytes} bytes")
        if flags & VERBATIM:
            if cbytes != HEADER.size + nbytes:
                raise CorruptData(f"{cbytes - HEADER.size} stored bytes for {nbytes} verbatim bytes")
            return cls(read, cbytes, head, flags, typesize, nbytes, blocksize, 0)
        blocks = -(-nbytes // blocksize) if nbytes else 0
        first = HEADER.size + U32.size * blocks
        if first > stored:
            raise CorruptData(f"the Blosc frame is too short for the offsets of {blocks} blocks")
        if first > len(head):
            head = memoryview(read(0, first))
        frame = cls(read, cbytes, head, flags, typesize, nbytes, blocksize, blocks)
        frame._check_blocks(first)
        return frame

    def _check_blocks(self, first: int) -> None:
        compressor = self.flags >> 5
        if compressor not in KNOWN:
            known = COMPRESSORS[compressor] if compressor < len(COMPRESSORS) else f"number {compressor}"
            raise Unsupported(f"Blosc's inner compressor {known} is not read")
        if self.blocksize % self.typesize and self.streams(0) > 1:
            raise CorruptData(f"Blosc blocks of {self.blocksize} bytes cannot be split by elements of {self.typesize}")
        if not self.blocks:
            return
        if self.blocks <= MAX_PART_BLOCKS:  # for so few blocks a fifth of numpy's time
            few = struct.unpack_from(f"<{self.blocks}I", self.head, HEADER.size)
            least, most = min(few), max(few)
        else:
            starts = self.starts
            least, most = int(starts.min()), int(starts.max())
        if not first <= least <= most <= self.cbytes - U32.size:
            raise CorruptData("a Blosc block lies outside the frame")

    @property
    def by_snappy(self) -> bool:
        """True if streams must be decoded before numcodecs gets them."""
        return self.flags & (COMPRESSOR | VERBATIM) == SNAPPY << 5

    @property
    def starts(self) -> npt.NDArray[np.uint32]:
        """Offsets by block number. They need not ascend."""
        return np.frombuffer(self.head, "<u4", self.blocks, HEADER.size)

    def length(self, block: int) -> int:
        """Return the decoded bytes of a block. The last one may be shorter."""
        return min(self.blocksize, self.nbytes - block * self.blocksize)

    def streams(self, block: int) -> int:
        """Return the number of streams in a block, by the rule of c-blosc's `blosc_d`.

        It also holds for older frames without the ONE_STREAM flag.
        """
        whole = self.length(block) == self.blocksize
        many = self.typesize <= 16 and self.blocksize // self.typesize >= 128
        return self.typesize if many and whole and not self.flags & ONE_STREAM else 1

    def stored(self, block: int) -> memoryview:
        """Return the stored bytes of a block: up to the next block, unless its streams say that it is longer."""
        starts = self.starts
        start = int(starts[block])
        later = starts[starts > start]
        for bound in (int(later.min()) if later.size else self.cbytes, self.cbytes):
            piece = memoryview(self.read(start, bound - start))
            end = self._end(piece, block)
            if end is not None:
                return piece[:end]
        raise CorruptData(f"Blosc block {block} lies outside the frame")

    def _together(self, first: int, last: int) -> memoryview | None:
        """Read adjacent blocks at once and return them as a frame of their own, or None if they are not adjacent."""
        starts = self.starts[first : last + 2].tolist()
        if last + 1 == self.blocks:
            starts.append(self.cbytes)
        if any(end <= start for start, end in pairwise(starts)):
            return None
        piece = memoryview(self.read(starts[0], starts[-1] - starts[0]))
        for block, (start, stop) in enumerate(pairwise(starts), first):
            if self._end(piece[start - starts[0] : stop - starts[0]], block) is None:
                return None
        begin = HEADER.size + U32.size * (last - first + 1)
        frame = np.empty(begin + len(piece), np.uint8)
        frame[begin:] = np.frombuffer(piece, np.uint8)  # other threads run meanwhile, which `join` would prevent
        head = self._head(first, last, [begin + start - starts[0] for start in starts[:-1]], frame.size)
        frame[:begin] = np.frombuffer(head, np.uint8)
        return frame.data

    def _end(self, piece: memoryview, block: int) -> int | None:
        """Return where in `piece`, which begins with a block, the block's streams end; None if they end behind `piece`."""
        end = 0
        for _ in range(self.streams(block)):
            if end + U32.size > len(piece):
                return None
            end += U32.size + U32.unpack_from(piece, end)[0]
        return end if end <= len(piece) else None

    def part(self, first: int, last: int) -> Buffer:
        """Return blocks `first` to `last` as a frame of their own."""
        together = self._together(first, last)
        if together is not None:
            return together
        stored = [self.stored(block) for block in range(first, last + 1)]
        ends = list(accumulate(map(len, stored), initial=HEADER.size + U32.size * len(stored)))
        return b"".join([self._head(first, last, ends[:-1], ends[-1]), *stored])

    def decode_snappy(self, out: memoryview) -> None:
        """Decode a Snappy frame. numcodecs lacks Snappy, so it gets some blocks at a time with their streams decoded."""
        if self.blocksize > LARGEST_SNAPPY_BLOCK:
            raise TooLarge(f"a Blosc block of {self.blocksize} bytes by Snappy, the limit is {LARGEST_SNAPPY_BLOCK}")
        if self.blocks * self.streams(0) > MAX_SNAPPY_STREAMS:
            raise TooLarge(f"a Blosc frame of {self.blocks} blocks by Snappy, the limit is {MAX_SNAPPY_STREAMS} streams")
        whole = memoryview(self.read(0, self.cbytes))
        starts = self.starts.tolist()
        together = max(1, SNAPPY_BYTES // self.blocksize)
        for first in range(0, self.blocks, together):
            begin = first * self.blocksize
            target = out[begin : begin + together * self.blocksize]
            with nullcontext() if self.blocksize <= SNAPPY_BYTES else _alone:
                _decompress(self._plain(whole, first, starts[first : first + together], len(target)), len(target), target)

    def _plain(self, whole: memoryview, first: int, starts: Sequence[int], nbytes: int) -> memoryview:
        """Return the blocks from `first` on as a frame with decoded streams, as c-blosc stores incompressible ones."""
        body = HEADER.size + U32.size * len(starts)
        frame = bytearray(body + nbytes + U32.size * sum(self.streams(first + i) for i in range(len(starts))))
        ends, end = [], body
        for block, start in enumerate(starts, first):
            stored, count = whole[start:], self.streams(block)
            if self._end(stored, block) is None:
                raise CorruptData(f"Blosc block {block} lies outside the frame")
            size = self.length(block) // count
            ends.append(end)
            for _ in range(count):
                length = U32.unpack_from(stored)[0]
                stream, stored = stored[U32.size : U32.size + length], stored[U32.size + length :]
                U32.pack_into(frame, end, size)
                end += U32.size
                target = memoryview(frame)[end : end + size]
                if length == size:
                    target[:] = stream
                else:
                    snappy_into(stream, target)
                end += size
        # The last, shorter block is never split, but alone in a frame it would not be known as such.
        flags = self.flags & ~COMPRESSOR | LZ4_FORMAT | (ONE_STREAM if nbytes < self.blocksize else 0)
        HEADER.pack_into(frame, 0, VERSION, 1, flags, self.typesize, nbytes, min(self.blocksize, nbytes), end)
        struct.pack_into(f"<{len(ends)}I", frame, HEADER.size, *ends)
        return memoryview(frame)

    def _head(self, first: int, last: int, starts: Sequence[int], cbytes: int) -> bytes:
        """Return the header of a frame of these blocks, with the place where each begins."""
        nbytes = sum(self.length(block) for block in range(first, last + 1))
        # As in `_plain`.
        flags = self.flags | (ONE_STREAM if nbytes < self.blocksize else 0)
        version, versionlz = self.head[0], self.head[1]
        header = HEADER.pack(version, versionlz, flags, self.typesize, nbytes, min(self.blocksize, nbytes), cbytes)
        return header + struct.pack(f"<{len(starts)}I", *starts)


@dataclass(frozen=True, slots=True)
class Blosc(Decoder):
    """Blosc-1 with any of its inner compressors. Decoding needs no parameter."""

    name: str = "blosc"
    direct: ClassVar[bool] = True
    in_parts: ClassVar[bool] = True

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        frame = Frame.parse(data)
        if size is not None and frame.nbytes != size:
            raise CorruptData(f"the Blosc header says {frame.nbytes} bytes, not {size}")
        if frame.nbytes > limit:
            raise Overflow(f"the Blosc header says {frame.nbytes} bytes, the limit is {limit}")
        if not frame.nbytes:
            return b""
        return _decode_frame(frame, data, out)

    def decode_range(
        self, read: Read, stored: int, size: int, start: int, stop: int, out: memoryview | None = None
    ) -> Buffer:
        """See `Decoder.decode_range`.

        Reads and decodes only the blocks of the range, up to MAX_PART_BLOCKS of them.

        A read of 4 KiB in a chunk of 8 MiB decodes in about 50 us instead of 2.6 ms (lz4) or 3.9 ms (zstd).
        """
        frame = Frame.begin(read, stored)
        if frame.nbytes != size:
            raise CorruptData(f"the Blosc header says {frame.nbytes} bytes, not {size}")
        if not 0 <= start <= stop <= size:
            raise ValueError(f"range {start}:{stop} of {size} bytes")
        if start == stop:
            return b""
        if frame.flags & VERBATIM:
            return read(HEADER.size + start, stop - start)
        first, last = start // frame.blocksize, (stop - 1) // frame.blocksize
        if last - first >= MAX_PART_BLOCKS:
            return memoryview(self.decode(read(0, stored), size, size, None))[start:stop]
        base = first * frame.blocksize
        part = frame.part(first, last)
        alone = Frame.parse(part)
        target = out if (start, stop) == (base, base + alone.nbytes) else None
        return memoryview(_decode_frame(alone, part, target))[start - base : stop - base]

    def step(self, read: Read, stored: int) -> int:
        """Return the size of a block."""
        frame = Frame.begin(read, stored)
        return frame.blocksize if frame.blocks else 1


def _decode_frame(frame: Frame, data: Buffer, out: memoryview | None) -> Buffer:
    if not frame.by_snappy:
        return _decompress(memoryview(data).cast("B"), frame.nbytes, out)
    target = memoryview(bytearray(frame.nbytes)) if out is None else out
    frame.decode_snappy(target)
    return target


def _decompress(frame: memoryview, nbytes: int, out: memoryview | None) -> Buffer:
    """Call numcodecs with exactly the space that the checked header asks for."""
    target = bytearray(nbytes) if out is None else out
    try:
        # For up to 16 KiB, telling numcodecs where to decode takes longer than a copy: 3 us.
        if nbytes > (16 * 1024):
            native.blosc().decompress(frame, target)
        else:
            target[:] = native.blosc().decompress(frame)
    except (RuntimeError, ValueError) as error:
        raise CorruptData(str(error)) from None
    return target


def bit_unshuffle(shuffled: memoryview, element: int, block: int, out: memoryview) -> None:
    """Undo the bit shuffle in blocks of `block` bytes with Blosc's own routine.

    The blocks become uncompressed blocks of a Blosc frame, which numcodecs decodes. Elements have at most MAX_TYPE_BYTES
    bytes. HDF5's bitshuffle filter has the same bit order.
    """
    nbytes = len(shuffled)
    if not nbytes:
        return
    blocks = -(-nbytes // block)
    first = HEADER.size + U32.size * blocks
    stride = U32.size + block
    flags = BIT_SHUFFLE | ONE_STREAM | LZ4_FORMAT
    header = HEADER.pack(VERSION, 1, flags, element, nbytes, block, first + U32.size * blocks + nbytes)
    starts = (first + stride * np.arange(blocks)).astype("<u4").tobytes()
    source = np.frombuffer(shuffled, "u1")
    whole = nbytes // block
    body = np.empty((whole, stride), "u1")
    body[:, : U32.size] = np.frombuffer(U32.pack(block), "u1")
    body[:, U32.size :] = source[: whole * block].reshape(whole, block)
    last = shuffled[whole * block :]
    frame = b"".join([header, starts, body.data, U32.pack(len(last)) if last else b"", last])
    Frame.parse(frame)
    _decompress(memoryview(frame), nbytes, out)
