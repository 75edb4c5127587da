"""Large documents of the mount, kept because making them at every look-up would be felt. Not here: how they are made."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping

COSTLY_BYTES = 64 * 1024
"""Size from which on a directory's documents are kept."""

RENDERED_BYTES = 16 << 20
"""Of all that are kept; the last one is kept whatever its size."""


class RenderedDocuments:
    """The documents of directories by their place and what they were made of; the least recently used go. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, tuple[Hashable, Mapping[bytes, bytes], int]] = OrderedDict()
        self._bytes = 0

    def get(
        self, place: Hashable, made_of: Callable[[], Hashable], render: Callable[[], Mapping[bytes, bytes]]
    ) -> Mapping[bytes, bytes]:
        """The documents at `place`, which `render` makes of what `made_of` identifies; neither is called in vain."""
        with self._lock:
            kept = self._kept.get(place)
        if kept is not None and kept[0] == made_of():
            with self._lock:
                if place in self._kept:
                    self._kept.move_to_end(place)
            return kept[1]
        documents = render()
        size = sum(map(len, documents.values()))
        identity = made_of() if size > COSTLY_BYTES else None
        with self._lock:
            self._drop(place)
            if identity is not None:
                self._kept[place] = (identity, documents, size)
                self._bytes += size
                while self._bytes > RENDERED_BYTES and len(self._kept) > 1:
                    self._drop(next(iter(self._kept)))
        return documents

    def _drop(self, place: Hashable) -> None:
        kept = self._kept.pop(place, None)
        if kept is not None:
            self._bytes -= kept[2]
