"""A Hangar repository's databases, read through a child process: branches, commits, trees, schemas, records.

Blocking and thread-safe. Content-addressed things (commits, schemas) are kept within limits. Things that can change
(branch heads, staging area, backend records, which turn from remote to local) are kept only while their database's file
is unchanged. Not here: the tree that is shown (`hierarchy.py`), sample data (`backends.py`), LMDB itself (`lmdb.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from fsbridge.asking import before_waiting
from fsbridge.children.client import ChildDied, ChildProcess
from fsbridge.children.starting import Program
from fsbridge.children.supervisor import Supervisor
from fsbridge.codecs import CodecChain
from fsbridge.codecs.blosc import Blosc
from fsbridge.errors import CorruptData, FsbridgeError, NotFound, Stale, TooLarge, Unsupported
from fsbridge.formats.hangar.records import (
    HangarCommit,
    RefTable,
    Schema,
    compute_digest,
    decode,
    parse_commit,
    parse_schema,
    parse_version,
    split_records,
)
from fsbridge.lru import LRU
from fsbridge.store import Key, Stat, Store


class DatabaseProcess:
    """Answers questions about the databases below `root`, each within `seconds`. `start` starts the child that answers."""

    def __init__(
        self, root: str, seconds: float, start: Callable[[Program, Sequence[str], int], ChildProcess] = ChildProcess
    ) -> None:
        self._root = root
        self._seconds = seconds
        self._supervisor = Supervisor(root, lambda: start(Program("fsbridge.formats.hangar.lmdb"), [root], 0))

    def ask(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytearray]:
        """Return the answer and its values.

        Raises CorruptData for a damaged database, Stale for one that changes too fast.
        """
        path = os.path.join(self._root, request["path"])
        for _ in range(3):  # a write to the database during an attempt can end the process that reads it
            before = _read_version(path)
            try:
                return self._ask(request)
            except ChildDied:  # LMDB aborts on a page that a writer has reused meanwhile, as it does on damage
                if _read_version(path) == before:
                    raise
                self._supervisor.forgive()
        raise Stale(f"{path}: written faster than it can be read")

    def _ask(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytearray]:
        what = "".join(request["keys"][:1]) if request["op"] == "get" else f"{request['prefix']}{request['after'] or ''}"
        try:
            # An answer holds `lmdb.VALUE_BYTES`, or a page of a scan with one such value.
            answer, attachments = self._supervisor.ask(
                request, f"{request['op']} {request['path']} {what[:100]!a}", (260 << 20), self._seconds
            )
        except ChildDied:
            raise
        except FsbridgeError as error:
            raise error.at(self._root) from None
        return answer, attachments[0] if attachments else bytearray()

    def close(self) -> None:
        """End the process."""
        self._supervisor.close()


def _read_version(path: str) -> Hashable:
    """Return a version of the file, which changes if the file is written to or replaced; None if it cannot be read."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns


DATABASES = ("branch.lmdb", "ref.lmdb", "hash.lmdb")
"""Databases that hold metadata, besides those of the staging area."""
SPEC_BYTES = 1 << 20
"""Most decoded bytes of a commit's description. It is short, because a person writes the message in it."""
REMEMBERED_RECORDS = 20_000
"""Backend records that are kept: about 5 MB."""
REMEMBERED_COMMITS = 1000
"""Schemas and commit descriptions that are kept."""
SETTLED_NS = 1_000_000_000
"""Least age of a file's last write, in ns, at which another write is certain to change its mtime, even by a coarse clock."""

_BLOSC = CodecChain((Blosc(),))


