"""Large documents of the mount, kept because making them at every look-up would be felt. Not here: how they are made."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from fsbridge.lru import LRU

COSTLY_BYTES = 64 * 1024
"""Size from which on a directory's documents are kept."""

RENDERED_BYTES = 16 << 20
"""Of all that are kept; the last one is kept whatever its size."""


class RenderedDocuments:
    """The documents of directories by their key and what they were made of. Thread-safe."""

    def __init__(self) -> None:
        self._known: LRU[Hashable, tuple[Hashable, Mapping[bytes, bytes]]] = LRU(RENDERED_BYTES)

    def get(
        self, key: Hashable, made_of: Callable[[], Hashable], render: Callable[[], Mapping[bytes, bytes]]
    ) -> Mapping[bytes, bytes]:
        """The documents of `key`, which `render` makes of what `made_of` identifies; neither is called in vain."""
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
