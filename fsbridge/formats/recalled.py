"""Large attributes of arrays, read again when somebody wants them: a mount knows thousands of arrays at a time (P6).

Not here: reading documents (`documents.py`), or what is remembered of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from fsbridge.config import MIB
from fsbridge.lru import LRU
from fsbridge.metadata import JSON, ArrayMetadata

HELD_BYTES = 1024
"""Bytes of JSON up to which an array holds its attributes itself; parsed they take roughly ten times that."""

RECALLED_BYTES = MIB
"""Bytes of JSON whose parsed form is kept, of all arrays together, and that of the last one whatever its size."""

_kept: LRU[object, Mapping[str, JSON]] = LRU(RECALLED_BYTES)


class Recalled(Mapping[str, JSON]):
    """A mapping that `load` gives, of `size` bytes of JSON. Its use may block, and raises what `load` does."""

    __slots__ = ("_key", "_load", "_size")

    def __init__(self, load: Callable[[], Mapping[str, JSON]], size: int) -> None:
        self._load = load
        self._size = size
        self._key = object()

    def __getitem__(self, name: str) -> JSON:
        return self._values()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values())

    def __len__(self) -> int:
        return len(self._values())

    def _values(self) -> Mapping[str, JSON]:
        found = _kept.get(self._key)
        return _kept.put(self._key, self._load(), self._size) if found is None else found


def light(metadata: ArrayMetadata, size: int, again: Callable[[], ArrayMetadata]) -> ArrayMetadata:
    """The metadata, made of `size` bytes of JSON, without what is large; `again` makes them anew, or raises Stale."""
    if size <= HELD_BYTES:
        return metadata
    attributes, native = Recalled(lambda: again().attributes, size), Recalled(lambda: again().native, size)
    return replace(metadata, attributes=attributes, native=native)
