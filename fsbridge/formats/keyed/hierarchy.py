"""What N5, Zarr v2 and Zarr v3 have in common: a tree of keys in which JSON documents make arrays of directories.

`KeyedStore` is the opened store with everything its readers share, `KeyedGroup` a directory, `KeyedArray` one version of an
array's metadata. Not here: any document's name or meaning, chunks (`chunks.py`).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal, Protocol

from fsbridge.codecs import Buffer, CodecChain
from fsbridge.config import MIB, Config
from fsbridge.errors import CorruptData, FsbridgeError, NotFound, Stale, TooDeep
from fsbridge.formats.documents import Document, DocumentReader
from fsbridge.formats.keyed.chunkfiles import chunk_files
from fsbridge.formats.keyed.chunkkeys import ChunkFiles, ChunkKeys
from fsbridge.formats.keyed.dialect import PLAIN, Dialect
from fsbridge.formats.keyed.encoded import Encoded
from fsbridge.formats.keyed.listedtimes import ListedTimes
from fsbridge.formats.keyed.storedchunks import FlatDirectories
from fsbridge.formats.keyed.unlisted import named_members
from fsbridge.formats.opened_sources import OpenedSources
from fsbridge.lru import LRU
from fsbridge.metadata import JSON, ArrayMetadata, ChunkGrid, Index
from fsbridge.model import Array, AtOnce, Brief, Child, ChunkInfo, Chunks, Group, Node, as_array
from fsbridge.owner import Owners, restricted
from fsbridge.store import ROOT, Key, Stat, Store, abilities
from fsbridge.store.glimpse import Glimpse

DOCUMENTS = ("zarr.json", ".zgroup", ".zarray", ".zattrs", "attributes.json")
"""Names of all metadata documents of all formats of keys."""

LISTED_GROUPS = 4096
"""Groups of which it is remembered that they were listed."""

Version = tuple[Hashable, ...]
"""Versions of the documents that a node was made of; None for a document that was absent."""


class KeyedStore:
    """A store, its configuration, the dialect spoken in it, and the caches that all arrays in it share."""

    def __init__(self, store: Store, config: Config, dialect: Dialect = PLAIN) -> None:
        self.store = store
        self.config = config
        self.dialect = dialect
        self.documents = DocumentReader(store, config.limits, config.immutable)
        self.flat = FlatDirectories(store, config.immutable, patience=config.metadata_deadline, ttl=config.metadata_ttl)
        self.listed = ListedTimes(math.inf if config.immutable else config.metadata_ttl)
        self.externals = OpenedSources[str]()
        """Other stores that links of this one led into, by path."""
        self.remarks: set[tuple[str, str]] = set()
        """Links, by directory and name, that were said not to be followed."""
        self.glimpse = abilities.glimpse(store)
        self.listed_groups: LRU[Key, bool] = LRU(LISTED_GROUPS)
        """Groups whose members somebody has listed: who does looks at all that there is to know of them."""

    def chunk_files(self, directory: Key, grid: ChunkGrid, keys: ChunkKeys) -> ChunkFiles:
        """The stored chunk objects of the array at `directory`."""
        return chunk_files(self.store, directory, grid, keys, self.flat, self.listed)

    def owners(self, key: Key) -> Owners:
        """Whose the directory at `key` is, and its documents together."""
        documents = []
        for name in DOCUMENTS:
            with contextlib.suppress(NotFound):
                documents.append(self.store.stat(key / name).owner)
        directory = self.store.stat(key).owner
        return Owners(directory, restricted(*documents) if documents else directory)

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
        """The chunk of `size` decoded bytes, to be decoded in part.

        `where`: where in the stored object the encoded chunk begins, and its length. None: `chain` decodes chunks whole, or
        this one is above a limit; decoding it whole says so.
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


class Hierarchy(Protocol):
    """A format's rules: what the documents at a key mean."""

    @property
    def keyed(self) -> KeyedStore: ...

    @property
    def consolidated(self) -> Sequence[str]:
        """Names of the documents that may tell of others below them."""

    def open(self, key: Key) -> Group | Array:
        """The node at the directory `key`."""

    def brief(self, key: Key, directory: Glimpse) -> Brief | None:
        """Of an array in `directory`, which is at `key`, if its documents are, or are almost, those of one that was opened.

        Most arrays of a store are like others of it. Errors mean None.
        """

    def group_attributes(self, key: Key) -> Mapping[str, JSON]:
        """User attributes of the group at `key` as they are now."""

    def group_documents(self, key: Key) -> Mapping[str, JSON]:
        """The documents of the group at `key` by name."""


