"""What N5, Zarr v2 and Zarr v3 share: a tree of keys in which JSON documents tell which directories are arrays.

`KeyedGroup` is a directory, `KeyedArray` one version of an array's metadata, `Hierarchy` a format's rules for both, and
`Dialect` what a convention on top may add. Not here: any document's name or meaning, any convention, chunks
(`chunks.py`), what all readers share (`store.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Protocol

import numpy as np

from fsbridge.codecs import Decoder
from fsbridge.errors import AccessDenied, FsbridgeError, NotFound, Stale, TooDeep, Unlistable, is_lasting
from fsbridge.formats.documents import Document
from fsbridge.formats.keyed.consolidated import contradictions, copied_members, named_members
from fsbridge.formats.keyed.other_files import is_chunk_name, is_other_name, other_file, other_files
from fsbridge.formats.keyed.store import DOCUMENTS, KeyedStore
from fsbridge.metadata import JSON, ArrayMetadata, DataType, Format, Index
from fsbridge.model import Array, Child, Chunks, Group, Node, OtherFile, Source, StoredFile, as_array
from fsbridge.store import ROOT, WHOLE, Key

LOOKED_INTO, LOOKED_AT = 16, 4096
"""Most directories that are looked into for documents below one without any, and most members of each."""

Version = tuple[Hashable, ...]
"""Versions of the documents that describe a node; None for an absent document."""


class Hierarchy(Protocol):
    """A format's rules: what the documents at a key mean."""

    @property
    def keyed(self) -> KeyedStore: ...

    @property
    def document(self) -> str | None:
        """Name of the document that tells whether its directory is an array; None if the names of the documents tell it."""

    @property
    def consolidated(self) -> Sequence[str]:
        """Names of the documents that may hold copies of other documents, further down."""

    def open(self, key: Key) -> Group | Array:
        """Return the node at the directory `key`."""

    def group_attributes(self, key: Key) -> Mapping[str, JSON]:
        """Return the present user attributes of the group at `key`."""

    def group_documents(self, key: Key) -> Mapping[str, JSON]:
        """Return the documents of the group at `key` by name."""

    @property
    def of_groups(self) -> Sequence[str]:
        """Names of the documents that a group may have."""

    def is_said_group(self, key: Key) -> bool:
        """True if a document at `key` says that it is a group; False if no document says what it is."""

    def unfinished(self, key: Key) -> str | None:
        """Return what the documents of the group at `key` lack to be an array's, if they look like these; else None."""


