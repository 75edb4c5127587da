"""Hangar repositories as a source: branches, commits and the staging area, down to samples as arrays.

    branches/<branch>/<column>/<sample>[/<subsample>]     `#7` is the integer key 7, as in Hangar's own records
    commits/<digest>/...                                  every commit, its message, author, time and parents as attributes
    staged/...                                            the staging area, while something in it is not committed
    head                                                  link to the branch that a write checkout continues

A sample is an array of one chunk: exactly its bytes in C order. str and bytes samples are 0-D arrays of one element. Only
repositories of Hangar 0.5 and later. Not here: databases (`repository.py`), samples' data and chunks
(`backends.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass

from fsbridge.config import Config
from fsbridge.errors import FsbridgeError, NotFound, SetupError, Unsupported
from fsbridge.formats import dtypes
from fsbridge.formats.format import HANGAR_FOLDERS
from fsbridge.formats.hangar.backends import ONLY_REMOTE, Backends, RemoteChunks, SampleChunks
from fsbridge.formats.hangar.records import (
    Record,
    RefTable,
    RemoteRecord,
    RowRecord,
    Schema,
    parse_record,
)
from fsbridge.formats.hangar.repository import DatabaseProcess, HangarRepository
from fsbridge.formats.hangar.snapshots import AnySnapshot, BranchSnapshot, CommitSnapshot, StagedSnapshot, State
from fsbridge.formats.records import HANGAR
from fsbridge.metadata import JSON, ArrayMetadata, ChunkGrid
from fsbridge.model import Array, Child, Group, Link, Node, Source
from fsbridge.store.local import LocalStore
from fsbridge.store.local.files import path_opener, root_check


class HangarSource(Source):
    """`model.Source` for a repository."""

    format = HANGAR
    root: Group

    def __init__(self, repository: HangarRepository, backends: Backends) -> None:
        self._repository = repository
        self._backends = backends
        self.root = HangarRoot(repository, backends)

    def close(self) -> None:
        """End the child processes and close the folder."""
        self._backends.close()
        self._repository.close()


@dataclass(frozen=True, slots=True)
class _HangarGroup(Group):
    """Base of all groups: the repository and its data."""

    repository: HangarRepository
    backends: Backends


@dataclass(frozen=True, slots=True)
class HangarRoot(_HangarGroup):
    """The repository."""

    @property
    def mtime_ns(self) -> int:
        return self.repository.stat("branch.lmdb").mtime_ns

    def attributes(self) -> Mapping[str, JSON]:
        return {"software_version": self.repository.version, "head": self.repository.head()}

    def children(self) -> Iterator[Child]:
        mtime_ns = self.mtime_ns
        yield Child("branches", mtime_ns)
        yield Child("commits", mtime_ns)
        link = self._head()
        if link is not None:
            yield Child("head", mtime_ns, link.target)
        if self.repository.read_staged() is not None:
            yield Child("staged", StagedSnapshot(self.repository).mtime_ns)

    def child(self, name: str) -> Node:
        if name == "branches":
            return BranchesGroup(self.repository, self.backends)
        if name == "commits":
            return CommitsGroup(self.repository, self.backends)
        link = self._head() if name == "head" else None
        if link is not None:
            return link
        if name == "staged" and self.repository.read_staged() is not None:
            return TreeGroup(self.repository, self.backends, StagedSnapshot(self.repository))
        raise NotFound(f"{self.repository.place('')}: no {name!r}")

    def _head(self) -> Link | None:
        head = self.repository.head()
        if head is None or "/" in head:  # a link's target cannot name a branch that contains a slash
            return None
        return Link(f"branches/{head}")


@dataclass(frozen=True, slots=True)
class BranchesGroup(_HangarGroup):
    """All branches. A remote's are named `origin/master`."""

    @property
    def mtime_ns(self) -> int:
        return self.repository.stat("branch.lmdb").mtime_ns

    def attributes(self) -> Mapping[str, JSON]:
        return {}

    def children(self) -> Iterator[Child]:
        for name, _ in self.repository.branches():
            try:
                mtime_ns = BranchSnapshot(self.repository, name).mtime_ns
            except FsbridgeError:  # the error is reported when it is opened; its neighbours are listed
                mtime_ns = self.mtime_ns
            yield Child(name, mtime_ns)

    def child(self, name: str) -> Node:
        self.repository.branch(name)
        return TreeGroup(self.repository, self.backends, BranchSnapshot(self.repository, name))


