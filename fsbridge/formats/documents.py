"""JSON metadata documents: bounded, strict parsing, typed getters, and a reader that parses again only what changed.

Not here: the meaning of any field (the formats), the making of JSON (layouts). Nothing else parses stored JSON.

Strict: one UTF-8 text, duplicate keys refused, depth and size limited. Tolerated because real writers do it: the bare tokens
`NaN`, `Infinity` and `-Infinity` (zarr-python 2 and 3 in user attributes), a byte order mark.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, NoReturn, TypeVar, cast

import numpy as np

from fsbridge.config import MIB, Limits
from fsbridge.errors import CorruptData, IsADirectory, NotFound, Stale, TooLarge
from fsbridge.lru import LRU
from fsbridge.metadata import JSON, MAX_RANK
from fsbridge.store import WHOLE, Key, Stat, Store, abilities

T = TypeVar("T")

MAX_INTEGER = 2**64 - 1
"""The largest integer that any field of any format holds (a uint64 fill value)."""

CACHED_SOURCE_BYTES = 3 * MIB
"""Bytes of JSON source whose parsed form a `DocumentReader` keeps; parsed documents take roughly ten times that."""

DOCUMENT_BYTES = 256
"""What a document costs besides, in bytes of JSON source: small ones take more than ten times theirs."""

REPEATED_BYTES = 2048
"""Size up to which documents of the same bytes share what is made of them: stores of many arrays repeat theirs."""

SHARED_BYTES = 256 * 1024
"""Bytes of such documents of which it is remembered what was made; it takes roughly ten times that."""

FEW_VALUES = 10_000
"""A document of fewer commas and the like, and with no more brackets than may be nested, needs no closer look."""

LARGE_VALUES = 100_000
"""Values of a document that is parsed while no other such one is."""

_large = threading.Lock()

READ_ATTEMPTS = 3
"""A document that is replaced while it is read is read again this often; then the reader sees Stale."""


class Fields:
    """A JSON object being parsed: its getters return a value of the asked type or raise CorruptData."""

    __slots__ = ("place", "values")

    def __init__(self, values: Mapping[str, JSON], place: str) -> None:
        self.values = values
        self.place = place

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def fail(self, name: str, reason: str) -> NoReturn:
        """Raise CorruptData for the field `name`."""
        raise CorruptData(f"{self.place}: {name!r} {reason}")

    def value(self, name: str) -> JSON:
        """The field as it is; it must exist."""
        try:
            return self.values[name]
        except KeyError:
            self.fail(name, "is missing")

    def integer(self, name: str, least: int = 0, most: int = MAX_INTEGER) -> int:
        """An integer in [least, most]; `true` and `1.0` are none."""
        return self._integer(name, self.value(name), least, most)

    def integers(self, name: str, least: int = 0, most: int = 2**63 - 1, length: int | None = None) -> tuple[int, ...]:
        """A list of integers in [least, most], at most MAX_RANK of them (exactly `length` when given)."""
        values = self.sequence(name)
        if len(values) > MAX_RANK:
            self.fail(name, f"has {len(values)} entries, the limit is {MAX_RANK}")
        if length is not None and len(values) != length:
            self.fail(name, f"has {len(values)} entries where {length} are needed")
        return tuple(self._integer(name, value, least, most) for value in values)

    def string(self, name: str) -> str:
        value = self.value(name)
        if not isinstance(value, str):
            self.fail(name, f"is {kind(value)}, not a string")
        return value

    def choice(self, name: str, choices: Sequence[str], default: str | None = None) -> str:
        """A string that is one of `choices`; `default` when absent."""
        if default is not None and name not in self.values:
            return default
        value = self.string(name)
        if value not in choices:
            self.fail(name, f"is {value[:60]!r}, not one of {', '.join(map(repr, choices))}")
        return value

    def sequence(self, name: str) -> list[JSON]:
        value = self.value(name)
        if not isinstance(value, list):
            self.fail(name, f"is {kind(value)}, not a list")
        return value

    def mapping(self, name: str) -> dict[str, JSON]:
        """The field as a plain JSON object, not looked into."""
        value = self.value(name)
        if not isinstance(value, dict):
            self.fail(name, f"is {kind(value)}, not an object")
        return value

    def fields(self, name: str) -> Fields:
        """The field as a JSON object to be parsed further."""
        return Fields(self.mapping(name), f"{self.place}: {name}")

    def _integer(self, name: str, value: JSON, least: int, most: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(name, f"holds {kind(value)} where an integer is needed")
        if not least <= value <= most:
            self.fail(name, f"holds {value if abs(value) < 2**70 else 'a number'} outside [{least}, {most}]")
        return value


@dataclass(frozen=True, slots=True)
class Document:
    """One version of a parsed metadata document. `values` is shared by all readers: nobody changes it.

    `text`: its bytes where they are few, and may be those of others.
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
        """Makes the document of its `text` again, and holds nothing else of it."""
        text, bare = self.text or b"{}", replace(self, values={})
        return lambda: replace(bare, values=_DECODER.decode(text.decode("utf-8-sig")))


