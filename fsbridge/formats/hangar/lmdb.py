"""The child process that reads a Hangar repository's LMDB databases (P8).

LMDB maps the file and trusts its contents, so a damaged database can end the process that reads it: this child
and not the daemon. Databases are opened read-only and without LMDB's locks, so nothing is ever created in the repository.
Only this module imports lmdb. `python -P -m fsbridge.formats.hangar.lmdb` runs the process that forks such children. Not
here: what the records mean (`records.py`).

Requests and answers (`children` carries them; keys are bytes as latin-1 text, values are one attachment):

    {"op": "get", "path", "keys"}                           -> {"sizes": [length or null], "version"}, values
    {"op": "scan", "path", "prefix", "after", "values"}     -> {"keys", "sizes", "version", "more"}, values
    a failure                                               -> {"error", "message"}, see `children.client`

`version` is the number of the snapshot (LMDB transaction) of the answer.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import lmdb

from fsbridge import children as protocol
from fsbridge.children import server
from fsbridge.lru import LRU
from fsbridge.store.local.descriptors import open_beneath

Answer = tuple[dict[str, Any], list[bytes]]

PAGE_BYTES = 4 << 20
"""Most bytes of values in one answer to `scan`, but at least one value."""
VALUE_BYTES = 256 << 20
"""Most bytes of values in one `get`. The largest real ones are commits (67 bytes a sample, compressed) and bytes samples."""
MEMORY_BYTES = 2 << 30
"""Bytes of memory of this process (RLIMIT_DATA): some copies of the largest answer."""

_DENIED = (errno.EACCES, errno.EPERM, errno.EXDEV, errno.ELOOP)
"""Errors of opening a database that mean a lack of permission, or a path that leads out of the repository.

Any other error may be transient and says nothing about the contents.
"""
_NO_DAMAGE = {lmdb.ReadonlyError: "denied", lmdb.MemoryError: "unreachable"}
"""Kinds of answers for py-lmdb's exceptions for EACCES and ENOMEM, which say nothing about damage."""

T = TypeVar("T")


