"""JSON metadata documents of a store, parsed again only when they have changed, and what was made of equal ones.

Not here: the parsing (`strict_json.py`), the meaning of any field (the formats).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeVar, cast

from fsbridge.asking import before_waiting
from fsbridge.config import MIB, Limits
from fsbridge.errors import CorruptData, IsADirectory, NotFound, Stale
from fsbridge.formats.strict_json import Fields, parse_again, parse_object
from fsbridge.lru import LRU
from fsbridge.metadata import JSON
from fsbridge.store import WHOLE, Key, Stat, Store

T = TypeVar("T")

CACHED_SOURCE_BYTES = 3 * MIB
"""Bytes of JSON source that a `DocumentReader` keeps in parsed form; parsed documents take roughly ten times that."""

DOCUMENT_BYTES = 256
"""Extra cost of each document, in bytes of JSON source, because small ones take more than ten times their size."""

REPEATED_BYTES = 2048
"""Size up to which documents of the same bytes share what is made of them: stores of many arrays repeat theirs."""

SHARED_BYTES = 256 * 1024
"""Bytes of such documents for which the results are kept; these take roughly ten times that."""

READ_ATTEMPTS = 3
"""A document that is replaced while it is read is read again this often; then the reader sees Stale."""


@dataclass(frozen=True, slots=True)
class Document:
    """One version of a parsed metadata document. `values` is shared by all readers and must not be changed.

    `text`: its bytes, if they are few; equal documents may share them.
    """

    values: Mapping[str, JSON]
    place: str
    stat: Stat
    length: int
    text: bytes | None = None

    @property
    def fields(self) -> Fields:
        """The document for parsing."""
        return Fields(self.values, self.place)

    def unparsed(self) -> Callable[[], Document]:
        """Return a function that parses the document again; it holds the `text` and not the parsed values."""
        text, bare = self.text or b"{}", replace(self, values={})
        return lambda: replace(bare, values=parse_again(text))


class DocumentReader:
    """Reads the metadata documents of one store, and keeps parsed ones until their version changes. Thread-safe.

    `immutable`: a document that was read once is never looked at again.
    """

    def __init__(self, store: Store, limits: Limits, immutable: bool = False) -> None:
        self._store = store
        self._limits = limits
        self._immutable = immutable
        self._known: LRU[Key, Document] = LRU(CACHED_SOURCE_BYTES)
        self._shared: LRU[bytes, Mapping[str, JSON]] = LRU(SHARED_BYTES)

    def read(self, key: Key) -> Document | None:
        """The JSON object at `key` as it is now; None when the store has no such object.

        Raises CorruptData (no valid document, or a directory in its place), TooLarge, AccessDenied, Stale.
        """
        known = self._known.get(key)
        if known is not None:
            if self._immutable:
                return known
            try:
                if self._store.stat(key).version == _stored(known.stat) and known.stat.settled:
                    return known
            except NotFound:
                self._known.drop(key)
                return None
        document = self._load(key)
        if document is None:
            self._known.drop(key)
            return None
        return self._known.put(key, document, document.length + DOCUMENT_BYTES)

    def again(self, key: Key, version: Hashable) -> Document:
        """Read the document at `key` again; Stale if its version is no longer `version`, or if it is gone."""
        document = self.read(key)
        if document is None or document.stat.version != version:
            raise Stale(f"{self._store.describe(key)}: has changed")
        return document

    def knows(self, key: Key) -> bool:
        """True if a document has been read once, so that only a change of it would have to be sent."""
        return self._known.get(key) is not None

    def known(self, key: Key) -> Document | None:
        """The document as it was read last, whatever it is now."""
        return self._known.get(key)

    @property
    def vouched_for(self) -> bool:
        """True if the store may know documents by their bytes, so that `adopt` is worth a call."""
        return self._store.vouches

    def shown(self, key: Key) -> bool:
        """True if the store knows without a request that there is an object at `key`; that may be outdated."""
        return self._store.shows(key)

    def adopt(self, key: Key, texts: Iterable[bytes]) -> None:
        """Know the document at `key` as that one of `texts` which it is now, if the store vouches for one."""
        found = self._store.vouch(key, texts)
        if found is not None:
            document = self._parsed(found[0], self._store.describe(key), found[1])
            self._known.put(key, document, document.length + DOCUMENT_BYTES)

    def foresee(self, key: Key) -> None:
        """Prefetch the document at `key` from a remote store, or begin to ask whether a known one has changed."""
        if not self.knows(key):
            self._store.fetch(key)
        elif not self._immutable:
            self._store.revisit(key)

    def same(self, key: Key, stat: Stat | None) -> bool:
        """True if the store still has the object of `stat` at `key`, or (None) still has none. Errors as of `read`."""
        if stat is not None and not stat.settled:
            now = self.read(key)
            return now is not None and now.stat.version == stat.version
        if self._immutable:
            return True
        try:
            found = self._store.stat(key) if stat is not None else self._store.stat(key, WHOLE)  # of no directory either
        except NotFound:
            return stat is None
        return stat is not None and found.version == _stored(stat)

    def _load(self, key: Key) -> Document | None:
        place = self._store.describe(key)
        for attempt in range(READ_ATTEMPTS):
            try:
                stored, stat = self._store.read(key, self._limits.document)
            except NotFound:
                return None
            except IsADirectory:
                raise CorruptData(f"{place}: a directory in place of a metadata document") from None
            except Stale:
                if attempt == READ_ATTEMPTS - 1:
                    raise
                continue
            return self._parsed(bytes(stored), place, stat)
        raise AssertionError("unreachable")

    def _parsed(self, text: bytes, place: str, stat: Stat) -> Document:
        stat = told(stat, text)
        if len(text) > REPEATED_BYTES:
            before_waiting()  # to parse it takes long
            return Document(parse_object(text, place, self._limits), place, stat, len(text))
        return Document(self.said(text, place), place, stat, len(text), text)

    def said(self, text: bytes, place: str) -> Mapping[str, JSON]:
        """Parse a small document by `parse_object`, once for all documents with the same bytes."""
        values = self._shared.get(text)
        if values is None:
            values = self._shared.put(text, parse_object(text, place, self._limits), len(text) + DOCUMENT_BYTES)
        return values


class _DocumentVersion(NamedTuple):
    """The version of a document: the store's, and what stands for its bytes."""

    stored: Hashable
    content: int