@dataclass(frozen=True, slots=True)
class KeyedGroup(Group):
    """A directory that is no array. Each subdirectory is a member, with or without documents of its own.

    `unread`: its document cannot be used, so it may be an array. Directories that look like chunks are then no members.
    """

    hierarchy: Hierarchy
    key: Key
    unread: bool = field(default=False, kw_only=True)

    @property
    def version(self) -> Hashable:
        documents = self.hierarchy.keyed.documents
        return versions(*(documents.attempt(self.key / name) for name in self.hierarchy.of_groups))

    @property
    def listing_version(self) -> Hashable:
        """The version of the directory and of the documents, because documents name further members.

        It equals nothing if it is not known, or may miss a change.
        """
        stat = self.hierarchy.keyed.store.stat(self.key)
        return (stat.version, self.version) if stat.version is not None and stat.settled else object()

    def current(self) -> bool:
        """True if a document still says that this is a group.

        Remote groups are known from the listings of the groups above.
        """
        keyed = self.hierarchy.keyed
        return not keyed.store.has_no_directories and _current(lambda: self.hierarchy.is_said_group(self.key))

    @property
    def mtime_ns(self) -> int:
        """The mtime of the directory."""
        return self.hierarchy.keyed.store.stat(self.key).mtime_ns

    def attributes(self) -> Mapping[str, JSON]:
        return self.hierarchy.group_attributes(self.key)

    def native(self) -> Mapping[str, JSON]:
        return self.hierarchy.group_documents(self.key)

    def is_plain(self) -> bool:
        """Return True if the directory holds files, but no document, neither directly nor further down.

        The root is never plain.

        Not everything below is looked at. If an array is overlooked, only this group lacks a document in the mount, as it
        does in the store.
        """
        return bool(self.key) and self._is_plain(iter(range(LOOKED_INTO)))

    def _is_plain(self, budget: Iterator[int]) -> bool:
        store = self.hierarchy.keyed.store
        if not store.listable:
            return False
        try:
            if self.hierarchy.group_documents(self.key):
                return False
            files = False
            for entry in islice(store.list(self.key), LOOKED_AT):
                if entry.is_dir:
                    if next(budget, None) is None:
                        return True
                    node = self.child(entry.name)
                    if not (isinstance(node, KeyedGroup) and node._is_plain(budget)):
                        return False
                    files = True
                elif entry.name in DOCUMENTS or entry.hidden:
                    return False
                else:
                    files = files or is_other_name(entry.name) is not None
            return files
        except (FsbridgeError, OSError) as error:  # it is shown as a group, and reading it reports the error
            if not is_lasting(error):
                raise
            return False

    def other_file(self, name: str) -> StoredFile | None:
        return other_file(self.hierarchy.keyed.store, self.key, name)

    def copies(self) -> int:
        """Return how many members have copies of their documents here.

        In remote stores, documents that hold nothing but copies are looked for in the root only.
        """
        hierarchy, keyed = self.hierarchy, self.hierarchy.keyed
        everywhere = not (self.key and keyed.store.remote)
        asked = [name for name in hierarchy.consolidated if everywhere or name in hierarchy.of_groups]
        return max((copied_members(keyed.documents, name, self.key) for name in asked), default=0)

    def contradictions(self) -> Iterator[str]:
        keyed = self.hierarchy.keyed
        for name in self.hierarchy.consolidated:
            yield from contradictions(keyed.documents, keyed.store, name, self.key)
        if (words := self.hierarchy.unfinished(self.key)) is not None:
            yield words

    def skipped(self) -> Iterator[str]:
        """Describe what the store leaves out, and chunks that no document describes."""
        store = self.hierarchy.keyed.store
        yield from store.left_out(self.key)
        if store.listable:
            strays = [entry.name for entry in store.list(self.key) if not entry.is_dir and is_chunk_name(entry.name)]
            if strays:
                place = store.describe(self.key / min(strays))
                yield f"{place}: {len(strays)} files that are named like chunks, and no document of an array beside them"

    def children(self) -> Iterator[Child]:
        return self.listing(_ignore)

    def listing(self, others: Callable[[OtherFile], object]) -> Iterator[Child]:
        self.hierarchy.keyed.listed_groups.put(self.key, True)
        names = None if self.hierarchy.keyed.store.listable else self._find_named_members()
        if names is not None:
            yield from (Child(name, self.mtime_ns) for name in names)
            return
        chunks = False
        for entry in self.hierarchy.keyed.store.list(self.key, stats=True):
            if entry.stat is None:
                continue
            if not (entry.is_dir or entry.hidden) and is_other_name(entry.name):
                others(OtherFile(entry.name, entry.stat.size, entry.stat.mtime_ns))
            elif entry.is_dir or (entry.hidden and _may_be_member(entry.name)):
                if self.unread and _CHUNK_NAME.fullmatch(entry.name):
                    chunks = chunks or not self._is_described(entry.name)  # asked once: an array may have many
                    if chunks:
                        continue
                if self.unread and entry.name == self.hierarchy.document:
                    continue  # a directory in place of the document
                yield Child(entry.name, entry.stat.mtime_ns)

    def _is_described(self, name: str) -> bool:
        """True if a member has a document of its own."""
        assert self.hierarchy.document is not None
        try:
            self.hierarchy.keyed.store.stat(self.key / name / self.hierarchy.document, WHOLE)
        except NotFound:
            return False
        return True

    def in_spite_of(self, error: Exception, says_array: bool = False) -> Group:
        """Return this group although its document cannot be used, because its members do not need the document.

        Raises the `error` if it may pass, if the document may not be read, or if there are no members: then the document is
        all there is, or belongs to an array. `says_array`: the document calls this an array, so that only members can prove
        otherwise.
        """
        if isinstance(error, AccessDenied) or not is_lasting(error):
            raise error
        group = replace(self, unread=True)
        try:
            if next(group.children(), None) is None:
                raise error
        except (AccessDenied, Unlistable):  # members can still be named
            if says_array:
                raise error from None
        return group

    def _find_named_members(self) -> list[str] | None:
        hierarchy = self.hierarchy
        try:
            attributes = self.attributes()
        except (FsbridgeError, OSError) as error:  # consolidated metadata of a group above may still name the members
            if not is_lasting(error):
                raise
            attributes = {}
        return named_members(hierarchy.keyed.documents, hierarchy.consolidated, self.key, attributes)

    def prefetch(self, members: Iterable[str]) -> None:
        """Request the documents of a remote store that are needed next, even if they are cached: they may have changed."""
        documents = self.hierarchy.keyed.documents
        wanted = [self.key / name for name in DOCUMENTS if documents.knows(self.key / name)]
        if self.hierarchy.keyed.store.remote:
            keys = (self.key / member / name for member in members if not self.lacks(member) for name in DOCUMENTS)
            wanted += (key for key in keys if documents.knows(key) or key.name == self.hierarchy.document)
        for key in wanted:
            documents.prefetch(key)

    @property
    def costly(self) -> bool:
        return True

    def lacks(self, name: str) -> bool:
        return self.hierarchy.keyed.store.lacks(self.key / name)

    def child(self, name: str) -> Node:
        keyed, key = self.hierarchy.keyed, self.key / name
        if key.count("/") >= keyed.config.limits.depth:
            raise TooDeep(f"{keyed.store.describe(key)}: there are more than {keyed.config.limits.depth} nested groups")
        if keyed.store.has_no_directories:  # a document proves that it exists, and is read anyway
            node = self.hierarchy.open(key)
            if as_array(node) is not None or keyed.store.holds(key):
                return node
        if not keyed.store.stat(key).is_dir:
            raise NotFound(f"{keyed.store.describe(key)}: it is a file, not a group or array")
        return self.hierarchy.open(key)


