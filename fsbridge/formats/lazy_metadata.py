"""Array attributes that are loaded only on use.

Large attributes are dropped and read again on use, because a mount has many arrays in memory (P6). Attributes of a remote
array are not read before the first use, because a reader of chunks needs none. Not here: reading documents
(`documents.py`), their cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, Self, TypeVarTuple

from fsbridge.config import MIB
from fsbridge.formats.documents import Document
from fsbridge.formats.shared import SharedPart
from fsbridge.lru import LRU
from fsbridge.metadata import JSON, ArrayMetadata

HELD_BYTES = 1024
"""Most bytes of JSON for which an array keeps its attributes in memory. Parsed they take roughly ten times that."""

PARSED_BYTES = MIB
"""Bytes of JSON kept in parsed form for all arrays together; the last one is kept whatever its size."""

Rest = TypeVarTuple("Rest")


class ParsedAttributes(SharedPart):
    """Keeps the attributes that were used last in parsed form."""

    def __init__(self) -> None:
        self.kept: LRU[object, Mapping[str, JSON]] = LRU(PARSED_BYTES)


class LazyMapping(Mapping[str, JSON]):
    """A mapping that calls `load` for its content on each use. `size`: bytes of its JSON.

    A use may block, and raises what `load` raises.
    """

    __slots__ = ("_key", "_load", "_parsed", "_size")

    def __init__(self, load: Callable[[], Mapping[str, JSON]], size: int, parsed: ParsedAttributes) -> None:
        self._load = load
        self._size = size
        self._parsed = parsed
        self._key = object()

    def __getitem__(self, name: str) -> JSON:
        return self._values()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values())

    def __len__(self) -> int:
        return len(self._values())

    def _values(self) -> Mapping[str, JSON]:
        values = self._parsed.kept.get(self._key)
        return self._parsed.kept.put(self._key, self._load(), self._size) if values is None else values


def light(metadata: ArrayMetadata, size: int, again: Callable[[], ArrayMetadata], parsed: ParsedAttributes) -> ArrayMetadata:
    """Return metadata with lazy attributes if it is large, else as it is. `size`: in bytes of JSON.

    `again` makes the metadata again, or raises Stale. `parsed` keeps the attributes that were used last.
    """
    if size <= HELD_BYTES or isinstance(metadata.native, LazyMapping):
        return metadata
    attributes = LazyMapping(lambda: again().attributes, size, parsed)
    return replace(metadata, attributes=attributes, native=LazyMapping(lambda: again().native, size, parsed))


def lighten(
    parse: Callable[..., tuple[ArrayMetadata, *Rest]], parsed: ParsedAttributes
) -> Callable[..., tuple[ArrayMetadata, *Rest]]:
    """Wrap `parse` so that it returns `light` metadata for documents above HELD_BYTES that still have their `text`.

    Attributes are made again from these texts, not from the store. So arrays with equal texts can share the metadata, even
    if the documents of one of them change.
    """

    def parse_light(*documents: Document | None) -> tuple[ArrayMetadata, *Rest]:
        made = parse(*documents)
        given = [document for document in documents if document is not None]
        size = sum(document.length for document in given)
        if size <= HELD_BYTES or any(document.text is None for document in given):
            return made
        texts = [document and document.unparsed() for document in documents]
        return light(made[0], size, lambda: parse(*(text and text() for text in texts))[0], parsed), *made[1:]

    return parse_light


_LAZY = ("attributes", "attributes_error", "dimension_names", "native")


class _LazyMetadata(ArrayMetadata):
    """Metadata that lacks attributes, dimension names and native metadata until one of these is used.

    The use calls `complete`, so it may block and may raise.
    """

    __slots__ = ("_complete",)
    _complete: Callable[[], ArrayMetadata]

    def __new__(cls, *given: Any, **changed: Any) -> Any:
        """Return a plain ArrayMetadata, because `dataclasses.replace` calls this with every value."""
        return ArrayMetadata(*given, **changed)

    @classmethod
    def of(cls, metadata: ArrayMetadata, complete: Callable[[], ArrayMetadata]) -> Self:
        made = object.__new__(cls)
        for one in fields(ArrayMetadata):
            if one.name not in _LAZY:
                object.__setattr__(made, one.name, getattr(metadata, one.name))
        object.__setattr__(made, "_complete", complete)
        return made

    @property
    def attributes(self) -> Mapping[str, JSON]:
        return self._complete().attributes

    @property
    def attributes_error(self) -> Exception | None:
        return self._complete().attributes_error

    @property
    def dimension_names(self) -> tuple[str | None, ...] | None:
        return self._complete().dimension_names

    @property
    def native(self) -> Mapping[str, JSON]:
        return self._complete().native


def lazy(metadata: ArrayMetadata, complete: Callable[[], ArrayMetadata]) -> ArrayMetadata:
    """Return metadata without attributes, dimension names and native metadata.

    `complete` is called for all of it on their use.
    """
    return _LazyMetadata.of(metadata, complete)
