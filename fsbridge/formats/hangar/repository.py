"""A Hangar repository's databases, asked through a child process: branches, commits, trees, schemas, records.

Blocking and thread-safe. What is content-addressed (commits, schemas) is found, within limits; what can change (branch
heads, staging area, backend records, which turn from remote to local) only while its database's file is unchanged. Not
here: the tree that is shown (`hierarchy.py`), sample data (`backends.py`), LMDB itself (`lmdb.py`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

from fsbridge.codecs import CodecChain
from fsbridge.codecs.blosc import blosc
from fsbridge.errors import CorruptData, NotFound, Stale, TooLarge, Unsupported
from fsbridge.formats.hangar.process import DatabaseProcess
from fsbridge.formats.hangar.records import (
    Commit,
    RefTable,
    Schema,
    commit_digest,
    decode,
    parse_commit,
    parse_schema,
    tree_records,
    version_tuple,
)
from fsbridge.lru import LRU
from fsbridge.owner import Owner, entered, restricted
from fsbridge.store import Key, Stat, Store

COMMIT_BYTES = 256 << 20
"""Decoded bytes of one commit's tree: four million samples."""
TABLES_BYTES = 64 << 20
"""Bytes of commit trees found: the newest one of a million samples, or many small ones."""
SPEC_BYTES = 1 << 20
"""Decoded bytes of a commit's description: its message is written by a person."""
REMEMBERED_RECORDS = 20_000
"""Backend records found: about 5 MB."""
REMEMBERED_COMMITS = 1000
"""Schemas and commit descriptions found."""
BATCH_RECORDS = 500
"""Commits described by one question."""
SETTLED_NS = 1_000_000_000
"""ns: the next write changes the times of a file that was last written to longer ago, however coarse its clock is."""
READ_ATTEMPTS = 5
"""A staging area that changes between two pages of it is read again."""

T = TypeVar("T")
_BLOSC = CodecChain((blosc(),))


