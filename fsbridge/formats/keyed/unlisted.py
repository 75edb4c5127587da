"""Arrays and groups of stores that list nothing (web servers): chunks are asked for one by one, metadata name members.

Consolidated metadata (Zarr v2 and v3) and OME-Zarr's `multiscales` name members; others are found by who knows their names.
Never an empty directory for what is not known. Not here: requests (`store/object.py`).
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from fsbridge.errors import CorruptData, NotFound, Unsupported
from fsbridge.metadata import JSON, ChunkGrid, Index
from fsbridge.model import Batch
from fsbridge.parallel import each
from fsbridge.store import ROOT, Key, Store

if TYPE_CHECKING:
    from fsbridge.formats.keyed.chunkkeys import ChunkKeys
    from fsbridge.formats.keyed.hierarchy import Hierarchy

MOST_CHUNKS = 4096
"""Chunks of an array that are asked for one by one: about four seconds at 30 ms."""
REQUESTS_AT_ONCE = 32
REMEMBERED_SECONDS = 60.0
"""For which the answers are remembered, as a listing would be."""


class UnlistedChunks:
    """Which chunks of one array are stored, found out by asking for each."""

    def __init__(self, store: Store, directory: Key, grid: ChunkGrid, keys: ChunkKeys) -> None:
        self._store = store
        self._directory = directory
        self._keys = keys
        self._counts = grid.counts
        self._asked = -math.inf
        self._stored: Mapping[Index, int] = {}

    def scan(self, prefix: Index) -> Iterator[Batch]:
        """The next coordinates of the chunks that begin with `prefix`."""
        found: dict[int, int] = {}
        for index, mtime_ns in self.stored().items():
            if index[: len(prefix)] == prefix:
                found.setdefault(index[len(prefix)], mtime_ns)
        yield Batch(sorted(found.items()), self._asked)

    def stored(self) -> Mapping[Index, int]:
        """The stored chunks and their mtimes in ns; Unsupported for too large a grid, or what the store answers."""
        if time.monotonic() - self._asked < REMEMBERED_SECONDS:
            return self._stored
        count = math.prod(self._counts)
        if count > MOST_CHUNKS:
            place = self._store.describe(self._directory)
            raise Unsupported(f"{place}: the server lists nothing, and {count} chunks are too many to ask for each")
        begun = time.monotonic()
        every = list(itertools.product(*map(range, self._counts)))
        times = each(self._look, every, REQUESTS_AT_ONCE)
        self._stored = {index: mtime for index, mtime in zip(every, times, strict=True) if mtime is not None}
        self._asked = begun
        return self._stored

    def _look(self, index: Index) -> int | None:
        below = self._keys.encode(index)
        try:
            return self._store.stat(Key(f"{self._directory}/{below}" if self._directory else below), (0, 1)).mtime_ns
        except NotFound:
            return None
        except CorruptData:  # an empty object: opening it says so
            return 0


def named_members(hierarchy: Hierarchy, key: Key) -> list[str] | None:
    """Names of the members of the group at `key` that metadata tell; None where they tell nothing."""
    names = _multiscales(hierarchy.group_attributes(key))
    told = bool(names)
    above = key
    while True:
        for path in _consolidated(hierarchy, above):
            told = True
            full = f"{above}/{path}".strip("/")
            if full.startswith(f"{key}/" if key else ""):
                names.add(full[len(key) + 1 if key else 0 :].partition("/")[0])
        if above == ROOT:
            return sorted(name for name in names if name) if told else None
        above = above.parent


def _consolidated(hierarchy: Hierarchy, key: Key) -> Iterator[str]:
    """Paths below `key` of the groups and arrays that its consolidated metadata name."""
    documents = hierarchy.keyed.documents
    for name in hierarchy.consolidated:
        document = documents.read(key / name)
        found: JSON = None if document is None else document.values
        for step in ("consolidated_metadata", "metadata") if name == "zarr.json" else ("metadata",):
            found = found.get(step) if isinstance(found, dict) else None
        for path in found if isinstance(found, dict) else ():
            if isinstance(path, str):
                yield path if name == "zarr.json" else path.rpartition("/")[0]


def _multiscales(attributes: Mapping[str, JSON]) -> set[str]:
    """OME-Zarr: the arrays of an image's resolutions."""
    ome = attributes.get("ome")
    scales = (ome if isinstance(ome, dict) else attributes).get("multiscales")
    found: set[str] = set()
    for scale in scales if isinstance(scales, list) else ():
        datasets = scale.get("datasets") if isinstance(scale, dict) else None
        for dataset in datasets if isinstance(datasets, list) else ():
            path = dataset.get("path") if isinstance(dataset, dict) else None
            if isinstance(path, str):
                found.add(path.strip("/").partition("/")[0])
    return found
