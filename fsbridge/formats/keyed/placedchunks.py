"""The stored chunk files of a keyed array, and what nested and flat chunk files share: looking up a chunk.

Not here: the names of chunks (`chunkkeys.py`), listings (`chunkfiles.py`, `flatchunks.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from typing import Protocol

from fsbridge.errors import CorruptData, FsbridgeError, IsADirectory, NotFound
from fsbridge.formats.keyed.chunkkeys import ChunkKeys
from fsbridge.formats.keyed.listedtimes import ListedTimes
from fsbridge.formats.keyed.unlisted import UnlistedChunks
from fsbridge.metadata import ChunkGrid, Index, parse_coordinate
from fsbridge.model import ChunkInfo, Pairs
from fsbridge.store import WHOLE, Key, OpenedObject, Range, Stat, Store

LEAST_NAMES, MEMBERS_EACH = 16, 16
"""When absent chunks are found by listing their directory instead of looking each one up.

At least LEAST_NAMES chunks must be wanted, and the listing ends after MEMBERS_EACH members per wanted chunk. Listing a
member takes a thirtieth of the time of a look-up that finds no chunk.
"""


BESIDE_CHUNKS = frozenset(("zarr.json", "attributes.json"))
"""Documents in an array's directory with names that do not begin with a dot."""


class ChunkFiles(Protocol):
    """The stored chunk objects of one array: the part of `model.Chunks` that needs no decoding. Thread-safe."""

    def key(self, index: Index) -> Key:
        """Return the store key of the chunk at `index`."""

    def find(self, index: Index, read: Range = WHOLE) -> ChunkInfo:
        """Return the stored chunk. Raises NotFound if absent or outside the grid, CorruptData if it is a directory.

        `read`: the range that will be read next, see `store.Store.stat`.
        """

    def opened(self, index: Index) -> tuple[ChunkInfo, OpenedObject] | None:
        """Return the chunk with its object held open; None in a store where that does not pay."""

    def absent(self, indices: Sequence[Index]) -> set[Index]:
        """See `model.ChunkAbilities.absent`."""

    def find_prefix(self, prefix: Index) -> int: ...

    def touched_ns(self) -> int:
        """Return the mtime of the directory that holds all chunks, 0 if it does not exist. Lists nothing."""

    def commit(self) -> Hashable:
        """See `model.ChunkAbilities.commit`."""

    def scan(self, prefix: Index) -> Iterator[Pairs]: ...

    def count(self) -> int: ...

    def strays(self) -> Iterator[str]:
        """See `model.ChunkAbilities.strays`."""