def parse(data: bytes, place: str, limits: Limits) -> JSON:
    """Parse one JSON value; CorruptData, naming `place`, for what is no strict JSON or too deep, TooLarge above a limit."""
    if len(data) > limits.document:
        raise CorruptData(f"{place}: document of {len(data)} bytes, the limit is {limits.document}")
    size = measure(data, limits)
    if size.depth > limits.json_depth:
        raise CorruptData(f"{place}: JSON nested deeper than {limits.json_depth}")
    if size.values > limits.json_values:
        raise TooLarge(f"{place}: JSON of {size.values} values, the limit is {limits.json_values}")
    try:
        with _large if size.values > LARGE_VALUES else nullcontext():
            value: JSON = _DECODER.decode(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise CorruptData(f"{place}: no UTF-8 text (byte {error.start})") from None
    except RecursionError:
        raise CorruptData(f"{place}: JSON nested deeper than {limits.json_depth}") from None
    except ValueError as error:  # JSONDecodeError, duplicate keys, integers of thousands of digits
        raise CorruptData(f"{place}: no valid JSON: {str(error)[:200]}") from None
    return value


def parse_object(data: bytes, place: str, limits: Limits) -> dict[str, JSON]:
    """`parse` for a document that has to be an object."""
    value = parse(data, place, limits)
    if not isinstance(value, dict):
        raise CorruptData(f"{place}: the document is {kind(value)}, not an object")
    return value


def kind(value: JSON) -> str:
    """What a JSON value is, for messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    names = {int: "an integer", float: "a number", str: "a string", list: "a list", dict: "an object"}
    return names.get(type(value), type(value).__name__)


class Measure(NamedTuple):
    """`values`: at most so many values and names; `depth`: at most so deep."""

    values: int
    depth: int


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
        self._vouch = abilities.vouch(store)

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

    def knows(self, key: Key) -> bool:
        """Whether a document has been read once, so that only a change of it would have to be sent."""
        return self._known.get(key) is not None

    def known(self, key: Key) -> Document | None:
        """The document as it was read last, whatever it is now."""
        return self._known.get(key)

    @property
    def vouched_for(self) -> bool:
        """Whether the store may know documents by their bytes, so that `adopt` is worth a call."""
        return self._vouch is not None

    def shown(self, key: Key) -> bool:
        """Whether the store knows without a request that it has a document."""
        return abilities.shows(self._store, key)

    def adopt(self, key: Key, texts: Iterable[bytes]) -> None:
        """Know the document at `key` as that one of `texts` which it is now, if the store vouches for one."""
        found = None if self._vouch is None else self._vouch(key, texts)
        if found is not None:
            document = self._parsed(found[0], self._store.describe(key), found[1])
            self._known.put(key, document, document.length + DOCUMENT_BYTES)

    def foresee(self, key: Key) -> None:
        """The document at `key` is about to be read, or looked at again: one far away is asked for meanwhile."""
        if not self.knows(key):
            self._store.fetch(key)
        elif not self._immutable:
            abilities.revisit(self._store, key)

    def same(self, key: Key, stat: Stat | None) -> bool:
        """Whether the store still has the object of `stat` at `key`, or (None) still has none. Errors as of `read`."""
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
            return Document(parse_object(text, place, self._limits), place, stat, len(text))
        return Document(self.said(text, place), place, stat, len(text), text)

    def said(self, text: bytes, place: str) -> Mapping[str, JSON]:
        """What a small document of these bytes says, see `parse_object`: all of them say the same."""
        values = self._shared.get(text)
        if values is None:
            values = self._shared.put(text, parse_object(text, place, self._limits), len(text) + DOCUMENT_BYTES)
        return values


class _Told(NamedTuple):
    """The version of a document: the store's, and what stands for its bytes."""

    stored: Hashable
    content: int


def told(stat: Stat, text: bytes) -> Stat:
    """The stat of a document of these bytes. Its version tells it from another one of one size that was written at the same
    time, as far as the store's clock tells times: it may tell whole seconds."""
    return stat._replace(version=_Told(stat.version, hash(text)))


def _stored(stat: Stat) -> Hashable:
    """The store's own version in a stat that is `told`."""
    return cast(_Told, stat.version).stored


class Repeated(Generic[T]):
    """What was made of small documents, for those that are the same byte for byte. Thread-safe."""

    def __init__(self) -> None:
        self._made: LRU[tuple[bytes | None, ...], T] = LRU(SHARED_BYTES)

    def known(self, *texts: bytes | None) -> T | None:
        """What was made of documents of these bytes (None: absent); None if nothing was, or it is forgotten."""
        return self._made.get(texts)

    def made(self, make: Callable[..., T], *documents: Document | None) -> T:
        """What `make` makes of `documents` (None: absent), or has made of the same ones. What it raises, it raises again."""
        texts: list[bytes | None] = []
        for document in documents:
            if document is not None and document.text is None:
                return make(*documents)
            texts.append(None if document is None else document.text)
        key = tuple(texts)
        found = self.known(*key)
        if found is None:
            size = sum(len(text) + DOCUMENT_BYTES for text in texts if text is not None)
            found = self._made.put(key, make(*documents), size)
        return found


def _unique(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    values = dict(pairs)
    if len(values) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"the key {name[:60]!r} occurs twice")
            seen.add(name)
    return values


_DECODER = json.JSONDecoder(object_pairs_hook=_unique)
"""Made once: `json.loads` makes one for each document."""


def measure(data: bytes, limits: Limits) -> Measure:
    """What parsing `data` would make, found without making it. Of what is no JSON, what comes before the error counts."""
    opening = data.count(b"[") + data.count(b"{")
    most = data.count(b",") + data.count(b":") + opening + 1
    if opening <= limits.json_depth and most <= FEW_VALUES:
        return Measure(most, opening)
    # Without escapes every quote begins or ends a string.
    text = np.frombuffer(data.replace(b"\\\\", b"").replace(b'\\"', b""), np.uint8)
    values = deepest = 1
    inside = depth = 0
    for start in range(0, len(text), MIB):
        part = text[start : start + MIB]
        quoted = np.bitwise_xor.accumulate(part == ord('"')) ^ bool(inside)
        part = np.where(quoted, 0, part)
        opened, closed = (part == ord("[")) | (part == ord("{")), (part == ord("]")) | (part == ord("}"))
        nesting = depth + np.cumsum(opened.astype(np.int32) - closed)
        values += int(np.count_nonzero(opened | (part == ord(",")) | (part == ord(":"))))
        deepest = max(deepest, int(nesting.max()))
        inside, depth = int(quoted[-1]), int(nesting[-1])
    return Measure(values, deepest)
