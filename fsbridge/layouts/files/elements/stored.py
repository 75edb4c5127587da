"""Which chunks of an array are stored. Not here: reading any (`supply.py`)."""

from __future__ import annotations

from collections.abc import Iterator

from fsbridge.errors import NotFound
from fsbridge.metadata import Index
from fsbridge.model import Chunks


def stored_chunks(chunks: Chunks, rank: int, most: int, prefix: Index = ()) -> Iterator[Index]:
    """Grid positions of stored chunks, at most that many."""
    if len(prefix) == rank:
        yield prefix
        return
    count = 0
    try:
        for batch in chunks.scan(prefix):
            for coordinate, _ in batch:
                for found in stored_chunks(chunks, rank, most - count, (*prefix, coordinate)):
                    yield found
                    count += 1
                if count >= most:
                    return
    except NotFound:
        return
