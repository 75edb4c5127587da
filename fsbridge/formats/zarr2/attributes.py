"""`.zattrs` of an array far away: read for who wants to know what it says, so who reads chunks asks for one document less.

Not here: what attributes mean (`hierarchy.py`).
"""

from __future__ import annotations

import threading

from fsbridge.errors import Stale
from fsbridge.formats.documents import Document, DocumentReader
from fsbridge.store import Key, Stat


class LateAttributes:
    """The `.zattrs` at `key` beside one version, `array`, of `.zarray`. Thread-safe.

    As part of an array's version it stands for what they are: from the first reading on they must stay the same.
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
        """The document; None where there is none. Stale if it is not what it was when it was first read."""
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
        """Whether they are still the same, as far as anybody knows them."""
        return not self.is_read or self._documents.same(self._key, self._stat)

    def foresee(self) -> None:
        """`current` is about to be asked."""
        if self.is_read:
            self._documents.foresee(self._key)

    def mtime_ns(self) -> int:
        """The document's, once it has been read; 0 for none."""
        return 0 if self._stat is None else self._stat.mtime_ns
