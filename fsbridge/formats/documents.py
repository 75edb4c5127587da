"""JSON metadata documents of a store, parsed again only after a change, and results that several documents share.

Documents with equal bytes share results (`Repeated`). Arrays of one kind, that is, arrays with documents that differ only
in attributes and shape, share parsed metadata (`Kinds`). Not here: the parsing (`strict_json.py`), the meaning of any
field and which members are attributes (the formats).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar, TypeVarTuple, cast

from fsbridge.asking import before_waiting
from fsbridge.config import MIB, Limits
from fsbridge.errors import CorruptData, FsbridgeError, IsADirectory, NotFound, Stale, anew, is_lasting
from fsbridge.formats.strict_json import Fields, parse_again, parse_object
from fsbridge.lru import LRU
from fsbridge.metadata import JSON, MAX_EXTENT, MAX_RANK, ArrayMetadata, ChunkGrid
from fsbridge.store import WHOLE, Key, Stat, Store

T = TypeVar("T")

CACHED_SOURCE_BYTES = 3 * MIB
"""Bytes of JSON source that a `DocumentReader` keeps in parsed form; parsed documents take roughly ten times that."""

DOCUMENT_BYTES = 256
"""Extra cost of each document, in bytes of JSON source, because small ones take more than ten times their size."""

REPEATED_BYTES = 2048
"""Most bytes of a document that shares its results with equal documents: stores of many arrays have many equal ones."""

SHARED_BYTES = 256 * 1024
"""Total bytes of the documents with kept results. The results take roughly ten times that."""

SHARED_SECONDS = 3.0
"""Most seconds for which a thread waits for another one that reads the same document of a remote store."""

READ_ATTEMPTS = 3
"""Attempts to read a document that is replaced during each read. After the last one Stale is raised."""


@dataclass(frozen=True, slots=True)
class Document:
    """One version of a parsed metadata document. `values` is shared by all readers and must not be changed.

    `text`: its bytes, None for a large document; equal documents may share them. `damage`: the error if it cannot be read;
    any use of `values` then raises it.
    """

    values: Mapping[str, JSON]
    place: str
    stat: Stat
    length: int
    text: bytes | None = None
    damage: Exception | None = None

    @property
    def fields(self) -> Fields:
        """Return the document as `Fields`, for parsing."""
        return Fields(self.values, self.place)

    def unparsed(self) -> Callable[[], Document]:
        """Return a function that parses the document again. It keeps `text` in memory, but not the parsed values."""
        text, bare = self.text or b"{}", replace(self, values={})
        return lambda: replace(bare, values=parse_again(text))


class _Damaged(Mapping[str, JSON]):
    """Stands for the members of a document that cannot be read: each use raises the error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getitem__(self, name: str) -> JSON:
        raise anew(self._error)

    def __iter__(self) -> Iterator[str]:
        raise anew(self._error)

    def __len__(self) -> int:
        raise anew(self._error)