@dataclass(frozen=True, slots=True)
class KeyedGroup:
    """A directory that is no array. Each subdirectory is a member, with or without documents of its own."""

    kind: ClassVar[Literal["group"]] = "group"

    hierarchy: Hierarchy
    key: Key

    @property
    def at_once(self) -> AtOnce | None:
        """See `model.at_once`."""
        return self.hierarchy.keyed.store.at_once

    def current(self) -> bool:
        """Whether there still is a group."""
        try:
            return self.hierarchy.keyed.store.stat(self.key).is_dir and self.hierarchy.open(self.key).kind == "group"
        except (FsbridgeError, OSError):
            return False

    @property
    def mtime_ns(self) -> int:
        """The directory's."""
        return self.hierarchy.keyed.store.stat(self.key).mtime_ns

    def owners(self) -> Owners:
        return self.hierarchy.keyed.owners(self.key)

    def attributes(self) -> Mapping[str, JSON]:
        return self.hierarchy.group_attributes(self.key)

    def native(self) -> Mapping[str, JSON]:
        return self.hierarchy.group_documents(self.key)

    def children(self) -> Iterator[Child]:
        self.hierarchy.keyed.listed_groups.put(self.key, True)
        names = None if self.hierarchy.keyed.store.listable else named_members(self.hierarchy, self.key)
        if names is not None:
            yield from (Child(name, self.mtime_ns) for name in names)
            return
        for entry in self.hierarchy.keyed.store.list(self.key, stats=True):
            if entry.stat is not None and (entry.is_dir or (entry.hidden and _may_be_member(entry.name))):
                yield Child(entry.name, entry.stat.mtime_ns)

    def foresee(self) -> None:
        """What the group says itself will be asked for: known documents far away are looked at again meanwhile."""
        documents = self.hierarchy.keyed.documents
        for key in (self.key / name for name in DOCUMENTS):
            if documents.knows(key):
                documents.foresee(key)

    def lacks(self, name: str) -> bool:
        """Whether a listing that is at hand, and may be old, has no such member: to ask for it takes requests."""
        return abilities.lacks(self.hierarchy.keyed.store, self.key / name)

    def brief(self, name: str) -> Brief | None:
        """See `model.brief`."""
        keyed, key = self.hierarchy.keyed, self.key / name
        if keyed.glimpse is None or key.count("/") >= keyed.config.limits.depth:
            return None
        found = keyed.glimpse(key)
        if found is None:
            return None
        try:
            with found:
                return self.hierarchy.brief(key, found)
        except (FsbridgeError, OSError):
            return None  # whoever opens it is told

    def child(self, name: str) -> Node:
        keyed, key = self.hierarchy.keyed, self.key / name
        if key.count("/") >= keyed.config.limits.depth:
            raise TooDeep(f"{keyed.store.describe(key)}: more than {keyed.config.limits.depth} nested groups")
        if keyed.store.prefixes:  # its document is evidence of it, at the price that it has anyway
            node = self.hierarchy.open(key)
            if as_array(node) is not None or keyed.store.stat(key).is_dir:
                return node
        if not keyed.store.stat(key).is_dir:
            raise NotFound(f"{keyed.store.describe(key)}: a file, not a group or array")
        return self.hierarchy.open(key)


@dataclass(frozen=True, slots=True)
class KeyedArray:
    """One version of an array's metadata. `check` tells whether the store still has this version."""

    kind: ClassVar[Literal["array"]] = "array"

    metadata: ArrayMetadata
    version: Hashable
    documents_ns: int
    chunks: Chunks
    check: Callable[[], bool]
    owners: Callable[[], Owners]
    at_once: AtOnce | None = None
    fetch: Callable[[Index], object] | None = None
    later_ns: Callable[[], int] | None = None

    @property
    def mtime_ns(self) -> int:
        """That of its documents, as far as they have been read."""
        return self.documents_ns if self.later_ns is None else max(self.documents_ns, self.later_ns())

    def current(self) -> bool:
        return _current(self.check)

    def watch(self) -> DocumentWatch:
        """`current`, without the metadata."""
        return DocumentWatch(self.check)


@dataclass(frozen=True, slots=True, eq=False)
class DocumentWatch:
    """Tells whether an array's documents are still those that were read."""

    check: Callable[[], bool]

    def current(self) -> bool:
        return _current(self.check)


def _may_be_member(name: str) -> bool:
    """Whether a link that leads nowhere may have led to a group or an array: who mirrors what is listed would delete it."""
    return name not in DOCUMENTS and not name.startswith(".")


def _current(check: Callable[[], bool]) -> bool:
    try:
        return check()
    except (FsbridgeError, OSError):
        return False


@dataclass(frozen=True, slots=True)
class KeyedSource:
    """An opened hierarchy. `owned`: the store is closed with it."""

    format: str
    hierarchy: Hierarchy
    key: Key = ROOT
    owned: bool = True

    @property
    def root(self) -> Group | Array:
        return self.hierarchy.open(self.key)

    def format_at(self, path: Sequence[str]) -> str:
        return self.format

    def together(self) -> AbstractContextManager[None]:
        """See `store.Store.together`."""
        return self.hierarchy.keyed.store.together()

    @property
    def rests(self) -> bool:
        return not self.owned or hasattr(self.hierarchy.keyed.store, "rest")

    @property
    def anchor(self) -> KeyedStore:
        return self.hierarchy.keyed

    def rest(self) -> None:
        """Nothing is open for this hierarchy alone, but for stores that links lead to: they close when nobody has them."""

    def close(self) -> None:
        self.hierarchy.keyed.externals.close()
        if self.owned:
            self.hierarchy.keyed.store.close()


def versions(*documents: Document | None) -> Version:
    """The version of a node that was made of `documents`."""
    return tuple(document.stat.version if document is not None else None for document in documents)


def newest(*documents: Document | None) -> int:
    """mtime in ns of the last changed of `documents`."""
    return max((document.stat.mtime_ns for document in documents if document is not None), default=0)
