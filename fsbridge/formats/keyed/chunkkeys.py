"""The names of chunk files of a keyed array, and what nested and flat chunk files share: looking up a chunk.

A chunk key is accepted only in its canonical spelling. Files named `00`, `+1`, `1_0` or in Arabic digits are no chunks, and
neither are temporary files, metadata documents and numbers outside the grid.

In stores that cannot list (web servers) a request for each chunk tells whether it is stored. If a grid is too large for
that, listing it is an error and never an empty directory. Not here: listings (`chunkfiles.py`).
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple, cast

from fsbridge.asking import as_listed
from fsbridge.errors import CorruptData, FsbridgeError, IsADirectory, NotFound, Unsupported
from fsbridge.formats.keyed.other_files import is_chunk_name, is_other_name
from fsbridge.metadata import ChunkGrid, Index, parse_coordinate
from fsbridge.model import ChunkInfo, Pairs
from fsbridge.store import ROOT, WHOLE, Key, OpenedObject, Range, Stat, Store
from fsbridge.threads.parallel import each

SPREAD_NAMES = 64
"""`ChunkKeys.spread` returns at least this many names, if the grid has so many.

Of an axis with more coordinates than the square of this number it uses only every second, third ... coordinate.
"""


class ChunkKeys(NamedTuple):
    """How chunk keys are spelled. `lead`: `c` in Zarr v3's default encoding, else empty.

    The key of a 0-D array's only chunk is the lead, or `0` without one (N5, Zarr v2, Zarr v3's `v2` encoding). Every key
    ends with `suffix` (`.tiff`). `fanout`: the base of the digits into which coordinates are split, 0 for none; see
    `fanout.py`.
    """

    separator: Literal["/", "."]
    lead: Literal["", "c"] = ""
    suffix: str = ""
    fanout: int = 0

    @property
    def directory(self) -> str:
        """The directory below the array's own that holds all chunks; empty if that is the array's own directory."""
        return self.lead if self.separator == "/" else ""

    def encode(self, index: Index) -> str:
        """Return the key of the chunk at `index`, relative to the array's own key."""
        if self.fanout:
            return f"{self.beginning(index)}/c" if index else "c"
        return self.beginning(index) + self.suffix

    def beginning(self, index: Index) -> str:
        """Return the key of the chunk at `index`, without the suffix.

        Of part of an index, return how the keys of its chunks begin.
        """
        if not index:
            return self.lead or "0"
        if self.fanout:
            return "/".join(f"d{axis}/{'/'.join(map(str, self._digits(number)))}" for axis, number in enumerate(index))
        below = self.separator.join(map(str, index))
        return f"{self.lead}{self.separator}{below}" if self.lead else below

    def _digits(self, number: int) -> list[int]:
        """Return the digits of a coordinate to the base `fanout`, the most significant one first."""
        digits = [number % self.fanout]
        while number := number // self.fanout:
            digits.append(number % self.fanout)
        return digits[::-1]

    def unsuffixed(self, names: Sequence[str]) -> Sequence[str]:
        """Return the names that end with the suffix, without it."""
        end = self.suffix
        return [name[: -len(end)] for name in names if name.endswith(end)] if end else names

    def decode(self, name: str, counts: Sequence[int]) -> Index | None:
        """Return the chunk with the key `name` in a grid of `counts`; None if no chunk has that key."""
        if not counts:
            return () if name == self.encode(()) else None
        if self.fanout:
            return self._decode_digits(name, counts)
        if not name.endswith(self.suffix):
            return None
        name = name[: len(name) - len(self.suffix)]
        start = f"{self.lead}{self.separator}" if self.lead else ""
        names = name.removeprefix(start).split(self.separator)
        if not name.startswith(start) or len(names) != len(counts):
            return None
        index = tuple(map(parse_coordinate, names, counts))
        return None if None in index else cast(Index, index)

    def _decode_digits(self, name: str, counts: Sequence[int]) -> Index | None:
        """Do what `decode` does for keys with digits. Only the spelling that `encode` returns is accepted."""
        numbers: list[int] = []
        for part in name.split("/")[:-1]:
            digit = parse_coordinate(part, self.fanout)
            if part == f"d{len(numbers)}":
                numbers.append(0)
            elif digit is None or not numbers:
                return None
            else:
                numbers[-1] = numbers[-1] * self.fanout + digit
        inside = len(numbers) == len(counts) and all(map(int.__lt__, numbers, counts))
        return tuple(numbers) if inside and self.encode(tuple(numbers)) == name else None

    def spread(self, counts: Sequence[int]) -> list[str]:
        """Return dozens of beginnings of chunk names, spread evenly over a grid of `counts`, to split one long listing."""
        axes: list[range] = []
        for count in counts:
            if math.prod(map(len, axes)) >= SPREAD_NAMES:
                break
            axes.append(range(0, count, 1 + count // (SPREAD_NAMES * SPREAD_NAMES)))
        start = self.lead if self.separator == "." else ""
        return [self.separator.join([*start, *map(str, index)]) for index in itertools.product(*axes)]


LEAST_NAMES = 8
"""Number of chunks in one directory from which on the directory is opened once for all of them.

Measured: a thousand take 4 ms together, and 7 ms one by one; if they are missing, 3 and 22 ms.
"""


class ChunkFiles(ABC):
    """The stored chunk objects of one array: the part of `model.Chunks` that needs no decoding. Thread-safe.

    The base class of nested and flat chunk files has what they share: keys, bounds, looking up a chunk, and stores that
    cannot be listed.
    """

    def __init__(self, store: Store, directory: Key, grid: ChunkGrid, keys: ChunkKeys) -> None:
        self.store = store
        self.directory = directory
        self.keys = keys
        self.grid = grid
        self.counts = grid.counts
        self.listing_key = (*keys, self.counts)
        self._start = f"{directory}/" if directory else ""
        self.asked = None if store.listable else UnlistedChunks(store, directory, grid, keys)

    def key(self, index: Index) -> Key:
        """Return the store key of the chunk at `index`; NotFound outside the grid."""
        inside = len(index) == len(self.counts)
        for coordinate, count in zip(index, self.counts, strict=False):
            inside &= 0 <= coordinate < count
        if not inside:
            raise NotFound(
                f"{self.store.describe(self.directory)}: there is no chunk {list(index)} in a grid of {list(self.counts)}"
            )
        return Key(self._start + self.keys.encode(index))

    def find(self, index: Index, read: Range = WHOLE) -> ChunkInfo:
        """Return the stored chunk. Raises NotFound if absent or outside the grid, CorruptData if it is a directory.

        `read`: the range that will be read next, see `store.Store.stat`.
        """
        key = self.key(index)
        stat = self.store.stat(key, read)
        if stat.is_dir:
            raise CorruptData(f"{self.store.describe(key)}: there is a directory in place of a chunk")
        return _info(stat)

    def hold_open(self, index: Index) -> tuple[ChunkInfo, OpenedObject] | None:
        """Return the chunk with its object held open; None if holding objects open does not pay in this store."""
        key = self.key(index)
        try:
            opened_object = self.store.open_object(key)
        except IsADirectory:
            raise CorruptData(f"{self.store.describe(key)}: there is a directory in place of a chunk") from None
        return None if opened_object is None else (_info(opened_object.stat), opened_object)

    def find_all(self, indices: Sequence[Index]) -> dict[Index, ChunkInfo | None]:
        """See `model.Chunks.find_all`."""
        if len(indices) < LEAST_NAMES:
            return {}
        wanted: dict[str, dict[str, Index]] = {}  # by directory, and by name
        for index in indices:
            directory, _, name = self.key(index).rpartition("/")
            wanted.setdefault(directory, {})[name] = index
        infos: dict[Index, ChunkInfo | None] = {}
        for directory, names in wanted.items():
            if len(names) < LEAST_NAMES:
                continue
            with suppress(FsbridgeError, OSError):  # looking up each chunk reports the error
                for name, stat in self.store.stats(Key(directory), names).items():
                    infos[names[name]] = None if stat is None else _info(stat)
        return infos

    def listed_sizes(self, indices: Sequence[Index]) -> dict[Index, int]:
        """See `model.Chunks.listed_sizes`."""
        wanted: dict[Key, dict[str, Index]] = {}  # by directory, and by name
        for index in indices:
            key = self.key(index)
            wanted.setdefault(key.parent, {})[key.name] = index
        sizes = {place: self.store.listed_sizes(place, names) for place, names in wanted.items()}
        return {names[name]: size for place, names in wanted.items() for name, size in sizes[place].items()}

    def removed_ns(self, indices: Collection[Index]) -> int:
        if self.store.has_no_directories:
            return 0
        latest, looked = 0, set[Key]()
        for directory in {self.key(index).parent for index in indices}:
            while directory not in looked:
                looked.add(directory)
                try:
                    latest = max(latest, self.store.stat(directory).changed_ns)
                    break
                except NotFound:
                    if not directory:
                        raise
                    directory = directory.parent
        return latest

    def find_prefix(self, prefix: Index) -> int:
        if self._outside(prefix) or len(prefix) >= len(self.counts):
            return self.find(prefix).mtime_ns
        if self.store.has_no_directories:  # whether it exists shows in its listing or in look-ups of chunks
            return self.store.stat(ROOT).mtime_ns  # all directories have the same, and this one may take a long listing
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
        """See `model.Chunks.strays`. In a store that cannot be listed none are found."""
        return self._strays(self.directory, "") if self.asked is None else iter(())

    def _strays(self, directory: Key, below: str) -> Iterator[str]:
        yield from self.store.left_out(directory)
        for entry in self.store.list(directory):
            name = below + entry.name
            if not (below or entry.is_dir or is_chunk_name(entry.name)):
                continue  # a document, or one of the other files
            if entry.name.startswith("."):
                continue
            if not entry.is_dir:
                if not entry.hidden and self.keys.decode(name, self.counts) is None:
                    yield f"{self.store.describe(directory / entry.name)}: not a chunk of a grid of {list(self.counts)}"
            elif self._leads(name):
                yield from self._strays(directory / entry.name, f"{name}/")
            elif self.keys.decode(name, self.counts) is None:  # reading the chunk reports the directory
                yield f"{self.store.describe(directory / entry.name)}: a directory where no chunk can be"

    def other_names(self) -> Iterator[Sequence[str]]:
        """See `model.Chunks.other_names`. In a store that cannot be listed none are found."""
        return self._other_names() if self.asked is None else iter(())

    def _other_names(self) -> Iterator[Sequence[str]]:
        for names in self.store.names(self.directory):
            if others := list(filter(is_other_name, names)):
                yield others

    def _leads(self, name: str) -> bool:
        """True if chunk keys can begin with the path of this directory."""
        start = f"{self.keys.lead}/" if self.keys.lead else ""
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

    def _find_dates(self, directory: Key, start: str, coordinates: list[int], end: str = "") -> Pairs:
        """Return the present mtimes of the members `<start><coordinate><end>` of `directory`; missing ones are left out."""
        times = self.store.mtimes(directory, [f"{start}{coordinate}{end}" for coordinate in coordinates])
        return [(number, mtime_ns) for number, mtime_ns in zip(coordinates, times, strict=True) if mtime_ns is not None]

    def _cuts(self, keys: ChunkKeys, counts: Sequence[int]) -> list[str]:
        """Return `keys.spread` to split the listing of a remote store into parallel requests; empty for other stores."""
        return keys.spread(counts) if self.store.remote else []

    def mtime_ns(self) -> int:
        """Return the mtime of the directory that holds all chunks, 0 if it does not exist. Lists nothing."""
        if self.store.has_no_directories:
            return self.store.stat(ROOT).mtime_ns
        try:
            return self.store.stat(self.directory / self.keys.directory if self.keys.directory else self.directory).mtime_ns
        except NotFound:
            return 0

    def commit(self) -> Hashable:
        """See `model.Chunks.commit`."""
        try:
            return self.store.commit(self.directory)
        except NotFound:
            return None

    def _outside(self, prefix: Index) -> bool:
        return not self.grid.contains(prefix)


def _info(stat: Stat) -> ChunkInfo:
    return ChunkInfo(stat.version, stat.size, stat.mtime_ns, None, stat.settled, stat.changed_ns)


def stored_once(files: ChunkFiles, index: Index) -> int:
    """Return 1 if the chunk is stored, readable or not, else 0."""
    try:
        files.find(index)
    except NotFound:
        return 0
    except CorruptData:
        return 1
    return 1


MOST_CHUNKS = 4096
"""Most chunks of an array that are asked for one by one: about four seconds at 30 ms latency."""
REQUESTS_AT_ONCE = 32


class UnlistedChunks:
    """The stored chunks of one array, found by a request for each chunk of the grid."""

    def __init__(self, store: Store, directory: Key, grid: ChunkGrid, keys: ChunkKeys) -> None:
        self._store = store
        self._directory = directory
        self._keys = keys
        self._counts = grid.counts

    def scan(self, prefix: Index) -> Iterator[Pairs]:
        """Yield the coordinates that follow `prefix` in stored chunks, with mtimes."""
        times: dict[int, int] = {}
        for index, mtime_ns in self.stored(prefix).items():
            times.setdefault(index[len(prefix)], mtime_ns)
        yield sorted(times.items())

    def stored(self, prefix: Index = ()) -> Mapping[Index, int]:
        """Return the stored chunks below `prefix` with their mtimes in ns.

        What the store remembers of a chunk may be as old as a listing. Raises Unsupported for too large a grid, and the
        store's errors.
        """
        count = math.prod(self._counts)
        if count > MOST_CHUNKS:
            place = self._store.describe(self._directory)
            raise Unsupported(f"{place}: the server lists nothing, and {count} chunks are too many to ask for each")
        below = map(range, self._counts[len(prefix) :])
        every = [(*prefix, *index) for index in itertools.product(*below)]
        with as_listed():
            times = each(self._look, every, REQUESTS_AT_ONCE)
        return {index: mtime for index, mtime in zip(every, times, strict=True) if mtime is not None}

    def _look(self, index: Index) -> int | None:
        below = self._keys.encode(index)
        try:
            return self._store.stat(Key(f"{self._directory}/{below}" if self._directory else below), (0, 1)).mtime_ns
        except NotFound:
            return None
        except CorruptData:  # an empty object: opening it reports the error
            return 0