class DocumentReader:
    """Reads the metadata documents of one store, and keeps parsed ones until their version changes. Thread-safe.

    `immutable`: documents never change, so each is read only once while it is cached.
    """

    def __init__(self, store: Store, limits: Limits, immutable: bool = False) -> None:
        self._store = store
        self._limits = limits
        self._immutable = immutable
        self._lock = threading.Lock()
        self._reading: dict[Key, threading.Event] = {}  # documents of a remote store that a thread is reading
        self._known: LRU[Key, Document] = LRU(CACHED_SOURCE_BYTES)
        self._shared: LRU[bytes, Mapping[str, JSON]] = LRU(SHARED_BYTES)

    def read(self, key: Key) -> Document | None:
        """Return the JSON object at `key` as it is now, or None if the store has no such object.

        Raises CorruptData (no valid document, or a directory in its place), TooLarge, AccessDenied, Stale.
        """
        if not self._store.remote:
            return self._read(key)
        with self._lock:
            other = self._reading.get(key)
            if other is None:
                mine = self._reading[key] = threading.Event()
        if other is not None:  # threads that open members at a time need the same documents of the groups above
            before_waiting()
            other.wait(SHARED_SECONDS)
            return self._read(key)
        try:
            return self._read(key)
        finally:
            with self._lock:
                del self._reading[key]
            mine.set()

    def _read(self, key: Key) -> Document | None:
        known = self._known.get(key)
        if known is not None:
            if self._immutable:
                return known
            try:
                if self._store.stat(key).version == _get_stored(known.stat) and known.stat.settled:
                    return known
            except NotFound:
                self._known.drop(key)
                return None
        document = self._load(key)
        if document is None:
            self._known.drop(key)
            return None
        return self._known.put(key, document, document.length + DOCUMENT_BYTES)

    def attempt(self, key: Key) -> Document | None:
        """Return the document as `read` does.

        If it cannot be read, return one with its `damage`, unless the error may pass.
        """
        try:
            return self.read(key)
        except (FsbridgeError, OSError) as error:
            if not is_lasting(error):
                raise
            damage = error.with_traceback(None)
        return Document(_Damaged(damage), self._store.describe(key), Stat(False, 0, 0, str(damage), False), 0, None, damage)

    def again(self, key: Key, version: Hashable) -> Document:
        """Read the document at `key` again. Raises Stale if it is gone or has another version than `version`."""
        document = self.read(key)
        if document is None or document.stat.version != version:
            raise Stale(f"{self._store.describe(key)}: it has changed")
        return document

    def knows(self, key: Key) -> bool:
        """True if the document is in the cache, perhaps in an outdated version."""
        return self._known.get(key) is not None

    def known(self, key: Key) -> Document | None:
        """Return the cached document, which may be outdated, or None."""
        return self._known.get(key)

    @property
    def vouched_for(self) -> bool:
        """True if the store may be able to confirm a document's bytes without reading them, so that `adopt` may succeed."""
        return self._store.vouches

    def shows(self, key: Key) -> bool:
        """True if the store knows without a request that there is an object at `key`. It may have been removed since."""
        return self._store.shows(key)

    def adopt(self, key: Key, texts: Iterable[bytes]) -> None:
        """Cache the document at `key` without reading it, if the store confirms one of `texts` as its present bytes."""
        confirmation = self._store.vouch(key, texts)
        if confirmation is not None:
            document = self._parsed(confirmation[0], self._store.describe(key), confirmation[1])
            self._known.put(key, document, document.length + DOCUMENT_BYTES)

    def prefetch(self, key: Key) -> None:
        """Prefetch the document at `key` from a remote store; if it is cached, start checking its version instead."""
        if not self.knows(key):
            self._store.fetch(key)
        elif not self._immutable:
            self._store.prefetch_stat(key)

    def same(self, key: Key, stat: Stat | None) -> bool:
        """True if the object at `key` is still the one with `stat` (None: still absent). Raises the errors of `read`."""
        if stat is not None and not stat.settled:
            now = self.attempt(key)
            return now is not None and now.stat.version == stat.version
        if self._immutable:
            return True
        try:
            latest = self._store.stat(key) if stat is not None else self._store.stat(key, WHOLE)  # only an object counts
        except NotFound:
            return stat is None
        return stat is not None and latest.version == _get_stored(stat)

    def _load(self, key: Key) -> Document | None:
        place = self._store.describe(key)
        for attempt in range(READ_ATTEMPTS):
            try:
                stored, stat = self._store.read(key, self._limits.document)
            except NotFound:
                return None
            except IsADirectory:
                raise CorruptData(f"{place}: there is a directory in place of a metadata document") from None
            except Stale:
                if attempt == READ_ATTEMPTS - 1:
                    raise
                continue
            return self._parsed(bytes(stored), place, stat)
        raise AssertionError("unreachable")

    def _parsed(self, text: bytes, place: str, stat: Stat) -> Document:
        stat = _document_stat(stat, text)
        if len(text) > REPEATED_BYTES:
            before_waiting()  # parsing takes long
            return Document(parse_object(text, place, self._limits), place, stat, len(text))
        return Document(self._said(text, place), place, stat, len(text), text)

    def _said(self, text: bytes, place: str) -> Mapping[str, JSON]:
        """Parse a small document with `parse_object`. Documents with the same bytes are parsed only once."""
        values = self._shared.get(text)
        if values is None:
            values = self._shared.put(text, parse_object(text, place, self._limits), len(text) + DOCUMENT_BYTES)
        return values


class _DocumentVersion(NamedTuple):
    """The version of a document: the store's version, and a hash of the bytes."""

    stored: Hashable
    content: int


