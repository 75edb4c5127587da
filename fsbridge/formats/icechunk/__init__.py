"""Icechunk repositories as a source: branches, tags and snapshots, each a hierarchy of Zarr v3.

    branches/<branch>/...      the snapshot that the branch points to now
    tags/<tag>/...
    snapshots/<identifier>/... the ancestry of all branches and tags; message, time, parent and metadata as attributes above

Not here: files (`repository.py`), keys of a snapshot (`snapshot_store.py`); Zarr itself is opened by an opener handed in.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from fsbridge.config import Config
from fsbridge.errors import FsbridgeError, NotFound, Unsupported
from fsbridge.formats.icechunk.records import Commit
from fsbridge.formats.icechunk.repository import Repository
from fsbridge.formats.icechunk.snapshot_store import SnapshotStore
from fsbridge.formats.records import ICECHUNK
from fsbridge.lru import LRU
from fsbridge.metadata import JSON
from fsbridge.model import Child, Group, Node, Source
from fsbridge.store import Key, Store

OpenZarr = Callable[[Store, Config], Source]


class IcechunkSource(Source):
    """`model.Source` for the repository at `key` of `store`. The store is closed with it if `owned`."""

    format = ICECHUNK
    root: Group

    def __init__(self, store: Store, key: Key, config: Config, open_zarr: OpenZarr, owned: bool = True) -> None:
        self._store = store
        self._owned = owned
        self._config = config
        self._open_zarr = open_zarr
        self._lock = threading.Lock()
        # Up to 256 opened hierarchies of branches, tags and snapshots are kept. One takes some KiB.
        self._opened = LRU[tuple[str, str], Source](256)
        self.repository = Repository(store, key, config)
        self.root = IcechunkRoot(self)
        self.repository.check()  # a repository that cannot be read is reported now

    def hierarchy(self, folder: str, name: str, resolve: Callable[[], str]) -> Node:
        """Return the root of the hierarchy that is shown as `folder/name`. `resolve` returns its snapshot."""
        with self._lock:
            source = self._opened.get((folder, name))
            if source is None:
                config = self._config if folder == "branches" else replace(self._config, immutable=True)
                store = SnapshotStore(self.repository, resolve, f"{folder}/{name}")
                source = self._opened.put((folder, name), self._open_zarr(store, config))
        return source.root

    def close(self) -> None:
        self._opened.clear()
        self.repository.close()
        if self._owned:
            self._store.close()


@dataclass(frozen=True, slots=True)
class _RepositoryGroup(Group):
    """Base of all groups above the hierarchies."""

    source: IcechunkSource

    @property
    def mtime_ns(self) -> int:
        return self.source.repository.mtime_ns


class IcechunkRoot(_RepositoryGroup):
    """The root of a repository: the groups `branches`, `snapshots` and `tags`."""

    def attributes(self) -> Mapping[str, JSON]:
        return {"icechunk_version": self.source.repository.version}

    def children(self) -> Iterator[Child]:
        mtime_ns = self.mtime_ns
        return (Child(name, mtime_ns) for name in ("branches", "snapshots", "tags"))

    def child(self, name: str) -> Node:
        if name == "snapshots":
            return SnapshotsGroup(self.source)
        if name in ("branches", "tags"):
            return RefsGroup(self.source, name)
        raise NotFound(f"{self.source.repository.place()}: no {name!r}")


@dataclass(frozen=True, slots=True)
class RefsGroup(_RepositoryGroup):
    """All branches, or all tags, as groups. The attributes name the snapshot of each."""

    name: str

    def attributes(self) -> Mapping[str, JSON]:
        try:
            return dict(self._refs())
        except Unsupported:  # the store cannot list, but each is found by its name
            return {}

    def children(self) -> Iterator[Child]:
        for name, id in sorted(self._refs().items()):
            try:
                mtime_ns = self.source.repository.commit(id).written_ns
            except FsbridgeError:  # the error is reported when it is opened; its neighbours are listed
                mtime_ns = self.mtime_ns
            yield Child(name, mtime_ns)

    def child(self, name: str) -> Node:
        repository = self.source.repository
        resolve = repository.branch if self.name == "branches" else repository.tag
        resolve(name)
        return self.source.hierarchy(self.name, name, lambda: resolve(name))

    def _refs(self) -> Mapping[str, str]:
        repository = self.source.repository
        return repository.branches() if self.name == "branches" else repository.tags()


class SnapshotsGroup(_RepositoryGroup):
    """All commits. The attributes tell their history."""

    def attributes(self) -> Mapping[str, JSON]:
        return {id: _describe(commit) for id, commit in sorted(self.source.repository.commits().items())}

    def children(self) -> Iterator[Child]:
        commits = self.source.repository.commits()
        return (Child(id, commits[id].written_ns) for id in sorted(commits))

    def child(self, name: str) -> Node:
        repository = self.source.repository
        if not repository.known(name):
            raise NotFound(f"{repository.place('snapshots')}: no {name!r}")
        return self.source.hierarchy("snapshots", name, lambda: name)


def _describe(commit: Commit) -> dict[str, JSON]:
    seconds, rest = divmod(commit.written_ns, 10**9)
    try:
        written = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest // 1000).isoformat()
    except (ValueError, OverflowError, OSError):  # a time outside the calendar
        written = f"{seconds} s"
    return {
        "parent": commit.parent,
        "written_at": written,
        "message": commit.message,
        "metadata": dict(commit.metadata),
    }