class Databases:
    """The databases below one folder, which is given as a descriptor. `open_path` opens a path below it."""

    def __init__(self, root: int, open_path: Callable[[int, str, int], int] = open_beneath) -> None:
        self._root = root
        self._open_path = open_path
        # A repository has five databases, and one per writer session and text column.
        self._environments = LRU[str, tuple[tuple[int, int], lmdb.Environment]](16, lambda known: known[1].close())

    def answer(self, request: dict[str, Any]) -> Answer:
        """Answer one request. Never raises for what a repository contains."""
        path = str(request["path"])
        try:
            if request["op"] == "get":
                return self._get(path, [key.encode("latin-1") for key in request["keys"]])
            return self._scan(path, request)
        except (FileNotFoundError, NotADirectoryError):
            return {"error": "corrupt", "message": f"{path} is missing"}, []
        except OSError as error:
            kind = "denied" if error.errno in _DENIED else "unreachable"
            return {"error": kind, "message": f"{path}: {error.strerror}"}, []
        except lmdb.Error as error:
            kind = next((kind for type, kind in _NO_DAMAGE.items() if isinstance(error, type)), "corrupt")
            reason = str(error).removeprefix("/proc/self/fd/").lstrip("0123456789: ")
            return {"error": kind, "message": f"{path}: {reason}"}, []
        except _BusyError:
            return {"error": "stale", "message": f"{path}: written faster than it can be read"}, []

    def close(self) -> None:
        """Close all databases."""
        self._environments.clear()

    def _get(self, path: str, keys: Sequence[bytes]) -> Answer:
        def read(txn: lmdb.Transaction) -> list[bytes | None]:
            return [_read_value(txn, key) for key in keys]

        values, version = self._read_stable(path, read)
        if sum(len(value) for value in values if value is not None) > VALUE_BYTES:
            return {"error": "corrupt", "message": f"{path}: a value of more than {VALUE_BYTES} bytes"}, []
        sizes = [None if value is None else len(value) for value in values]
        return {"sizes": sizes, "version": version}, [b"".join(value for value in values if value is not None)]

    def _scan(self, path: str, request: dict[str, Any]) -> Answer:
        prefix, after = request["prefix"].encode("latin-1"), request["after"]

        def read(txn: lmdb.Transaction) -> tuple[list[bytes], list[bytes], bool]:
            keys: list[bytes] = []
            values: list[bytes] = []
            total = 0
            with txn.cursor() as cursor:
                for key in _iterate_keys(cursor, prefix, None if after is None else after.encode("latin-1")):
                    # At most 5000 keys in one answer.
                    if len(keys) == 5000 or total >= PAGE_BYTES:
                        return keys, values, True
                    keys.append(key)
                    if request["values"]:
                        values.append(bytes(cursor.value()))
                        total += len(values[-1])
            return keys, values, False

        (keys, values, more), version = self._read_stable(path, read)
        text = [key.decode("latin-1") for key in keys]
        return {"keys": text, "sizes": [len(v) for v in values], "version": version, "more": more}, [b"".join(values)]

    def _read_stable(self, path: str, read: Callable[[lmdb.Transaction], T]) -> tuple[T, int]:
        """Call `read` in one snapshot that no writer can have recycled meanwhile, and return the snapshot's number, too.

        Without a reader lock a writer may reuse a snapshot's pages. Those of snapshot N are freed at the earliest by
        transaction N + 1 and overwritten at the earliest by N + 3 (`mdb_page_alloc` takes what is older than its own
        number by two).
        """
        # A writer that commits twice during a read makes us read again. Twenty times in a row is no accident.
        for _ in range(20):
            with self._environment(path) as environment:
                try:
                    with environment.begin() as txn:
                        number = txn.id()
                        result = read(txn)
                except lmdb.MapResizedError:
                    self._environments.drop(path)
                    continue
                if environment.info()["last_txnid"] <= number + 1:
                    return result, number
        raise _BusyError

    @contextlib.contextmanager
    def _environment(self, path: str) -> Iterator[lmdb.Environment]:
        fd = self._open_path(self._root, path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(fd)
            identity = (status.st_dev, status.st_ino)
            known = self._environments.get(path)
            if known is None or known[0] != identity:
                self._environments.drop(path)  # first, because py-lmdb opens no file twice in one process
                known = self._environments.put(path, (identity, _open(fd)))
            yield known[1]
        finally:
            os.close(fd)


class _BusyError(Exception):
    """A writer kept committing during reads."""


def _open(fd: int) -> lmdb.Environment:
    return lmdb.open(
        f"/proc/self/fd/{fd}", subdir=False, readonly=True, lock=False, create=False, readahead=False, max_spare_txns=1
    )


def _read_value(txn: lmdb.Transaction, key: bytes) -> bytes | None:
    """Return the value of a key, or None for an empty or overlong key, for which LMDB would raise an error."""
    # LMDB's MDB_MAXKEYSIZE is 511.
    value = txn.get(key) if 0 < len(key) <= 511 else None
    return None if value is None else bytes(value)


def _iterate_keys(cursor: lmdb.Cursor, prefix: bytes, after: bytes | None) -> Iterator[bytes]:
    """Yield keys that begin with `prefix`, from the one behind `after`."""
    start = prefix if after is None else after
    is_at_key = cursor.set_range(start) if start else cursor.first()
    if is_at_key and cursor.key() == after:
        is_at_key = cursor.next()
    while is_at_key and (key := bytes(cursor.key())).startswith(prefix):
        yield key
        is_at_key = cursor.next()


def serve(sock: socket.socket) -> None:
    """Confine this process as the first message says, then answer until the other side is gone.

    The one readable folder is the repository. The limit of memory counts what the process writes to and not its addresses,
    because LMDB maps whole files.
    """
    setup, _ = protocol.receive(sock, 0)
    (root,) = setup["readable"]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    confined = server.restrict_files([root, os.path.dirname(lmdb.__file__)])  # lmdb imports a part of itself late
    protocol.send(sock, {"confined": confined})
    databases = Databases(os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
    with contextlib.suppress(protocol.Closed, ConnectionError):
        while True:
            request, _ = protocol.receive(sock, 0)
            signal.alarm(request["seconds"])
            answer, values = databases.answer(request)
            protocol.send(sock, answer, values)
            signal.alarm(0)


if __name__ == "__main__":
    server.run(serve)