@dataclass(frozen=True, slots=True)
class CommitsGroup(_HangarGroup):
    """All commits by digest."""

    @property
    def mtime_ns(self) -> int:
        return self.repository.stat("ref.lmdb").mtime_ns

    def attributes(self) -> Mapping[str, JSON]:
        return {}

    def children(self) -> Iterator[Child]:
        return (Child(digest, mtime_ns) for digest, mtime_ns in self.repository.commits())

    def child(self, name: str) -> Node:
        self.repository.commit(name)
        return TreeGroup(self.repository, self.backends, CommitSnapshot(self.repository, name))


@dataclass(frozen=True, slots=True)
class _GroupOfTree(_HangarGroup):
    """Base of the groups below a branch, a commit or the staging area, which have its version and time."""

    tree: AnySnapshot

    @property
    def version(self) -> Hashable:
        return self.tree.version

    @property
    def listing_version(self) -> Hashable:
        return self.tree.version

    @property
    def mtime_ns(self) -> int:
        return self.tree.mtime_ns


@dataclass(frozen=True, slots=True)
class TreeGroup(_GroupOfTree):
    """The columns of a branch, a commit or the staging area."""

    def attributes(self) -> Mapping[str, JSON]:
        return self.tree.attributes()

    def children(self) -> Iterator[Child]:
        table, mtime_ns = self.tree.state()
        return (Child(name, mtime_ns) for name, _ in table.columns())

    def child(self, name: str) -> Node:
        self.tree.state().table.schema(name)
        return ColumnGroup(self.repository, self.backends, self.tree, name)


@dataclass(frozen=True, slots=True)
class ColumnGroup(_GroupOfTree):
    """The samples of a column."""

    column: str

    def attributes(self) -> Mapping[str, JSON]:
        digest = self.tree.state().table.schema(self.column)
        return {"schema_digest": digest, **self.repository.schema(digest).document}

    def children(self) -> Iterator[Child]:
        table, mtime_ns = self.tree.state()
        nested = self.repository.schema(table.schema(self.column)).nested
        return (Child(name, mtime_ns) for name in table.samples(self.column, nested))

    def child(self, name: str) -> Node:
        state = self.tree.state()
        table = state.table
        if not self.repository.schema(table.schema(self.column)).nested:
            return open_sample(self, (name,), state)
        if next(table.subsamples(self.column, name), None) is None:
            raise NotFound(f"no sample {name!r} in column {self.column!r}")
        return SubsamplesGroup(self.repository, self.backends, self.tree, self, name)


@dataclass(frozen=True, slots=True)
class SubsamplesGroup(_GroupOfTree):
    """The subsamples of a sample."""

    column: ColumnGroup
    sample: str

    def attributes(self) -> Mapping[str, JSON]:
        return {}

    def children(self) -> Iterator[Child]:
        table, mtime_ns = self.tree.state()
        return (Child(name, mtime_ns) for name in table.subsamples(self.column.column, self.sample))

    def child(self, name: str) -> Node:
        return open_sample(self.column, (self.sample, name), self.tree.state())


@dataclass(frozen=True, slots=True)
class _StoredSample:
    """The present record of a sample, and everything else that its metadata is made of."""

    digest: str
    schema_digest: str
    record: bytes


def _find(column: ColumnGroup, path: tuple[str, ...], table: RefTable) -> _StoredSample:
    digest = table.digest(column.column, path)
    return _StoredSample(digest, table.schema(column.column), column.repository.record(digest))


