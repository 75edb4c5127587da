"""A cache of the mount's documents: large ones, and those of arrays with the same metadata. Not here: making them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TypeAlias

from fsbridge.lru import LRU
from fsbridge.metadata import ArrayMetadata

COSTLY_BYTES = 64 * 1024
"""Size from which on a directory's documents are kept because making them at every look-up would be felt."""

RENDERED_BYTES = 16 << 20
"""Bytes of all documents kept; the last one is kept whatever its size."""

SHARED_ARRAYS = 256
"""Metadata objects with documents that are remembered: arrays of a store that are alike share one object."""

SHARED_BYTES = 4096
"""Size up to which that is so: as much as metadata of that number take."""

Documents: TypeAlias = Mapping[bytes, bytes]


class RenderedDocuments:
    """The documents of directories by their key and what they were made of. Thread-safe."""

    def __init__(self) -> None:
        self._known: LRU[Hashable, tuple[Hashable, Documents]] = LRU(RENDERED_BYTES)
        self._shared: LRU[Hashable, tuple[ArrayMetadata, Documents]] = LRU(SHARED_ARRAYS)

    def get(self, key: Hashable, made_of: Callable[[], Hashable], render: Callable[[], Documents]) -> Documents:
        """The documents of `key`, which `render` makes of what `made_of` identifies. Neither is called needlessly."""
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
        """The documents of all arrays that have this very object as their metadata; `variant`: how they are shown."""
        key = variant, id(metadata)  # unique while we hold the object
        known = self._shared.get(key)
        if known is None:
            documents = render()
            known = metadata, documents
            if sum(map(len, documents.values())) <= SHARED_BYTES:
                self._shared.put(key, known)
        return known[1]
