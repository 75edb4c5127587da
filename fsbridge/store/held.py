"""A file of a local store, held open: reading it looks for nothing again. Not here: how it is found (`local.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsbridge.errors import CorruptData, Stale, TooLarge
from fsbridge.store import Key, nowait
from fsbridge.store.status import Status, same

if TYPE_CHECKING:
    from fsbridge.store.local import LocalStore


class LocalObject:
    """An open file of a store (`store.OpenedObject`)."""

    __slots__ = ("_at_once", "_before", "_fd", "_key", "_store", "stat")

    def __init__(self, store: LocalStore, key: Key, fd: int, status: Status) -> None:
        self._store = store
        self._key = key
        self._fd = fd
        self._before = status
        self._at_once = not nowait.mode.waits  # whether it is near, so that no look at it will ever wait
        self.stat = store.stat_open(fd, key, status)

    def read(self, limit: int) -> bytes:
        size = self._before.st_size
        if size > limit:
            raise TooLarge(f"{self._store.describe(self._key)}: {size} bytes stored, the limit here is {limit}")
        return self.read_range(0, size)

    def read_range(self, start: int, length: int) -> bytes:
        store, key, size = self._store, self._key, self._before.st_size
        if start < 0 or length < 0 or start + length > size:
            raise CorruptData(f"{store.describe(key)}: {length} bytes at {start} wanted of an object of {size}")
        data = store.read_open(self._fd, key, start, length)
        if not same(self._before, nowait.look(self._fd, self._at_once)):
            raise Stale(f"{store.describe(key)}: changed while it was read")
        return data

    def close(self) -> None:
        nowait.close(self._fd, self._at_once)
