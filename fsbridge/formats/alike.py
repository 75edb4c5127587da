"""Shares parsed metadata among arrays of one kind, that is, arrays with documents that differ only in attributes and shape.

The other members of such documents are parsed once for all of these arrays. Not here: reading documents, sharing for
documents with equal bytes (`documents.py`), which members are attributes (the formats).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVarTuple

from fsbridge.formats.documents import DOCUMENT_BYTES, SHARED_BYTES, Document
from fsbridge.lru import LRU
from fsbridge.metadata import JSON, MAX_EXTENT, MAX_RANK, ArrayMetadata, ChunkGrid

Rest = TypeVarTuple("Rest")

Values: TypeAlias = Mapping[str, JSON]


class Split(NamedTuple):
    """An array's documents, split into the part that arrays of one kind share and the array's own shape and attributes.

    `said`: the shared part: all members except attributes, with the rank in place of the shape. `joined` takes the parsed
    result of another array of this kind and returns it with this array's shape and attributes.
    """

    said: Values
    joined: Callable[..., Any]


def shape_of(values: Values, name: str) -> tuple[int, ...] | None:
    """Return the member `name` if it is a valid shape, else None."""
    value = values.get(name)
    if not isinstance(value, list) or len(value) > MAX_RANK:
        return None
    return tuple(value) if all(type(extent) is int and 0 <= extent <= MAX_EXTENT for extent in value) else None


def reshaped(grid: ChunkGrid, shape: tuple[int, ...]) -> ChunkGrid:
    """Return the chunk grid for another array shape of the same rank."""
    return grid if grid.shape == shape else ChunkGrid(shape, grid.edges)


class Kinds(Generic[*Rest]):
    """Parsed metadata of each kind of array, kept by `Split.said`. Thread-safe."""

    def __init__(self, parse: Callable[..., tuple[ArrayMetadata, *Rest]], split: Callable[..., Split | None]) -> None:
        """`parse` takes documents, `split` their values. `split` returns None for an array that cannot share metadata."""
        self._parse = parse
        self._split = split
        self._made: LRU[str, tuple[ArrayMetadata, *Rest]] = LRU(SHARED_BYTES)

    def known(self, *values: Values | None) -> tuple[ArrayMetadata, *Rest] | None:
        """Return the metadata for documents with these values (None: absent), or None if this kind was not parsed yet."""
        split = self._split(*values)
        return None if split is None else self._joined(split, self._made.get(repr(split.said)))

    def parse(self, *documents: Document | None) -> tuple[ArrayMetadata, *Rest]:
        """Return the metadata of documents, parsed only if this kind was not parsed yet. Raises the errors of `parse`."""
        if any(document is not None and document.text is None for document in documents):
            return self._parse(*documents)  # large documents are not shared
        split = self._split(*(document and document.values for document in documents))
        if split is None:
            return self._parse(*documents)
        said = repr(split.said)
        known = self._joined(split, self._made.get(said))
        if known is not None:
            return known
        made = self._parse(*documents)
        if made[0].refused is None and made[0].dtype.element is None:  # otherwise the metadata may contain this array's name
            self._made.put(said, made, len(said) + DOCUMENT_BYTES)
        return made

    def _joined(self, split: Split, known: Any) -> tuple[ArrayMetadata, *Rest] | None:
        joined: tuple[ArrayMetadata, *Rest] | None = None if known is None else split.joined(*known)
        return joined
