"""A cache of rendered documents: large ones, and those that arrays with equal metadata share. Not here: making them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TypeAlias

from fsbridge.lru import LRU
from fsbridge.metadata import ArrayMetadata

COSTLY_BYTES = 64 * 1024
"""Bytes above which a directory's documents are cached, because making them for every look-up would be slow."""

RENDERED_BYTES = 16 << 20
"""Most bytes of large documents in the cache. The latest one is kept whatever its size."""

SHARED_ARRAYS = 256
"""Most metadata objects with cached documents. Similar arrays of a store share one metadata object."""

SHARED_BYTES = 4096
"""Most bytes of documents cached for a metadata object, about as much as the metadata objects themselves take."""

Documents: TypeAlias = Mapping[bytes, bytes]


class RenderedDocuments:
    """Cached documents of directories, each with the identity of what it was made of. Thread-safe."""

    def __init__(self) -> None:
        self._known: LRU[Hashable, tuple[Hashable, Documents]] = LRU(RENDERED_BYTES)
        self._shared: LRU[Hashable, tuple[ArrayMetadata, Documents]] = LRU(SHARED_ARRAYS)

    def get(self, key: Hashable, made_of: Callable[[], Hashable], render: Callable[[], Documents]) -> Documents:
        """Return the documents of `key`: cached while `made_of()` returns an equal identity, else made by `render`."""
        known = self._known.get(key)
        if known is not None and known[0] == made_of():
            return known[1]
        documents = render()
        size = sum(map(len, documents.values()))
        identity = made_of() if size > COSTLY_BYTES else None
        if identity is None:
            self._known.drop(key)
        else:
            self._known.put(key, (identity, documents), size)
        return documents

    def shared(self, variant: Hashable, metadata: ArrayMetadata, render: Callable[[], Documents]) -> Documents:
        """Return the documents that all arrays with this same metadata object share. `variant`: how the arrays are shown."""
        key = variant, id(metadata)  # unique while we hold the object
        known = self._shared.get(key)
        if known is None:
            documents = render()
            known = metadata, documents
            if sum(map(len, documents.values())) <= SHARED_BYTES:
                self._shared.put(key, known)
        return known[1]
