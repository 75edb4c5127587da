"""A file of a local store, held open: reading it looks for nothing again. Not here: how it is found (`local.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsbridge.errors import Stale
from fsbridge.store import Key, nowait
from fsbridge.store.bounds import check_limit, check_range
from fsbridge.store.status import Status, same

if TYPE_CHECKING:
    from fsbridge.store.local import LocalStore


class LocalObject:
    """An open file of a store (`store.OpenedObject`), whose descriptor it closes."""

    __slots__ = ("_at_once", "_before", "_fd", "_key", "_store", "stat")

    def __init__(self, store: LocalStore, key: Key, fd: int, status: Status) -> None:
        self._store = store
        self._key = key
        self._fd = fd
        self._before = status
        self._at_once = not nowait.mode.waits  # whether it is near, so that no look at it will ever wait
        try:
            self.stat = store.stat_open(fd, key, status)
        except BaseException:
            self.close()
            raise

    def read(self, limit: int) -> bytes:
        size = self._before.st_size
        check_limit(self._store, self._key, size, limit)
        return self._read(0, size)

    def read_range(self, start: int, length: int) -> bytes:
        check_range(self._store, self._key, start, length, self._before.st_size)
        return self._read(start, length)

    def _read(self, start: int, length: int) -> bytes:
        store, key = self._store, self._key
        data = store.read_open(self._fd, key, start, length)
        if not same(self._before, nowait.look(self._fd, self._at_once)):
            raise Stale(f"{store.describe(key)}: changed while it was read")
        return data

    def close(self) -> None:
        nowait.close(self._fd, self._at_once)
