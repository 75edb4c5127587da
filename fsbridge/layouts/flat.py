"""Chunk files that all lie in one directory, named by their coordinates with a separator between them.

Not here: directories by coordinate, and the files themselves (`chunks.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from fsbridge.asking import oldest, used
from fsbridge.errors import NotFound
from fsbridge.layouts.chunks import ChunkSpace
from fsbridge.metadata import Index, parse_coordinate
from fsbridge.tree import Entry

SCALAR = b"0"
"""Name of the only chunk file of an array of rank 0, in Zarr v2 and in N5."""

BATCH_ENTRIES = 2000
"""Entries that a listing gives at once."""


def flat_entries(space: ChunkSpace, separator: bytes) -> Iterator[Sequence[Entry]]:
    """All stored files in one directory, named by their coordinates with `separator` between them."""
    if not space.rank:
        yield from scalar_entries(space)
        return
    batch: list[Entry] = []
    asked = oldest()
    for prefix in stored_rows(space.scan, space.rank):
        if prefix is None:
            yield ()
            continue
        begin = b"".join(b"%d%s" % (i, separator) for i in prefix)
        for pairs in space.scan(prefix):
            if not pairs:
                yield ()
            asked = min(asked, oldest())
            found = (space.entry((*prefix, i), begin + b"%d" % i, mtime_ns) for i, mtime_ns in pairs)
            batch += (entry for entry in found if entry is not None)
            if len(batch) >= BATCH_ENTRIES:
                used(asked)
                yield batch
                batch, asked = [], oldest()
    used(asked)
    yield batch


def scalar_entries(space: ChunkSpace) -> Iterator[Sequence[Entry]]:
    """The only file of an array of rank 0 that is called `0`, if it is stored."""
    try:
        entry = space.entry((), SCALAR, space.find(()).mtime_ns)
    except NotFound:
        return
    if entry is not None:
        yield [entry]


Scan: TypeAlias = Callable[[Index], Iterator[Sequence[tuple[int, int]]]]
"""What is stored below a prefix, see `model.Chunks.scan`."""


def stored_rows(scan: Scan, rank: int, prefix: Index = ()) -> Iterator[Index | None]:
    """Yield the prefix (all coordinates but the last) of each row with stored chunks; None while the store is busy."""
    if len(prefix) >= rank - 1:
        yield prefix
        return
    for pairs in scan(prefix):
        if not pairs:
            yield None
        for i, _ in pairs:
            yield from stored_rows(scan, rank, (*prefix, i))


def flat_cell(space: ChunkSpace, name: bytes, separator: bytes) -> Index | None:
    """Return the cell of the file `name` in a flat directory; None unless it is the canonical spelling of one."""
    if not space.rank:
        return () if name == SCALAR else None
    parts = name.split(separator)
    if len(parts) != space.rank:
        return None
    found = [parse_coordinate(part, count) for part, count in zip(parts, space.counts, strict=True)]
    return None if None in found else tuple(i for i in found if i is not None)
