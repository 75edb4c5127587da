"""The opened store of an N5 or Zarr hierarchy, what its readers share, and stored chunks that are decoded in part.

Not here: groups and arrays (`hierarchy.py`), where encoded chunks are in shards or blocks (the formats).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from fsbridge.codecs import Buffer, CodecChain, Read
from fsbridge.config import MIB, Config
from fsbridge.errors import CorruptData, Unsupported
from fsbridge.formats.documents import DocumentReader
from fsbridge.formats.keyed.chunkfiles import chunk_files
from fsbridge.formats.keyed.chunkkeys import ChunkFiles, ChunkKeys
from fsbridge.formats.keyed.storedchunks import FlatDirectories, ListingLimits
from fsbridge.formats.lazy_metadata import ParsedAttributes
from fsbridge.formats.shared import OpenedSources, Shared
from fsbridge.formats.small import read_object, read_object_range
from fsbridge.lru import LRU
from fsbridge.metadata import ChunkGrid
from fsbridge.model import ChunkInfo
from fsbridge.store import Key, Store

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Encoded:
    """A stored chunk that `chain` can decode in part: `stored` encoded bytes, `size` decoded ones. `place`: for messages."""

    chain: CodecChain
    read: Read
    stored: int
    size: int
    place: Callable[[], str]

    def decode_range(self, start: int, stop: int) -> bytes | None:
        """Return the decoded bytes [start, stop); None if `chain` cannot decode them alone.

        Raises errors of `read` and the decoder.
        """
        decoded = self._place_errors(lambda: self.chain.decode_range(self.read, self.stored, self.size, start, stop))
        return None if decoded is None else bytes(decoded)

    def decode_into(self, start: int, out: memoryview) -> None:
        """Fill `out` with decoded bytes from `start` on. Raises CorruptData if there are fewer."""
        decoded = self._place_errors(
            lambda: self.chain.decode_range(self.read, self.stored, self.size, start, start + len(out), out)
        )
        if decoded is None or len(decoded) != len(out):
            raise CorruptData(f"{self.place()}: {len(out)} bytes from {start} on are not in the chunk of {self.size}")
        view = memoryview(decoded).cast("B")
        if view.obj is not out.obj:
            out[:] = view

    def step(self) -> int | None:
        """Return the unit in which ranges are decoded, in decoded bytes; None if only the whole chunk can be decoded."""
        return self._place_errors(lambda: self.chain.step(self.read, self.stored))

    def _place_errors(self, decode: Callable[[], T]) -> T:
        try:
            return decode()
        except (CorruptData, Unsupported) as error:
            place = self.place()
            raise error if str(error).startswith(place) else error.at(place) from None


DOCUMENTS = ("zarr.json", ".zgroup", ".zarray", ".zattrs", "attributes.json")
"""Names of the metadata documents of all keyed formats."""

LISTED_GROUPS = 4096
"""Number of groups that are remembered as listed."""


class KeyedStore:
    """A store, its configuration, and the caches that all arrays in it share."""

    def __init__(self, store: Store, config: Config, shared: Shared | None = None) -> None:
        """`shared`: what all sources of the mount share; None for a store by itself."""
        self.store = store
        self.config = config
        self.documents = DocumentReader(store, config.limits, config.immutable)
        self.flat = FlatDirectories(store, ListingLimits(patience=config.metadata_deadline))
        self.attributes = (shared or Shared()).of(ParsedAttributes)
        self.externals = OpenedSources[str]()
        """Other stores that were opened because links in this one lead to them, by path."""
        self.remarks: set[tuple[str, str]] = set()
        """Links (directory, name) for which it was already logged that they are not followed."""
        self.listed_groups: LRU[Key, bool] = LRU(LISTED_GROUPS)
        """Groups that were listed. A program that has listed a group will probably look up all its members."""

    def chunk_files(self, directory: Key, grid: ChunkGrid, keys: ChunkKeys) -> ChunkFiles:
        """Return the chunk files of the array at `directory`."""
        return chunk_files(self.store, directory, grid, keys, self.flat)

    def directory_ns(self, key: Key) -> int | None:
        """Return the mtime of the directory at `key` as listings show it.

        None in a remote store, where it costs a request.
        """
        return None if self.store.remote else self.store.stat(key).mtime_ns

    def limit(self, chain: CodecChain) -> int:
        """Return the most decoded bytes of a chunk that `chain` decodes."""
        return self.config.max_direct if chain.direct else self.config.max_chunk

    def stored_limit(self, decoded: int) -> int:
        """Return the most stored bytes of a chunk with `decoded` decoded bytes. A larger object is not read at all."""
        return self.config.limits.encoded_factor * decoded + MIB

    def read(self, key: Key, info: ChunkInfo, decoded: int) -> Buffer:
        """Return all bytes of the stored chunk of `info`. Raises Stale if it has been replaced or removed."""
        return read_object(self.store, key, info, self.stored_limit(decoded))

    def read_range(self, key: Key, info: ChunkInfo, start: int, length: int) -> bytes:
        """Return `length` bytes of the stored chunk of `info`. Raises Stale as in `read`, CorruptData if it is too short."""
        return read_object_range(self.store, key, info, start, length)

    def encoded(
        self, chain: CodecChain, key: Key, info: ChunkInfo, where: tuple[int, int], size: int | None
    ) -> Encoded | None:
        """Return the chunk of `size` decoded bytes, for decoding in part.

        `where`: offset and length of the encoded chunk in the stored object. Returns None if `chain` only decodes whole
        chunks, or if this chunk is above a limit; decoding it whole then raises the error.
        """
        begin, length = where
        if size is None or not chain.in_parts:
            return None
        # Reading a part of an unencoded chunk takes no memory for the rest, so that chunk may have any size.
        if chain.steps and (size > self.limit(chain) or length > self.stored_limit(size)):
            return None
        read = partial(self._read_encoded, key, info, begin)
        return Encoded(chain, read, length, size, partial(self.store.describe, key))

    def _read_encoded(self, key: Key, info: ChunkInfo, begin: int, offset: int, length: int) -> bytes:
        return self.read_range(key, info, begin + offset, length)
