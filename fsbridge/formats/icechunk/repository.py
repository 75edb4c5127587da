"""An Icechunk repository: which files hold its history, snapshots and manifests, and what was read of them lately.

Version 1 keeps each ref in an object of its own (`refs/branch.main/ref.json`); version 2 keeps all refs and the history
in one object (`repo`). Every other file is written once and never again, so only refs are looked at again. Not here: the
contents of files (`records.py`), the keys of a snapshot (`snapshot_store.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import suppress
from typing import TypeVar

from fsbridge.asking import Locks
from fsbridge.config import MIB, Config
from fsbridge.errors import AccessDenied, CorruptData, FsbridgeError, NotFound, TooLarge
from fsbridge.formats.icechunk.manifests import Chunk, Manifest, ManifestTable, Native, Virtual, VirtualObjects
from fsbridge.formats.icechunk.records import (
    ID_BYTES,
    Commit,
    History,
    Kind,
    Payload,
    Snapshot,
    SnapshotNode,
    parse_id,
    ref_file,
    ref_name,
    unwrap,
)
from fsbridge.formats.strict_json import Fields, parse_object
from fsbridge.lru import LRU
from fsbridge.store import Key, Stat, Store, Stored
from fsbridge.threads.workers import Workers

SNAPSHOTS_BYTES = 32 * MIB
"""Bytes of snapshots that are kept."""

MANIFESTS_BYTES = 64 * MIB
"""Bytes of manifests that are kept. A single larger manifest is kept, too."""


MAX_COMMITS = 10_000
"""Most commits that are listed. In version 1 each is read by itself."""

BRANCH, TAG = "branch.", "tag."

T = TypeVar("T")


class Repository:
    """The repository at `key` of `store`. Thread-safe."""

    def __init__(self, store: Store, key: Key, config: Config) -> None:
        self.store = store
        self.key = key
        self.virtual = VirtualObjects(config, self.containers)
        self._limits = config.limits
        self._most_bytes = config.cache_size
        self.remote = store.remote or bool(config.external_urls)
        """True if chunks may come over a network."""
        self._reading: Locks[tuple[str, str]] = Locks()
        self._history: tuple[Hashable, History] | None = None
        self._refs_known = LRU[str, tuple[Hashable, str]](MAX_COMMITS)
        self._snapshots = LRU[str, Snapshot](SNAPSHOTS_BYTES)
        self._commits = LRU[str, tuple[Hashable, Commit]](MAX_COMMITS)
        self._manifests = LRU[str, Manifest](MANIFESTS_BYTES)
        self._decoding = threading.Lock()
        # At most two manifests are prefetched at a time.
        self.ahead = Workers("manifest", 2)
        """Runs prefetches that wait for an unread manifest."""
        try:
            store.stat(key / "repo", (0, None))
            self.version = 2
        except NotFound:
            self.version = 1

    def close(self) -> None:
        """Close the stores of virtual chunks. The repository's store belongs to its owner."""
        self.virtual.close()

    def place(self, path: str = "") -> str:
        """Return a file of the repository, for a message."""
        key = self.key
        for name in filter(None, path.split("/")):
            key = key / name
        return self.store.describe(key)

    def check_access(self, folder: str, id: str) -> None:
        """Raise AccessDenied if the mount's users may not read a file. Needed because its content is remembered."""
        with suppress(NotFound):  # reading it reports the error
            self.store.check_access(self.key / folder / id)

    # ---- refs and history

    def check(self) -> None:
        """Read all branches, to raise what is wrong; only `main`, which always exists, if the store cannot list."""
        if self.version > 1 or self.store.listable:
            self.branches()
        else:
            self.branch("main")

    @property
    def mtime_ns(self) -> int:
        """The time of the last change of any ref; in object storage, version 1 tells only that of the branch `main`."""
        if self.version > 1:
            return self.store.stat(self.key / "repo").mtime_ns
        refs = self.key / "refs"
        return self.store.stat(refs / f"{BRANCH}main" / "ref.json" if self.store.has_no_directories else refs).mtime_ns

    def branches(self) -> Mapping[str, str]:
        """Return the snapshot that each branch points to now, by the branch's name."""
        return self.history().branches if self.version > 1 else dict(self._refs(BRANCH))

    def tags(self) -> Mapping[str, str]:
        """Return the snapshot of each tag, by the tag's name."""
        return self.history().tags if self.version > 1 else dict(self._refs(TAG))

    def branch(self, name: str) -> str:
        """Return the snapshot that a branch points to now. Raises NotFound."""
        return self._find_ref(name, BRANCH, "branch")

    def tag(self, name: str) -> str:
        """Return the snapshot of a tag. Raises NotFound."""
        return self._find_ref(name, TAG, "tag")

    def _find_ref(self, name: str, prefix: str, kind: str) -> str:
        if self.version > 1:
            snapshot = (self.history().branches if prefix == BRANCH else self.history().tags).get(name)
            if snapshot is None:
                raise NotFound(f"{self.place('repo')}: no {kind} {name!r}")
            return snapshot
        for file in dict.fromkeys((ref_file(name), name)) if "/" not in name else ():
            snapshot = self._ref(f"{prefix}{file}")
            if snapshot is not None:
                return snapshot
        raise NotFound(f"{self.place('refs')}: no {kind} {name!r}")

    def history(self) -> History:
        """Return the current refs and commits of version 2. Raises CorruptData if the object is gone."""
        key = self.key / "repo"
        try:
            stat = self.store.stat(key, (0, None))
        except NotFound:
            raise CorruptData(f"{self.place('repo')} is missing") from None
        known = self._history
        if known is not None and stat.version is not None and known[0] == stat.version and stat.settled:
            return known[1]
        data, stat = self._read_stored("repo", key)
        history = self._parse("repo", lambda: History(unwrap(data, "repository", self._most_bytes)))
        self._history = stat.version, history
        return history

    def _refs(self, prefix: str) -> Iterator[tuple[str, str]]:
        for member in self.store.list(self.key / "refs"):
            if (member.is_dir or member.hidden) and member.name.startswith(prefix):
                snapshot = self._ref(member.name)
                if snapshot is not None:
                    yield ref_name(member.name[len(prefix) :]), snapshot

    def _ref(self, name: str) -> str | None:
        """Return the snapshot of a ref in version 1, or None if there is no such ref or its tag was deleted."""
        folder = self.key / "refs" / name
        if name.startswith(TAG) and self._there(folder / "ref.json.deleted"):
            return None
        try:
            stat = self.store.stat(folder / "ref.json", (0, None))
            known = self._refs_known.get(name)
            if known is not None and stat.version is not None and known[0] == stat.version and stat.settled:
                return known[1]
            data, stat = self.store.read(folder / "ref.json", self._limits.document)
        except NotFound:
            return None
        place = self.place(f"refs/{name}/ref.json")
        snapshot = Fields(parse_object(bytes(data), place, self._limits), place).string("snapshot")
        self._parse(f"refs/{name}/ref.json", lambda: _check_id(snapshot))
        self._refs_known.put(name, (stat.version, snapshot))
        return snapshot

    def _there(self, key: Key) -> bool:
        try:
            self.store.stat(key, (0, None))
        except NotFound:
            return False
        return True

    def containers(self) -> Mapping[str, str]:
        """Return the URL prefixes of virtual chunks, by the names that stand for them in locations.

        They are those of the last time that a branch or tag was read. Version 1 has no such names.
        """
        if self.version == 1:
            return {}
        known = self._history
        return (self.history() if known is None else known[1]).containers

    def commit(self, id: str) -> Commit:
        """Return a commit that a ref or another commit names."""
        commit = self.history().get(id) if self.version > 1 else None
        return self.snapshot(id).commit if commit is None else commit

    def commits(self) -> Mapping[str, Commit]:
        """Return the ancestry of all refs. Raises TooLarge for more than are listed."""
        if self.version > 1:
            commits: Mapping[str, Commit] = self.history()
        else:
            commits = self._ancestry()
        if len(commits) > MAX_COMMITS:
            raise TooLarge(f"{self.place()}: more than {MAX_COMMITS} commits are not listed; each opens by its name")
        return commits

    def _ancestry(self) -> Mapping[str, Commit]:
        """Read the ancestry of all refs. A commit that cannot be read appears with its error and hides no other."""
        commits: dict[str, Commit] = {}
        listed = self._list_snapshots()
        for first in (*self.branches().values(), *self.tags().values()):
            above: str | None = None
            id: str | None = first
            while id is not None and id not in commits and len(commits) <= MAX_COMMITS:
                try:
                    commit = self._commit_now(id, listed)
                except CorruptData as error:
                    if above is not None and (parent := self._parent_now(above, id)) != id:
                        above, id = None, parent  # only once, because a store could return another parent each time
                        continue
                    commit = Commit(id, None, 0, "", {"_ERROR": str(error)})
                commits[id] = commit
                above, id = id, commit.parent
        return commits

    def _list_snapshots(self) -> Mapping[str, Hashable]:
        """Return the versions of all snapshots, None for an unsettled one; nothing if the store cannot list."""
        try:
            members = self.store.list(self.key / "snapshots", stats=True) if self.store.listable else ()
            stats = ((member.name, member.stat) for member in members)
            return {name: stat.version if stat.settled else None for name, stat in stats if stat is not None}
        except (NotFound, AccessDenied, CorruptData):  # the error is reported for each snapshot that is read
            return {}

    def _commit_now(self, id: str, listed: Mapping[str, Hashable]) -> Commit:
        """Return the commit of a snapshot, from the present version of its file if `listed` has that, else as first read.

        A snapshot's commit can change: when old history expires, icechunk 1 writes the oldest remaining snapshot again, with
        another parent.
        """
        if id not in listed:
            return self.snapshot(id).commit
        version, known = listed[id], self._commits.get(id)
        if version is not None and known is not None and known[0] == version:
            return known[1]
        commit = self._read_snapshot(id).commit
        if version is not None and self._version_now(id) == version:  # otherwise another version may have been read
            self._commits.put(id, (version, commit))
        return commit

    def _version_now(self, id: str) -> Hashable:
        try:
            return self.store.stat(self.key / "snapshots" / id, (0, None)).version
        except NotFound:
            return None

    def _parent_now(self, id: str, before: str) -> str | None:
        """Read a snapshot again because its parent is gone, and return its present parent."""
        try:
            return self._read_snapshot(id).commit.parent
        except CorruptData:  # this snapshot is gone as well
            return before

    # ---- files that never change

    def known(self, id: str) -> bool:
        """Tell whether the snapshot `id` exists: it is in the history or, in version 1, at least stored."""
        try:
            parse_id(id)
            if self.version > 1:
                return id in self.history()
            return self._there(self.key / "snapshots" / id) or id in self._ancestry()
        except NotFound:
            return False

    def snapshot(self, id: str) -> Snapshot:
        """Return the snapshot that something refers to. Raises CorruptData if it is missing."""
        return self._once(("snapshots", id), lambda: self._snapshots.get(id), lambda: self._read_snapshot(id))

    def _read_snapshot(self, id: str) -> Snapshot:
        snapshot = self._file("snapshots", id, "snapshot", Snapshot)
        return self._snapshots.put(id, snapshot, snapshot.nbytes)

    def known_snapshot(self, id: str) -> Snapshot | None:
        """Return a snapshot if it is in memory."""
        return self._snapshots.get(id)

    def holds(self, manifest: str) -> bool:
        """Tell whether a manifest is in memory."""
        return self._manifests.get(manifest) is not None

    def table(self, manifest: str, node: SnapshotNode, rank: int) -> ManifestTable:
        """Return the chunks of an array in one of its manifests."""
        parsed_manifest = self._once(
            ("manifests", manifest), lambda: self._manifests.get(manifest), lambda: self._read_manifest(manifest)
        )
        before = parsed_manifest.nbytes
        table = self._parse(f"manifests/{manifest}", lambda: parsed_manifest.table(node.id, rank))
        if parsed_manifest.nbytes != before:
            self._manifests.put(manifest, parsed_manifest, parsed_manifest.nbytes)
        return table

    def _read_manifest(self, id: str) -> Manifest:
        manifest = self._file("manifests", id, "manifest", Manifest)
        return self._manifests.put(id, manifest, manifest.nbytes)

    def _once(self, file: tuple[str, str], known: Callable[[], T | None], read: Callable[[], T]) -> T:
        """Return `known()` unless it is None, else `read()`. One caller reads; others that want the same file wait."""
        contents = known()
        if contents is not None:
            return contents
        with self._reading.of(file):
            contents = known()
            return read() if contents is None else contents

    def _file(self, folder: str, id: str, kind: Kind, parse: Callable[[Payload, str], T]) -> T:
        """Read a file and parse it while no other is parsed.

        The largest ones take as much memory as all chunks may.
        """
        data, _ = self._read_stored(f"{folder}/{id}", self.key / folder / id)
        with self._decoding:
            return self._parse(f"{folder}/{id}", lambda: parse(unwrap(data, kind, self._most_bytes), id))

    def _read_stored(self, path: str, key: Key) -> tuple[Stored, Stat]:
        try:
            return self.store.read(key, self._most_bytes)
        except NotFound:
            raise CorruptData(f"{self.place(path)} is missing") from None
        except TooLarge as error:
            raise TooLarge(f"{error}; a larger --cache-size permits more") from None

    def _parse(self, path: str, parse: Callable[[], T]) -> T:
        try:
            return parse()
        except FsbridgeError as error:
            raise error.at(self.place(path)) from None

    def chunk(self, id: str, start: int, length: int) -> bytes:
        """Return bytes of a chunk object. Raises CorruptData if it is missing or too short."""
        try:
            return self.store.read_range(self.key / "chunks" / id, start, length)[0]
        except NotFound:
            raise CorruptData(f"{self.place(f'chunks/{id}')} is missing") from None

    def fetch(self, chunk: Chunk, first: int, length: int) -> None:
        """Prefetch `length` bytes of a chunk from its byte `first`, if the store is remote."""
        if isinstance(chunk, Native):
            self.store.fetch(self.key / "chunks" / chunk.id, (chunk.start + first, length))
        elif isinstance(chunk, Virtual):
            self.virtual.fetch(chunk, first, length)


def _check_id(id: str) -> None:
    try:
        parse_id(id, ID_BYTES)
    except NotFound as error:
        raise CorruptData(str(error)) from None
