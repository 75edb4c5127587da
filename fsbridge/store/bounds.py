"""Checks before a read: that an object is not too large for memory, and that a range ends within it. Not here: reading."""

from __future__ import annotations

from typing import Protocol

from fsbridge.errors import CorruptData, TooLarge
from fsbridge.store import Key


class Describes(Protocol):
    """A store, or anything else that can name its keys in messages."""

    def describe(self, key: Key) -> str:
        """`key` for messages."""


def check_limit(store: Describes, key: Key, size: int, limit: int) -> None:
    """TooLarge for an object of `size` bytes where `limit` are allowed."""
    if size > limit:
        raise TooLarge(f"{store.describe(key)}: {size} bytes stored, the limit here is {limit}")


def check_range(store: Describes, key: Key, start: int, length: int, size: int) -> None:
    """CorruptData for bytes [start, start + length) that an object of `size` bytes does not have."""
    if start < 0 or length < 0 or start + length > size:
        raise CorruptData(f"{store.describe(key)}: {length} bytes at {start} wanted of an object of {size}")
