"""Which chunks of an array are stored, and whom the first of them let read. Not here: reading any (`supply.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from fsbridge.errors import NotFound
from fsbridge.metadata import Index
from fsbridge.model import Batch, Chunks, prefix_owner
from fsbridge.owner import Owner, entered


def chunk_owners(chunks: Chunks, rank: int, most: int) -> set[Owner | None]:
    """Whom the first stored chunks, and the directories that they are in, let read; `most`: of so many, roughly."""
    return set(islice(_owners(chunks, rank), most))


def _owners(chunks: Chunks, rank: int, prefix: Index = ()) -> Iterator[Owner | None]:
    try:
        if len(prefix) == rank:
            yield chunks.find(prefix).owner
            return
        for batch in chunks.scan(prefix):
            common = batch.owner if isinstance(batch, Batch) and len(prefix) == rank - 1 else None
            if common is not None:
                yield common
                continue
            for coordinate, _ in batch:
                if len(prefix) < rank - 1:
                    yield entered(prefix_owner(chunks, (*prefix, coordinate)))
                yield from _owners(chunks, rank, (*prefix, coordinate))
    except NotFound:
        return


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
