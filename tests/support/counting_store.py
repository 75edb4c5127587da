"""A local store that notes what is read of it. Not here: any test, faults (`faulty_store.py`)."""

from __future__ import annotations

from fsbridge.store import Key, Stat
from fsbridge.store.local import LocalStore
from fsbridge.store.local.files import LocalObject


class CountingStore(LocalStore):
    """Notes the objects that are opened or read whole, and the lengths of the ranges that are read."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.opened: list[Key] = []
        self.wholes: list[Key] = []
        self.ranges: list[int] = []

    def open_object(self, key: Key) -> LocalObject:
        self.opened.append(key)
        return super().open_object(key)

    def read(self, key: Key, limit: int) -> tuple[bytes, Stat]:
        self.wholes.append(key)
        return super().read(key, limit)

    def read_range(self, key: Key, start: int, length: int) -> tuple[bytes, Stat]:
        self.ranges.append(length)
        return super().read_range(key, start, length)
