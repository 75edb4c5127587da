"""Tools for small formats: arrays of one chunk, and reads of one version of a stored object.

docs/contributing.md names a whole format made of them. Not here: chunks under keys and codec chains (`keyed/`),
metadata documents (`documents.py`), data types (`dtypes.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from fsbridge.errors import CorruptData, NotFound, Stale
from fsbridge.metadata import Index
from fsbridge.model import ChunkInfo, Chunks, Pairs
from fsbridge.store import Key, Stat, Store, Stored


@dataclass(frozen=True, slots=True)
class OneChunk(Chunks):
    """Base of the chunks of an array that is stored as one whole. Its only chunk has the index 0, 0, ...

    An array without elements has none. `place` names the array in messages. A format adds `stored`, `read_into`, `read_all`
    and `size`.
    """

    place: str
    shape: tuple[int, ...]

    @abstractmethod
    def stored(self) -> ChunkInfo:
        """Return what is stored now. Raises NotFound if nothing is stored."""

    def find(self, index: Index) -> ChunkInfo:
        if index != (0,) * len(self.shape) or 0 in self.shape:
            raise NotFound(f"{self.place} has only one chunk")
        return self.stored()

    def find_prefix(self, prefix: Index) -> int:
        if any(prefix) or 0 in self.shape[: len(prefix)]:
            raise NotFound(f"{self.place} has only one chunk")
        return self.stored().mtime_ns

    def mtime_ns(self) -> int:
        return self.stored().mtime_ns

    def scan(self, prefix: Index) -> Iterator[Pairs]:
        if not any(prefix) and 0 not in self.shape:
            yield [(0, self.stored().mtime_ns)]

    def count(self) -> int:
        return int(0 not in self.shape)

    def check(self, index: Index, info: ChunkInfo) -> None:
        """Raise Stale if the chunk is no longer the one that was found as `info`."""
        if self.find(index).version != info.version:
            raise Stale(f"{self.place} has changed")


def read_object(store: Store, key: Key, info: ChunkInfo, limit: int) -> Stored:
    """Return all bytes of the stored object of `info`, at most `limit`. Raises Stale if it has been replaced or removed."""
    try:
        data, stat = store.read(key, limit)
    except NotFound:
        raise Stale(f"{store.describe(key)}: removed") from None
    _check(store, key, info, stat)
    return data


def read_object_range(store: Store, key: Key, info: ChunkInfo | Stat, start: int, length: int) -> bytes:
    """Return `length` bytes of the stored object of `info`. Raises Stale as `read_object` does.

    Raises CorruptData if the object is too short.
    """
    try:
        try:
            data, stat = store.read_range(key, start, length)
        except CorruptData:
            _check(store, key, info, store.stat(key))  # raises Stale if a shorter object has replaced it
            raise
    except NotFound:
        raise Stale(f"{store.describe(key)}: removed") from None
    _check(store, key, info, stat)
    return data


def _check(store: Store, key: Key, info: ChunkInfo | Stat, stat: Stat) -> None:
    if stat.version != info.version:
        raise Stale(f"{store.describe(key)}: replaced")