def _document_stat(stat: Stat, text: bytes) -> Stat:
    """Return `stat` with a version that also depends on the document's bytes.

    The store's own version may miss a rewrite of the same size within one tick of its clock, which may be a whole second.
    """
    return stat._replace(version=_DocumentVersion(stat.version, hash(text)))


def _get_stored(stat: Stat) -> Hashable:
    """Return the store's own version from a stat made by `_document_stat`."""
    return cast(_DocumentVersion, stat.version).stored


class Repeated(Generic[T]):
    """A cache of results that are made from small documents. Documents with the same bytes share a result. Thread-safe."""

    def __init__(self, weigh: Callable[[T], int] = lambda _: 0) -> None:
        """`weigh` returns how much a result counts besides its documents, in bytes of JSON."""
        self._weigh = weigh
        self._made: LRU[tuple[bytes | None, ...], T] = LRU(SHARED_BYTES)

    def made(self, make: Callable[..., T], *documents: Document | None) -> T:
        """Return `make(*documents)` (None: absent), or the cached result for equal documents. Errors are not cached."""
        texts: list[bytes | None] = []
        for document in documents:
            if document is not None and document.text is None:
                return make(*documents)
            texts.append(None if document is None else document.text)
        key = tuple(texts)
        product = self._made.get(key)
        if product is None:
            product = make(*documents)
            size = sum(len(text) + DOCUMENT_BYTES for text in texts if text is not None)
            self._made.put(key, product, size + self._weigh(product))
        return product


Rest = TypeVarTuple("Rest")

Values: TypeAlias = Mapping[str, JSON]


class Split(NamedTuple):
    """An array's documents, divided into what arrays of one kind share, and the array's own shape and attributes.

    `said`: the shared part: all members except attributes, with the rank in place of the shape. `joined` takes the parsed
    result of another array of this kind and returns it with this array's shape and attributes.
    """

    said: Values
    joined: Callable[..., Any]


def shape_of(values: JSON, name: str) -> tuple[int, ...] | None:
    """Return the member `name` of an object if it is a valid shape, else None."""
    value = values.get(name) if isinstance(values, Mapping) else None
    if not isinstance(value, list) or len(value) > MAX_RANK:
        return None
    return tuple(value) if all(type(extent) is int and 0 <= extent <= MAX_EXTENT for extent in value) else None


def chunk_edges(shape: tuple[int, ...], written: tuple[int, ...]) -> tuple[int, ...]:
    """Return a chunk shape as written, but with 1 in place of 0 along dimensions of length 0: zarr-python writes 0 there."""
    return tuple(1 if not (extent or edge) else edge for extent, edge in zip(shape, written, strict=True))


def reshape_grid(grid: ChunkGrid, shape: tuple[int, ...]) -> ChunkGrid:
    """Return the chunk grid for another array shape of the same rank."""
    return grid if grid.shape == shape else ChunkGrid(shape, grid.edges)


class Kinds(Generic[*Rest]):
    """Keeps the parsed metadata of each kind of array, by `Split.said`. Thread-safe."""

    def __init__(self, parse: Callable[..., tuple[ArrayMetadata, *Rest]], split: Callable[..., Split | None]) -> None:
        """`parse` takes documents, `split` their values. `split` returns None for an array that cannot share metadata."""
        self._parse = parse
        self._split = split
        self._made: LRU[str, tuple[ArrayMetadata, *Rest]] = LRU(SHARED_BYTES)

    def parse(self, *documents: Document | None) -> tuple[ArrayMetadata, *Rest]:
        """Return the metadata of documents, parsed only if this kind was not parsed yet. Raises the errors of `parse`."""
        if any(document is not None and document.text is None for document in documents):
            return self._parse(*documents)  # large documents are not shared
        split = self._split(*(document and document.values for document in documents))
        if split is None:
            return self._parse(*documents)
        said = repr(split.said)
        known = self._made.get(said)
        if known is not None:
            joined: tuple[ArrayMetadata, *Rest] = split.joined(*known)
            return joined
        made = self._parse(*documents)
        if made[0].refused is None and made[0].dtype.element is None:  # otherwise the metadata may contain this array's name
            self._made.put(said, made, len(said) + DOCUMENT_BYTES)
        return made