class Repository:
    """The repository whose `.hangar` folder is `store`."""

    def __init__(self, store: Store, databases: DatabaseProcess) -> None:
        self.store = store
        self._databases = databases
        self._commits: LRU[str, Commit] = LRU(REMEMBERED_COMMITS)
        self._schemas: LRU[str, Schema] = LRU(REMEMBERED_COMMITS)
        self._tables: LRU[str, RefTable] = LRU(TABLES_BYTES)
        self._staged: tuple[Hashable, RefTable | None] = (None, None)
        self._records: tuple[Hashable, LRU[str, bytes]] = (None, LRU(REMEMBERED_RECORDS))
        self._names: tuple[Hashable, dict[bytes, bytes]] | None = None
        self.version = self._version()

    def close(self) -> None:
        """End the child and give up the folder."""
        self._databases.close()
        self.store.close()

    def _version(self) -> str:
        raw = self._branch_database().get(b"software_version")
        if raw is None:
            raise Unsupported(f"{self.place('')}: branch.lmdb names no release of Hangar; fsbridge reads 0.5 and later")
        text = decode(raw, "software version")
        if version_tuple(text) < (0, 5):
            raise Unsupported(f"{self.place('')}: written by Hangar {text}; fsbridge reads 0.5 and later")
        return text

    def place(self, path: str) -> str:
        """A path of the repository for messages."""
        return self.store.describe(Key.parse(path))

    def stat(self, path: str) -> Stat:
        """Size, time and version of a file of the repository."""
        return self.store.stat(Key.parse(path))

    def owner(self, *paths: str) -> Owner | None:
        """Whom all of these files let read, and the folders above them; one that is not there lets everybody."""
        found: list[Owner | None] = []
        for path in paths:
            with contextlib.suppress(NotFound):
                key = Key.parse(path)
                found.append(self.store.stat(key).owner)
                while key:
                    key = key.parent
                    found.append(entered(self.store.stat(key).owner))
        return restricted(*found) if found else None

    def _branch_database(self) -> Mapping[bytes, bytes]:
        """All of branch.lmdb as it is now; read again when its file has changed, or has only just been written to."""
        stat = self.stat("branch.lmdb")
        if self._names is not None and self._names[0] == stat.version:
            return self._names[1]
        settled = time.time_ns() - stat.mtime_ns > SETTLED_NS
        found = dict(self._scan("branch.lmdb", b""))
        self._names = (stat.version, found) if settled else None
        return found

    def head(self) -> str | None:
        """Name of the branch that a write checkout continues, Hangar's default; None if there is none yet."""
        raw = self._branch_database().get(b"head")
        return decode(raw, "head").removeprefix("branch:") if raw is not None else None

    def branches(self) -> Iterator[tuple[str, str]]:
        """Branch names, sorted, with the digests of their commits (empty before the first one)."""
        for key, value in self._branch_database().items():
            if key.startswith(b"branch:"):
                yield decode(key[7:], "branch name"), decode(value, "branch")

    def branch(self, name: str) -> str:
        """The branch's commit digest, empty before the first commit; NotFound."""
        raw = self._branch_database().get(b"branch:" + name.encode("utf-8", "surrogateescape"))
        if raw is None:
            raise NotFound(f"{self.place('')}: no branch {name!r}")
        return decode(raw, f"branch {name!r}")

    def commits(self) -> Iterator[tuple[str, int]]:
        """Digests and mtimes (ns) of all commits, sorted by digest; a damaged one has its database's time."""
        batch: list[str] = []
        for key, _ in self._scan("ref.lmdb", b"a=", values=False):
            if b":" not in key:
                batch.append(decode(key, "commit digest"))
            if len(batch) == BATCH_RECORDS:
                yield from self._times(batch)
                batch = []
        yield from self._times(batch)

    def _times(self, digests: Sequence[str]) -> Iterator[tuple[str, int]]:
        try:
            yield from [(commit.digest, commit.mtime_ns) for commit in self._describe(digests)]
        except CorruptData:
            if len(digests) == 1:
                yield digests[0], self.stat("ref.lmdb").mtime_ns
            else:
                for digest in digests:
                    yield from self._times([digest])

    def commit(self, digest: str) -> Commit:
        """A commit's description; NotFound."""
        return self._describe([digest])[0]

    def _describe(self, digests: Sequence[str]) -> list[Commit]:
        found = {digest: commit for digest in digests if (commit := self._commits.get(digest)) is not None}
        missing = [digest for digest in digests if digest not in found]
        if missing:
            names = [digest.encode("utf-8", "surrogateescape") for digest in missing]
            values = self._get("ref.lmdb", [name + end for name in names for end in (b"", b":spec")])
            for digest, parents, spec in zip(missing, values[::2], values[1::2], strict=True):
                if parents is None or ":" in digest:  # the other keys of a commit are `<digest>:ref`, `<digest>:spec`
                    raise NotFound(f"{self.place('')}: no commit {digest!r}")
                if spec is None:
                    raise CorruptData(f"{self.place('ref.lmdb')}: commit {digest} has no description")
                commit = parse_commit(digest, self._inflate(spec, SPEC_BYTES, digest), parents)
                found[digest] = self._commits.put(digest, commit, 1)
        return [found[digest] for digest in digests]

    def table(self, digest: str) -> RefTable:
        """The tree of a commit; the empty digest is the empty tree."""
        if not digest:
            return RefTable([])
        found = self._tables.get(digest)
        if found is not None:
            return found
        name = digest.encode("utf-8", "surrogateescape")
        raw, spec, parents = self._get("ref.lmdb", [name + b":ref", name + b":spec", name])
        if raw is None or spec is None or parents is None:
            raise CorruptData(f"{self.place('ref.lmdb')}: no tree, description or parents of commit {digest}")
        records = tree_records(self._inflate(raw, COMMIT_BYTES, digest))
        held = commit_digest(parents, self._inflate(spec, SPEC_BYTES, digest), records)
        if held != digest:  # LMDB and Blosc have no checksums: samples would have others' names
            raise CorruptData(f"{self.place('ref.lmdb')}: commit {digest} is damaged: what it holds has the digest {held}")
        table = RefTable(records)
        return self._tables.put(digest, table, table.nbytes)

    def _inflate(self, raw: bytes, limit: int, digest: str) -> bytes:
        try:
            return bytes(_BLOSC.decode(raw, None, limit))
        except (CorruptData, TooLarge) as error:
            raise error.at(f"{self.place('ref.lmdb')}: commit {digest}") from None

    def staged(self) -> RefTable | None:
        """The staging area's tree if it differs from the head branch's, that is, if something is not committed."""
        head = self.head()
        digest = self.branch(head) if head is not None else ""
        version = (digest, self._databases.ask({"op": "get", "path": "stage_ref.lmdb", "keys": []})[0]["version"])
        known, table = self._staged
        if known == version:
            return table
        found = self._stage_table()
        result = None if found == self.table(digest) else found
        self._staged = (version, result)
        return result

    def _stage_table(self) -> RefTable:
        for _ in range(READ_ATTEMPTS):
            try:
                return RefTable([key + b" " + value for key, value in self._scan("stage_ref.lmdb", b"", snapshot=True)])
            except Stale:
                continue
        raise Stale(f"{self.place('stage_ref.lmdb')}: keeps changing while it is read")

    def schema(self, digest: str) -> Schema:
        """The schema of a digest `1=...`."""
        found = self._schemas.get(digest)
        if found is not None:
            return found
        raw = self.get("hash.lmdb", f"s:{digest}".encode("utf-8", "surrogateescape"))
        if raw is None:
            raise CorruptData(f"{self.place('hash.lmdb')}: no schema {digest}")
        return self._schemas.put(digest, parse_schema(raw), 1)

    def record(self, digest: str) -> bytes:
        """The backend record of a sample's digest, found while the database's file is unchanged."""
        stat = self.stat("hash.lmdb")
        known_version, known = self._records
        found = known.get(digest) if known_version == stat.version else None
        if found is not None:
            return found
        settled = time.time_ns() - stat.mtime_ns > SETTLED_NS
        raw = self.get("hash.lmdb", f"h:{digest}".encode("utf-8", "surrogateescape"))
        if raw is None:
            raise CorruptData(f"{self.place('hash.lmdb')}: no record of the sample {digest}")
        if settled:
            if known_version != stat.version:
                known = LRU(REMEMBERED_RECORDS)
                self._records = (stat.version, known)
            known.put(digest, raw, 1)
        return raw

    def get(self, path: str, key: bytes) -> bytes | None:
        """The value of `key` in the database `path`."""
        return self._get(path, [key])[0]

    def _get(self, path: str, keys: Sequence[bytes]) -> list[bytes | None]:
        request = {"op": "get", "path": path, "keys": [key.decode("latin-1") for key in keys]}
        answer, values = self._databases.ask(request)
        return list(_cut(answer["sizes"], values))

    def _scan(self, path: str, prefix: bytes, values: bool = True, snapshot: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Keys that begin with `prefix`, with their values; with `snapshot`, Stale if a writer commits meanwhile."""
        after = version = None
        while True:
            request = {"op": "scan", "path": path, "prefix": prefix.decode("latin-1"), "after": after, "values": values}
            answer, joined = self._databases.ask(request)
            if snapshot and version not in (None, answer["version"]):
                raise Stale(f"{self.place(path)}: changed while it was read")
            version = answer["version"]
            keys = [key.encode("latin-1") for key in answer["keys"]]
            found = list(_cut(answer["sizes"], joined)) if values else [b""] * len(keys)
            for key, value in zip(keys, found, strict=True):
                yield key, value or b""
            if not answer["more"]:
                return
            after = answer["keys"][-1]


def _cut(sizes: Sequence[int | None], joined: bytes | bytearray) -> Iterator[bytes | None]:
    """Values of the given sizes out of their concatenation."""
    if sum(size for size in sizes if size is not None) != len(joined):
        raise CorruptData("the database process answered nonsense")
    position = 0
    for size in sizes:
        if size is None:
            yield None
        else:
            yield bytes(joined[position : position + size])
            position += size
