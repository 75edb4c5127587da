"""A file of a local store, held open: a read does not look its path up again. Not here: how it is found (`files.py`)."""

from __future__ import annotations

from fsbridge import asking
from fsbridge.errors import Stale
from fsbridge.store import Key
from fsbridge.store.bounds import check_limit, check_range
from fsbridge.store.local import cached
from fsbridge.store.local.files import LocalFiles
from fsbridge.store.local.status import Status, same, stat_of


class LocalObject:
    """An open file of a store (`store.OpenedObject`). It owns the descriptor and closes it."""

    __slots__ = ("_at_once", "_before", "_fd", "_files", "_key", "stat")

    def __init__(self, files: LocalFiles, key: Key, fd: int, status: Status) -> None:
        self._files = files
        self._key = key
        self._fd = fd
        self._before = status
        self._at_once = not asking.context.may_wait  # true for a local file system, where fstat never waits
        self.stat = stat_of(status)

    def read(self, limit: int) -> bytes:
        size = self._before.st_size
        check_limit(self._files, self._key, size, limit)
        return self._read(0, size)

    def read_range(self, start: int, length: int) -> bytes:
        check_range(self._files, self._key, start, length, self._before.st_size)
        return self._read(start, length)

    def _read(self, start: int, length: int) -> bytes:
        files, key = self._files, self._key
        data = files.read_open(self._fd, key, start, length)
        if not same(self._before, cached.look(self._fd, self._at_once)):
            raise Stale(f"{files.describe(key)}: changed while it was read")
        return data

    def close(self) -> None:
        cached.close(self._fd, self._at_once)