class PlacedChunkFiles(ABC):
    """Base of nested and flat chunk files: keys, bounds, looking up a chunk, stores that cannot be listed."""

    def __init__(self, store: Store, directory: Key, grid: ChunkGrid, keys: ChunkKeys, listed: ListedTimes) -> None:
        self.store = store
        self.directory = directory
        self.keys = keys
        self.grid = grid
        self.counts = grid.counts
        self.listed = listed
        self.variant = (keys.separator, keys.prefix, self.counts)
        self._start = f"{directory}/" if directory else ""
        self.asked = None if store.listable else UnlistedChunks(store, directory, grid, keys)

    def key(self, index: Index) -> Key:
        inside = len(index) == len(self.counts)
        for coordinate, count in zip(index, self.counts, strict=False):
            inside &= 0 <= coordinate < count
        if not inside:
            raise NotFound(f"{self.store.describe(self.directory)}: no chunk {list(index)} in a grid of {list(self.counts)}")
        return Key(self._start + self.keys.encode(index))

    def find(self, index: Index, read: Range = WHOLE) -> ChunkInfo:
        key = self.key(index)
        stat = self.store.stat(key, read)
        if stat.is_dir:
            raise CorruptData(f"{self.store.describe(key)}: a directory in place of a chunk")
        return self._seen(index, stat)

    def opened(self, index: Index) -> tuple[ChunkInfo, OpenedObject] | None:
        key = self.key(index)
        try:
            found = self.store.opened(key)
        except IsADirectory:
            raise CorruptData(f"{self.store.describe(key)}: a directory in place of a chunk") from None
        return None if found is None else (self._seen(index, found.stat), found)

    def absent(self, indices: Sequence[Index]) -> set[Index]:
        wanted: dict[str, dict[str, Index]] = {}  # by directory, and by name
        for index in indices:
            directory, _, name = self.key(index).rpartition("/")
            wanted.setdefault(directory, {})[name] = index
        found: set[Index] = set()
        for directory, names in wanted.items():
            if len(names) < LEAST_NAMES:
                continue
            with suppress(FsbridgeError, OSError):  # looking up each chunk reports the error
                lacking = self.store.lacking(Key(directory), names, MEMBERS_EACH * len(names))
                found.update(map(names.__getitem__, lacking or ()))
        return found

    def _seen(self, index: Index, stat: Stat) -> ChunkInfo:
        if index:
            self.listed.seen(self._listing(index[:-1]), index[-1], stat.mtime_ns)
        return ChunkInfo(stat.version, stat.size, stat.mtime_ns, None, stat.settled)

    def find_prefix(self, prefix: Index) -> int:
        if self._outside(prefix) or len(prefix) >= len(self.counts):
            return self.find(prefix).mtime_ns
        if self.store.prefixes:  # whether it exists shows in its listing or in look-ups of chunks
            return self.store.stat(self.directory).mtime_ns
        return self._find_directory(prefix)

    def scan(self, prefix: Index) -> Iterator[Pairs]:
        if self._outside(prefix) or len(prefix) >= len(self.counts):
            return iter(())
        return self._scan(prefix) if self.asked is None else self.asked.scan(prefix)

    def count(self) -> int:
        if not self.counts:
            return stored_once(self, ())
        return self._count() if self.asked is None else len(self.asked.stored())

    def strays(self) -> Iterator[str]:
        """See `model.ChunkAbilities.strays`. In a store that cannot be listed none are found."""
        return self._strays(self.directory, "") if self.asked is None else iter(())

    def _strays(self, directory: Key, below: str) -> Iterator[str]:
        for entry in self.store.list(directory):
            name = below + entry.name
            if entry.name.startswith(".") or (not below and entry.name in BESIDE_CHUNKS):
                continue
            if not entry.is_dir:
                if not entry.hidden and self.keys.decode(name, self.counts) is None:
                    yield f"{self.store.describe(directory / entry.name)}: no chunk of a grid of {list(self.counts)}"
            elif self._leads(name):
                yield from self._strays(directory / entry.name, f"{name}/")
            elif self.keys.decode(name, self.counts) is None:  # reading the chunk reports the directory
                yield f"{self.store.describe(directory / entry.name)}: a directory that no chunk is in"

    def _leads(self, name: str) -> bool:
        """True if chunk keys can begin with the path of this directory."""
        start = f"{self.keys.prefix}/" if self.keys.prefix else ""
        if self.keys.separator != "/" or not f"{name}/".startswith(start):
            return False
        names = [one for one in f"{name}/"[len(start) :].split("/") if one]
        counts = self.counts[: len(names)]
        return len(names) < len(self.counts) and all(
            parse_coordinate(one, count) is not None for one, count in zip(names, counts, strict=True)
        )

    @abstractmethod
    def _find_directory(self, prefix: Index) -> int:
        """Implement `find_prefix` for part of an index inside the grid, in a store of directories."""

    @abstractmethod
    def _scan(self, prefix: Index) -> Iterator[Pairs]:
        """Implement `scan` for part of an index inside the grid, in a store that can be listed."""

    @abstractmethod
    def _count(self) -> int:
        """Implement `count` in a store that can be listed."""

    def _listing(self, prefix: Index) -> Hashable:
        """Return the key under which the listing of `prefix` is remembered."""
        return self.directory, self.variant, prefix

    def _dated(self, directory: Key, start: str, coordinates: list[int]) -> Pairs:
        """Return the present mtimes of the members `<start><coordinate>` of `directory`; missing members are left out."""
        found = self.store.mtimes(directory, [f"{start}{coordinate}" for coordinate in coordinates])
        return [(number, mtime_ns) for number, mtime_ns in zip(coordinates, found, strict=True) if mtime_ns is not None]

    def _cuts(self, keys: ChunkKeys, counts: Sequence[int]) -> list[str]:
        """Return `keys.spread` to split the listing of a remote store into parallel requests; empty for other stores."""
        return keys.spread(counts) if self.store.far else []

    def touched_ns(self) -> int:
        try:
            nested = "" if self.store.prefixes else self.keys.directory
            return self.store.stat(self.directory / nested if nested else self.directory).mtime_ns
        except NotFound:
            return 0

    def commit(self) -> Hashable:
        try:
            return self.store.commit(self.directory)
        except NotFound:
            return None

    def _outside(self, prefix: Index) -> bool:
        return not self.grid.contains(prefix)


def stored_once(files: ChunkFiles, index: Index) -> int:
    """Return 1 if the chunk is stored, readable or not, else 0."""
    try:
        files.find(index)
    except NotFound:
        return 0
    except CorruptData:
        return 1
    return 1