@dataclass(frozen=True, slots=True, eq=False)
class SampleArray(Array):
    """One sample: an immutable view of what its record said when it was opened."""

    column: ColumnGroup
    path: tuple[str, ...]
    metadata: ArrayMetadata
    chunks: SampleChunks | RemoteChunks
    mtime_ns: int
    version: _StoredSample

    def current(self) -> bool:
        """Tell whether the tree still has this sample under this name."""
        try:
            return _find(self.column, self.path, self.column.tree.state().table) == self.version
        except NotFound:
            return False


def open_sample(column: ColumnGroup, path: tuple[str, ...], state: State) -> SampleArray:
    """Return the sample (one name) or subsample (two names) of a column.

    A sample that only the remote server has shows its metadata. Raises Unsupported if its shape varies and is not known
    here.
    """
    sample = _find(column, path, state.table)
    name = "/".join((column.column, *path))
    schema = column.repository.schema(sample.schema_digest)
    try:
        record = parse_record(sample.record)
        shape = _find_shape(record, schema)
        metadata = _make_metadata(schema, shape, sample)
    except FsbridgeError as error:
        raise error.at(f"{column.repository.place('')}: sample {name}") from None
    if isinstance(record, RemoteRecord):
        return SampleArray(
            column, path, metadata, RemoteChunks(f"sample {name}", shape, state.mtime_ns), state.mtime_ns, sample
        )
    chunks = SampleChunks(f"sample {name}", shape, column.backends, record, schema)
    return SampleArray(column, path, metadata, chunks, state.mtime_ns, sample)


def _find_shape(record: Record, schema: Schema) -> tuple[int, ...]:
    """Return a sample's shape, () for text, checked against its column's schema."""
    if isinstance(record, RowRecord):
        schema.check(record)
        return record.shape
    if isinstance(record, RemoteRecord):
        if schema.variable and schema.kind == "ndarray":
            raise Unsupported(ONLY_REMOTE)
        return schema.shape
    if schema.kind != {"30": "str", "31": "bytes"}[record.backend]:
        raise Unsupported(f"a column of {schema.kind} cannot have samples of backend {record.backend}")
    return ()


def _make_metadata(schema: Schema, shape: tuple[int, ...], sample: _StoredSample) -> ArrayMetadata:
    attributes = {"digest": sample.digest, "record": sample.record.decode("utf-8")}
    if schema.dtype is not None:
        dtype = dtypes.data_type(schema.dtype)
    else:
        dtype = dtypes.STRING if schema.kind == "str" else dtypes.BYTES
    return ArrayMetadata(
        grid=ChunkGrid(shape, shape),
        dtype=dtype,
        attributes=attributes,
        codec=f"hangar {sample.record[:2].decode('utf-8')}",
    )


def open_hangar(path: str, config: Config, open_file: Callable[[str], Source]) -> HangarSource:
    """Open the repository at `path` (`find_repository`). `open_file` opens HDF5 files of samples.

    Raises SetupError if there is none, Unsupported for repositories of releases before 0.5.
    """
    folder = find_repository(path)
    if folder is None:
        raise SetupError(f"{path}: not a Hangar repository", "a repository has .hangar/branch.lmdb and .hangar/data/")
    store = LocalStore(
        folder,
        config.external_folders,
        config.for_everybody,
        open_path=path_opener(config),
        check_root=root_check(folder, config),
    )
    databases = DatabaseProcess(os.path.realpath(folder), config.metadata_deadline)
    try:
        repository = HangarRepository(store, databases)
    except BaseException:
        databases.close()
        store.close()
        raise
    return HangarSource(repository, Backends(repository, open_file, config))


def find_repository(path: str) -> str | None:
    """Return the folder of Hangar's own files if `path` is it or holds it (a working or a server repository)."""
    for folder in (*(os.path.join(path, name) for name in HANGAR_FOLDERS), path):
        if os.path.isfile(os.path.join(folder, "branch.lmdb")) and os.path.isdir(os.path.join(folder, "data")):
            return folder
    return None