def told(stat: Stat, text: bytes) -> Stat:
    """Return the stat of a document of these bytes.

    Its version tells it from another one of the same size that was written at the same time, as far as the store's clock
    tells times: it may tell whole seconds.
    """
    return stat._replace(version=_DocumentVersion(stat.version, hash(text)))


def _stored(stat: Stat) -> Hashable:
    """Return the store's own version in a stat made by `told`."""
    return cast(_DocumentVersion, stat.version).stored


class Repeated(Generic[T]):
    """Results made from small documents, shared by documents with the same bytes. Thread-safe."""

    def __init__(self, weigh: Callable[[T], int] = lambda _: 0) -> None:
        """`weigh`: memory of a result beyond that of its documents, in the same unit."""
        self._weigh = weigh
        self._made: LRU[tuple[bytes | None, ...], T] = LRU(SHARED_BYTES)

    def known(self, *texts: bytes | None) -> T | None:
        """Return the result for documents of these bytes (None: absent); None if there is none, or it was forgotten."""
        return self._made.get(texts)

    def made(self, make: Callable[..., T], *documents: Document | None) -> T:
        """Return what `make` makes of `documents` (None: absent), or has made of equal ones. Its errors are not kept."""
        texts: list[bytes | None] = []
        for document in documents:
            if document is not None and document.text is None:
                return make(*documents)
            texts.append(None if document is None else document.text)
        key = tuple(texts)
        found = self.known(*key)
        if found is None:
            found = make(*documents)
            size = sum(len(text) + DOCUMENT_BYTES for text in texts if text is not None)
            self._made.put(key, found, size + self._weigh(found))
        return found