class HangarRepository:
    """The repository with the `.hangar` folder `store`."""

    def __init__(self, store: Store, databases: DatabaseProcess) -> None:
        self.store = store
        self._databases = databases
        self._commits: LRU[str, HangarCommit] = LRU(REMEMBERED_COMMITS)
        self._schemas: LRU[str, Schema] = LRU(REMEMBERED_COMMITS)
        self._tables: LRU[str, RefTable] = LRU(64 << 20)  # bytes: one of a million samples, or many small ones
        self._staged: tuple[Hashable, RefTable | None] = (None, None)
        self._records: tuple[Hashable, LRU[str, bytes]] = (None, LRU(REMEMBERED_RECORDS))
        self._names: tuple[Hashable, dict[bytes, bytes]] | None = None
        self.version = self._read_release()

    def close(self) -> None:
        """End the child and close the folder."""
        self._databases.close()
        self.store.close()

    def _read_release(self) -> str:
        raw = self._branch_database().get(b"software_version")
        if raw is None:
            raise Unsupported(f"{self.place('')}: branch.lmdb names no release of Hangar; fsbridge reads 0.5 and later")
        text = decode(raw, "software version")
        if parse_version(text) < (0, 5):
            raise Unsupported(f"{self.place('')}: written by Hangar {text}; fsbridge reads 0.5 and later")
        return text

    def place(self, path: str) -> str:
        """Return a path of the repository for messages."""
        return self.store.describe(Key.parse(path))

    def stat(self, path: str) -> Stat:
        """Return size, time and version of a file of the repository."""
        before_waiting()
        self._check_access(path)
        return self.store.stat(Key.parse(path))

    def _check_access(self, *paths: str) -> None:
        """Raise AccessDenied if the mount's users may not read these files and the databases."""
        for path in (*DATABASES, *paths):
            with suppress(NotFound):  # reading it reports the error
                self.store.check_access(Key.parse(path))

    def _branch_database(self) -> Mapping[bytes, bytes]:
        """Return all of branch.lmdb as it is now.

        It is read again if its file has changed or was written to very recently.
        """
        stat = self.stat("branch.lmdb")
        if self._names is not None and self._names[0] == stat.version:
            return self._names[1]
        settled = time.time_ns() - stat.mtime_ns > SETTLED_NS
        names = dict(self._scan("branch.lmdb", b""))
        self._names = (stat.version, names) if settled else None
        return names

    def head(self) -> str | None:
        """Return the branch that a write checkout continues, Hangar's default, or None if there is none yet."""
        raw = self._branch_database().get(b"head")
        return decode(raw, "head").removeprefix("branch:") if raw is not None else None

    def branches(self) -> Iterator[tuple[str, str]]:
        """Yield branch names, sorted, with the digests of their commits (empty before the first commit)."""
        for key, value in self._branch_database().items():
            if key.startswith(b"branch:"):
                yield decode(key[7:], "branch name"), decode(value, "branch")

    def branch(self, name: str) -> str:
        """Return the branch's commit digest, empty before the first commit. Raises NotFound."""
        raw = self._branch_database().get(b"branch:" + name.encode("utf-8", "surrogateescape"))
        if raw is None:
            raise NotFound(f"{self.place('')}: no branch {name!r}")
        return decode(raw, f"branch {name!r}")

    def commits(self) -> Iterator[tuple[str, int]]:
        """Yield digests and mtimes (ns) of all commits, sorted by digest. A damaged one has its database's time."""
        batch: list[str] = []
        for key, _ in self._scan("ref.lmdb", b"a=", values=False):
            if b":" not in key:
                batch.append(decode(key, "commit digest"))
            # 500 commits are described by one question.
            if len(batch) == 500:
                yield from self._read_times(batch)
                batch = []
        yield from self._read_times(batch)

    def _read_times(self, digests: Sequence[str]) -> Iterator[tuple[str, int]]:
        try:
            yield from [(commit.digest, commit.mtime_ns) for commit in self._describe(digests)]
        except CorruptData:
            if len(digests) == 1:
                yield digests[0], self.stat("ref.lmdb").mtime_ns
            else:
                for digest in digests:
                    yield from self._read_times([digest])

    def commit(self, digest: str) -> HangarCommit:
        """Return a commit's description. Raises NotFound."""
        return self._describe([digest])[0]

    def _describe(self, digests: Sequence[str]) -> list[HangarCommit]:
        self._check_access()
        commits = {digest: commit for digest in digests if (commit := self._commits.get(digest)) is not None}
        missing = [digest for digest in digests if digest not in commits]
        if missing:
            names = [digest.encode("utf-8", "surrogateescape") for digest in missing]
            values = self._get("ref.lmdb", [name + end for name in names for end in (b"", b":spec")])
            for digest, parents, spec in zip(missing, values[::2], values[1::2], strict=True):
                if parents is None or ":" in digest:  # the other keys of a commit are `<digest>:ref`, `<digest>:spec`
                    raise NotFound(f"{self.place('')}: no commit {digest!r}")
                if spec is None:
                    raise CorruptData(f"{self.place('ref.lmdb')}: commit {digest} has no description")
                commit = parse_commit(digest, self._inflate(spec, SPEC_BYTES, digest), parents)
                commits[digest] = self._commits.put(digest, commit, 1)
        return [commits[digest] for digest in digests]

    def table(self, digest: str) -> RefTable:
        """Return the tree of a commit. The empty digest is the empty tree."""
        if not digest:
            return RefTable([])
        self._check_access()
        tree = self._tables.get(digest)
        if tree is not None:
            return tree
        name = digest.encode("utf-8", "surrogateescape")
        raw, spec, parents = self._get("ref.lmdb", [name + b":ref", name + b":spec", name])
        if raw is None or spec is None or parents is None:
            raise CorruptData(f"{self.place('ref.lmdb')}: no tree, description or parents of commit {digest}")
        # 256 MiB of decoded records are four million samples.
        records = split_records(self._inflate(raw, (256 << 20), digest))
        held = compute_digest(parents, self._inflate(spec, SPEC_BYTES, digest), records)
        if held != digest:  # LMDB and Blosc have no checksums: samples could have others' names
            raise CorruptData(f"{self.place('ref.lmdb')}: commit {digest} is damaged: what it holds has the digest {held}")
        table = RefTable(records)
        return self._tables.put(digest, table, table.nbytes)

    def _inflate(self, raw: bytes, limit: int, digest: str) -> bytes:
        try:
            return bytes(_BLOSC.decode(raw, None, limit))
        except (CorruptData, TooLarge) as error:
            raise error.at(f"{self.place('ref.lmdb')}: commit {digest}") from None

    def read_staged(self) -> RefTable | None:
        """Return the staging area's tree if it differs from the head branch's, that is, if something is not committed."""
        head = self.head()
        digest = self.branch(head) if head is not None else ""
        version = (digest, self._databases.ask({"op": "get", "path": "stage_ref.lmdb", "keys": []})[0]["version"])
        known, table = self._staged
        if known == version:
            return table
        stage = self._read_stage()
        result = None if stage == self.table(digest) else stage
        self._staged = (version, result)
        return result

    def _read_stage(self) -> RefTable:
        for _ in range(5):  # it may change between two pages of its listing
            try:
                return RefTable([key + b" " + value for key, value in self._scan("stage_ref.lmdb", b"", snapshot=True)])
            except Stale:
                continue
        raise Stale(f"{self.place('stage_ref.lmdb')}: keeps changing while it is read")

    def schema(self, digest: str) -> Schema:
        """Return the schema of a digest `1=...`."""
        self._check_access()
        schema = self._schemas.get(digest)
        if schema is not None:
            return schema
        raw = self.get("hash.lmdb", f"s:{digest}".encode("utf-8", "surrogateescape"))
        if raw is None:
            raise CorruptData(f"{self.place('hash.lmdb')}: no schema {digest}")
        return self._schemas.put(digest, parse_schema(raw), 1)

    def record(self, digest: str) -> bytes:
        """Return the backend record of a sample's digest. It is kept while the database's file is unchanged."""
        stat = self.stat("hash.lmdb")
        known_version, known = self._records
        record = known.get(digest) if known_version == stat.version else None
        if record is not None:
            return record
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
        """Return the value of `key` in the database `path`."""
        return self._get(path, [key])[0]

    def _get(self, path: str, keys: Sequence[bytes]) -> list[bytes | None]:
        request = {"op": "get", "path": path, "keys": [key.decode("latin-1") for key in keys]}
        answer, values = self._databases.ask(request)
        return list(_cut(answer["sizes"], values))

    def _scan(self, path: str, prefix: bytes, values: bool = True, snapshot: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys that begin with `prefix`, with their values.

        With `snapshot`, raises Stale if a writer commits meanwhile.
        """
        after = version = None
        while True:
            request = {"op": "scan", "path": path, "prefix": prefix.decode("latin-1"), "after": after, "values": values}
            answer, joined = self._databases.ask(request)
            if snapshot and version not in (None, answer["version"]):
                raise Stale(f"{self.place(path)}: changed while it was read")
            version = answer["version"]
            keys = [key.encode("latin-1") for key in answer["keys"]]
            contents = list(_cut(answer["sizes"], joined)) if values else [b""] * len(keys)
            for key, value in zip(keys, contents, strict=True):
                yield key, value or b""
            if not answer["more"]:
                return
            after = answer["keys"][-1]


def _cut(sizes: Sequence[int | None], joined: bytes | bytearray) -> Iterator[bytes | None]:
    """Yield the values in `joined`, which have these `sizes` and follow each other; None for one without a size."""
    if sum(size for size in sizes if size is not None) != len(joined):
        raise CorruptData("the database process sent values that do not have the sizes it names")
    position = 0
    for size in sizes:
        if size is None:
            yield None
        else:
            yield bytes(joined[position : position + size])
            position += size
