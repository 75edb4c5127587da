"""An Icechunk repository: which files hold its history, its snapshots and its manifests, and what was read of them lately.

Version 1 keeps each ref in an object of its own (`refs/branch.main/ref.json`), version 2 all of them, and the history, in
one (`repo`). Every other file is written once and never again, so only refs are asked for anew. Not here: what the files
say (`records.py`), the keys of a snapshot (`snapshot_store.py`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import TypeVar

from fsbridge.config import MIB, Config
from fsbridge.errors import AccessDenied, CorruptData, FsbridgeError, NotFound, TooLarge
from fsbridge.formats.icechunk.files import ID_BYTES, Kind, Payload, parse_id, ref_file, ref_name, unwrap
from fsbridge.formats.icechunk.manifests import Chunk, ChunkTable, Manifest, Native, Virtual
from fsbridge.formats.icechunk.records import Commit, History, Node, Snapshot
from fsbridge.formats.icechunk.virtual import VirtualObjects
from fsbridge.formats.strict_json import Fields, parse_object
from fsbridge.idle import IdleThreads
from fsbridge.locks import Locks
from fsbridge.lru import LRU
from fsbridge.owner import Owner, everybody, restricted
from fsbridge.store import Key, Stat, Store, Stored

log = logging.getLogger(__name__)

SNAPSHOTS_BYTES = 32 * MIB
"""Of snapshots that are kept."""

MANIFESTS_BYTES = 64 * MIB
"""Of manifests that are kept; one that is larger is the only one."""

MANIFESTS_AHEAD = 2
"""Manifests that are read at a time for chunks that will be wanted soon."""

MAX_COMMITS = 10_000
"""Commits that are listed; version 1 tells of them one by one."""

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
        self.far = store.far or bool(config.external_urls)
        """Whether chunks may come over a network."""
        self._reading: Locks[tuple[str, str]] = Locks()
        self._history: tuple[Hashable, History] | None = None
        self._refs_known = LRU[str, tuple[Hashable, str]](MAX_COMMITS)
        self._snapshots = LRU[str, Snapshot](SNAPSHOTS_BYTES)
        self._commits = LRU[str, tuple[Hashable, Commit]](MAX_COMMITS)
        self._manifests = LRU[str, Manifest](MANIFESTS_BYTES)
        self._decoding = threading.Lock()
        self.ahead = IdleThreads(_reported, MANIFESTS_AHEAD, "manifest")
        """For what waits for a manifest that nobody has read yet."""
        try:
            store.stat(key / "repo", (0, None))
            self.version = 2
        except NotFound:
            self.version = 1

    def close(self) -> None:
        """Let go of what virtual chunks lie in; the store is its owner's."""
        self.virtual.close()

    def place(self, path: str = "") -> str:
        """A file of the repository, for a message."""
        key = self.key
        for name in filter(None, path.split("/")):
            key = key / name
        return self.store.describe(key)

    # ---- refs and history

    def check(self) -> None:
        """Raise what whoever looks at the branches would meet; where nothing is listed, of the one that is always there."""
        if self.version > 1 or self.store.listable:
            self.branches()
        else:
            self.branch("main")

    @property
    def mtime_ns(self) -> int:
        """When a ref was changed last, or, of version 1 without its directory, the branch that is always there."""
        if self.version > 1:
            return self.store.stat(self.key / "repo").mtime_ns
        refs = self.key / "refs"
        return self.store.stat(refs / f"{BRANCH}main" / "ref.json" if self.store.prefixes else refs).mtime_ns

    def branches(self) -> Mapping[str, str]:
        """All branches by name, and the snapshots they point to now."""
        return self.history().branches if self.version > 1 else dict(self._refs(BRANCH))

    def tags(self) -> Mapping[str, str]:
        """All tags by name, and their snapshots."""
        return self.history().tags if self.version > 1 else dict(self._refs(TAG))

    def branch(self, name: str) -> str:
        """The snapshot that a branch points to now; NotFound."""
        return self._named(name, BRANCH, "branch")

    def tag(self, name: str) -> str:
        """The snapshot of a tag; NotFound."""
        return self._named(name, TAG, "tag")

    def _named(self, name: str, prefix: str, kind: str) -> str:
        if self.version > 1:
            found = (self.history().branches if prefix == BRANCH else self.history().tags).get(name)
            if found is None:
                raise NotFound(f"{self.place('repo')}: no {kind} {name!r}")
            return found
        for file in dict.fromkeys((ref_file(name), name)) if "/" not in name else ():
            found = self._ref(f"{prefix}{file}")
            if found is not None:
                return found
        raise NotFound(f"{self.place('refs')}: no {kind} {name!r}")

    def history(self) -> History:
        """Version 2: refs and commits as they are now. CorruptData when the object is gone."""
        key = self.key / "repo"
        try:
            stat = self.store.stat(key, (0, None))
        except NotFound:
            raise CorruptData(f"{self.place('repo')} is missing") from None
        known = self._history
        if known is not None and stat.version is not None and known[0] == stat.version and stat.settled:
            return known[1]
        data, stat = self._stored("repo", key)
        found = self._parsed("repo", lambda: History(unwrap(data, "repository", self._most_bytes)))
        self._history = stat.version, found
        return found

    def _refs(self, prefix: str) -> Iterator[tuple[str, str]]:
        for member in self.store.list(self.key / "refs"):
            if (member.is_dir or member.hidden) and member.name.startswith(prefix):
                found = self._ref(member.name)
                if found is not None:
                    yield ref_name(member.name[len(prefix) :]), found

    def _ref(self, name: str) -> str | None:
        """Version 1: what a ref points to; None for no ref, or a tag that was deleted."""
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
        found = Fields(parse_object(bytes(data), place, self._limits), place).string("snapshot")
        self._parsed(f"refs/{name}/ref.json", lambda: _checked(found))
        self._refs_known.put(name, (stat.version, found))
        return found

    def _there(self, key: Key) -> bool:
        try:
            self.store.stat(key, (0, None))
        except NotFound:
            return False
        return True

    def containers(self) -> Mapping[str, str]:
        """URLs by the names by which locations of virtual chunks may call them, as the last look at a branch or tag told.

        Version 1 has no such names.
        """
        if self.version == 1:
            return {}
        known = self._history
        return (self.history() if known is None else known[1]).containers

    def commit(self, id: str) -> Commit:
        """A commit that a ref or another commit names."""
        found = self.history().get(id) if self.version > 1 else None
        return self.snapshot(id).commit if found is None else found

    def commits(self) -> Mapping[str, Commit]:
        """The ancestry of all refs; TooLarge for more than are listed."""
        if self.version > 1:
            found: Mapping[str, Commit] = self.history()
        else:
            found = self._ancestry()
        if len(found) > MAX_COMMITS:
            raise TooLarge(f"{self.place()}: more than {MAX_COMMITS} commits are not listed; each opens by its name")
        return found

    def _ancestry(self) -> Mapping[str, Commit]:
        """One that cannot be read is told of by its error, and hides no other."""
        found: dict[str, Commit] = {}
        listed = self._listed_snapshots()
        for first in (*self.branches().values(), *self.tags().values()):
            above: str | None = None
            id: str | None = first
            while id is not None and id not in found and len(found) <= MAX_COMMITS:
                try:
                    commit = self._commit_now(id, listed)
                except CorruptData as error:
                    if above is not None and (parent := self._parent_now(above, id)) != id:
                        above, id = None, parent  # once: a store that tells another one each time would never end
                        continue
                    commit = Commit(id, None, 0, "", {"_ERROR": str(error)})
                found[id] = commit
                above, id = id, commit.parent
        return found

    def _listed_snapshots(self) -> Mapping[str, Hashable]:
        """The versions of all snapshots, None for one that cannot be told from the next; nothing where nothing is listed."""
        try:
            members = self.store.list(self.key / "snapshots", stats=True) if self.store.listable else ()
            stats = ((member.name, member.stat) for member in members)
            return {name: stat.version if stat.settled else None for name, stat in stats if stat is not None}
        except (NotFound, AccessDenied, CorruptData):  # whoever reads one of them is told what that means for it
            return {}

    def _commit_now(self, id: str, listed: Mapping[str, Hashable]) -> Commit:
        """What a snapshot tells of itself, in the version that is listed; where none is, what it told when it was read.

        Expiring cuts history: icechunk 1 writes the last snapshot that stays once more, with another parent.
        """
        if id not in listed:
            return self.snapshot(id).commit
        version, known = listed[id], self._commits.get(id)
        if version is not None and known is not None and known[0] == version:
            return known[1]
        commit = self._read_snapshot(id).commit
        if version is not None and self._version_now(id) == version:  # else it may have been another one that was read
            self._commits.put(id, (version, commit))
        return commit

    def _version_now(self, id: str) -> Hashable:
        try:
            return self.store.stat(self.key / "snapshots" / id, (0, None)).version
        except NotFound:
            return None

    def _parent_now(self, id: str, before: str) -> str | None:
        """The same of a snapshot whose parent is gone, where nobody has listed it lately."""
        try:
            return self._read_snapshot(id).commit.parent
        except CorruptData:  # gone as well
            return before

    # ---- files that never change

    def known(self, id: str) -> bool:
        """Whether there is a snapshot of that name: one of the history, in version 1 any that is stored, too."""
        try:
            parse_id(id)
            if self.version > 1:
                return id in self.history()
            return self._there(self.key / "snapshots" / id) or id in self._ancestry()
        except NotFound:
            return False

    def snapshot(self, id: str) -> Snapshot:
        """The snapshot that something refers to; CorruptData when it is missing."""
        return self._once(("snapshots", id), lambda: self._snapshots.get(id), lambda: self._read_snapshot(id))

    def _read_snapshot(self, id: str) -> Snapshot:
        found = self._file("snapshots", id, "snapshot", Snapshot)
        return self._snapshots.put(id, found, found.nbytes)

    def known_snapshot(self, id: str) -> Snapshot | None:
        """A snapshot that is in memory."""
        return self._snapshots.get(id)

    def holds(self, manifest: str) -> bool:
        """Whether a manifest is in memory."""
        return self._manifests.get(manifest) is not None

    def table(self, manifest: str, node: Node, rank: int) -> ChunkTable:
        """The chunks of an array in one of its manifests."""
        found = self._once(
            ("manifests", manifest), lambda: self._manifests.get(manifest), lambda: self._read_manifest(manifest)
        )
        before = found.nbytes
        table = self._parsed(f"manifests/{manifest}", lambda: found.table(node.id, rank))
        if found.nbytes != before:
            self._manifests.put(manifest, found, found.nbytes)
        return table

    def _read_manifest(self, id: str) -> Manifest:
        found = self._file("manifests", id, "manifest", Manifest)
        return self._manifests.put(id, found, found.nbytes)

    def _once(self, file: tuple[str, str], known: Callable[[], T | None], read: Callable[[], T]) -> T:
        """What is `known`, else what one caller has `read` while others that want the same file wait."""
        found = known()
        if found is not None:
            return found
        with self._reading.of(file):
            found = known()
            return read() if found is None else found

    def _file(self, folder: str, id: str, kind: Kind, parse: Callable[[Payload, str], T]) -> T:
        """A file that is parsed when no other is: the largest ones take as much memory as all chunks may."""
        data, _ = self._stored(f"{folder}/{id}", self.key / folder / id)
        with self._decoding:
            return self._parsed(f"{folder}/{id}", lambda: parse(unwrap(data, kind, self._most_bytes), id))

    def _stored(self, path: str, key: Key) -> tuple[Stored, Stat]:
        try:
            return self.store.read(key, self._most_bytes)
        except NotFound:
            raise CorruptData(f"{self.place(path)} is missing") from None
        except TooLarge as error:
            raise TooLarge(f"{error}; a larger --cache-size permits more") from None

    def _parsed(self, path: str, parse: Callable[[], T]) -> T:
        try:
            return parse()
        except FsbridgeError as error:
            raise error.at(self.place(path)) from None

    def chunk(self, id: str, start: int, length: int) -> bytes:
        """Bytes of a chunk object; CorruptData when it is missing or too short."""
        try:
            return self.store.read_range(self.key / "chunks" / id, start, length)[0]
        except NotFound:
            raise CorruptData(f"{self.place(f'chunks/{id}')} is missing") from None

    def fetch(self, chunk: Chunk, first: int, length: int) -> None:
        """`length` bytes of a chunk from its byte `first` on will be wanted soon; a store far away sends them meanwhile."""
        if isinstance(chunk, Native):
            self.store.fetch(self.key / "chunks" / chunk.id, (chunk.start + first, length))
        elif isinstance(chunk, Virtual):
            self.virtual.fetch(chunk, first, length)

    def owner(self, folder: str, id: str) -> Owner | None:
        """Who may read a file, given the modes of its directory and its own; None for one that is gone."""
        if self.store.prefixes:  # objects have no owner, and asking for one is a request
            return everybody()
        try:
            above, own = self.store.stat(self.key / folder), self.store.stat(self.key / folder / id)
        except NotFound:
            return None
        return restricted(own.owner, above.owner)


def _checked(id: str) -> None:
    try:
        parse_id(id, ID_BYTES)
    except NotFound as error:
        raise CorruptData(str(error)) from None


def _reported(error: Exception) -> None:
    log.error("sending ahead: %r", error)
