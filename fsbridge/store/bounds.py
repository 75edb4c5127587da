"""What may be read of a stored object: so much in memory, and nothing beyond its end. Not here: reading."""

from __future__ import annotations

from fsbridge.errors import CorruptData, TooLarge
from fsbridge.store import Key, Store


def check_limit(store: Store, key: Key, size: int, limit: int) -> None:
    """TooLarge for an object of `size` bytes where `limit` are allowed."""
    if size > limit:
        raise TooLarge(f"{store.describe(key)}: {size} bytes stored, the limit here is {limit}")


def check_range(store: Store, key: Key, start: int, length: int, size: int) -> None:
    """CorruptData for bytes [start, start + length) that an object of `size` bytes does not have."""
    if start < 0 or length < 0 or start + length > size:
        raise CorruptData(f"{store.describe(key)}: {length} bytes at {start} wanted of an object of {size}")
