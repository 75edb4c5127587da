"""A snapshot of an Icechunk repository as a store of Zarr v3: `zarr.json` of every node, `c/0/1` of every chunk.

Each call may see another snapshot if the store shows a branch. Therefore versions identify contents: a chunk that two
snapshots share has one version. Manifests tell which chunks exist, so an absent chunk costs no request. Not here: the
repository's files (`repository.py`), Zarr.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fsbridge.asking import before_waiting
from fsbridge.errors import CorruptData, FsbridgeError, IsADirectory, NotFound, Unsupported
from fsbridge.formats.icechunk.manifests import Chunk, Inline, ManifestTable, Virtual
from fsbridge.formats.icechunk.records import Snapshot, SnapshotNode
from fsbridge.formats.icechunk.repository import Repository
from fsbridge.metadata import Index, parse_coordinate
from fsbridge.store import BATCH_NAMES, ROOT, WHOLE, Key, Member, Range, Stat, Store, check_limit, check_range

DOCUMENT = "zarr.json"
CHUNKS = "c"


class _Below(NamedTuple):
    """A key below an array: the beginning of chunk coordinates, or all of them."""

    array: Key
    node: SnapshotNode
    prefix: Index


class SnapshotStore(Store):
    """`store.Store` for the snapshot that `resolve` returns at each call. `name` is for messages."""

    def __init__(self, repository: Repository, resolve: Callable[[], str], name: str) -> None:
        self._repository = repository
        self._resolve = resolve
        self._name = name
        self.remote = repository.remote
        self._latest = ""

    def describe(self, key: Key) -> str:
        return "/".join(filter(None, [self._repository.place(), self._name, key]))

    def fetch(self, key: Key, read: Range = WHOLE, around: Range | None = None) -> None:
        """Prefetch a chunk of the snapshot that was looked at last.

        A manifest that is not in memory is read on another thread.
        """
        snapshot = self._repository.known_snapshot(self._latest)
        if snapshot is None:
            return
        with suppress(FsbridgeError):  # the error is reported when the chunk is read
            below = self._below(snapshot, key)
            fetch = partial(self._fetch, snapshot, key, below, read)
            if all(map(self._repository.holds, snapshot.manifests(below.array).of(below.prefix))):
                fetch()
            else:
                self._repository.ahead.submit(fetch)

    def _fetch(self, snapshot: Snapshot, key: Key, below: _Below, read: Range) -> None:
        chunk = self._chunk(snapshot, key, below)
        first = read[0] if read[0] >= 0 else chunk.length + read[0]
        length = chunk.length - first if read[1] is None else read[1]
        if 0 <= first <= first + length <= chunk.length:
            self._repository.fetch(chunk, first, length)

    def stat(self, key: Key, read: Range | None = None) -> Stat:
        snapshot = self._snapshot()
        if key in snapshot.members:
            return self._directory(snapshot)
        node = self._find_documented(snapshot, key)
        if node is not None:
            return self._document_stat(snapshot, node)
        below = self._below(snapshot, key)
        if len(below.prefix) < self._rank(snapshot, below):
            if below.prefix and not any(True for _ in self._tables(snapshot, below)):  # no manifest has a chunk there
                raise self._absent(key)
            return self._directory(snapshot)
        return self._chunk_stat(snapshot, key, self._chunk(snapshot, key, below))

    def read(self, key: Key, limit: int) -> tuple[bytes, Stat]:
        snapshot = self._snapshot()
        if key in snapshot.members:
            raise IsADirectory(f"{self.describe(key)}: a directory where a file was expected")
        node = self._find_documented(snapshot, key)
        if node is not None:
            if node.data is not None:
                self._check_encoding(node, key)
            check_limit(self, key, len(node.document), limit)
            return node.document, self._document_stat(snapshot, node)
        chunk = self._find_chunk(snapshot, key)
        check_limit(self, key, chunk.length, limit)
        return self._bytes(snapshot, key, chunk, 0, chunk.length)

    def read_range(self, key: Key, start: int, length: int) -> tuple[bytes, Stat]:
        snapshot = self._snapshot()
        node = self._find_documented(snapshot, key)
        if node is not None:
            stat = self._document_stat(snapshot, node)
            first = start if start >= 0 else stat.size + start
            check_range(self, key, first, length, stat.size)
            return node.document[first : first + length], stat
        chunk = self._find_chunk(snapshot, key)
        first = start if start >= 0 else chunk.length + start
        check_range(self, key, first, length, chunk.length)
        return self._bytes(snapshot, key, chunk, first, length)

    def list(self, key: Key, stats: bool = False) -> Iterator[Member]:
        for batch in self.names(key):
            for name in batch:
                try:
                    stat = self.stat(key / name)
                except NotFound:
                    continue  # the snapshot has changed meanwhile
                yield Member(name, stat.is_dir, stat if stats else None)

    def names(self, key: Key, cuts: Sequence[str] = ()) -> Iterator[Sequence[str]]:
        snapshot = self._snapshot()
        if key not in snapshot.members:
            coordinates = iter(self._coordinates(snapshot, key).tolist())
            while batch := [str(coordinate) for coordinate in islice(coordinates, BATCH_NAMES)]:
                yield batch
            return
        node = self._node(snapshot, key)
        yield [DOCUMENT] if node is not None else []
        if node is not None and node.data is not None and snapshot.manifests(key).ids:
            yield [CHUNKS]
        members = iter(snapshot.members[key])
        while more := list(islice(members, BATCH_NAMES)):
            yield more

    def mtimes(self, key: Key, names: Sequence[str]) -> Sequence[int | None]:
        snapshot = self._snapshot()
        times: list[int | None] = []
        if key in snapshot.members:
            there = {name for batch in self.names(key) for name in batch}
        else:
            there = set(map(str, self._coordinates(snapshot, key).tolist()))
        times.extend(snapshot.commit.written_ns if name in there else None for name in names)
        return times

    def commit(self, array: Key) -> Hashable:
        """Return a value that changes with any chunk of `array`: its manifests, each of which is written only once."""
        snapshot = self._snapshot()
        node = self._node(snapshot, array)
        return None if node is None or node.data is None else tuple(snapshot.manifests(array).ids)

    # ---- what a key is

    def _snapshot(self) -> Snapshot:
        before_waiting()
        self._latest = id = self._resolve()
        self._repository.check_access("snapshots", id)
        return self._repository.snapshot(id)

    def _absent(self, key: Key) -> NotFound:
        return NotFound(f"{self.describe(key)}: not in this snapshot")

    def _find_documented(self, snapshot: Snapshot, key: Key) -> SnapshotNode | None:
        return self._node(snapshot, key.parent) if key.name == DOCUMENT and key != ROOT else None

    def _node(self, snapshot: Snapshot, key: Key) -> SnapshotNode | None:
        try:
            return snapshot.node(key)
        except FsbridgeError as error:
            raise error.at(self.describe(key)) from None

    def _below(self, snapshot: Snapshot, key: Key) -> _Below:
        """Return the array that `key` lies below, and the coordinates that it spells. Raises NotFound."""
        parts = key.split("/")
        for length in range(len(parts) - 1, -1, -1):
            array = Key("/".join(parts[:length]))
            node = self._node(snapshot, array)
            if node is None or node.data is None:
                continue
            if parts[length] != CHUNKS:
                break
            spelled = parts[length + 1 :]
            # Icechunk's coordinates have four bytes.
            coordinates = [parse_coordinate(part, (1 << 32)) for part in spelled]
            prefix = tuple(coordinate for coordinate in coordinates if coordinate is not None)
            if len(prefix) < len(spelled) or not snapshot.manifests(array).ids:
                break
            place = _Below(array, node, prefix)
            if len(prefix) > self._rank(snapshot, place):
                break
            return place
        raise self._absent(key)

    def _rank(self, snapshot: Snapshot, below: _Below) -> int:
        return int(snapshot.manifests(below.array).extents.shape[1])

    def _tables(self, snapshot: Snapshot, below: _Below) -> Iterator[tuple[ManifestTable, int, int]]:
        """Yield the manifests that have chunks with coordinates below `below.prefix`, and the rows [low, high) of these."""
        rank = self._rank(snapshot, below)
        for manifest in snapshot.manifests(below.array).of(below.prefix):
            self._repository.check_access("manifests", manifest)
            table = self._repository.table(manifest, below.node, rank)
            low, high = table.range(below.prefix)
            if low < high:
                yield table, low, high

    def _coordinates(self, snapshot: Snapshot, key: Key) -> npt.NDArray[np.uint32]:
        """Return the next coordinates of the chunks below `key`, sorted, each once.

        Raises NotFound unless it is a directory of chunks.
        """
        below = self._below(snapshot, key)
        depth = len(below.prefix)
        if depth >= self._rank(snapshot, below):
            raise self._absent(key)
        coordinates = [table.coordinates(low, high, depth) for table, low, high in self._tables(snapshot, below)]
        if not coordinates and below.prefix:
            raise self._absent(key)
        return np.unique(np.concatenate([np.empty(0, np.uint32), *coordinates]))

    def _chunk(self, snapshot: Snapshot, key: Key, below: _Below) -> Chunk:
        places = [(table, low) for table, low, _ in self._tables(snapshot, below)]
        if not places:
            raise self._absent(key)
        if len(places) > 1:
            raise CorruptData(f"{self.describe(key)}: two manifests have this chunk")
        ((table, number),) = places
        try:
            return table.chunk(number)
        except FsbridgeError as error:
            raise error.at(self.describe(key)) from None

    def _find_chunk(self, snapshot: Snapshot, key: Key) -> Chunk:
        below = self._below(snapshot, key)
        if len(below.prefix) < self._rank(snapshot, below):
            raise IsADirectory(f"{self.describe(key)}: a directory where a file was expected")
        return self._chunk(snapshot, key, below)

    # ---- stats and bytes

    def _directory(self, snapshot: Snapshot) -> Stat:
        return Stat(True, 0, snapshot.commit.written_ns, snapshot.commit.id)

    def _document_stat(self, snapshot: Snapshot, node: SnapshotNode) -> Stat:
        return self._file(snapshot, len(node.document), blake2b(node.document, digest_size=16).digest())

    def _file(self, snapshot: Snapshot, size: int, version: object) -> Stat:
        return Stat(False, size, snapshot.commit.written_ns, version)

    def _chunk_stat(self, snapshot: Snapshot, key: Key, chunk: Chunk) -> Stat:
        if isinstance(chunk, Virtual):
            try:
                return self._virtual_stat(snapshot, chunk, self._repository.virtual.stat(chunk))
            except FsbridgeError as error:
                raise error.at(self.describe(key)) from None
        if isinstance(chunk, Inline):
            version = blake2b(chunk.content, digest_size=16).digest()
            return self._file(snapshot, chunk.length, version)
        self._repository.check_access("chunks", chunk.id)
        return self._file(snapshot, chunk.length, chunk)

    def _virtual_stat(self, snapshot: Snapshot, chunk: Virtual, file: Stat) -> Stat:
        version = (chunk.location, chunk.start, chunk.length, file.version)
        return self._file(snapshot, chunk.length, version)._replace(settled=file.settled)

    def _bytes(self, snapshot: Snapshot, key: Key, chunk: Chunk, first: int, length: int) -> tuple[bytes, Stat]:
        if isinstance(chunk, Virtual):
            try:
                data, file = self._repository.virtual.read(chunk, first, length)
            except FsbridgeError as error:
                raise error.at(self.describe(key)) from None
            return data, self._virtual_stat(snapshot, chunk, file)
        stat = self._chunk_stat(snapshot, key, chunk)
        if isinstance(chunk, Inline):
            return chunk.content[first : first + length], stat
        return self._repository.chunk(chunk.id, chunk.start + first, length), stat

    def _check_encoding(self, node: SnapshotNode, key: Key) -> None:
        """Refuse other spellings of chunk keys.

        Icechunk knows chunks by coordinates, so they would all seem to be absent.
        """
        try:
            encoding = json.loads(node.document).get("chunk_key_encoding")
        except (ValueError, AttributeError, RecursionError):
            return  # the parser reports what is wrong
        name = encoding.get("name") if isinstance(encoding, dict) else encoding
        configuration = encoding.get("configuration", {}) if isinstance(encoding, dict) else {}
        if name != "default" or not isinstance(configuration, dict) or configuration.get("separator", "/") != "/":
            raise Unsupported(f"{self.describe(key)}: chunk keys in Icechunk are spelled c/0/1, not as {encoding!r} says")
