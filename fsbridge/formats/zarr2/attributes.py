"""`.zattrs` of a remote array, read only when its attributes are asked for: reading chunks takes one document less.

Not here: what attributes mean (`hierarchy.py`).
"""

from __future__ import annotations

import threading

from fsbridge.errors import Stale
from fsbridge.formats.documents import Document, DocumentReader
from fsbridge.store import Key, Stat


class LateAttributes:
    """The `.zattrs` at `key` beside one version, `array`, of `.zarray`. Thread-safe.

    It is part of the array's version: once they are read, the attributes must stay the same.
    """

    __slots__ = ("__weakref__", "_documents", "_key", "_lock", "_stat", "array", "is_read")

    def __init__(self, documents: DocumentReader, key: Key, array: Stat) -> None:
        self._documents = documents
        self._key = key
        self._lock = threading.Lock()
        self._stat: Stat | None = None
        self.array = array
        self.is_read = False

    def read(self) -> Document | None:
        """Return the document, or None. Raises Stale if it differs from the first reading."""
        document = self._documents.read(self._key)
        stat = None if document is None else document.stat
        with self._lock:
            if not self.is_read:
                self._stat, self.is_read = stat, True
            before = self._stat
        if (stat is None) != (before is None) or (
            stat is not None and before is not None and stat.version != before.version
        ):
            raise Stale(f"{self._key}: the array's attributes have changed")
        return document

    def current(self) -> bool:
        """Tell whether the attributes are unchanged, as far as they were read."""
        return not self.is_read or self._documents.same(self._key, self._stat)

    def foresee(self) -> None:
        """Prefetch the answer of `current`."""
        if self.is_read:
            self._documents.foresee(self._key)

    def mtime_ns(self) -> int:
        """Return the document's modification time once it has been read; 0 if there is none."""
        return 0 if self._stat is None else self._stat.mtime_ns
