"""Chunks that are one file each, decoded by a codec chain (Zarr, N5). Not here: their places (`chunkfiles.py`), shards."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from functools import partial

from fsbridge.codecs import Buffer, CodecChain
from fsbridge.errors import FsbridgeError, Stale
from fsbridge.formats.keyed.chunkkeys import ChunkFiles
from fsbridge.formats.keyed.store import Encoded, KeyedStore
from fsbridge.metadata import ArrayMetadata, Index
from fsbridge.model import ChunkInfo, Chunks, OpenChunk, Pairs
from fsbridge.store import OpenedObject


class KeyedChunks(Chunks):
    """The chunks of an array in which each chunk is one object, decoded by a codec chain."""

    def __init__(self, keyed: KeyedStore, files: ChunkFiles, metadata: ArrayMetadata, chain: CodecChain) -> None:
        self.keyed = keyed
        self.files = files
        self.metadata = metadata
        self.chain = chain
        self.limit = keyed.limit(chain)

    def find(self, index: Index) -> ChunkInfo:
        return self.files.find(index)

    def find_prefix(self, prefix: Index) -> int:
        return self.files.find_prefix(prefix)

    def find_all(self, indices: Sequence[Index]) -> dict[Index, ChunkInfo | None]:
        return self.files.find_all(indices)

    def listed_sizes(self, indices: Sequence[Index]) -> dict[Index, int]:
        return self.files.listed_sizes(indices)

    def removed_ns(self, indices: Collection[Index]) -> int:
        return self.files.removed_ns(indices)

    def mtime_ns(self) -> int:
        return self.files.mtime_ns()

    def commit(self) -> Hashable:
        return self.files.commit()

    def strays(self) -> Iterator[str]:
        return self.files.strays()

    def other_names(self) -> Iterator[Sequence[str]]:
        return self.files.other_names()

    def scan(self, prefix: Index) -> Iterator[Pairs]:
        return self.files.scan(prefix)

    def fetch(self, index: Index) -> None:
        """Prefetch the stored bytes of a chunk, see `model.Array.fetch`."""
        self.keyed.store.fetch(self.files.key(index))

    def count(self) -> int:
        return self.files.count()

    def open(self, index: Index, neighbour: OpenChunk | None = None) -> OpenChunk:
        """Return the chunk with its stored object held open, unless that does not pay in the store."""
        chunk = self.files.hold_open(index)
        if chunk is None:
            return super().open(index)
        info, held = chunk
        return OpenChunk(info, partial(self._read_held, index, held), held)

    def _read_held(self, index: Index, held: OpenedObject, out: memoryview) -> None:
        self.decode_into(index, held.read(self.keyed.stored_limit(len(out))), out)

    def read_into(self, index: Index, info: ChunkInfo, out: memoryview) -> None:
        self.decode_into(index, self.keyed.read(self.files.key(index), info, len(out)), out)

    def decode_into(self, index: Index, data: Buffer, out: memoryview) -> None:
        """Decode the stored bytes of a chunk."""
        try:
            self._decode_into(data, out)
        except FsbridgeError as error:
            raise error.at(self.keyed.store.describe(self.files.key(index))) from None

    def _decode_into(self, data: Buffer, out: memoryview) -> None:
        self.chain.decode_into(data, out, self.limit)

    def read_all(self, index: Index, info: ChunkInfo, limit: int) -> Buffer:
        key = self.files.key(index)
        data = self.keyed.read(key, info, limit)
        try:
            return self.chain.decode(data, self.metadata.chunk_bytes(index), limit)
        except FsbridgeError as error:
            raise error.at(self.keyed.store.describe(key)) from None

    def read_range(self, index: Index, info: ChunkInfo, start: int, stop: int) -> bytes | None:
        encoded = self._find_encoded(index, info)
        return None if encoded is None else encoded.decode_range(start, stop)

    @property
    def in_parts(self) -> bool:
        """True if the codec chain can decode a part of a chunk."""
        return self.chain.in_parts

    def read_part(self, index: Index, info: ChunkInfo, start: int, out: memoryview) -> None:
        """Decode bytes from `start` on into `out` until it is full. Only for a chunk with a `step`."""
        encoded = self._find_encoded(index, info)
        if encoded is None:
            raise Stale(f"{self.keyed.store.describe(self.files.key(index))}: the chunk was replaced")
        encoded.decode_into(start, out)

    def step(self, index: Index, info: ChunkInfo) -> int | None:
        """Return the unit of `read_range` in decoded bytes, or None if only the whole chunk can be decoded."""
        encoded = self._find_encoded(index, info)
        return None if encoded is None else encoded.step()

    def _find_encoded(self, index: Index, info: ChunkInfo) -> Encoded | None:
        """Return the stored chunk for decoding in parts, or None if it must be decoded whole."""
        where = 0, info.stored
        return self.keyed.encoded(self.chain, self.files.key(index), info, where, self.metadata.chunk_bytes(index))

    def size(self, index: Index, info: ChunkInfo) -> int:
        size = self.metadata.chunk_bytes(index)
        return size if size is not None else len(self.read_all(index, info, self.keyed.config.max_chunk))
