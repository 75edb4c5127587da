"""The chunks of an N5 array: full ones made of blocks that may be smaller, or varlength blocks as the bytes they hold.

Not here: the headers of blocks (`codecs/n5.py`), `attributes.json` (the package's face), compressions (`codecs/`).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import cast

import numpy as np

from fsbridge.codecs import Buffer, CodecChain
from fsbridge.codecs.n5 import VARLENGTH, Block, header_size, parse_header, put_at_origin
from fsbridge.codecs.objects import NulStrings
from fsbridge.errors import CorruptData, FsbridgeError, Stale, TooLarge
from fsbridge.formats.keyed.chunkkeys import ChunkFiles
from fsbridge.formats.keyed.chunks import KeyedChunks
from fsbridge.formats.keyed.store import Encoded, KeyedStore
from fsbridge.metadata import ArrayMetadata, Index
from fsbridge.model import ChunkInfo
from fsbridge.store import Key

_U32_LE = struct.Struct("<I")


class N5Chunks(KeyedChunks):
    """The blocks of one N5 array, shown as full chunks. A varlength block is shown as the decoded bytes that it holds."""

    def __init__(
        self,
        keyed: KeyedStore,
        files: ChunkFiles,
        metadata: ArrayMetadata,
        chain: CodecChain,
        turns_out: Callable[[], bool] = lambda: False,
    ) -> None:
        """`turns_out` is called for a varlength block in an array of fixed blocks. True: the array is varlength, too."""
        super().__init__(keyed, files, metadata, chain)
        self._turns_out = turns_out
        self._full = cast(tuple[int, ...], metadata.grid.edges)
        self._text = metadata.dtype.serializer == "vlen-utf8"

    def _decode_into(self, data: Buffer, out: memoryview) -> None:
        block, sizes = self._parse_fixed(data)
        payload = memoryview(data)[block.payload :]
        if sizes == self._full:
            self.chain.decode_into(payload, out, self.limit)
        else:
            itemsize, limit = self.metadata.dtype.itemsize, self.keyed.config.max_chunk
            put_at_origin(self.chain.decode(payload, block.elements * itemsize, limit), sizes, self._full, itemsize, out)

    def read_all(self, index: Index, info: ChunkInfo, limit: int) -> Buffer:
        key = self.files.key(index)
        data = self.keyed.read(key, info, limit)
        try:
            block = self._header(data)
            payload = memoryview(data)[block.payload :]
            if self._text:
                return self._strings(block, self.chain.decode(payload, block.elements, limit), limit)
            return self.chain.decode(payload, block.elements * self.metadata.dtype.itemsize, limit)
        except FsbridgeError as error:
            raise error.at(self.keyed.store.describe(key)) from None

    def _find_encoded(self, index: Index, info: ChunkInfo) -> Encoded | None:
        """Return the block for decoding in parts; None also for a smaller one: its elements are not adjacent in a chunk."""
        size = self.metadata.chunk_bytes(index)
        if size is None or not self.chain.in_parts:
            return None
        key = self.files.key(index)
        try:
            block, sizes = self._parse_fixed(self._beginning(key, info))
            if sizes != self._full:
                return None
        except FsbridgeError as error:
            raise error.at(self.keyed.store.describe(key)) from None
        return self.keyed.encoded(self.chain, key, info, (block.payload, info.stored - block.payload), size)

    def size(self, index: Index, info: ChunkInfo) -> int:
        """Return the decoded size, from the header alone except for strings."""
        if self._text or not self.metadata.varlength:
            return super().size(index, info)
        key = self.files.key(index)
        try:
            return self._header(self._beginning(key, info)).elements * self.metadata.dtype.itemsize
        except FsbridgeError as error:
            raise error.at(self.keyed.store.describe(key)) from None

    def _beginning(self, key: Key, info: ChunkInfo) -> bytes:
        return self.keyed.read_range(key, info, 0, min(info.stored, header_size(len(self._full))))

    def _header(self, data: Buffer) -> Block:
        block = parse_header(data, len(self._full))
        if block.sizes is not None and any(size > full for size, full in zip(block.sizes, self._full, strict=True)):
            raise CorruptData(f"an N5 block has {list(block.sizes)} elements where the block size is {list(self._full)}")
        return block

    def _parse_fixed(self, data: Buffer) -> tuple[Block, tuple[int, ...]]:
        """Return header and extents of a fixed block. Raises CorruptData, or Stale if the array is varlength after all."""
        block = self._header(data)
        if block.sizes is None or not block.regular:
            if self._turns_out():
                raise Stale("the array's blocks hold varying numbers of elements")
            raise CorruptData(f"an N5 varlength block of {block.elements} elements is in an array of blocks of fixed size")
        return block, block.sizes

    def _strings(self, block: Block, decoded: Buffer, limit: int) -> bytes:
        """Return Zarr's vlen-utf8 for the full chunk, from strings that each end in NUL."""
        if block.sizes is None or block.mode != VARLENGTH:
            raise CorruptData(f"an N5 block of mode {block.mode} is in an array of strings")
        count, total = math.prod(block.sizes), math.prod(self._full)
        encoded = bytes(NulStrings(count).decode(decoded, None, limit, None))
        if block.sizes == self._full:
            return encoded
        if len(encoded) + 4 * (total - count) > limit:
            raise TooLarge(f"a chunk has {total} strings, which take more than {limit} bytes")
        return bytes(_pad(encoded, block.sizes, self._full))


def _pad(encoded: bytes, sizes: tuple[int, ...], full: tuple[int, ...]) -> bytearray:
    """Return the vlen encoding of a full chunk: a smaller one at its origin, the rest empty items."""
    padded, position = bytearray(_U32_LE.pack(math.prod(full))), _U32_LE.size
    for row in np.ndindex(full[:0:-1]):  # the slowest dimension first
        width = sizes[0] if all(map(int.__lt__, row, sizes[:0:-1])) else 0
        start = position
        for _ in range(width):
            position += _U32_LE.size + _U32_LE.unpack_from(encoded, position)[0]
        padded += encoded[start:position]
        padded += bytes(_U32_LE.size * (full[0] - width))
    return padded