@dataclass(frozen=True, slots=True)
class KeyedArray(Array):
    """One version of an array's metadata. `check` tells whether the store still has this version."""

    metadata: ArrayMetadata
    version: Hashable
    documents_ns: int
    chunks: Chunks
    check: Callable[[], bool]
    keyed: KeyedStore
    key: Key
    fetch: Callable[[Index], object] | None = None
    later_ns: Callable[[], int] | None = None

    @property
    def mtime_ns(self) -> int:
        """The latest mtime of its documents, as far as they have been read."""
        return self.documents_ns if self.later_ns is None else max(self.documents_ns, self.later_ns())

    def current(self) -> bool:
        return _current(self.check)

    def directory_ns(self) -> int | None:
        return self.keyed.directory_ns(self.key)

    def other_files(self) -> Iterator[Sequence[OtherFile]]:
        for names in self.chunks.other_names():
            if not names:
                yield ()
            yield from other_files(self.keyed.store, self.key, names)

    def other_file(self, name: str) -> StoredFile | None:
        return other_file(self.keyed.store, self.key, name)

    def watch(self) -> DocumentWatch:
        """Return an object with the same `current` as this array, which does not keep the metadata in memory."""
        return DocumentWatch(self.check)


@dataclass(frozen=True, slots=True, eq=False)
class DocumentWatch:
    """Tells whether an array's documents are still those that were read."""

    check: Callable[[], bool]

    def current(self) -> bool:
        return _current(self.check)


def _ignore(file: OtherFile) -> None:
    """Ignore an other file."""


_CHUNK_NAME = re.compile(r"c|[0-9]+")
"""Directories of chunks, in N5 and Zarr v3."""


def _may_be_member(name: str) -> bool:
    """True if a broken link may have led to a group or an array. It is then listed, or a mirror would delete its copy."""
    return name not in DOCUMENTS and not name.startswith(".")


def _current(check: Callable[[], bool]) -> bool:
    try:
        return check()
    except (FsbridgeError, OSError):
        return False


@dataclass(frozen=True, slots=True)
class KeyedSource(Source):
    """An opened hierarchy. `owned`: the store is closed with it."""

    format: Format
    hierarchy: Hierarchy
    key: Key = ROOT
    owned: bool = True

    @property
    def root(self) -> Group | Array:
        node, keyed = self.hierarchy.open(self.key), self.hierarchy.keyed
        if keyed.store.has_no_directories and as_array(node) is None:
            is_known = any(keyed.documents.known(self.key / name) is not None for name in DOCUMENTS)
            if not is_known and not keyed.store.holds(self.key):
                raise Stale(f"{keyed.store.describe(self.key)}: no longer there")
        return node

    @property
    def rests(self) -> bool:
        return not self.owned or self.hierarchy.keyed.store.rests

    @property
    def lease(self) -> KeyedStore:
        return self.hierarchy.keyed

    # `rest` has nothing to close: only the stores that links lead to belong to this hierarchy alone, and they are closed
    # with their last user.

    def close(self) -> None:
        self.hierarchy.keyed.externals.close()
        if self.owned:
            self.hierarchy.keyed.store.close()


def versions(*documents: Document | None) -> Version:
    """Return the version of a node described by `documents`."""
    return tuple(document.stat.version if document is not None else None for document in documents)


def newest(*documents: Document | None) -> int:
    """Return the latest mtime of `documents`, in ns."""
    return max((document.stat.mtime_ns for document in documents if document is not None), default=0)


class Dialect:
    """The plain dialect, which adds nothing. It is the base class of the others."""

    def group(self, hierarchy: Hierarchy, key: Key) -> KeyedGroup:
        """Return the group at `key`."""
        return KeyedGroup(hierarchy, key)

    def objects(
        self, stored: np.dtype[Any], codec: JSON, items: int, native: str, attributes: Mapping[str, JSON]
    ) -> tuple[DataType, Decoder] | None:
        """Return the type and the decoder of elements that are Python objects, or None for the ordinary handling.

        `codec`: the configuration of what encoded them; `items`: elements of a chunk; `native`: the type as the source
        spells it; `attributes`: the array's.
        """
        return None


PLAIN = Dialect()
