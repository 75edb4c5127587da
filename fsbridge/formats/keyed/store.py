"""The opened store of an N5 or Zarr hierarchy, and what its readers share. Not here: groups and arrays (`hierarchy.py`)."""

from __future__ import annotations

from functools import partial

from fsbridge.codecs import Buffer, CodecChain
from fsbridge.config import MIB, Config
from fsbridge.errors import CorruptData, NotFound, Stale
from fsbridge.formats.documents import DocumentReader
from fsbridge.formats.keyed.chunkfiles import chunk_files
from fsbridge.formats.keyed.chunkkeys import ChunkKeys
from fsbridge.formats.keyed.encoded import Encoded
from fsbridge.formats.keyed.listedtimes import ListedTimes
from fsbridge.formats.keyed.placedchunks import ChunkFiles
from fsbridge.formats.keyed.storedchunks import FlatDirectories
from fsbridge.formats.opened_sources import OpenedSources
from fsbridge.lru import LRU
from fsbridge.metadata import ChunkGrid
from fsbridge.model import ChunkInfo
from fsbridge.store import Key, Stat, Store

DOCUMENTS = ("zarr.json", ".zgroup", ".zarray", ".zattrs", "attributes.json")
"""Names of all metadata documents of all formats of keys."""

LISTED_GROUPS = 4096
"""Number of groups that are remembered as listed."""


class KeyedStore:
    """A store, its configuration, and the caches that all arrays in it share."""

    def __init__(self, store: Store, config: Config) -> None:
        self.store = store
        self.config = config
        self.documents = DocumentReader(store, config.limits, config.immutable)
        self.flat = FlatDirectories(store, patience=config.metadata_deadline)
        self.listed = ListedTimes()
        self.externals = OpenedSources[str]()
        """Other stores that links of this one led into, by path."""
        self.remarks: set[tuple[str, str]] = set()
        """Links, by directory and name, that were said not to be followed."""
        self.listed_groups: LRU[Key, bool] = LRU(LISTED_GROUPS)
        """Groups that were listed: a program that lists a group is expected to look at all its members."""

    def chunk_files(self, directory: Key, grid: ChunkGrid, keys: ChunkKeys) -> ChunkFiles:
        """The stored chunk objects of the array at `directory`."""
        return chunk_files(self.store, directory, grid, keys, self.flat, self.listed)

    def directory_ns(self, key: Key) -> int | None:
        """Return the mtime of the directory at `key` as listings show it. None in a remote store: it costs a request."""
        return None if self.store.far else self.store.stat(key).mtime_ns

    def limit(self, chain: CodecChain) -> int:
        """The most decoded bytes of a chunk that `chain` decodes."""
        return self.config.max_direct if chain.direct else self.config.max_chunk

    def stored_limit(self, decoded: int) -> int:
        """The most bytes that a stored chunk of `decoded` bytes may have; a larger one is not read at all."""
        return self.config.limits.encoded_factor * decoded + MIB

    def read(self, key: Key, info: ChunkInfo, decoded: int) -> Buffer:
        """All bytes of the stored chunk of `info`; Stale if the store has another object there by now."""
        try:
            data, stat = self.store.read(key, self.stored_limit(decoded))
        except NotFound:
            raise Stale(f"{self.store.describe(key)}: the chunk was removed") from None
        self._same(key, info, stat)
        return data

    def read_range(self, key: Key, info: ChunkInfo, start: int, length: int) -> bytes:
        """`length` bytes of the stored chunk of `info`; Stale as in `read`, CorruptData if it is too short."""
        try:
            try:
                data, stat = self.store.read_range(key, start, length)
            except CorruptData:
                self._same(key, info, self.store.stat(key))  # else another one is there by now, and that is shorter
                raise
        except NotFound:
            raise Stale(f"{self.store.describe(key)}: the chunk was removed") from None
        self._same(key, info, stat)
        return data

    def encoded(
        self, chain: CodecChain, key: Key, info: ChunkInfo, where: tuple[int, int], size: int | None
    ) -> Encoded | None:
        """Return the chunk of `size` decoded bytes, for decoding in part.

        `where`: where in the stored object the encoded chunk begins, and its length. None if `chain` only decodes whole
        chunks, or if this one is above a limit; decoding it whole raises the error.
        """
        begin, length = where
        if size is None or not chain.in_parts:
            return None
        # Of a chunk that is stored as it is nothing is kept, so it may have any size.
        if chain.steps and (size > self.limit(chain) or length > self.stored_limit(size)):
            return None
        read = partial(self._read_encoded, key, info, begin)
        return Encoded(chain, read, length, size, partial(self.store.describe, key))

    def _read_encoded(self, key: Key, info: ChunkInfo, begin: int, offset: int, length: int) -> bytes:
        return self.read_range(key, info, begin + offset, length)

    def _same(self, key: Key, info: ChunkInfo, stat: Stat) -> None:
        if stat.version != info.version:
            raise Stale(f"{self.store.describe(key)}: the chunk was replaced")
