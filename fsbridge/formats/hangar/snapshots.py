"""The named states of a repository's columns: a commit, a branch, the staging area. Not here: their groups."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from fsbridge.errors import NotFound
from fsbridge.formats.hangar.records import HangarCommit, RefTable
from fsbridge.formats.hangar.repository import HangarRepository
from fsbridge.metadata import JSON


class State(NamedTuple):
    """The columns at one moment."""

    table: RefTable
    mtime_ns: int


class AnySnapshot(Protocol):
    """Columns that may change. Each call sees them as they are now."""

    @property
    def mtime_ns(self) -> int: ...

    def attributes(self) -> Mapping[str, JSON]: ...

    @property
    def version(self) -> Hashable:
        """Return the digest of the commit. For staged columns, which have none, return an object that equals no other."""

    def state(self) -> State: ...


@dataclass(frozen=True, slots=True)
class CommitSnapshot:
    """The columns at a commit."""

    repository: HangarRepository
    digest: str

    @property
    def mtime_ns(self) -> int:
        return self.repository.commit(self.digest).mtime_ns

    @property
    def version(self) -> Hashable:
        return self.repository.commit(self.digest).digest  # an error if it may not be read any more

    def attributes(self) -> Mapping[str, JSON]:
        return _describe(self.repository.commit(self.digest))

    def state(self) -> State:
        return State(self.repository.table(self.digest), self.mtime_ns)


@dataclass(frozen=True, slots=True)
class BranchSnapshot:
    """The columns at the commit that a branch points to now."""

    repository: HangarRepository
    name: str

    @property
    def mtime_ns(self) -> int:
        return self._mtime_ns(self.repository.branch(self.name))

    @property
    def version(self) -> Hashable:
        return self.repository.branch(self.name)

    def attributes(self) -> Mapping[str, JSON]:
        digest = self.repository.branch(self.name)
        described = _describe(self.repository.commit(digest)) if digest else {"commit": None}
        return {"branch": self.name, **described}

    def state(self) -> State:
        digest = self.repository.branch(self.name)
        return State(self.repository.table(digest), self._mtime_ns(digest))

    def _mtime_ns(self, digest: str) -> int:
        return self.repository.commit(digest).mtime_ns if digest else self.repository.stat("branch.lmdb").mtime_ns


@dataclass(frozen=True, slots=True)
class StagedSnapshot:
    """The columns as a write checkout has them: the head branch's commit with uncommitted changes."""

    repository: HangarRepository

    @property
    def mtime_ns(self) -> int:
        return self.repository.stat("stage_ref.lmdb").mtime_ns

    @property
    def version(self) -> Hashable:
        return object()

    def attributes(self) -> Mapping[str, JSON]:
        return {"branch": self.repository.head()}

    def state(self) -> State:
        staged = self.repository.read_staged()
        if staged is None:
            raise NotFound(f"{self.repository.place('')}: nothing is staged any more")
        return State(staged, self.mtime_ns)


def _describe(commit: HangarCommit) -> dict[str, JSON]:
    return {
        "commit": commit.digest,
        "parents": list(commit.parents),
        "commit_message": commit.message,
        "commit_user": commit.user,
        "commit_email": commit.email,
        "commit_time": commit.time,
    }
